/* A program on Metal for ci/on-a-mac: 100 command buffers of two dispatches and a copy each, waited for one by one, what has a
   label, parts of textures, and one shared event; or what its argument says: mps, metal4, twice, clocks, cost, room, scheduled, released, class,
   after, before CLASS, switched FILE, more. Exit 77: this machine has not what it takes. */

#import <Foundation/Foundation.h>
#import <Metal/Metal.h>
#import <MetalPerformanceShaders/MetalPerformanceShaders.h>
#include <dispatch/dispatch.h>
#include <objc/runtime.h>
#include <time.h>
#include <unistd.h>

static NSString *const source = @"#include <metal_stdlib>\n"
                                 "kernel void twice(device float *x [[buffer(0)]], uint i [[thread_position_in_grid]])\n"
                                 "{ for (int n = 0; n < 100; n++) x[i] = x[i] * 1.0001f + 1.0f; }\n";

enum { COMMITS = 100, BYTES = 1 << 20 };

static id<MTLComputePipelineState> pipeline(id<MTLDevice> device) {
    id<MTLLibrary> library = [device newLibraryWithSource:source options:nil error:nil];
    id<MTLFunction> function = [library newFunctionWithName:@"twice"];
    return [device newComputePipelineStateWithFunction:function error:nil];
}

static void dispatch(id<MTLCommandBuffer> work, id<MTLComputePipelineState> kernel, id<MTLBuffer> data, int times) {
    id<MTLComputeCommandEncoder> encoder = [work computeCommandEncoder];
    encoder.label = @"encoder of a Mac";
    [encoder setComputePipelineState:kernel];
    [encoder setBuffer:data offset:0 atIndex:0];
    for (int i = 0; i < times; i++)
        [encoder dispatchThreadgroups:MTLSizeMake(BYTES / 4 / 64, 1, 1) threadsPerThreadgroup:MTLSizeMake(64, 1, 1)];
    [encoder endEncoding];
}

/* The host writes 16 x 8 pixels of a texture, whose 8 x 4 are copied into another one in the command buffer. */
static void copy_part(id<MTLDevice> device, id<MTLBlitCommandEncoder> copy) {
    MTLTextureDescriptor *of = [MTLTextureDescriptor texture2DDescriptorWithPixelFormat:MTLPixelFormatRGBA8Unorm
                                                                                  width:64
                                                                                 height:64
                                                                              mipmapped:NO];
    id<MTLTexture> one = [device newTextureWithDescriptor:of], two = [device newTextureWithDescriptor:of];
    static const char pixels[16 * 8 * 4];
    [one replaceRegion:MTLRegionMake2D(0, 0, 16, 8) mipmapLevel:0 withBytes:pixels bytesPerRow:16 * 4];
    [copy copyFromTexture:one
              sourceSlice:0
              sourceLevel:0
             sourceOrigin:MTLOriginMake(0, 0, 0)
               sourceSize:MTLSizeMake(8, 4, 1)
                toTexture:two
         destinationSlice:0
         destinationLevel:0
        destinationOrigin:MTLOriginMake(8, 8, 0)];
}

/* What a message takes that is hooked and does little itself, in ns: the best of some rounds. */
static int cost(id<MTLCommandQueue> queue, id<MTLComputePipelineState> kernel) {
    enum { MESSAGES = 20000, ROUNDS = 9 };
    uint64_t best = UINT64_MAX;
    id<MTLComputeCommandEncoder> encoder = [[queue commandBuffer] computeCommandEncoder];
    for (int round = 0; round < ROUNDS; round++) {
        uint64_t begin = clock_gettime_nsec_np(CLOCK_UPTIME_RAW);
        for (int i = 0; i < MESSAGES; i++) [encoder setComputePipelineState:kernel];
        uint64_t took = clock_gettime_nsec_np(CLOCK_UPTIME_RAW) - begin;
        if (took < best) best = took;
    }
    [encoder endEncoding];
    printf("%llu\n", best / MESSAGES);
    return 0;
}

