/* Metal 4: a queue that commits several command buffers at once, which know nothing of queues or times; feedback is per
 * commit, and asked for with its options. */
#include <stdlib.h>

#include "classes.h"
#include "events.h"
#include "gpu_clock.h"
#include "truth.h"

@interface _MTL4SimCommandBuffer : NSObject {
  @public
    id device;
    NSString *label;
    struct work work;
}
@end

@implementation _MTL4SimCommandBuffer
- (id)device {
    return device;
}
- (NSString *)label {
    return label;
}
- (void)setLabel:(NSString *)text {
    [text retain];
    [label release];
    label = text;
}
- (void)beginCommandBufferWithAllocator:(id)allocator {
    work = (struct work){0};
}
- (void)endCommandBuffer {
}
- (id)computeCommandEncoder {
    return [encoder_new("_MTL4SimComputeEncoder", self, &work) autorelease];
}
- (void)dealloc {
    [label release];
    [super dealloc];
}
@end

id command_buffer4_new(id device) {
    _MTL4SimCommandBuffer *made = [_MTL4SimCommandBuffer new];
    made->device = device;
    return made;
}

@implementation MTL4CommitOptions
- (void)addFeedbackHandler:(id)block {
    handler = block_copy((void *)block);
}
@end

/* One commit: what its handlers get. */
@interface _MTL4SimFeedback : NSObject {
  @public
    struct work work;
    struct block *handler;
    int buffers;
    NSObject *queue;
}
@end

@implementation _MTL4SimFeedback
- (id)error {
    return nil;
}
- (double)GPUStartTime {
    return gpu_seconds(work.start_ns);
}
- (double)GPUEndTime {
    return gpu_seconds(work.end_ns);
}
@end

static void scheduled(struct work *work) {
}

static void completed(struct work *work) {
    _MTL4SimFeedback *feedback = work->owner;
    truth("{\"kind\":\"command_buffer\",\"queue\":%lu,\"label\":\"\",\"dispatches\":%d,\"copies\":%d,\"start_ns\":%lu,"
          "\"end_ns\":%lu,\"status\":4,\"buffers\":%d}",
          (unsigned long)feedback->queue, work->dispatches, work->copies, work->start_ns, work->end_ns, feedback->buffers);
    if (feedback->handler) {
        feedback->handler->invoke(feedback->handler, feedback, 0);
        block_release(feedback->handler);
    }
    [feedback->queue release];
    [feedback release];
}

@interface _MTL4SimCommandQueue : NSObject {
  @public
    id device;
    struct timeline *timeline;
}
@end

@implementation _MTL4SimCommandQueue
+ (id)queueOf:(id)device most:(NSUInteger)most {
    _MTL4SimCommandQueue *made = [self new];
    made->device = [device retain];
    made->timeline = timeline_new(most);
    return made;
}
- (id)device {
    return device;
}
- (NSString *)label {
    return nil;
}
- (void)commit:(const id *)buffers count:(NSUInteger)count options:(MTL4CommitOptions *)options {
    if (fake_at_commit)
        fake_at_commit();
    _MTL4SimFeedback *feedback = [_MTL4SimFeedback new];
    feedback->work = (struct work){.owner = feedback, .scheduled = scheduled, .completed = completed};
    feedback->queue = [self retain];
    feedback->buffers = count;
    for (NSUInteger i = 0; i < count; i++) {
        struct work *work = &((_MTL4SimCommandBuffer *)buffers[i])->work;
        for (int n = 0; n < work->count; n++)
            work_add(&feedback->work, work->ops[n]);
        free(work->ops);
        *work = (struct work){0};
    }
    feedback->handler = options ? options->handler : NULL;
    timeline_commit(timeline, &feedback->work);
}
- (void)commit:(const id *)buffers count:(NSUInteger)count {
    [self commit:buffers count:count options:nil];
}
- (void)encode:(struct op)op {
    _MTL4SimFeedback *alone = [_MTL4SimFeedback new];
    alone->work = (struct work){.owner = alone, .scheduled = scheduled, .completed = scheduled};
    work_add(&alone->work, op);
    timeline_commit(timeline, &alone->work);
}
- (void)signalEvent:(id)event value:(uint64_t)value {
    [self encode:(struct op){.kind = OP_SIGNAL, .event = event, .value = value}];
}
- (void)waitForEvent:(id)event value:(uint64_t)value {
    [self encode:(struct op){.kind = OP_WAIT, .event = event, .value = value}];
}
- (void)dealloc {
    timeline_close(timeline);
    [device release];
    [super dealloc];
}
@end
