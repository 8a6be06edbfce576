/* MTLDevice: two vendors' families of classes. */
#include <pthread.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "classes.h"
#include "events.h"
#include "gpu_clock.h"
#include "layer.h"
#include "truth.h"

const struct family AGX_SIM = {"AGXSim",        "AGXSimCommandQueue", "AGXSimCommandBuffer", "AGXSimComputeContext",
                               "AGXSimBlitContext", "AGXSimRenderContext", "AGXSimBuffer",     "AGXSimHeap",
                               "AGXSimTexture"};
const struct family BRONZE_SIM = {"BronzeSim",        "BronzeSimQueue",  "BronzeSimBufferOfCommands", "BronzeSimCompute",
                                  "BronzeSimBlit",    "BronzeSimRender", "BronzeSimBuffer",           "BronzeSimHeap",
                                  "BronzeSimTexture"};
const char *fake_queue_class;
/* What Metal allows when nothing else is asked for. */
enum { MOST_COMMAND_BUFFERS = 64 };

@implementation _MTLSimDevice
- (NSString *)name {
    return [NSString stringWithUTF8String:family == &AGX_SIM ? "Simulated M1" : "Simulated Bronze"];
}
- (uint64_t)registryID {
    return 0x100000400 + number;
}
- (MTLBool)hasUnifiedMemory {
    return family == &AGX_SIM;
}
- (uint64_t)recommendedMaxWorkingSetSize {
    return 8ull << 30;
}
- (id)newCommandQueueWithMaxCommandBufferCount:(NSUInteger)count {
    return vanished ? nil : [objc_getClass(fake_queue_class ? fake_queue_class : family->queue) queueOf:self most:count];
}
- (id)newCommandQueue {
    return [self newCommandQueueWithMaxCommandBufferCount:MOST_COMMAND_BUFFERS];
}
- (id)newCommandQueueWithDescriptor:(MTLCommandQueueDescriptor *)descriptor {
    NSUInteger most = [descriptor maxCommandBufferCount];
    return [self newCommandQueueWithMaxCommandBufferCount:most ? most : MOST_COMMAND_BUFFERS];
}
- (id)newBufferWithLength:(NSUInteger)length options:(NSUInteger)options {
    return vanished ? nil : resource_new(family->buffer, self, length, options, NULL);
}
- (id)newBufferWithBytes:(const void *)bytes length:(NSUInteger)length options:(NSUInteger)options {
    if (vanished)
        return nil;
    _MTLSimBuffer *made = resource_new(family->buffer, self, length, options, NULL);
    memcpy(made->memory, bytes, length);
    return made;
}
- (id)newBufferWithBytesNoCopy:(void *)bytes
                        length:(NSUInteger)length
                       options:(NSUInteger)options
                   deallocator:(id)block {
    if (vanished)
        return nil;
    _MTLSimBuffer *made = resource_new(family->buffer, self, length, options, bytes);
    made->deallocator = (struct block *)block;
    return made;
}
- (id)newTextureWithDescriptor:(id)descriptor {
    return resource_new(family->texture, self, 4096, MTLResourceStorageModePrivate, NULL);
}
- (id)newHeapWithDescriptor:(MTLHeapDescriptor *)descriptor {
    return resource_new(family->heap, self, [descriptor size], [descriptor storageMode] << 4, NULL);
}
- (id)newEvent {
    return event_new("AGXSimEvent", self);
}
- (id)newSharedEvent {
    return event_new("_MTLSimSharedEvent", self);
}
/* There is no other process: it is a new one. */
- (id)newSharedEventWithHandle:(id)handle {
    return event_new("_MTLSimSharedEvent", self);
}
- (id)newDefaultLibrary {
    return library_new();
}
- (id)newComputePipelineStateWithFunction:(id)function error:(id *)error {
    return pipeline_new(function, nil);
}
- (id)newComputePipelineStateWithFunction:(id)function
                                  options:(NSUInteger)options
                               reflection:(id *)reflection
                                    error:(id *)error {
    return pipeline_new(function, nil);
}
- (id)newComputePipelineStateWithDescriptor:(MTLComputePipelineDescriptor *)descriptor
                                    options:(NSUInteger)options
                                 reflection:(id *)reflection
                                      error:(id *)error {
    return pipeline_new([descriptor computeFunction], [descriptor label]);
}
- (void)sampleTimestamps:(uint64_t *)cpu gpuTimestamp:(uint64_t *)gpu {
    *cpu = now_ns();
    *gpu = gpu_stamp(*cpu);
}
- (id)newMTL4CommandQueue {
    return vanished ? nil : [objc_getClass("_MTL4SimCommandQueue") queueOf:self most:MOST_COMMAND_BUFFERS];
}
- (id)newCommandBuffer {
    return command_buffer4_new(self);
}
- (id)newCommandAllocator {
    return [NSObject new];
}
@end

/* A device whose class has some messages of its own, and calls what it inherits. */
@interface AGXSimDevice : _MTLSimDevice
@end
@implementation AGXSimDevice
- (id)newCommandQueue {
    return [super newCommandQueue];
}
- (id)newBufferWithLength:(NSUInteger)length options:(NSUInteger)options {
    return [super newBufferWithLength:length options:options];
}
@end

INHERITS(BronzeSimDevice, _MTLSimDevice)

enum { MOST_DEVICES = 4 };
static id devices[MOST_DEVICES];
static int device_count;

/* Devices live as long as the process. The first is AGXSim's, every other one BronzeSim's. */
static void make_devices(void) {
    const char *wanted = getenv("FAKE_METAL_DEVICES");
    device_count = wanted ? atoi(wanted) : 1;
    for (int i = 0; i < device_count && i < MOST_DEVICES; i++) {
        const struct family *family = i % 2 ? &BRONZE_SIM : &AGX_SIM;
        _MTLSimDevice *device = [objc_getClass(i % 2 ? "BronzeSimDevice" : "AGXSimDevice") new];
        device->family = family;
        device->number = i;
        devices[i] = getenv("FAKE_METAL_LAYER") ? layer_device(device) : device;
    }
}

static void find_devices(void) {
    static pthread_once_t once = PTHREAD_ONCE_INIT;
    pthread_once(&once, make_devices);
}

id MTLCreateSystemDefaultDevice(void) {
    find_devices();
    return [devices[0] retain];
}

id fake_private_device(void) {
    find_devices();
    return [devices[0] retain];
}

NSArray *MTLCopyAllDevices(void) {
    find_devices();
    NSArray *all = [NSArray new];
    for (int i = 0; i < device_count; i++)
        [all addObject:devices[i]];
    return all;
}

NSArray *MTLCopyAllDevicesWithObserver(id *observer, void *handler) {
    if (observer)
        *observer = nil;
    return MTLCopyAllDevices();
}

void fake_vanish(id device) {
    ((_MTLSimDevice *)device)->vanished = 1;
}