static int plain(id<MTLDevice> device, id<MTLCommandQueue> queue, id<MTLComputePipelineState> kernel) {
    id<MTLBuffer> data = [device newBufferWithLength:BYTES options:MTLResourceStorageModeShared];
    id<MTLBuffer> other = [device newBufferWithLength:BYTES options:MTLResourceStorageModeShared];
    queue.label = @"queue of a Mac";
    data.label = @"buffer of a Mac";
    for (int i = 0; i < COMMITS; i++) @autoreleasepool {
        id<MTLCommandBuffer> work = [queue commandBuffer];
        /* The others go by their encoder's. */
        if (i % 2) work.label = @"step";
        dispatch(work, kernel, data, 2);
        id<MTLBlitCommandEncoder> copy = [work blitCommandEncoder];
        [copy copyFromBuffer:data sourceOffset:0 toBuffer:other destinationOffset:0 size:BYTES];
        if (i == 0) copy_part(device, copy);
        [copy endEncoding];
        [work commit];
        [work waitUntilCompleted];
        if (work.error) return 1;
    }
    id<MTLSharedEvent> event = [device newSharedEvent];
    event.signaledValue = 3;
    if (@available(macOS 12.0, *))
        if (![event waitUntilSignaledValue:3 timeoutMS:1000]) return 1;
    return 0;
}

static int mps(id<MTLDevice> device, id<MTLCommandQueue> queue, id<MTLComputePipelineState> kernel) {
    id<MTLBuffer> data = [device newBufferWithLength:BYTES options:MTLResourceStorageModeShared];
    MPSCommandBuffer *work = [MPSCommandBuffer commandBufferFromCommandQueue:queue];
    dispatch(work, kernel, data, 1);
    [work commitAndContinue];
    dispatch(work, kernel, data, 1);
    [work commit];
    [work waitUntilCompleted];
    return work.error != nil;
}

/* Whether the host's time that Metal ties the GPU's to is the tracer's clock, and GPUEndTime lies on it. */
static int clocks(id<MTLDevice> device, id<MTLCommandQueue> queue, id<MTLComputePipelineState> kernel) {
    MTLTimestamp cpu = 0, gpu = 0;
    uint64_t before = clock_gettime_nsec_np(CLOCK_UPTIME_RAW);
    [device sampleTimestamps:&cpu gpuTimestamp:&gpu];
    uint64_t after = clock_gettime_nsec_np(CLOCK_UPTIME_RAW);
    id<MTLCommandBuffer> work = [queue commandBuffer];
    dispatch(work, kernel, [device newBufferWithLength:BYTES options:0], 1);
    [work commit];
    [work waitUntilCompleted];
    uint64_t end = clock_gettime_nsec_np(CLOCK_UPTIME_RAW), said = (uint64_t)(work.GPUEndTime * 1e9);
    printf("host's %lld ns from the call's begin (it took %llu), the GPU's %lld from the host's; GPUEndTime %lld ns before waitUntilCompleted's end\n",
           (long long)(cpu - before), after - before, (long long)(gpu - cpu), (long long)(end - said));
    return !(cpu >= before && cpu <= after && said >= after && said <= end);
}

/* A queue of two command buffers that wait for an event, which another thread signals 50 ms later: a third one is given out then. */
static int room(id<MTLDevice> device, id<MTLComputePipelineState> kernel) {
    id<MTLCommandQueue> queue = [device newCommandQueueWithMaxCommandBufferCount:2];
    id<MTLBuffer> data = [device newBufferWithLength:BYTES options:0];
    id<MTLSharedEvent> gate = [device newSharedEvent];
    for (int i = 0; i < 2; i++) {
        id<MTLCommandBuffer> work = [queue commandBuffer];
        [work encodeWaitForEvent:gate value:1];
        dispatch(work, kernel, data, 1);
        [work commit];
    }
    dispatch_after(dispatch_time(DISPATCH_TIME_NOW, 50 * NSEC_PER_MSEC), dispatch_get_global_queue(QOS_CLASS_DEFAULT, 0),
                   ^{ gate.signaledValue = 1; });
    uint64_t begin = clock_gettime_nsec_np(CLOCK_UPTIME_RAW);
    id<MTLCommandBuffer> third = [queue commandBuffer];
    uint64_t waited = clock_gettime_nsec_np(CLOCK_UPTIME_RAW) - begin;
    [third commit];
    [third waitUntilCompleted];
    printf("%llu ms\n", waited / NSEC_PER_MSEC);
    return waited < 20 * NSEC_PER_MSEC;
}

static int scheduled(id<MTLDevice> device, id<MTLCommandQueue> queue, id<MTLComputePipelineState> kernel) {
    id<MTLCommandBuffer> work = [queue commandBuffer];
    dispatch(work, kernel, [device newBufferWithLength:BYTES options:0], 1);
    [work commit];
    [work waitUntilScheduled];
    [work waitUntilCompleted];
    return work.error != nil;
}

