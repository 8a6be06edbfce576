/* Each message that is hooked, with arguments that nobody else uses; two devices; heaps; Metal 4; MPSCommandBuffer.
 *
 * usage: metal_every copies|textures|memory|devices|metal4|encoder4|mps|pipelines|background|labels|commands */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "metal.h"

static NSString *text(const char *bytes) {
    return [NSString stringWithUTF8String:bytes];
}

static id<MTLComputePipelineState> pipeline(id<MTLDevice> device, const char *name) {
    id<MTLLibrary> library = [device newDefaultLibrary];
    id<MTLFunction> function = [library newFunctionWithName:text(name)];
    id reflection = nil, error = nil;
    id<MTLComputePipelineState> made = [device newComputePipelineStateWithFunction:function
                                                                          options:3
                                                                       reflection:&reflection
                                                                            error:&error];
    [function release];
    [library release];
    return made;
}

static void run(id<MTLCommandBuffer> work) {
    [work commit];
    [work waitUntilCompleted];
}

static void dispatch(id<MTLComputeCommandEncoder> kernels, id<MTLComputePipelineState> state, NSUInteger groups) {
    [kernels setComputePipelineState:state];
    [kernels dispatchThreadgroups:(MTLSize){groups, 1, 1} threadsPerThreadgroup:(MTLSize){64, 1, 1}];
}

static void copies(id<MTLDevice> device) {
    id<MTLCommandQueue> queue = [device newCommandQueueWithDescriptor:[[MTLCommandQueueDescriptor new] autorelease]];
    id<MTLBuffer> a = [device newBufferWithBytes:"0123456789" length:10 options:MTLResourceStorageModeShared];
    id<MTLBuffer> b = [device newBufferWithLength:65536 options:MTLResourceStorageModeManaged];
    id<MTLTexture> texture = [device newTextureWithDescriptor:nil];
    id<MTLCommandBuffer> work = [queue commandBufferWithDescriptor:nil];
    id<MTLBlitCommandEncoder> blit = [work blitCommandEncoderWithDescriptor:nil];
    [blit copyFromBuffer:a sourceOffset:2 toBuffer:b destinationOffset:100 size:5];
    [blit fillBuffer:b range:(NSRange){200, 300} value:7];
    [blit copyFromBuffer:b
            sourceOffset:0
       sourceBytesPerRow:64
     sourceBytesPerImage:0
              sourceSize:(MTLSize){16, 4, 2}
               toTexture:texture
        destinationSlice:0
        destinationLevel:0
       destinationOrigin:(MTLOrigin){0, 0, 0}];
    [blit copyFromTexture:texture
                   sourceSlice:0
                   sourceLevel:0
                  sourceOrigin:(MTLOrigin){0, 0, 0}
                    sourceSize:(MTLSize){16, 5, 1}
                      toBuffer:b
             destinationOffset:1000
        destinationBytesPerRow:64
      destinationBytesPerImage:320];
    [blit copyFromTexture:texture toTexture:texture];
    [blit synchronizeResource:b];
    [blit endEncoding];
    run(work);
    char *seen = [b contents];
    printf("%.5s %d %d %d\n", seen + 100, seen[199], seen[200], seen[499]);
}

/* Parts of textures: the GPU's copies of one, and what the host writes and reads. */
static void textures(id<MTLDevice> device) {
    static unsigned char pixels[16 * 16 * 4], back[16 * 16 * 4];
    for (size_t i = 0; i < sizeof pixels; i++) pixels[i] = i * 7;
    id<MTLCommandQueue> queue = [device newCommandQueue];
    id<MTLTexture> one = [device newTextureWithDescriptor:nil], two = [device newTextureWithDescriptor:nil];
    [one replaceRegion:(MTLRegion){{1, 2, 0}, {16, 3, 1}} mipmapLevel:0 withBytes:pixels bytesPerRow:64];
    [one replaceRegion:(MTLRegion){{4, 4, 0}, {4, 5, 1}}
           mipmapLevel:0
                 slice:0
             withBytes:pixels
           bytesPerRow:16
         bytesPerImage:80];
    id<MTLCommandBuffer> work = [queue commandBuffer];
    id<MTLBlitCommandEncoder> blit = [work blitCommandEncoder];
    [blit copyFromTexture:one
              sourceSlice:0
              sourceLevel:0
             sourceOrigin:(MTLOrigin){0, 0, 0}
               sourceSize:(MTLSize){8, 5, 1}
                toTexture:two
         destinationSlice:0
         destinationLevel:0
        destinationOrigin:(MTLOrigin){8, 8, 0}];
    /* 32 x 32 and 16 x 16 pixels, twice. */
    [blit copyFromTexture:one
              sourceSlice:0
              sourceLevel:0
                toTexture:two
         destinationSlice:0
         destinationLevel:0
               sliceCount:2
               levelCount:2];
    [blit endEncoding];
    run(work);
    [one getBytes:back bytesPerRow:64 fromRegion:(MTLRegion){{1, 2, 0}, {2, 7, 1}} mipmapLevel:0];
    printf("%d\n", back[0] == pixels[0] && back[65] == pixels[65]);
    [one getBytes:back bytesPerRow:64 bytesPerImage:192 fromRegion:(MTLRegion){{4, 4, 0}, {3, 3, 1}} mipmapLevel:0 slice:0];
    printf("%d\n", back[0] == pixels[0] && back[64] == pixels[16]);
}

