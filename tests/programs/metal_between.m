/* Another one puts methods into a class between the concrete one and the one that has them, when both are in use, for the simulated
 * Metal: prints how often its own were called.
 *
 * usage: metal_between */
#include <stdio.h>
#include <stdlib.h>

#include "metal.h"

static id<MTLDevice> device;
static id<MTLCommandQueue> queue;
static id<MTLComputePipelineState> pipeline;
static int added, waited, replaced;
static void (*plain_commit)(id, SEL);

static void on(id self, SEL selector) {
    ((void (*)(id, SEL))(void *)class_getMethodImplementation(objc_getClass("_MTLCommandBuffer"), selector))(self, selector);
}

static void their_enqueue(id self, SEL selector) {
    added++;
    on(self, selector);
}

static void their_scheduled(id self, SEL selector) {
    waited++;
    on(self, selector);
}

static void their_commit(id self, SEL selector) {
    replaced++;
    plain_commit(self, selector);
}

static void put_between(void) {
    Class between = objc_getClass("IOSimCommandBuffer");
    SEL enqueue = sel_registerName("enqueue"), scheduled = sel_registerName("waitUntilScheduled");
    if (!class_addMethod(between, enqueue, (IMP)(void *)their_enqueue, "v@:")) abort();
    if (!class_addMethod(between, scheduled, (IMP)(void *)their_scheduled, "v@:")) abort();
    /* It has that one now. */
    if (class_addMethod(between, enqueue, (IMP)(void *)their_enqueue, "v@:")) abort();
    plain_commit = (void *)class_replaceMethod(between, sel_registerName("commit"), (IMP)(void *)their_commit, "v@:");
}

static void run(void) {
    id<MTLCommandBuffer> work = [queue commandBuffer];
    id<MTLComputeCommandEncoder> kernels = [work computeCommandEncoder];
    [kernels setComputePipelineState:pipeline];
    [kernels dispatchThreadgroups:(MTLSize){1, 1, 1} threadsPerThreadgroup:(MTLSize){1, 1, 1}];
    [kernels endEncoding];
    [work enqueue];
    [work commit];
    [work waitUntilScheduled];
    [work waitUntilCompleted];
}

int main(void) {
    void *pool = objc_autoreleasePoolPush();
    device = MTLCreateSystemDefaultDevice();
    queue = [device newCommandQueue];
    id<MTLFunction> function = [[device newDefaultLibrary] newFunctionWithName:[NSString stringWithUTF8String:"short_200us"]];
    pipeline = [device newComputePipelineStateWithFunction:function error:NULL];
    for (int i = 0; i < 4; i++) {
        if (i == 1) put_between();
        run();
    }
    printf("added %d and %d, replaced %d\n", added, waited, replaced);
    objc_autoreleasePoolPop(pool);
    return 0;
}