/* Nobody but Metal holds the command buffers when their handlers run. */
static int released(id<MTLDevice> device, id<MTLCommandQueue> queue, id<MTLComputePipelineState> kernel) {
    enum { ALL = 20 };
    dispatch_semaphore_t handled = dispatch_semaphore_create(0);
    @autoreleasepool {
        id<MTLBuffer> data = [device newBufferWithLength:BYTES options:0];
        for (int i = 0; i < ALL; i++) @autoreleasepool {
            id<MTLCommandBuffer> work = [queue commandBuffer];
            dispatch(work, kernel, data, 1);
            [work addCompletedHandler:^(id<MTLCommandBuffer> done) {
              if (!done.error && done.GPUEndTime > 0) dispatch_semaphore_signal(handled);
            }];
            [work commit];
        }
    }
    for (int i = 0; i < ALL; i++)
        if (dispatch_semaphore_wait(handled, dispatch_time(DISPATCH_TIME_NOW, 10 * NSEC_PER_SEC))) return 1;
    return 0;
}

static void (*original_commit)(id, SEL);
static int seen, throws;

static void their_commit(id self, SEL selector) {
    if (throws && ++seen % 10 == 0) @throw [NSException exceptionWithName:@"tenth" reason:nil userInfo:nil];
    seen += !throws;
    original_commit(self, selector);
}

/* Another one's commit, in a class whose hooks are there already, or in the class of this name before its first command buffer is
   made: then each tenth commit is left by an exception, and made anew. */
static int swizzled(id<MTLCommandQueue> queue, id<MTLComputePipelineState> kernel, const char *before) {
    enum { ALL = 100 };
    Class class = before ? objc_getClass(before) : object_getClass([queue commandBuffer]);
    Method method = class_getInstanceMethod(class, @selector(commit));
    if (!method) return 77;
    original_commit = (void (*)(id, SEL))method_getImplementation(method);
    throws = before != NULL;
    method_setImplementation(method, (IMP)their_commit);
    id<MTLBuffer> data = [queue.device newBufferWithLength:BYTES options:0];
    int caught = 0;
    for (int i = 0; i < ALL; i++) @autoreleasepool {
        id<MTLCommandBuffer> work = [queue commandBuffer];
        dispatch(work, kernel, data, 1);
        @try {
            [work commit];
        } @catch (NSException *thrown) {
            caught++;
            [work commit];
        }
        [work waitUntilCompleted];
        if (work.error) return 1;
    }
    printf("%d seen, %d caught\n", seen, caught);
    return throws ? caught < ALL / 10 : seen != ALL;
}

/* Commits for as long as there is no FILE.stop, at most two minutes, and says how many; makes FILE after the first fifty. */
static int switched(id<MTLCommandQueue> queue, NSString *file) {
    NSFileManager *files = [NSFileManager defaultManager];
    NSString *stop = [file stringByAppendingString:@".stop"];
    time_t end = time(NULL) + 120;
    long made = 0;
    for (; ![files fileExistsAtPath:stop] && time(NULL) < end; made++) @autoreleasepool {
        if (made == 50) [files createFileAtPath:file contents:nil attributes:nil];
        id<MTLCommandBuffer> work = [queue commandBuffer];
        [work commit];
        [work waitUntilCompleted];
        usleep(1000);
    }
    printf("%ld\n", made);
    return 0;
}

/* What the others leave out: all devices, a heap, commands from a buffer of their own, a queue that waits for another one, and who
 * is told of an event. */