static void memory(id<MTLDevice> device) {
    static char theirs[12345];
    MTLHeapDescriptor *descriptor = [MTLHeapDescriptor new];
    [descriptor setSize:1 << 20];
    [descriptor setStorageMode:2];
    id<MTLHeap> heap = [device newHeapWithDescriptor:descriptor];
    id<MTLBuffer> inside = [heap newBufferWithLength:7777 options:MTLResourceStorageModePrivate];
    id<MTLBuffer> around = [device newBufferWithBytesNoCopy:theirs length:sizeof theirs options:0 deallocator:nil];
    id<MTLBuffer> shared = [device newBufferWithLength:11111 options:MTLResourceStorageModeShared];
    id<MTLBuffer> managed = [device newBufferWithLength:22222 options:MTLResourceStorageModeManaged];
    id<MTLTexture> image = [device newTextureWithDescriptor:nil];
    id<MTLBuffer> kept = [device newBufferWithLength:33333 options:MTLResourceStorageModePrivate];
    printf("%p %lu %lu\n", kept ? NULL : kept, [around length], [shared length]);
    /* Two owners: it lives until the second has let go. */
    [shared retain];
    [shared release];
    [managed release];
    [shared release];
    [around release];
    [image release];
    [inside release];
    [heap release];
    [descriptor release];
}

static void devices(id<MTLDevice> first) {
    NSArray *all = MTLCopyAllDevicesWithObserver(NULL, NULL);
    for (NSUInteger i = 0; i < [all count]; i++) {
        id<MTLDevice> device = [all objectAtIndex:i];
        id<MTLCommandQueue> queue = [device newCommandQueue];
        id<MTLCommandBuffer> work = [queue commandBuffer];
        id<MTLComputeCommandEncoder> kernels = [work computeCommandEncoderWithDescriptor:nil];
        for (NSUInteger n = 0; n <= i; n++) dispatch(kernels, pipeline(device, "short_100us"), 10 + i);
        [kernels endEncoding];
        run(work);
        printf("%s: %lu\n", [[device name] UTF8String], [work status]);
        [queue release];
    }
    [all release];
}

static void feedback(struct block *block, id given, uint64_t unused) {
    id<MTL4CommitFeedback> times = given;
    printf("feedback %d\n", (int)(([times GPUEndTime] - [times GPUStartTime]) * 1e6 + 0.5));
}

static const struct block_descriptor DESCRIPTOR = {0, sizeof(struct block)};
static struct block handler = {NULL, BLOCK_IS_GLOBAL, 0, feedback, &DESCRIPTOR};

static void metal4(id<MTLDevice> device) {
    id<MTL4CommandQueue> queue = [device newMTL4CommandQueue];
    id<MTLSharedEvent> event = [device newSharedEvent];
    id<MTL4CommandBuffer> both[2];
    id allocator = [device newCommandAllocator];
    for (uint64_t commit = 1; commit <= 3; commit++) {
        for (int i = 0; i < 2; i++) {
            both[i] = [device newCommandBuffer];
            [both[i] beginCommandBufferWithAllocator:allocator];
            id<MTLComputeCommandEncoder> kernels = [both[i] computeCommandEncoder];
            dispatch(kernels, pipeline(device, i ? "right_2000us" : "left_1000us"), 5);
            [kernels endEncoding];
            [both[i] endCommandBuffer];
        }
        if (commit < 3) {
            [queue commit:both count:2];
        } else {
            MTL4CommitOptions *options = [MTL4CommitOptions new];
            [options addFeedbackHandler:(id)(void *)&handler];
            [queue commit:both count:2 options:options];
            [options release];
        }
        [queue signalEvent:event value:commit];
        [event waitUntilSignaledValue:commit timeoutMS:UINT64_MAX];
        [both[0] release];
        [both[1] release];
    }
    [queue release];
}

