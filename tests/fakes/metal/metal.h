/* A simulated Metal, as its programs see it: the protocols of Apple's <Metal/Metal.h> as far as they are simulated.
 *
 * A dispatch takes as long as its function's name says (`gemm_500us`; no time without such an ending); a queue's
 * command buffers run one after the other. GPU times are seconds of CLOCK_MONOTONIC. What happened is written to the
 * file that FAKE_METAL_TRUTH names, a line of JSON each (truth.h). FAKE_METAL_DEVICES is the number of devices;
 * FAKE_METAL_LAYER puts a layer in between (layer.h); FAKE_METAL_GPU_CLOCK gives the GPU a clock of its own (gpu_clock.h). */
#ifndef METAL_H
#define METAL_H

#include <objc/objc.h>
#include <objc/runtime.h>
#include <stdbool.h>
#include <stdint.h>

typedef unsigned long NSUInteger;
/* As Apple's compilers have BOOL. */
#if defined(__aarch64__)
typedef bool MTLBool;
#else
typedef signed char MTLBool;
#endif

typedef struct {
    NSUInteger width, height, depth;
} MTLSize;
typedef struct {
    NSUInteger x, y, z;
} MTLOrigin;
typedef struct {
    MTLOrigin origin;
    MTLSize size;
} MTLRegion;
typedef struct {
    NSUInteger location, length;
} NSRange;

enum { MTLStatusNotEnqueued, MTLStatusEnqueued, MTLStatusCommitted, MTLStatusScheduled, MTLStatusCompleted, MTLStatusError };
enum { MTLResourceStorageModeShared = 0, MTLResourceStorageModeManaged = 1 << 4, MTLResourceStorageModePrivate = 2 << 4 };

/* A block as Apple's compilers lay it out; GCC has none. The second argument is a value or a size, for those that take
 * two: for the others it is an argument too many, which the convention of calls allows. */
struct block {
    void *isa;
    int flags, reserved;
    void (*invoke)(struct block *self, id argument, uint64_t value);
    const struct block_descriptor {
        unsigned long reserved, size;
    } *descriptor;
};
enum { BLOCK_IS_GLOBAL = 1 << 28 };

/* The root class. Objects that a getter returns belong to the pool; those of `new...` to the caller. */
__attribute__((objc_root_class)) @interface NSObject {
    Class isa;
    int references;
}
+ (id)alloc;
+ (id)new;
+ (Class)class;
- (id)init;
- (id)retain;
- (void)release;
- (id)autorelease;
- (void)dealloc;
- (Class)class;
- (NSUInteger)retainCount;
@end

@interface NSString : NSObject {
    char *text;
}
+ (NSString *)stringWithUTF8String:(const char *)text;
- (const char *)UTF8String;
- (NSUInteger)length;
@end

@interface NSArray : NSObject {
    NSUInteger count;
    id objects[8];
}
- (NSUInteger)count;
- (id)objectAtIndex:(NSUInteger)index;
- (void)addObject:(id)object;
@end

/* What is autoreleased by this thread between these is released at the end. */
void *objc_autoreleasePoolPush(void);
void objc_autoreleasePoolPop(void *pool);

@protocol Object
- (id)retain;
- (void)release;
- (Class)class;
- (NSUInteger)retainCount;
@end

@protocol MTLResource <Object>
- (NSString *)label;
- (void)setLabel:(NSString *)label;
- (id)device;
- (NSUInteger)storageMode;
- (NSUInteger)allocatedSize;
@end

@protocol MTLBuffer <MTLResource>
- (NSUInteger)length;
- (void *)contents;
@end

@protocol MTLTexture <MTLResource>
- (NSUInteger)pixelFormat;
- (NSUInteger)width;
- (NSUInteger)height;
- (NSUInteger)depth;
- (void)replaceRegion:(MTLRegion)region mipmapLevel:(NSUInteger)level withBytes:(const void *)from bytesPerRow:(NSUInteger)row;
- (void)replaceRegion:(MTLRegion)region
          mipmapLevel:(NSUInteger)level
                slice:(NSUInteger)slice
            withBytes:(const void *)from
          bytesPerRow:(NSUInteger)row
        bytesPerImage:(NSUInteger)image;
