/* The GPU's thread of a queue. Its clock is the real one: a dispatch of 500 us ends 500 us later. */
#include <pthread.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "events.h"
#include "timeline.h"
#include "truth.h"

struct timeline {
    pthread_mutex_t lock;
    pthread_cond_t changed;
    struct work *first, **last;
    int uncompleted, most, has_thread, closed;
};

void work_add(struct work *work, struct op op) {
    if (work->count == work->room) {
        work->room = work->room ? 2 * work->room : 8;
        work->ops = realloc(work->ops, work->room * sizeof op);
    }
    work->ops[work->count++] = op;
    work->dispatches += op.kind == OP_DISPATCH;
    work->copies += op.kind == OP_COPY || op.kind == OP_FILL;
    [op.event retain];
}

struct timeline *timeline_new(int most) {
    struct timeline *timeline = calloc(1, sizeof *timeline);
    pthread_mutex_init(&timeline->lock, NULL);
    pthread_cond_init(&timeline->changed, NULL);
    timeline->last = &timeline->first;
    timeline->most = most;
    return timeline;
}

static void sleep_until(uint64_t ns) {
    struct timespec until = {ns / 1000000000, ns % 1000000000};
    if (ns > now_ns())
        while (clock_nanosleep(CLOCK_MONOTONIC, TIMER_ABSTIME, &until, NULL) != 0)
            ;
}

/* Times are sums of what the operations take, not what this machine's scheduler made of it. */
static void run(struct work *work) {
    uint64_t now = now_ns();
    int began = 0;
    for (int i = 0; i < work->count; i++) {
        struct op *op = &work->ops[i];
        if (!began && op->kind != OP_WAIT) {
            work->start_ns = now;
            began = 1;
        }
        switch (op->kind) {
        case OP_DISPATCH:
            now += op->value;
            break;
        case OP_COPY:
            sleep_until(now);
            memmove(op->destination, op->source, op->bytes);
            break;
        case OP_FILL:
            sleep_until(now);
            memset(op->destination, op->value, op->bytes);
            break;
        case OP_SIGNAL:
            sleep_until(now);
            event_set(op->event, op->value);
            break;
        case OP_WAIT:
            sleep_until(now);
            event_await(op->event, op->value, UINT64_MAX);
            now = now_ns() > now ? now_ns() : now;
            break;
        }
        [op->event release];
    }
    if (!began)
        work->start_ns = now;
    work->end_ns = now;
    sleep_until(now);
    free(work->ops);
}

static void *serve(void *argument) {
    struct timeline *timeline = argument;
    for (;;) {
        pthread_mutex_lock(&timeline->lock);
        while (!timeline->first && !timeline->closed)
            pthread_cond_wait(&timeline->changed, &timeline->lock);
        struct work *work = timeline->first;
        if (work && !(timeline->first = work->next))
            timeline->last = &timeline->first;
        pthread_mutex_unlock(&timeline->lock);
        if (!work)
            break;
        void *pool = objc_autoreleasePoolPush();
        work->scheduled_ns = now_ns();
        work->scheduled(work);
        run(work);
        /* The last thing it does with the work may end the queue, and so close this. */
        work->completed(work);
        objc_autoreleasePoolPop(pool);
    }
    free(timeline);
    return NULL;
}

void timeline_close(struct timeline *timeline) {
    pthread_mutex_lock(&timeline->lock);
    int has_thread = timeline->has_thread;
    timeline->closed = 1;
    pthread_cond_broadcast(&timeline->changed);
    pthread_mutex_unlock(&timeline->lock);
    if (!has_thread)
        free(timeline);
}

void timeline_commit(struct timeline *timeline, struct work *work) {
    pthread_mutex_lock(&timeline->lock);
    work->next = NULL;
    *timeline->last = work;
    timeline->last = &work->next;
    if (!timeline->has_thread) {
        pthread_t thread;
        pthread_create(&thread, NULL, serve, timeline);
        pthread_detach(thread);
        timeline->has_thread = 1;
    }
    pthread_cond_broadcast(&timeline->changed);
    pthread_mutex_unlock(&timeline->lock);
}

void timeline_take_room(struct timeline *timeline) {
    pthread_mutex_lock(&timeline->lock);
    while (timeline->uncompleted >= timeline->most)
        pthread_cond_wait(&timeline->changed, &timeline->lock);
    timeline->uncompleted++;
    pthread_mutex_unlock(&timeline->lock);
}

void timeline_give_room(struct timeline *timeline) {
    pthread_mutex_lock(&timeline->lock);
    timeline->uncompleted--;
    pthread_cond_broadcast(&timeline->changed);
    pthread_mutex_unlock(&timeline->lock);
}

void timeline_set(struct timeline *timeline, volatile int *word, int value) {
    pthread_mutex_lock(&timeline->lock);
    *word = value;
    pthread_cond_broadcast(&timeline->changed);
    pthread_mutex_unlock(&timeline->lock);
}

void timeline_await(struct timeline *timeline, volatile int *word, int least) {
    pthread_mutex_lock(&timeline->lock);
    while (*word < least)
        pthread_cond_wait(&timeline->changed, &timeline->lock);
    pthread_mutex_unlock(&timeline->lock);
}
