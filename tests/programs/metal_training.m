/* A loop as training makes it, for the simulated Metal: known counts of everything, and a result that the GPU computed.
 *
 * usage: metal_training STEPS
 * A step: a batch is copied and a buffer set to 0, three kernels run (200, 300 and 100 us), a temporary buffer comes and
 * goes. Every fourth step waits for its end. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "metal.h"

enum { BATCH = 65536, WEIGHTS = 1 << 20 };

static id<MTLComputePipelineState> pipeline(id<MTLDevice> device, id<MTLLibrary> library, const char *name) {
    id<MTLFunction> function = [library newFunctionWithName:[NSString stringWithUTF8String:name]];
    id<MTLComputePipelineState> made = [device newComputePipelineStateWithFunction:function error:NULL];
    [function release];
    return made;
}

static id<MTLComputePipelineState> labelled(id<MTLDevice> device, id<MTLLibrary> library, const char *name, const char *label) {
    MTLComputePipelineDescriptor *descriptor = [MTLComputePipelineDescriptor new];
    [descriptor setLabel:[NSString stringWithUTF8String:label]];
    id<MTLFunction> function = [library newFunctionWithName:[NSString stringWithUTF8String:name]];
    [descriptor setComputeFunction:function];
    id<MTLComputePipelineState> made = [device newComputePipelineStateWithDescriptor:descriptor
                                                                            options:0
                                                                         reflection:NULL
                                                                              error:NULL];
    [function release];
    [descriptor release];
    return made;
}

int main(int argc, char **argv) {
    int steps = argc > 1 ? atoi(argv[1]) : 8;
    void *pool = objc_autoreleasePoolPush();
    id<MTLDevice> device = MTLCreateSystemDefaultDevice();
    if (!device) return 2;
    id<MTLCommandQueue> queue = [device newCommandQueue];
    id<MTLLibrary> library = [device newDefaultLibrary];
    id<MTLComputePipelineState> forward = pipeline(device, library, "forward_200us");
    id<MTLComputePipelineState> backward = pipeline(device, library, "backward_300us");
    id<MTLComputePipelineState> update = labelled(device, library, "update_100us", "adam");
    id<MTLBuffer> staging = [device newBufferWithLength:BATCH options:MTLResourceStorageModeShared];
    id<MTLBuffer> batch = [device newBufferWithLength:BATCH options:MTLResourceStorageModePrivate];
    id<MTLBuffer> weights = [device newBufferWithLength:WEIGHTS options:MTLResourceStorageModePrivate];
    id<MTLBuffer> seen = [device newBufferWithLength:BATCH options:MTLResourceStorageModeShared];
    unsigned long sum = 0;
    for (int step = 0; step < steps; step++) {
        void *inner = objc_autoreleasePoolPush();
        memset([staging contents], step + 1, BATCH);
        id<MTLBuffer> temporary = [device newBufferWithLength:4096 + step options:MTLResourceStorageModePrivate];
        id<MTLCommandBuffer> work = [queue commandBuffer];
        [work setLabel:[NSString stringWithUTF8String:step % 2 ? "odd step" : "even step"]];
        id<MTLBlitCommandEncoder> copies = [work blitCommandEncoder];
        [copies copyFromBuffer:staging sourceOffset:0 toBuffer:batch destinationOffset:0 size:BATCH];
        [copies fillBuffer:weights range:(NSRange){0, WEIGHTS} value:0];
        [copies copyFromBuffer:batch sourceOffset:0 toBuffer:seen destinationOffset:0 size:BATCH / 2];
        [copies endEncoding];
        id<MTLComputeCommandEncoder> kernels = [work computeCommandEncoder];
        [kernels setComputePipelineState:forward];
        [kernels dispatchThreadgroups:(MTLSize){64, 2, 1} threadsPerThreadgroup:(MTLSize){256, 1, 1}];
        [kernels setComputePipelineState:backward];
        [kernels dispatchThreads:(MTLSize){100000, 3, 1} threadsPerThreadgroup:(MTLSize){32, 4, 2}];
        [kernels setComputePipelineState:update];
        [kernels dispatchThreadgroupsWithIndirectBuffer:weights
                                   indirectBufferOffset:0
                                  threadsPerThreadgroup:(MTLSize){128, 1, 1}];
        [kernels endEncoding];
        [work commit];
        if (step % 4 == 3) {
            [work waitUntilCompleted];
            sum += ((unsigned char *)[seen contents])[BATCH / 2 - 1] + ((unsigned char *)[seen contents])[BATCH / 2];
        }
        [temporary release];
        objc_autoreleasePoolPop(inner);
    }
    id<MTLCommandBuffer> last = [queue commandBuffer];
    [last commit];
    [last waitUntilCompleted];
    printf("%d steps, sum %lu, status %lu\n", steps, sum, [last status]);
    [staging release], [batch release], [weights release], [seen release];
    [forward release], [backward release], [update release];
    [library release];
    [queue release];
    objc_autoreleasePoolPop(pool);
    return 0;
}
