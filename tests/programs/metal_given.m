/* A GPU that a library took for itself, beside the program's own, for the simulated Metal with three of them.
 *
 * usage: metal_given */
#include <stdio.h>

#include "metal.h"

/* Past the hook: what the system's own libraries call does not come there. */
extern NSArray *__real_MTLCopyAllDevices(void);

static void work_on(id<MTLDevice> device, int dispatches) {
    id<MTLFunction> function = [[device newDefaultLibrary] newFunctionWithName:[NSString stringWithUTF8String:"short_300us"]];
    id<MTLComputePipelineState> pipeline = [device newComputePipelineStateWithFunction:function error:NULL];
    id<MTLCommandQueue> queue = [device newCommandQueue];
    for (int i = 0; i < 3; i++) {
        id<MTLCommandBuffer> work = [queue commandBuffer];
        id<MTLComputeCommandEncoder> kernels = [work computeCommandEncoder];
        [kernels setComputePipelineState:pipeline];
        for (int n = 0; n < dispatches; n++)
            [kernels dispatchThreadgroups:(MTLSize){1, 1, 1} threadsPerThreadgroup:(MTLSize){1, 1, 1}];
        [kernels endEncoding];
        [work commit];
        [work waitUntilCompleted];
    }
    [[device newBufferWithLength:1000 * dispatches options:0] release];
}

int main(void) {
    void *pool = objc_autoreleasePoolPush();
    id<MTLDevice> own = MTLCreateSystemDefaultDevice();
    /* The third one is of the first one's class. */
    id<MTLDevice> other = [__real_MTLCopyAllDevices() objectAtIndex:2];
    work_on(own, 1);
    work_on(other, 2);
    printf("two: %d\n", own != other);
    objc_autoreleasePoolPop(pool);
    return 0;
}