- (void)getBytes:(void *)to bytesPerRow:(NSUInteger)row fromRegion:(MTLRegion)region mipmapLevel:(NSUInteger)level;
- (void)getBytes:(void *)to
      bytesPerRow:(NSUInteger)row
    bytesPerImage:(NSUInteger)image
       fromRegion:(MTLRegion)region
      mipmapLevel:(NSUInteger)level
            slice:(NSUInteger)slice;
@end

@protocol MTLHeap <MTLResource>
- (NSUInteger)size;
- (NSUInteger)usedSize;
- (id<MTLBuffer>)newBufferWithLength:(NSUInteger)length options:(NSUInteger)options;
@end

@protocol MTLFunction <Object>
- (NSString *)name;
@end

@protocol MTLLibrary <Object>
- (id<MTLFunction>)newFunctionWithName:(NSString *)name;
@end

@protocol MTLComputePipelineState <Object>
- (NSString *)label;
- (NSUInteger)threadExecutionWidth;
- (NSUInteger)maxTotalThreadsPerThreadgroup;
@end

@protocol MTLEvent <Object>
- (id)device;
@end

@protocol MTLSharedEvent <MTLEvent>
- (uint64_t)signaledValue;
- (void)setSignaledValue:(uint64_t)value;
- (MTLBool)waitUntilSignaledValue:(uint64_t)value timeoutMS:(uint64_t)milliseconds;
- (void)notifyListener:(id)listener atValue:(uint64_t)value block:(id)block;
@end

@protocol MTLCommandEncoder <Object>
- (id)device;
- (void)setLabel:(NSString *)label;
- (void)endEncoding;
@end

@protocol MTLComputeCommandEncoder <MTLCommandEncoder>
- (void)setComputePipelineState:(id<MTLComputePipelineState>)state;
- (void)setBuffer:(id<MTLBuffer>)buffer offset:(NSUInteger)offset atIndex:(NSUInteger)index;
- (void)dispatchThreads:(MTLSize)threads threadsPerThreadgroup:(MTLSize)group;
- (void)dispatchThreadgroups:(MTLSize)groups threadsPerThreadgroup:(MTLSize)group;
- (void)dispatchThreadgroupsWithIndirectBuffer:(id<MTLBuffer>)buffer
                          indirectBufferOffset:(NSUInteger)offset
                         threadsPerThreadgroup:(MTLSize)group;
- (void)executeCommandsInBuffer:(id)commands withRange:(NSRange)range;
- (void)executeCommandsInBuffer:(id)commands indirectBuffer:(id<MTLBuffer>)buffer indirectBufferOffset:(NSUInteger)offset;
@end

@protocol MTLBlitCommandEncoder <MTLCommandEncoder>
- (void)copyFromBuffer:(id<MTLBuffer>)source
          sourceOffset:(NSUInteger)source_offset
              toBuffer:(id<MTLBuffer>)destination
     destinationOffset:(NSUInteger)destination_offset
                  size:(NSUInteger)size;
- (void)fillBuffer:(id<MTLBuffer>)buffer range:(NSRange)range value:(uint8_t)value;
- (void)copyFromBuffer:(id<MTLBuffer>)source
           sourceOffset:(NSUInteger)offset
      sourceBytesPerRow:(NSUInteger)row
    sourceBytesPerImage:(NSUInteger)image
             sourceSize:(MTLSize)size
              toTexture:(id<MTLTexture>)texture
       destinationSlice:(NSUInteger)slice
       destinationLevel:(NSUInteger)level
      destinationOrigin:(MTLOrigin)origin;
- (void)copyFromTexture:(id<MTLTexture>)source
                 sourceSlice:(NSUInteger)slice
                 sourceLevel:(NSUInteger)level
                sourceOrigin:(MTLOrigin)origin
                  sourceSize:(MTLSize)size
                    toBuffer:(id<MTLBuffer>)buffer
           destinationOffset:(NSUInteger)offset
      destinationBytesPerRow:(NSUInteger)row
    destinationBytesPerImage:(NSUInteger)image;
- (void)copyFromTexture:(id<MTLTexture>)source
            sourceSlice:(NSUInteger)slice
            sourceLevel:(NSUInteger)level
           sourceOrigin:(MTLOrigin)origin
             sourceSize:(MTLSize)size
              toTexture:(id<MTLTexture>)destination
       destinationSlice:(NSUInteger)to_slice
       destinationLevel:(NSUInteger)to_level
      destinationOrigin:(MTLOrigin)to;