static int more(id<MTLDevice> device, id<MTLCommandQueue> queue, id<MTLComputePipelineState> kernel) {
    id<NSObject> observer = nil;
    NSArray *observed = MTLCopyAllDevicesWithObserver(&observer, ^(id<MTLDevice> changed, MTLDeviceNotificationName name) {});
    if (!MTLCopyAllDevices().count || !observed.count) return 1;
    MTLRemoveDeviceObserver(observer);
    MTLHeapDescriptor *of = [MTLHeapDescriptor new];
    of.size = 16 * BYTES;
    of.storageMode = MTLStorageModePrivate;
    id<MTLHeap> heap = [device newHeapWithDescriptor:of];
    id<MTLBuffer> data = [heap newBufferWithLength:BYTES options:MTLResourceStorageModePrivate];
    if (!data) return 1;

    id<MTLLibrary> library = [device newLibraryWithSource:source options:nil error:nil];
    MTLComputePipelineDescriptor *indirect = [MTLComputePipelineDescriptor new];
    indirect.computeFunction = [library newFunctionWithName:@"twice"];
    indirect.supportIndirectCommandBuffers = YES;
    id<MTLComputePipelineState> state = [device newComputePipelineStateWithDescriptor:indirect
                                                                              options:MTLPipelineOptionNone
                                                                           reflection:nil
                                                                                error:nil];
    MTLIndirectCommandBufferDescriptor *kinds = [MTLIndirectCommandBufferDescriptor new];
    kinds.commandTypes = MTLIndirectCommandTypeConcurrentDispatch;
    kinds.inheritBuffers = NO;
    kinds.inheritPipelineState = NO;
    kinds.maxKernelBufferBindCount = 1;
    id<MTLIndirectCommandBuffer> commands = [device newIndirectCommandBufferWithDescriptor:kinds maxCommandCount:1 options:0];
    id<MTLIndirectComputeCommand> command = [commands indirectComputeCommandAtIndex:0];
    [command setComputePipelineState:state];
    [command setKernelBuffer:data offset:0 atIndex:0];
    [command concurrentDispatchThreadgroups:MTLSizeMake(16, 1, 1) threadsPerThreadgroup:MTLSizeMake(64, 1, 1)];

    id<MTLSharedEvent> event = [device newSharedEvent];
    dispatch_semaphore_t told = dispatch_semaphore_create(0);
    MTLSharedEventListener *listener = [MTLSharedEventListener new];
    [event notifyListener:listener atValue:1 block:^(id<MTLSharedEvent> signaled, uint64_t value) {
        dispatch_semaphore_signal(told);
    }];
    id<MTLCommandBuffer> first = [queue commandBuffer], second = [[device newCommandQueue] commandBuffer];
    [second encodeWaitForEvent:event value:1];
    dispatch(second, kernel, data, 1);
    [second commit];
    id<MTLComputeCommandEncoder> encoder = [first computeCommandEncoder];
    [encoder useResource:data usage:MTLResourceUsageRead | MTLResourceUsageWrite];
    [encoder executeCommandsInBuffer:commands withRange:NSMakeRange(0, 1)];
    [encoder endEncoding];
    [first encodeSignalEvent:event value:1];
    [first commit];
    [second waitUntilCompleted];
    if (first.error || second.error) return 1;
    return dispatch_semaphore_wait(told, dispatch_time(DISPATCH_TIME_NOW, 10 * NSEC_PER_SEC)) != 0;
}

static int metal4(id<MTLDevice> device) {
#if defined(__MAC_26_0)
    if (@available(macOS 26.0, *)) {
        if (![device supportsFamily:MTLGPUFamilyMetal4]) return 77;
        id<MTL4CommandQueue> queue = [device newMTL4CommandQueue];
        id<MTL4CommandAllocator> allocator = [device newCommandAllocator];
        id<MTLSharedEvent> event = [device newSharedEvent];
        for (uint64_t i = 1; i <= 10; i++) @autoreleasepool {
            id<MTL4CommandBuffer> work = [device newCommandBuffer];
            [work beginCommandBufferWithAllocator:allocator];
            [[work computeCommandEncoder] endEncoding];
            [work endCommandBuffer];
            [queue commit:&work count:1];
            [queue signalEvent:event value:i];
            if (![event waitUntilSignaledValue:i timeoutMS:1000]) return 1;
            [allocator reset];
        }
        return 0;
    }
#endif
    return device ? 77 : 1;
}

int main(int count, char **words) {
    @autoreleasepool {
        NSString *what = count > 1 ? @(words[1]) : @"";
        id<MTLDevice> device = MTLCreateSystemDefaultDevice();
        id<MTLCommandQueue> queue = [device newCommandQueue];
        id<MTLComputePipelineState> kernel = pipeline(device);
        if (!device || !queue || !kernel) return 77;
        if ([what isEqual:@"mps"]) return mps(device, queue, kernel);
        if ([what isEqual:@"metal4"]) return metal4(device);
        if ([what isEqual:@"cost"]) return cost(queue, kernel);
        if ([what isEqual:@"room"]) return room(device, kernel);
        if ([what isEqual:@"scheduled"]) return scheduled(device, queue, kernel);
        if ([what isEqual:@"released"]) return released(device, queue, kernel);
        if ([what isEqual:@"switched"]) return count < 3 ? 1 : switched(queue, @(words[2]));
        if ([what isEqual:@"more"]) return more(device, queue, kernel);
        if ([what isEqual:@"class"]) return puts(object_getClassName([queue commandBuffer])) < 0;
        if ([what isEqual:@"after"]) return swizzled(queue, kernel, NULL);
        if ([what isEqual:@"before"]) return swizzled(queue, kernel, count > 2 ? words[2] : "");
        if ([what isEqual:@"clocks"]) return clocks(device, queue, kernel);
        if ([what isEqual:@"twice"]) {
            id<MTLCommandBuffer> work = [queue commandBuffer];
            [work commit];
            [work commit];
        }
        return plain(device, queue, kernel);
    }
}
