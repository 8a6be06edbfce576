/* Messages to the simulated Metal, many of one kind inside one function, whose instructions benches/metal.py has counted.
 *
 * usage: metal_cost KIND COUNT [FLYING]
 *   dispatch, pipeline, copy, label, outer, encoder, buffer, commit, completed: COUNT of them, after those that come first
 *   commit4: COUNT commits of Metal 4, where FLYING are in flight
 *   clock: COUNT reads of it
 *   first: the first object of each class, which is when its messages are hooked
 * Prints the ns of one. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "metal.h"

static id<MTLDevice> device;
static id<MTLCommandQueue> queue;
static id<MTLComputePipelineState> pipeline;
static id<MTLCommandBuffer> work;
static id<MTLComputeCommandEncoder> kernels;
static id<MTLBlitCommandEncoder> blit;
static id<MTLBuffer> memory;
static id<MTLSharedEvent> gate;
static NSString *label;
static id<MTLCommandBuffer> *all;
static id<MTL4CommandQueue> queue4;
static id<MTL4CommandBuffer> work4;

static double seconds(void) {
    struct timespec now;
    clock_gettime(CLOCK_MONOTONIC, &now);
    return now.tv_sec + now.tv_nsec / 1e9;
}

static void begin(void) {
    device = MTLCreateSystemDefaultDevice();
    queue = [device newCommandQueueWithMaxCommandBufferCount:1 << 30];
    id<MTLLibrary> library = [device newDefaultLibrary];
    id<MTLFunction> function = [library newFunctionWithName:[NSString stringWithUTF8String:"nothing"]];
    pipeline = [device newComputePipelineStateWithFunction:function error:NULL];
    memory = [device newBufferWithLength:64 options:0];
    gate = [device newSharedEvent];
    label = [[NSString stringWithUTF8String:"forward and backward"] retain];
    work = [[queue commandBuffer] retain];
    [work setLabel:label];
    blit = [[work blitCommandEncoder] retain];
    [blit fillBuffer:memory range:(NSRange){0, 8} value:1];
    [blit endEncoding];
    kernels = [[work computeCommandEncoder] retain];
    [kernels setComputePipelineState:pipeline];
    [kernels dispatchThreadgroups:(MTLSize){1, 1, 1} threadsPerThreadgroup:(MTLSize){1, 1, 1}];
}

/* So many command buffers that are not committed. What comes after the first one of a round waits for its gate: the queue's
 * thread sleeps while others are committed. */
static void prepare(int count, uint64_t round) {
    id<MTLCommandBuffer> first = round == 1 ? work : [queue commandBuffer];
    [first encodeWaitForEvent:gate value:round];
    [first commit];
    for (int i = 0; i < count; i++) all[i] = [[queue commandBuffer] retain];
    [all[0] enqueue];
}

/* A round before the one that is counted: a program's heap has had what command buffers take, many times. */
static void first_round(int count) {
    void *pool = objc_autoreleasePoolPush();
    prepare(count, 1);
    for (int i = 0; i < count; i++) [all[i] commit];
    [gate setSignaledValue:1];
    [all[count - 1] waitUntilCompleted];
    for (int i = 0; i < count; i++) [all[i] release];
    objc_autoreleasePoolPop(pool);
}

static void commit4(int count) {
    for (int i = 0; i < count; i++) [queue4 commit:&work4 count:1];
}

/* The round before has made the options of as many commits: all of it is in flight at once. The queue waits for its gate. */
static void begin4(int count, int flying) {
    id<MTLSharedEvent> end = [device newSharedEvent];
    queue4 = [device newMTL4CommandQueue];
    work4 = [device newCommandBuffer];
    [work4 beginCommandBufferWithAllocator:nil];
    [work4 endCommandBuffer];
    [queue4 waitForEvent:gate value:1];
    commit4(count + flying);
    [queue4 signalEvent:end value:1];
    [gate setSignaledValue:1];
    [end waitUntilSignaledValue:1 timeoutMS:UINT64_MAX];
    [queue4 waitForEvent:gate value:2];
    commit4(flying);
}

__attribute__((noinline)) static void messages(const char *kind, int count) {
    MTLSize one = {1, 1, 1};
    if (!strcmp(kind, "first")) begin();
    else if (!strcmp(kind, "clock"))
        for (int i = 0; i < count; i++) seconds();
    else if (!strcmp(kind, "dispatch"))
        for (int i = 0; i < count; i++) [kernels dispatchThreadgroups:one threadsPerThreadgroup:one];
    else if (!strcmp(kind, "pipeline"))
        for (int i = 0; i < count; i++) [kernels setComputePipelineState:pipeline];
    else if (!strcmp(kind, "copy"))
        for (int i = 0; i < count; i++) [blit fillBuffer:memory range:(NSRange){0, 8} value:1];
    else if (!strcmp(kind, "label"))
        for (int i = 0; i < count; i++) [work setLabel:label];
    else if (!strcmp(kind, "encoder"))
        for (int i = 0; i < count; i++) [work computeCommandEncoder];
    else if (!strcmp(kind, "outer"))
        for (int i = 0; i < count; i++) [work computeCommandEncoderWithDispatchType:0];
    else if (!strcmp(kind, "buffer"))
        for (int i = 0; i < count; i++) [queue commandBuffer];
    else if (!strcmp(kind, "commit"))
        for (int i = 0; i < count; i++) [all[i] commit];
    else if (!strcmp(kind, "commit4"))
        commit4(count);
    else if (!strcmp(kind, "completed")) {
        [gate setSignaledValue:1];
        [all[count - 1] waitUntilCompleted];
    }
}

int main(int argc, char **argv) {
    if (argc < 3) return 2;
    const char *kind = argv[1];
    int count = atoi(argv[2]), commits = !strcmp(kind, "commit"), ends = !strcmp(kind, "completed");
    void *pool = objc_autoreleasePoolPush();
    if (strcmp(kind, "first")) begin();
    if (!strcmp(kind, "commit4")) begin4(count, argc > 3 ? atoi(argv[3]) : 0);
    if (commits || ends) {
        all = calloc(count, sizeof *all);
        if (commits) first_round(count);
        prepare(count, commits ? 2 : 1);
    }
    if (ends)
        for (int i = 0; i < count; i++) [all[i] commit];
    double start = seconds();
    messages(kind, count);
    printf("%.2f\n", (seconds() - start) * 1e9 / count);
    fflush(stdout);
    _Exit(0);
}