/* An encoder of Metal 4's: copies between buffers and textures, and dispatches whose sizes stand in memory. */
static void encoder4(id<MTLDevice> device) {
    id<MTL4CommandQueue> queue = [device newMTL4CommandQueue];
    id<MTLSharedEvent> event = [device newSharedEvent];
    id<MTLBuffer> a = [device newBufferWithLength:8192 options:0], b = [device newBufferWithLength:8192 options:0];
    id<MTLTexture> one = [device newTextureWithDescriptor:nil], two = [device newTextureWithDescriptor:nil];
    id<MTL4CommandBuffer> work = [device newCommandBuffer];
    MTLOrigin corner = {0, 0, 0};
    [work beginCommandBufferWithAllocator:[device newCommandAllocator]];
    id<MTL4ComputeCommandEncoder> encoder = [work computeCommandEncoder];
    [encoder copyFromBuffer:a sourceOffset:0 toBuffer:b destinationOffset:0 size:77];
    [encoder fillBuffer:b range:(NSRange){0, 78} value:1];
    [encoder copyFromBuffer:a
               sourceOffset:0
          sourceBytesPerRow:64
        sourceBytesPerImage:0
                 sourceSize:(MTLSize){16, 4, 2}
                  toTexture:one
           destinationSlice:0
           destinationLevel:0
          destinationOrigin:corner];
    [encoder copyFromTexture:one
                     sourceSlice:0
                     sourceLevel:0
                    sourceOrigin:corner
                      sourceSize:(MTLSize){16, 5, 1}
                        toBuffer:b
               destinationOffset:0
          destinationBytesPerRow:64
        destinationBytesPerImage:320];
    [encoder copyFromTexture:one
                 sourceSlice:0
                 sourceLevel:0
                sourceOrigin:corner
                  sourceSize:(MTLSize){8, 5, 1}
                   toTexture:two
            destinationSlice:0
            destinationLevel:0
           destinationOrigin:(MTLOrigin){8, 8, 0}];
    [encoder copyFromTexture:one
                 sourceSlice:0
                 sourceLevel:0
                   toTexture:two
            destinationSlice:0
            destinationLevel:0
                  sliceCount:2
                  levelCount:2];
    [encoder copyFromTexture:one toTexture:two];
    [encoder setComputePipelineState:pipeline(device, "by_memory_100us")];
    [encoder dispatchThreadgroupsWithIndirectBuffer:4096 threadsPerThreadgroup:(MTLSize){8, 4, 2}];
    [encoder dispatchThreadsWithIndirectBuffer:4096];
    [encoder executeCommandsInBuffer:nil indirectBuffer:4096];
    [encoder endEncoding];
    [work endCommandBuffer];
    [queue commit:&work count:1];
    [queue signalEvent:event value:1];
    [event waitUntilSignaledValue:1 timeoutMS:UINT64_MAX];
    id<MTLCommandBuffer> classic = [[device newCommandQueue] commandBuffer];
    id<MTLComputeCommandEncoder> kernels = [classic computeCommandEncoder];
    [kernels setComputePipelineState:pipeline(device, "by_memory_100us")];
    [kernels executeCommandsInBuffer:nil indirectBuffer:a indirectBufferOffset:16];
    [kernels endEncoding];
    run(classic);
}

static void mps(id<MTLDevice> device) {
    id<MTLCommandQueue> queue = [device newCommandQueue];
    MPSCommandBuffer *stream = [MPSCommandBuffer commandBufferFromCommandQueue:queue];
    for (int i = 0; i < 5; i++) {
        id<MTLComputeCommandEncoder> kernels = [stream computeCommandEncoder];
        dispatch(kernels, pipeline(device, "layer_500us"), 3);
        [kernels endEncoding];
        [stream commitAndContinue];
    }
    [stream commit];
    [stream waitUntilCompleted];
}

