/* A layer's objects that have of Metal's what this program asks of them, and no more, for the simulated Metal.
 *
 * usage: metal_thin */
#include <stdio.h>

#include "metal.h"

static id<MTLDevice> device;
static id<MTLCommandQueue> behind;

static const struct block_descriptor DESCRIPTOR = {0, sizeof(struct block)};

@interface ThinBuffer : NSObject {
  @public
    id<MTLCommandBuffer> under;
    struct block *handler;
}
@end

static ThinBuffer *current;

static void completed(struct block *block, id given, uint64_t unused) {
    if (current->handler) current->handler->invoke(current->handler, current, 0);
}

static struct block forward = {NULL, BLOCK_IS_GLOBAL, 0, completed, &DESCRIPTOR};

@implementation ThinBuffer
- (void)addCompletedHandler:(id)block {
    handler = (void *)block;
    [under addCompletedHandler:(id)(void *)&forward];
}
- (double)GPUStartTime {
    return [under GPUStartTime];
}
- (double)GPUEndTime {
    return [under GPUEndTime];
}
- (id)computeCommandEncoder {
    return [under computeCommandEncoder];
}
- (void)commit {
    [under commit];
}
- (void)waitUntilCompleted {
    [under waitUntilCompleted];
}
@end

@interface ThinQueue : NSObject
@end

@implementation ThinQueue
+ (id)queueOf:(id)device most:(NSUInteger)most {
    return [self new];
}
- (id)device {
    return device;
}
- (id)commandBuffer {
    current = [ThinBuffer new];
    current->under = [[behind commandBuffer] retain];
    return current;
}
@end

@interface ThinTexture : NSObject
@end

@implementation ThinTexture
- (NSUInteger)pixelFormat {
    return 70;
}
@end

static id their_texture(id self, SEL selector, id descriptor) {
    return [ThinTexture new];
}

int main(void) {
    void *pool = objc_autoreleasePoolPush();
    Class class = objc_getClass("AGXSimDevice");
    /* GCC's runtime: a class to which nothing was sent yet has no table of methods. */
    [(id)[class alloc] name];
    class_addMethod(class, sel_registerName("newTextureWithDescriptor:"), (IMP)(void *)their_texture, "@@:@");
    device = MTLCreateSystemDefaultDevice();
    behind = [device newCommandQueue];
    fake_queue_class = "ThinQueue";
    id<MTLCommandQueue> queue = [device newCommandQueue];
    id<MTLFunction> function = [[device newDefaultLibrary] newFunctionWithName:[NSString stringWithUTF8String:"thin_300us"]];
    id<MTLComputePipelineState> pipeline = [device newComputePipelineStateWithFunction:function error:NULL];
    for (int i = 0; i < 3; i++) {
        id<MTLCommandBuffer> work = [queue commandBuffer];
        id<MTLComputeCommandEncoder> kernels = [work computeCommandEncoder];
        [kernels setComputePipelineState:pipeline];
        [kernels dispatchThreadgroups:(MTLSize){1, 1, 1} threadsPerThreadgroup:(MTLSize){1, 1, 1}];
        [kernels endEncoding];
        [work commit];
        [work waitUntilCompleted];
    }
    printf("%d\n", [device newTextureWithDescriptor:nil] != nil);
    objc_autoreleasePoolPop(pool);
    return 0;
}