- (void)copyFromTexture:(id<MTLTexture>)source
            sourceSlice:(NSUInteger)slice
            sourceLevel:(NSUInteger)level
              toTexture:(id<MTLTexture>)destination
       destinationSlice:(NSUInteger)to_slice
       destinationLevel:(NSUInteger)to_level
             sliceCount:(NSUInteger)slices
             levelCount:(NSUInteger)levels;
- (void)copyFromTexture:(id<MTLTexture>)source toTexture:(id<MTLTexture>)destination;
- (void)synchronizeResource:(id<MTLResource>)resource;
@end

@protocol MTLRenderCommandEncoder <MTLCommandEncoder>
- (void)drawPrimitives:(NSUInteger)type vertexStart:(NSUInteger)start vertexCount:(NSUInteger)count;
@end

@protocol MTLCommandBuffer <Object>
- (id)device;
- (id)commandQueue;
- (NSString *)label;
- (void)setLabel:(NSString *)label;
- (NSUInteger)status;
- (void)enqueue;
- (void)commit;
- (void)waitUntilScheduled;
- (void)waitUntilCompleted;
- (void)addScheduledHandler:(id)block;
- (void)addCompletedHandler:(id)block;
- (double)kernelStartTime;
- (double)kernelEndTime;
- (double)GPUStartTime;
- (double)GPUEndTime;
- (id<MTLComputeCommandEncoder>)computeCommandEncoder;
- (id<MTLComputeCommandEncoder>)computeCommandEncoderWithDispatchType:(NSUInteger)type;
- (id<MTLComputeCommandEncoder>)computeCommandEncoderWithDescriptor:(id)descriptor;
- (id<MTLBlitCommandEncoder>)blitCommandEncoder;
- (id<MTLBlitCommandEncoder>)blitCommandEncoderWithDescriptor:(id)descriptor;
- (id<MTLRenderCommandEncoder>)renderCommandEncoderWithDescriptor:(id)descriptor;
- (void)encodeSignalEvent:(id<MTLEvent>)event value:(uint64_t)value;
- (void)encodeWaitForEvent:(id<MTLEvent>)event value:(uint64_t)value;
@end

@protocol MTLCommandQueue <Object>
- (id)device;
- (NSString *)label;
- (void)setLabel:(NSString *)label;
- (id<MTLCommandBuffer>)commandBuffer;
- (id<MTLCommandBuffer>)commandBufferWithUnretainedReferences;
- (id<MTLCommandBuffer>)commandBufferWithDescriptor:(id)descriptor;
@end

@interface MTLCommandQueueDescriptor : NSObject {
    NSUInteger most;
}
- (NSUInteger)maxCommandBufferCount;
- (void)setMaxCommandBufferCount:(NSUInteger)count;
@end

@interface MTLHeapDescriptor : NSObject {
    NSUInteger bytes, mode;
}
- (NSUInteger)size;
- (void)setSize:(NSUInteger)size;
- (NSUInteger)storageMode;
- (void)setStorageMode:(NSUInteger)mode;
@end

@interface MTLComputePipelineDescriptor : NSObject {
    NSString *label;
    id function;
}
- (NSString *)label;
- (void)setLabel:(NSString *)label;
- (id)computeFunction;
- (void)setComputeFunction:(id)function;
@end

@interface MTL4CommitOptions : NSObject {
  @public
    struct block *handler;
}
- (void)addFeedbackHandler:(id)block;
@end

@protocol MTL4CommitFeedback <Object>
- (id)error;
- (double)GPUStartTime;
- (double)GPUEndTime;
@end

@protocol MTL4ComputeCommandEncoder <MTLComputeCommandEncoder, MTLBlitCommandEncoder>
- (void)dispatchThreadgroupsWithIndirectBuffer:(uint64_t)address threadsPerThreadgroup:(MTLSize)group;
- (void)dispatchThreadsWithIndirectBuffer:(uint64_t)address;
- (void)executeCommandsInBuffer:(id)commands indirectBuffer:(uint64_t)address;
@end

@protocol MTL4CommandBuffer <Object>
- (id)device;
- (NSString *)label;
- (void)setLabel:(NSString *)label;
- (void)beginCommandBufferWithAllocator:(id)allocator;
- (void)endCommandBuffer;
- (id<MTL4ComputeCommandEncoder>)computeCommandEncoder;
@end

