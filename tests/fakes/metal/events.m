/* MTLEvent and MTLSharedEvent. */
#include "events.h"

#include <errno.h>
#include <pthread.h>
#include <stdlib.h>
#include <time.h>

#include "blocks.h"
#include "truth.h"

/* Who is to be called when a value comes. */
struct listener {
    uint64_t value;
    struct block *block;
    struct listener *next;
};

@interface _MTLSimEvent : NSObject {
  @public
    pthread_mutex_t lock;
    pthread_cond_t changed;
    uint64_t value;
    struct listener *listeners;
    id device;
}
@end

@implementation _MTLSimEvent
- (id)init {
    pthread_condattr_t monotonic;
    pthread_condattr_init(&monotonic);
    pthread_condattr_setclock(&monotonic, CLOCK_MONOTONIC);
    pthread_mutex_init(&lock, NULL);
    pthread_cond_init(&changed, &monotonic);
    return self;
}
- (id)device {
    return device;
}
@end

/* Events that only GPUs see. */
@interface AGXSimEvent : _MTLSimEvent
@end
@implementation AGXSimEvent
@end

@interface _MTLSimSharedEvent : _MTLSimEvent
@end

@implementation _MTLSimSharedEvent
- (uint64_t)signaledValue {
    pthread_mutex_lock(&lock);
    uint64_t now = value;
    pthread_mutex_unlock(&lock);
    return now;
}
- (void)setSignaledValue:(uint64_t)next {
    event_set(self, next);
}
- (MTLBool)waitUntilSignaledValue:(uint64_t)wanted timeoutMS:(uint64_t)milliseconds {
    uint64_t begin = now_ns();
    int came = event_await(self, wanted, milliseconds);
    truth("{\"kind\":\"wait\",\"what\":\"event\",\"object\":%lu,\"start_ns\":%lu,\"end_ns\":%lu}", (unsigned long)self, begin,
          now_ns());
    return came;
}
- (void)notifyListener:(id)unused atValue:(uint64_t)wanted block:(id)block {
    struct listener *listener = malloc(sizeof *listener);
    pthread_mutex_lock(&lock);
    *listener = (struct listener){wanted, block_copy((void *)block), listeners};
    listeners = listener;
    uint64_t now = value;
    pthread_mutex_unlock(&lock);
    event_set(self, now);
}
@end

void event_set(id object, uint64_t value) {
    _MTLSimEvent *event = object;
    pthread_mutex_lock(&event->lock);
    event->value = value;
    struct listener **at = &event->listeners, *ready = NULL;
    while (*at) {
        struct listener *listener = *at;
        if (listener->value > value) {
            at = &listener->next;
            continue;
        }
        *at = listener->next;
        listener->next = ready;
        ready = listener;
    }
    pthread_cond_broadcast(&event->changed);
    pthread_mutex_unlock(&event->lock);
    while (ready) {
        struct listener *next = ready->next;
        ready->block->invoke(ready->block, object, ready->value);
        block_release(ready->block);
        free(ready);
        ready = next;
    }
}

int event_await(id object, uint64_t value, uint64_t milliseconds) {
    _MTLSimEvent *event = object;
    uint64_t end = milliseconds > UINT64_MAX / 1000000 - now_ns() / 1000000 ? 0 : now_ns() + milliseconds * 1000000;
    struct timespec until = {end / 1000000000, end % 1000000000};
    pthread_mutex_lock(&event->lock);
    int late = 0;
    while (event->value < value && !late) {
        if (end)
            late = pthread_cond_timedwait(&event->changed, &event->lock, &until) == ETIMEDOUT;
        else
            pthread_cond_wait(&event->changed, &event->lock);
    }
    int came = event->value >= value;
    pthread_mutex_unlock(&event->lock);
    return came;
}

id event_new(const char *class_name, id device) {
    _MTLSimEvent *made = [objc_getClass(class_name) new];
    made->device = device;
    return made;
}
