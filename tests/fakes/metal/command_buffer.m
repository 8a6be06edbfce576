/* MTLCommandBuffer. What Apple's checks with an assertion ends the process here too. */
#include <stdio.h>
#include <stdlib.h>

#include "classes.h"
#include "events.h"
#include "gpu_clock.h"
#include "truth.h"

void (*fake_at_commit)(void), (*fake_after_commit)(void);
volatile int fake_command_buffers, fake_questions;

/* Somebody wants to know something. */
static void asked(void) {
    __atomic_fetch_add(&fake_questions, 1, __ATOMIC_RELAXED);
}

const char *text_of(NSString *label) {
    return label ? [label UTF8String] : "";
}

static void refuse(const char *message) {
    fprintf(stderr, "failed assertion `%s'\n", message);
    abort();
}

static void at_schedule(struct work *work) {
    _MTLCommandBuffer *buffer = work->owner;
    timeline_set(buffer->queue->timeline, &buffer->status, MTLStatusScheduled);
    call_handlers(&buffer->scheduled, buffer);
}

static void at_end(struct work *work) {
    static uint64_t numbers;
    _MTLCommandBuffer *buffer = work->owner;
    struct timeline *timeline = buffer->queue->timeline;
    int status = buffer->queue->device->vanished ? MTLStatusError : MTLStatusCompleted;
    buffer->number = __atomic_add_fetch(&numbers, 1, __ATOMIC_RELAXED);
    truth("{\"kind\":\"command_buffer\",\"number\":%lu,\"object\":%lu,\"queue\":%lu,\"label\":\"%s\",\"dispatches\":%d,"
          "\"copies\":%d,\"start_ns\":%lu,\"end_ns\":%lu,\"status\":%d,\"handlers\":%d}",
          buffer->number, (unsigned long)buffer, (unsigned long)buffer->queue, text_of(buffer->label), work->dispatches,
          work->copies, work->start_ns, work->end_ns, status, buffer->completed.count);
    timeline_set(timeline, &buffer->status, status);
    timeline_give_room(timeline);
    call_handlers(&buffer->completed, buffer);
    timeline_set(timeline, &buffer->over, 1);
    [buffer release];
}

@implementation _MTLCommandBuffer
- (id)init {
    __atomic_fetch_add(&fake_command_buffers, 1, __ATOMIC_RELAXED);
    work.owner = self;
    work.scheduled = at_schedule;
    work.completed = at_end;
    return self;
}
- (void)dealloc {
    if (status < MTLStatusCommitted) {
        timeline_give_room(queue->timeline);
        free(work.ops);
    }
    [label release];
    [queue release];
    [super dealloc];
    __atomic_fetch_sub(&fake_command_buffers, 1, __ATOMIC_RELAXED);
}
- (id)device {
    asked();
    return queue->device;
}
- (id)commandQueue {
    asked();
    return queue;
}
- (NSString *)label {
    asked();
    return label;
}
- (void)setLabel:(NSString *)text {
    [text retain];
    [label release];
    label = text;
}
- (NSUInteger)status {
    asked();
    return status;
}
- (void)enqueue {
    if (status == MTLStatusNotEnqueued)
        status = MTLStatusEnqueued;
}
- (void)commit {
    [self submit];
}
- (void)submit {
    if (fake_at_commit)
        fake_at_commit();
    if (status >= MTLStatusCommitted) {
        if (!getenv("FAKE_METAL_LENIENT"))
            refuse("commit an already committed command buffer");
        return;
    }
    status = MTLStatusCommitted;
    [self retain];
    timeline_commit(queue->timeline, &work);
    if (fake_after_commit)
        fake_after_commit();
}
- (void)waitUntilScheduled {
    uint64_t begin = now_ns();
    timeline_await(queue->timeline, &status, MTLStatusScheduled);
    truth("{\"kind\":\"wait\",\"what\":\"scheduled\",\"object\":%lu,\"start_ns\":%lu,\"end_ns\":%lu}", (unsigned long)self,
          begin, now_ns());
}
- (void)waitUntilCompleted {
    [self awaitEnd];
}
- (void)awaitEnd {
    uint64_t begin = now_ns();
    timeline_await(queue->timeline, &over, 1);
    truth("{\"kind\":\"wait\",\"what\":\"completed\",\"object\":%lu,\"start_ns\":%lu,\"end_ns\":%lu}", (unsigned long)self,
          begin, now_ns());
}
- (void)addScheduledHandler:(id)block {
    if (status >= MTLStatusCommitted)
        refuse("Scheduled handler provided after commit call");
    add_handler(&scheduled, (void *)block);
}
- (void)addCompletedHandler:(id)block {
    if (status >= MTLStatusCommitted)
        refuse("Completed handler provided after commit call");
    add_handler(&completed, (void *)block);
}
/* 0 before it is over, as Metal has it. */
- (double)kernelStartTime {
    return status < MTLStatusCompleted ? 0 : work.scheduled_ns / 1e9;
}
- (double)kernelEndTime {
    return status < MTLStatusCompleted ? 0 : work.start_ns / 1e9;
}
- (double)GPUStartTime {
    return status < MTLStatusCompleted ? 0 : gpu_seconds(work.start_ns);
}
- (double)GPUEndTime {
    return status < MTLStatusCompleted ? 0 : gpu_seconds(work.end_ns);
}
- (id)encoder:(const char *)class_name {
    return [encoder_new(class_name, self, &work) autorelease];
}
- (id)computeCommandEncoder {
    return [self encoder:queue->device->family->compute];
}
- (id)computeCommandEncoderWithDispatchType:(NSUInteger)type {
    return [self encoder:queue->device->family->compute];
}
- (id)computeCommandEncoderWithDescriptor:(id)descriptor {
    return [self encoder:queue->device->family->compute];
}
- (id)blitCommandEncoder {
    return [self encoder:queue->device->family->blit];
}
- (id)blitCommandEncoderWithDescriptor:(id)descriptor {
    return [self encoder:queue->device->family->blit];
}
- (id)renderCommandEncoderWithDescriptor:(id)descriptor {
    return [self encoder:queue->device->family->render];
}
- (void)encodeSignalEvent:(id)event value:(uint64_t)value {
    work_add(&work, (struct op){.kind = OP_SIGNAL, .event = event, .value = value});
}
- (void)encodeWaitForEvent:(id)event value:(uint64_t)value {
    work_add(&work, (struct op){.kind = OP_WAIT, .event = event, .value = value});
}
@end

/* A floor between, with a commit and a wait of its own. */
@interface IOSimCommandBuffer : _MTLCommandBuffer
@end

@implementation IOSimCommandBuffer
- (void)commit {
    [super commit];
}
- (void)waitUntilCompleted {
    [super waitUntilCompleted];
}
@end

@interface AGXSimCommandBuffer : IOSimCommandBuffer
@end

@implementation AGXSimCommandBuffer
- (void)commit {
    [super commit];
}
- (id)computeCommandEncoder {
    return [self computeCommandEncoderWithDispatchType:0];
}
@end

INHERITS(BronzeSimBufferOfCommands, IOSimCommandBuffer)
INHERITS(OddSimCommandBuffer, _MTLCommandBuffer)

/* One whose own methods call none below them. */
@interface AlienSimCommandBuffer : _MTLCommandBuffer
@end

@implementation AlienSimCommandBuffer
- (void)commit {
    [self submit];
}
- (void)waitUntilCompleted {
    [self awaitEnd];
}
@end
