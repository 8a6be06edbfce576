/* Every way of waiting, with known lengths, for the simulated Metal.
 *
 * usage: metal_waits completed|scheduled|room|event|handed|polled|asked|late|queues
 *   completed  the host waits for a kernel of 20 ms
 *   scheduled  the second command buffer is scheduled when the first, of 20 ms, is over
 *   room       a queue for two, whose third command buffer waits for the first one of 20 ms
 *   event      the host waits for a shared event that comes after 20 ms; then for one that never comes, 5 ms
 *   handed     the same, of another process' event
 *   polled     the host asks for a shared event's value until it comes, after 20 ms, and says how often
 *   asked      the same of a command buffer's status
 *   late       another thread sets a shared event, and a listener is told
 *   queues     one queue waits for another one's event */
#include <pthread.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

#include "metal.h"
#include "truth.h"

static id<MTLDevice> device;

static id<MTLComputePipelineState> pipeline(const char *name) {
    id<MTLLibrary> library = [device newDefaultLibrary];
    id<MTLFunction> function = [library newFunctionWithName:[NSString stringWithUTF8String:name]];
    id<MTLComputePipelineState> made = [device newComputePipelineStateWithFunction:function error:NULL];
    [function release];
    [library release];
    return made;
}

static id<MTLCommandBuffer> encode(id<MTLCommandQueue> queue, const char *name) {
    id<MTLCommandBuffer> work = [queue commandBuffer];
    id<MTLComputeCommandEncoder> kernels = [work computeCommandEncoderWithDispatchType:1];
    [kernels setComputePipelineState:pipeline(name)];
    [kernels dispatchThreadgroups:(MTLSize){8, 1, 1} threadsPerThreadgroup:(MTLSize){32, 1, 1}];
    [kernels endEncoding];
    return work;
}

static void *set_later(void *event) {
    usleep(20000);
    [(id<MTLSharedEvent>)event setSignaledValue:3];
    return NULL;
}

static volatile uint64_t told;

static void tell(struct block *block, id event, uint64_t value) {
    told = value;
}

static const struct block_descriptor DESCRIPTOR = {0, sizeof(struct block)};
static struct block listener = {NULL, BLOCK_IS_GLOBAL, 0, tell, &DESCRIPTOR};

int main(int argc, char **argv) {
    const char *what = argc > 1 ? argv[1] : "";
    void *pool = objc_autoreleasePoolPush();
    device = MTLCreateSystemDefaultDevice();
    id<MTLCommandQueue> queue = [device newCommandQueueWithMaxCommandBufferCount:2];
    int is_handed = !strcmp(what, "handed");
    id<MTLSharedEvent> event = is_handed ? [device newSharedEventWithHandle:nil] : [device newSharedEvent];
    id<MTLCommandBuffer> first = encode(queue, "first_20000us");
    if (!strcmp(what, "completed")) {
        [first commit];
        [first waitUntilCompleted];
    } else if (!strcmp(what, "scheduled")) {
        [first commit];
        id<MTLCommandBuffer> second = encode(queue, "second_1000us");
        [second enqueue];
        [second commit];
        [second waitUntilScheduled];
        [second waitUntilCompleted];
    } else if (!strcmp(what, "room")) {
        [first commit];
        [encode(queue, "second_1000us") commit];
        id<MTLCommandBuffer> third = encode(queue, "third_1000us");
        [third commit];
        [third waitUntilCompleted];
    } else if (!strcmp(what, "event") || is_handed) {
        [first encodeSignalEvent:event value:7];
        [first commit];
        printf("%d", [event waitUntilSignaledValue:7 timeoutMS:1000]);
        printf(" %d\n", [event waitUntilSignaledValue:8 timeoutMS:5]);
    } else if (!strcmp(what, "polled")) {
        [first encodeSignalEvent:event value:7];
        [first commit];
        long asked = 1;
        while ([event signaledValue] < 7) asked++;
        truth("{\"kind\":\"asked\",\"times\":%ld}", asked);
    } else if (!strcmp(what, "asked")) {
        [first commit];
        long asked = 1;
        while ([first status] < MTLStatusCompleted) asked++;
        truth("{\"kind\":\"asked\",\"times\":%ld}", asked);
    } else if (!strcmp(what, "late")) {
        pthread_t thread;
        [event notifyListener:nil atValue:3 block:(id)(void *)&listener];
        pthread_create(&thread, NULL, set_later, event);
        printf("%d", [event waitUntilSignaledValue:2 timeoutMS:UINT64_MAX]);
        pthread_join(thread, NULL);
        printf(" told %lu\n", (unsigned long)told);
    } else if (!strcmp(what, "queues")) {
        id<MTLCommandQueue> other = [device newCommandQueue];
        id<MTLCommandBuffer> second = [other commandBuffer];
        [second encodeWaitForEvent:event value:5];
        [second commit];
        [first encodeSignalEvent:event value:5];
        [first commit];
        [second waitUntilCompleted];
        [other release];
    } else {
        return 2;
    }
    puts("done");
    [event release];
    [queue release];
    objc_autoreleasePoolPop(pool);
    return 0;
}
