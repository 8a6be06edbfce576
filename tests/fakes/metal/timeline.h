/* The GPU: for each queue a thread that runs what was committed to it, one piece of work after the other. */
#ifndef TIMELINE_H
#define TIMELINE_H

#include "metal.h"

enum op_kind { OP_DISPATCH, OP_COPY, OP_FILL, OP_SIGNAL, OP_WAIT };

struct op {
    enum op_kind kind;
    uint64_t value; /* ns, byte or value of an event */
    id event;
    char *source, *destination;
    NSUInteger bytes;
};

/* What one commit brings. */
struct work {
    struct op *ops;
    int count, room, dispatches, copies;
    uint64_t start_ns, end_ns, scheduled_ns;
    /* Called by the queue's thread. */
    void (*scheduled)(struct work *work);
    void (*completed)(struct work *work);
    id owner;
    struct work *next;
};

void work_add(struct work *work, struct op op);

/* The queue's half of it. */
struct timeline;

struct timeline *timeline_new(int most);
/* No more work comes. */
void timeline_close(struct timeline *timeline);
void timeline_commit(struct timeline *timeline, struct work *work);

/* Room for one more uncompleted command buffer: waits for it. */
void timeline_take_room(struct timeline *timeline);
void timeline_give_room(struct timeline *timeline);

/* Waits for a word to reach a value; whoever changes it does so by timeline_set. */
void timeline_set(struct timeline *timeline, volatile int *word, int value);
void timeline_await(struct timeline *timeline, volatile int *word, int least);

#endif
