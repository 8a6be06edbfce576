/* Who holds what: prints how many references each object has after its messages, once all has run, and whether the blocks that are
 * called are those that were given. A tracer must change neither.
 *
 * usage: metal_kept */
#include <stdio.h>
#include <unistd.h>

#include "metal.h"

enum { BLOCKS = 4 };
static int called, own;

static void run(struct block *block, id argument, uint64_t value);
static const struct block_descriptor DESCRIPTOR = {0, sizeof(struct block)};
/* Global ones, which are not copied: who is called is known by its address. */
#define BLOCK {NULL, BLOCK_IS_GLOBAL, 0, run, &DESCRIPTOR}
static struct block blocks[BLOCKS] = {BLOCK, BLOCK, BLOCK, BLOCK};

static void run(struct block *block, id argument, uint64_t value) {
    __atomic_fetch_add(&own, block >= blocks && block < blocks + BLOCKS, __ATOMIC_RELAXED);
    __atomic_fetch_add(&called, 1, __ATOMIC_RELAXED);
}

static id block(int nth) {
    return (id)(void *)&blocks[nth];
}

static void held(const char *what, id object) {
    printf("%s %lu\n", what, [object retainCount]);
}

int main(void) {
    static char theirs[64];
    void *pool = objc_autoreleasePoolPush();
    id<MTLDevice> device = MTLCreateSystemDefaultDevice();
    id<MTLCommandQueue> queue = [device newCommandQueue];
    id<MTLFunction> function = [[device newDefaultLibrary] newFunctionWithName:[NSString stringWithUTF8String:"short_500us"]];
    id<MTLComputePipelineState> pipeline = [device newComputePipelineStateWithFunction:function error:NULL];
    id<MTLBuffer> memory = [device newBufferWithLength:64 options:0];
    id<MTLBuffer> around = [device newBufferWithBytesNoCopy:theirs length:sizeof theirs options:0 deallocator:block(0)];
    id<MTLTexture> image = [device newTextureWithDescriptor:nil];
    id<MTLSharedEvent> event = [device newSharedEvent];
    NSString *label = [[NSString stringWithUTF8String:"step"] retain];
    id<MTLCommandBuffer> work = [[queue commandBuffer] retain];
    id<MTLComputeCommandEncoder> kernels = [[work computeCommandEncoder] retain];
    [event notifyListener:nil atValue:1 block:block(1)];
    [work setLabel:label];
    [kernels setComputePipelineState:pipeline];
    [kernels dispatchThreadgroups:(MTLSize){1, 1, 1} threadsPerThreadgroup:(MTLSize){1, 1, 1}];
    [kernels endEncoding];
    id<MTLBlitCommandEncoder> blit = [[work blitCommandEncoder] retain];
    [blit copyFromTexture:image sourceSlice:0 sourceLevel:0 toTexture:image destinationSlice:0 destinationLevel:0 sliceCount:1 levelCount:2];
    [blit fillBuffer:memory range:(NSRange){0, 8} value:1];
    [blit endEncoding];
    [work addScheduledHandler:block(2)];
    [work addCompletedHandler:block(3)];
    [work encodeSignalEvent:event value:1];
    [work commit];
    [work waitUntilCompleted];

    id<MTL4CommandQueue> queue4 = [device newMTL4CommandQueue];
    id<MTL4CommandBuffer> work4 = [device newCommandBuffer];
    [work4 beginCommandBufferWithAllocator:nil];
    [work4 endCommandBuffer];
    [queue4 commit:&work4 count:1];
    [queue4 signalEvent:event value:2];
    [event waitUntilSignaledValue:2 timeoutMS:UINT64_MAX];
    objc_autoreleasePoolPop(pool);
    [around release];
    /* Metal lets go of a command buffer behind its handlers, and of a commit behind its feedback. */
    for (int i = 0; i < 30000 && ([work retainCount] > 1 || [queue4 retainCount] > 1); i++) usleep(100);

    held("queue", queue);
    held("function", function);
    held("pipeline", pipeline);
    held("buffer", memory);
    held("texture", image);
    held("event", event);
    held("label", label);
    held("command buffer", work);
    held("encoder", kernels);
    held("encoder of copies", blit);
    held("queue of Metal 4", queue4);
    held("command buffer of Metal 4", work4);
    printf("%d of %d blocks called are the program's\n", own, called);
    return 0;
}
