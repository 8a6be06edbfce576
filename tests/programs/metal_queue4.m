/* Queues of Metal 4 whose classes are not as Metal's own, for the simulated Metal.
 *
 * usage: metal_queue4 before   another one puts its own commit:count: into the class before the first queue
 *        metal_queue4 after    another one puts its own commit:count:options: into the class when the queue is there
 *        metal_queue4 later    a layer makes a queue one of its own class, and gives that a commit:count:options: when it has committed
 *        metal_queue4 flight   4,000 commits that wait for the host, and then run
 *        metal_queue4 thin     a layer's queue that has no commit:count:options: */
#include <stdio.h>
#include <string.h>

#include "metal.h"

static id<MTLDevice> device;
static int seen;

static id<MTL4CommandBuffer> encode(void) {
    id<MTLFunction> function = [[device newDefaultLibrary] newFunctionWithName:[NSString stringWithUTF8String:"left_1000us"]];
    id<MTL4CommandBuffer> work = [device newCommandBuffer];
    [work beginCommandBufferWithAllocator:[device newCommandAllocator]];
    id<MTLComputeCommandEncoder> kernels = [work computeCommandEncoder];
    [kernels setComputePipelineState:[device newComputePipelineStateWithFunction:function error:NULL]];
    [kernels dispatchThreadgroups:(MTLSize){5, 1, 1} threadsPerThreadgroup:(MTLSize){1, 1, 1}];
    [kernels endEncoding];
    [work endCommandBuffer];
    return work;
}

static void commit_three(id<MTL4CommandQueue> queue) {
    id<MTLSharedEvent> event = [device newSharedEvent];
    for (int i = 1; i <= 3; i++) {
        id<MTL4CommandBuffer> work = encode();
        [queue commit:&work count:1];
        [queue signalEvent:event value:i];
        [event waitUntilSignaledValue:i timeoutMS:10000];
    }
    printf("seen %d\n", seen);
}

static void (*original_commit)(id, SEL, const id *, NSUInteger);

static void their_commit(id self, SEL selector, const id *buffers, NSUInteger count) {
    seen++;
    original_commit(self, selector, buffers, count);
}

static void before(void) {
    Class class = objc_getClass("_MTL4SimCommandQueue");
    /* GCC's runtime: a class to which nothing was sent yet has no table of methods. */
    [[class alloc] label];
    Method method = class_getInstanceMethod(class, sel_registerName("commit:count:"));
    original_commit = (void (*)(id, SEL, const id *, NSUInteger))(void *)method_setImplementation(method, (IMP)(void *)their_commit);
    device = MTLCreateSystemDefaultDevice();
    commit_three([device newMTL4CommandQueue]);
}

static void (*original_with_options)(id, SEL, const id *, NSUInteger, id);

static void their_commit_with_options(id self, SEL selector, const id *buffers, NSUInteger count, id options) {
    seen += options == nil;
    original_with_options(self, selector, buffers, count, options);
}

static void after(void) {
    device = MTLCreateSystemDefaultDevice();
    id<MTL4CommandQueue> queue = [device newMTL4CommandQueue];
    Method method = class_getInstanceMethod(object_getClass(queue), sel_registerName("commit:count:options:"));
    original_with_options =
        (void (*)(id, SEL, const id *, NSUInteger, id))(void *)method_setImplementation(method, (IMP)(void *)their_commit_with_options);
    commit_three(queue);
}

static void later(void) {
    device = MTLCreateSystemDefaultDevice();
    id<MTL4CommandQueue> queue = [device newMTL4CommandQueue];
    Class theirs = objc_allocateClassPair(object_getClass(queue), "LaterQueue4", 0);
    objc_registerClassPair(theirs);
    object_setClass(queue, theirs);
    id<MTL4CommandBuffer> work = encode();
    [queue commit:&work count:1];
    SEL selector = sel_registerName("commit:count:options:");
    original_with_options =
        (void (*)(id, SEL, const id *, NSUInteger, id))(void *)method_getImplementation(class_getInstanceMethod(theirs, selector));
    class_addMethod(theirs, selector, (IMP)(void *)their_commit_with_options, "v@:^@Q@");
    commit_three(queue);
}

static void flight(void) {
    device = MTLCreateSystemDefaultDevice();
    id<MTL4CommandQueue> queue = [device newMTL4CommandQueue];
    id<MTLSharedEvent> gate = [device newSharedEvent], end = [device newSharedEvent];
    id<MTLFunction> function = [[device newDefaultLibrary] newFunctionWithName:[NSString stringWithUTF8String:"nothing"]];
    id<MTLComputePipelineState> pipeline = [device newComputePipelineStateWithFunction:function error:NULL];
    id<MTL4CommandBuffer> work = [device newCommandBuffer];
    [queue waitForEvent:gate value:1];
    for (int i = 0; i < 4000; i++) {
        [work beginCommandBufferWithAllocator:nil];
        id<MTLComputeCommandEncoder> kernels = [work computeCommandEncoder];
        [kernels setComputePipelineState:pipeline];
        [kernels dispatchThreadgroups:(MTLSize){5, 1, 1} threadsPerThreadgroup:(MTLSize){1, 1, 1}];
        [kernels endEncoding];
        [work endCommandBuffer];
        [queue commit:&work count:1];
    }
    [queue signalEvent:end value:1];
    [gate setSignaledValue:1];
    [end waitUntilSignaledValue:1 timeoutMS:UINT64_MAX];
}

/* It stands before a queue, and has of it what this program needs. */
@interface ThinQueue4 : NSObject {
  @public
    id<MTL4CommandQueue> behind;
}
@end

@implementation ThinQueue4
- (id)device {
    return device;
}
- (void)commit:(const id *)buffers count:(NSUInteger)count {
    seen++;
    [behind commit:buffers count:count];
}
- (void)signalEvent:(id)event value:(uint64_t)value {
    [behind signalEvent:event value:value];
}
- (void)waitForEvent:(id)event value:(uint64_t)value {
    [behind waitForEvent:event value:value];
}
@end

static id (*original_queue)(id, SEL);

static id their_queue(id self, SEL selector) {
    ThinQueue4 *made = [ThinQueue4 new];
    made->behind = original_queue(self, selector);
    return made;
}

static void thin(void) {
    Class class = objc_getClass("AGXSimDevice");
    [(id)[class alloc] name];
    SEL selector = sel_registerName("newMTL4CommandQueue");
    original_queue = (id (*)(id, SEL))(void *)method_getImplementation(class_getInstanceMethod(class, selector));
    class_addMethod(class, selector, (IMP)(void *)their_queue, "@@:");
    device = MTLCreateSystemDefaultDevice();
    commit_three([device newMTL4CommandQueue]);
}

int main(int argc, char **argv) {
    const char *what = argc > 1 ? argv[1] : "";
    void *pool = objc_autoreleasePoolPush();
    if (!strcmp(what, "before")) before();
    else if (!strcmp(what, "after")) after();
    else if (!strcmp(what, "later")) later();
    else if (!strcmp(what, "flight")) flight();
    else if (!strcmp(what, "thin")) thin();
    else return 2;
    objc_autoreleasePoolPop(pool);
    return 0;
}