@protocol MTL4CommandQueue <Object>
- (id)device;
- (NSString *)label;
- (void)commit:(const id<MTL4CommandBuffer> *)buffers count:(NSUInteger)count;
- (void)commit:(const id<MTL4CommandBuffer> *)buffers count:(NSUInteger)count options:(MTL4CommitOptions *)options;
- (void)signalEvent:(id<MTLEvent>)event value:(uint64_t)value;
- (void)waitForEvent:(id<MTLEvent>)event value:(uint64_t)value;
@end

@protocol MTLDevice <Object>
- (NSString *)name;
- (uint64_t)registryID;
- (MTLBool)hasUnifiedMemory;
- (uint64_t)recommendedMaxWorkingSetSize;
- (id<MTLCommandQueue>)newCommandQueue;
- (id<MTLCommandQueue>)newCommandQueueWithMaxCommandBufferCount:(NSUInteger)count;
- (id<MTLCommandQueue>)newCommandQueueWithDescriptor:(MTLCommandQueueDescriptor *)descriptor;
- (id<MTLBuffer>)newBufferWithLength:(NSUInteger)length options:(NSUInteger)options;
- (id<MTLBuffer>)newBufferWithBytes:(const void *)bytes length:(NSUInteger)length options:(NSUInteger)options;
- (id<MTLBuffer>)newBufferWithBytesNoCopy:(void *)bytes
                                   length:(NSUInteger)length
                                  options:(NSUInteger)options
                              deallocator:(id)block;
- (id<MTLTexture>)newTextureWithDescriptor:(id)descriptor;
- (id<MTLHeap>)newHeapWithDescriptor:(MTLHeapDescriptor *)descriptor;
- (id<MTLEvent>)newEvent;
- (id<MTLSharedEvent>)newSharedEvent;
- (id<MTLSharedEvent>)newSharedEventWithHandle:(id)handle;
- (id<MTLLibrary>)newDefaultLibrary;
- (id<MTLComputePipelineState>)newComputePipelineStateWithFunction:(id<MTLFunction>)function error:(id *)error;
- (id<MTLComputePipelineState>)newComputePipelineStateWithFunction:(id<MTLFunction>)function
                                                           options:(NSUInteger)options
                                                        reflection:(id *)reflection
                                                             error:(id *)error;
- (id<MTLComputePipelineState>)newComputePipelineStateWithDescriptor:(MTLComputePipelineDescriptor *)descriptor
                                                             options:(NSUInteger)options
                                                          reflection:(id *)reflection
                                                               error:(id *)error;
- (void)sampleTimestamps:(uint64_t *)cpu gpuTimestamp:(uint64_t *)gpu;
- (id<MTL4CommandQueue>)newMTL4CommandQueue;
- (id<MTL4CommandBuffer>)newCommandBuffer;
- (id)newCommandAllocator;
@end

/* Of MetalPerformanceShaders: a command buffer around others, as PyTorch uses it. */
@interface MPSCommandBuffer : NSObject {
    id root;
}
+ (MPSCommandBuffer *)commandBufferFromCommandQueue:(id)queue;
- (id)rootCommandBuffer;
- (void)commitAndContinue;
- (void)commit;
- (void)waitUntilCompleted;
- (id)computeCommandEncoder;
@end

id<MTLDevice> MTLCreateSystemDefaultDevice(void);
NSArray *MTLCopyAllDevices(void);
NSArray *MTLCopyAllDevicesWithObserver(id *observer, void *handler);

/* Not Apple's: a queue of a class that no message of the device returns, and one whose command buffers stand on nobody's commit; a
 * device as a library finds it that asks nobody; the end of a device; what the innermost commit
 * calls before and after all else; command buffers that are there; how often one was asked for what it is. */
id<MTLCommandQueue> fake_odd_queue(id<MTLDevice> device);
id<MTLCommandQueue> fake_alien_queue(id<MTLDevice> device);
id<MTLDevice> fake_private_device(void);
void fake_vanish(id<MTLDevice> device);
extern void (*fake_at_commit)(void), (*fake_after_commit)(void);
extern volatile int fake_command_buffers, fake_questions;
/* The class of new queues, where it is to be another one. */
extern const char *fake_queue_class;

#endif
