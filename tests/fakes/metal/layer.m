/* A layer between a program and the vendor's objects, as those for validation (MTL_DEBUG_LAYER) and capturing put one
 * there: with FAKE_METAL_LAYER a device, its queues, command buffers and encoders each stand for another one, pass messages
 * on, and are what handlers are given. Buffers, pipelines and events are the vendor's own. */
#include "layer.h"

#include "blocks.h"

@interface SimLayerObject : NSObject {
  @public
    id base;
}
@end

@implementation SimLayerObject
- (void)dealloc {
    [base release];
    [super dealloc];
}
- (NSString *)label {
    return [base label];
}
- (void)setLabel:(NSString *)text {
    [base setLabel:text];
}
@end

/* One that stands for an object, whose reference it takes. */
static id layer_over(const char *class_name, id base) {
    if (!base)
        return nil;
    SimLayerObject *made = [objc_getClass(class_name) new];
    made->base = base;
    return made;
}

#define PASS_ON(type, message)                                                                                         \
    -(type)message {                                                                                                   \
        return [base message];                                                                                         \
    }

@interface SimLayerBlitEncoder : SimLayerObject
@end

@implementation SimLayerBlitEncoder
PASS_ON(void, endEncoding)
- (void)fillBuffer:(id)buffer range:(NSRange)range value:(uint8_t)value {
    [base fillBuffer:buffer range:range value:value];
}
- (void)copyFromBuffer:(id)source sourceOffset:(NSUInteger)from toBuffer:(id)target destinationOffset:(NSUInteger)to size:(NSUInteger)size {
    [base copyFromBuffer:source sourceOffset:from toBuffer:target destinationOffset:to size:size];
}
@end

@interface SimLayerComputeEncoder : SimLayerObject
@end

@implementation SimLayerComputeEncoder
PASS_ON(void, endEncoding)
- (void)setComputePipelineState:(id)state {
    [base setComputePipelineState:state];
}
- (void)dispatchThreads:(MTLSize)threads threadsPerThreadgroup:(MTLSize)group {
    [base dispatchThreads:threads threadsPerThreadgroup:group];
}
- (void)dispatchThreadgroups:(MTLSize)groups threadsPerThreadgroup:(MTLSize)group {
    [base dispatchThreadgroups:groups threadsPerThreadgroup:group];
}
- (void)dispatchThreadgroupsWithIndirectBuffer:(id)buffer
                          indirectBufferOffset:(NSUInteger)offset
                         threadsPerThreadgroup:(MTLSize)group {
    [base dispatchThreadgroupsWithIndirectBuffer:buffer indirectBufferOffset:offset threadsPerThreadgroup:group];
}
@end

@interface SimLayerCommandBuffer : SimLayerObject {
  @public
    id queue;
    struct handlers completed;
}
@end

/* The base's handler, which holds who stands for it. */
struct holder {
    struct block block;
    SimLayerCommandBuffer *owner;
};

static void tell(struct block *block, id base, uint64_t unused) {
    SimLayerCommandBuffer *owner = ((struct holder *)block)->owner;
    call_handlers(&owner->completed, owner);
    [owner release];
}

static const struct block_descriptor HOLDER = {0, sizeof(struct holder)};

@implementation SimLayerCommandBuffer
PASS_ON(NSUInteger, status)
PASS_ON(void, enqueue)
PASS_ON(void, waitUntilScheduled)
PASS_ON(void, waitUntilCompleted)
PASS_ON(double, kernelStartTime)
PASS_ON(double, kernelEndTime)
PASS_ON(double, GPUStartTime)
PASS_ON(double, GPUEndTime)
- (id)commandQueue {
    return queue;
}
- (void)addCompletedHandler:(id)block {
    add_handler(&completed, (void *)block);
}
- (void)commit {
    struct holder holder = {{NULL, 0, 0, tell, &HOLDER}, [self retain]};
    [base addCompletedHandler:(id)(void *)&holder];
    [base commit];
}
- (id)computeCommandEncoder {
    return [layer_over("SimLayerComputeEncoder", [[base computeCommandEncoder] retain]) autorelease];
}
- (id)computeCommandEncoderWithDispatchType:(NSUInteger)type {
    return [layer_over("SimLayerComputeEncoder", [[base computeCommandEncoderWithDispatchType:type] retain]) autorelease];
}
- (id)blitCommandEncoder {
    return [layer_over("SimLayerBlitEncoder", [[base blitCommandEncoder] retain]) autorelease];
}
@end

@interface SimLayerQueue : SimLayerObject {
  @public
    id device;
}
@end

@implementation SimLayerQueue
- (id)device {
    return device;
}
- (id)commandBuffer {
    SimLayerCommandBuffer *made = layer_over("SimLayerCommandBuffer", [[base commandBuffer] retain]);
    if (made)
        made->queue = self;
    return [made autorelease];
}
@end

/* Metal 4's: its command buffers are the vendor's own. */
@interface SimLayerQueue4 : SimLayerQueue
@end

@implementation SimLayerQueue4
- (void)commit:(const id *)buffers count:(NSUInteger)count {
    [base commit:buffers count:count];
}
- (void)commit:(const id *)buffers count:(NSUInteger)count options:(MTL4CommitOptions *)options {
    [base commit:buffers count:count options:options];
}
- (void)signalEvent:(id)event value:(uint64_t)value {
    [base signalEvent:event value:value];
}
- (void)waitForEvent:(id)event value:(uint64_t)value {
    [base waitForEvent:event value:value];
}
@end

@interface SimLayerDevice : SimLayerObject
@end

@implementation SimLayerDevice
PASS_ON(NSString *, name)
PASS_ON(uint64_t, registryID)
PASS_ON(MTLBool, hasUnifiedMemory)
PASS_ON(uint64_t, recommendedMaxWorkingSetSize)
PASS_ON(id, newDefaultLibrary)
PASS_ON(id, newSharedEvent)
PASS_ON(id, newCommandBuffer)
PASS_ON(id, newCommandAllocator)
- (id)over:(id)queue as:(const char *)class_name {
    SimLayerQueue *made = layer_over(class_name, queue);
    made->device = self;
    return made;
}
- (id)newCommandQueue {
    return [self over:[base newCommandQueue] as:"SimLayerQueue"];
}
- (id)newCommandQueueWithMaxCommandBufferCount:(NSUInteger)count {
    return [self over:[base newCommandQueueWithMaxCommandBufferCount:count] as:"SimLayerQueue"];
}
- (id)newMTL4CommandQueue {
    return [self over:[base newMTL4CommandQueue] as:"SimLayerQueue4"];
}
- (id)newBufferWithLength:(NSUInteger)length options:(NSUInteger)options {
    return [base newBufferWithLength:length options:options];
}
- (id)newComputePipelineStateWithFunction:(id)function error:(id *)error {
    return [base newComputePipelineStateWithFunction:function error:error];
}
- (id)newComputePipelineStateWithFunction:(id)function options:(NSUInteger)options reflection:(id *)reflection error:(id *)error {
    return [base newComputePipelineStateWithFunction:function options:options reflection:reflection error:error];
}
- (id)newComputePipelineStateWithDescriptor:(MTLComputePipelineDescriptor *)descriptor
                                    options:(NSUInteger)options
                                 reflection:(id *)reflection
                                      error:(id *)error {
    return [base newComputePipelineStateWithDescriptor:descriptor options:options reflection:reflection error:error];
}
@end

id layer_device(id base) {
    return layer_over("SimLayerDevice", base);
}