/* What has labels: a queue, its command buffers and their encoders, memory. */
static void labels(id<MTLDevice> device) {
    id<MTLCommandQueue> queue = [device newCommandQueue], other = [device newCommandQueue];
    [queue setLabel:text("training")];
    id<MTLBuffer> weights = [device newBufferWithLength:1000 options:0], bare = [device newBufferWithLength:2000 options:0];
    [weights setLabel:text("weights")];
    id<MTLTexture> image = [device newTextureWithDescriptor:nil];
    [image setLabel:text("image")];
    for (int i = 0; i < 4; i++) {
        id<MTLCommandBuffer> work = [i < 3 ? queue : other commandBuffer];
        if (i == 1) [work setLabel:text("own")];
        for (int n = 0; n < 2; n++) {
            id<MTLComputeCommandEncoder> kernels = [work computeCommandEncoder];
            if (i < 2) [kernels setLabel:text(n ? "mlp" : "attention")];
            dispatch(kernels, pipeline(device, "layer_500us"), 3);
            [kernels endEncoding];
        }
        run(work);
    }
    [weights release];
    [bare release];
    [image release];
}

/* Pipelines at addresses where others were. */
static void pipelines(id<MTLDevice> device) {
    id<MTLCommandQueue> queue = [device newCommandQueue];
    for (int i = 0; i < 4; i++) {
        void *pool = objc_autoreleasePoolPush();
        id<MTLComputePipelineState> state = pipeline(device, i % 2 ? "second_100us" : "first_100us");
        id<MTLCommandBuffer> work = [queue commandBuffer];
        id<MTLComputeCommandEncoder> kernels = [work computeCommandEncoder];
        dispatch(kernels, state, 1);
        [kernels endEncoding];
        run(work);
        objc_autoreleasePoolPop(pool);
        [state release];
    }
}

/* Of the simulation: what Metal calls for a pipeline that is made in the background. No message returns it. */
extern id pipeline_new(id function, NSString *label);

static void background(id<MTLDevice> device) {
    id<MTLCommandQueue> queue = [device newCommandQueue];
    id<MTLFunction> function = [[device newDefaultLibrary] newFunctionWithName:text("second_100us")];
    for (int i = 0; i < 6; i++) {
        void *pool = objc_autoreleasePoolPush();
        id<MTLComputePipelineState> first = pipeline(device, "first_100us");
        id<MTLCommandBuffer> work = [queue commandBuffer];
        id<MTLComputeCommandEncoder> kernels = [work computeCommandEncoder];
        dispatch(kernels, first, 1);
        [first release];
        id<MTLComputePipelineState> second = pipeline_new(function, i % 2 ? nil : text("its own"));
        dispatch(kernels, second, 1);
        [kernels endEncoding];
        run(work);
        [second release];
        objc_autoreleasePoolPop(pool);
    }
}

/* Commands that stand in a buffer of their own, on the first of all devices. */
static void commands(id<MTLDevice> first) {
    NSArray *all = MTLCopyAllDevices();
    id<MTLDevice> device = [all objectAtIndex:0];
    id<MTLCommandBuffer> work = [[device newCommandQueue] commandBuffer];
    id<MTLComputeCommandEncoder> kernels = [work computeCommandEncoder];
    [kernels setComputePipelineState:pipeline(device, "from_memory_100us")];
    [kernels executeCommandsInBuffer:nil withRange:(NSRange){2, 3}];
    [kernels endEncoding];
    run(work);
    printf("%d\n", device == first);
    [all release];
}

int main(int argc, char **argv) {
    static const struct {
        const char *name;
        void (*run)(id<MTLDevice>);
    } WAYS[] = {{"copies", copies}, {"textures", textures}, {"memory", memory}, {"devices", devices},
                {"metal4", metal4}, {"encoder4", encoder4}, {"mps", mps},       {"pipelines", pipelines},
                {"background", background}, {"labels", labels},   {"commands", commands}};
    for (size_t i = 0; argc > 1 && i < sizeof WAYS / sizeof *WAYS; i++) {
        if (strcmp(argv[1], WAYS[i].name)) continue;
        void *pool = objc_autoreleasePoolPush();
        WAYS[i].run(MTLCreateSystemDefaultDevice());
        objc_autoreleasePoolPop(pool);
        puts("done");
        return 0;
    }
    return 2;
}
