/* Messages to the simulated Metal, many of one kind inside one function, whose instructions benches/metal.py has counted.
 *
 * usage: metal_cost KIND:COUNT[:FLYING]...
 *   KIND is a line of KINDS: COUNT of its messages, after what comes first. Of commits of Metal 4, FLYING are in flight.
 *   clock: COUNT reads of it
 * Prints the ns of one of each kind, in the order of the arguments. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "metal.h"

enum { MOST = 2000 };

static const MTLSize ONE = {1, 1, 1};
static const MTLOrigin CORNER = {0, 0, 0};

static id<MTLDevice> device;
static id<MTLCommandQueue> queue;
static id<MTLFunction> function;
static id<MTLComputePipelineState> pipeline;
static id<MTLCommandBuffer> work, over;
static id<MTL4ComputeCommandEncoder> kernels;
static id<MTLBlitCommandEncoder> blit;
static id<MTLBuffer> memory;
static id<MTLTexture> image, other;
static id<MTLSharedEvent> gate, idle;
static NSString *label, *long_label, *labels[MOST], *long_labels[MOST];
static id all[MOST];
static id<MTL4CommandQueue> queue4;
static id<MTL4CommandBuffer> work4, fresh4;
static MTLHeapDescriptor *heap;
static MTLComputePipelineDescriptor *described;
static id<MTLFunction> long_named;
static char bytes[4096];

static double seconds(void) {
    struct timespec now;
    clock_gettime(CLOCK_MONOTONIC, &now);
    return now.tv_sec + now.tv_nsec / 1e9;
}

static NSString *text(const char *of) {
    return [[NSString stringWithUTF8String:of] retain];
}

static void nothing(struct block *block, id argument, uint64_t value) {
}
static const struct block_descriptor DESCRIPTOR = {0, sizeof(struct block)};
static struct block handler = {NULL, BLOCK_IS_GLOBAL, 0, nothing, &DESCRIPTOR};

/* Names as long as those of a library of kernels. */
#define LONG_NAME "steel_gemm_fused_nt_float16_float16_bm64_bn64_bk16_wm2_wn2_has_batch_false_align_true"

static void begin(void) {
    device = MTLCreateSystemDefaultDevice();
    queue = [device newCommandQueueWithMaxCommandBufferCount:1 << 30];
    id<MTLLibrary> library = [device newDefaultLibrary];
    function = [library newFunctionWithName:text("nothing")];
    long_named = [library newFunctionWithName:text(LONG_NAME)];
    pipeline = [device newComputePipelineStateWithFunction:function error:NULL];
    memory = [device newBufferWithLength:64 options:0];
    image = [device newTextureWithDescriptor:nil], other = [device newTextureWithDescriptor:nil];
    gate = [device newSharedEvent], idle = [device newSharedEvent];
    label = text("forward and backward");
    work = [[queue commandBuffer] retain];
    [work setLabel:label];
    blit = [[work blitCommandEncoder] retain];
    [blit fillBuffer:memory range:(NSRange){0, 8} value:1];
    [blit endEncoding];
    kernels = [[work computeCommandEncoder] retain];
    [kernels setComputePipelineState:pipeline];
    [kernels dispatchThreadgroups:ONE threadsPerThreadgroup:ONE];
}

/* What some kinds need besides; what comes first of them. */
static void begin_more(void) {
    char long_text[201] = {0};
    memset(long_text, 'x', 200);
    long_label = text(long_text);
    for (int i = 0; i < MOST; i++) {
        char own[32];
        snprintf(own, sizeof own, "step %04d of training", i);
        labels[i] = text(own);
        char longer[96];
        snprintf(longer, sizeof longer, "%s with a label as long as labels of encoders may well be in programs %04d", own, i % 7);
        long_labels[i] = text(longer);
    }
    heap = [MTLHeapDescriptor new];
    [heap setSize:4096];
    described = [MTLComputePipelineDescriptor new];
    [described setLabel:label];
    [described setComputeFunction:function];
    id first = [device newHeapWithDescriptor:heap];
    [first release];
    over = [[queue commandBuffer] retain];
    [over commit];
    [over waitUntilCompleted];
    fresh4 = [device newCommandBuffer];
    [fresh4 beginCommandBufferWithAllocator:nil];
    [fresh4 computeCommandEncoder];
    queue4 = [device newMTL4CommandQueue];
}

/* So many command buffers that are not committed. What comes after the first one of a round waits for its gate: the queue's
 * thread sleeps while others are committed. */
static uint64_t round_now;
static void commits(int count) {
    round_now++;
    id<MTLCommandBuffer> first = round_now == 1 ? work : [queue commandBuffer];
    [first encodeWaitForEvent:gate value:round_now];
    [first commit];
    for (int i = 0; i < count; i++) all[i] = [[queue commandBuffer] retain];
    [all[0] enqueue];
}

static void commit(int i) {
    [all[i] commit];
}

static void let_run(int count) {
    [gate setSignaledValue:round_now];
    [all[count - 1] waitUntilCompleted];
}

/* A round before the one that is counted: a program's heap has had what command buffers take, many times. */
static void prepare_commits(int count) {
    void *pool = objc_autoreleasePoolPush();
    commits(count);
    for (int i = 0; i < count; i++) commit(i);
    let_run(count);
    for (int i = 0; i < count; i++) [all[i] release];
    objc_autoreleasePoolPop(pool);
    commits(count);
}

static void prepare_completed(int count) {
    commits(count);
    for (int i = 0; i < count; i++) commit(i);
}

static void completed(int i) {
    if (!i) let_run(1);
}

/* The queue of Metal 4 waits for its gate while others are committed: all of it is in flight at once. */
static int flying;
static void first4(int count) {
    queue4 = [device newMTL4CommandQueue];
    work4 = [device newCommandBuffer];
    [work4 beginCommandBufferWithAllocator:nil];
    [work4 endCommandBuffer];
    [queue4 waitForEvent:gate value:1];
}

static void commit4(int i) {
    [queue4 commit:&work4 count:1];
}

/* The round before has made the options of as many commits. */
static void prepare4(int count) {
    id<MTLSharedEvent> end = [device newSharedEvent];
    first4(count);
    for (int i = 0; i < count + flying; i++) commit4(i);
    [queue4 signalEvent:end value:1];
    [gate setSignaledValue:1];
    [end waitUntilSignaledValue:1 timeoutMS:UINT64_MAX];
    [queue4 waitForEvent:gate value:2];
    for (int i = 0; i < flying; i++) commit4(i);
}

/* Objects that are let go of one by one. */
static void buffers(int count) {
    for (int i = 0; i < count; i++) all[i] = [device newBufferWithLength:64 options:0];
}

static void pipelines(int count) {
    for (int i = 0; i < count; i++) all[i] = [device newComputePipelineStateWithFunction:function error:NULL];
}

static void command_buffers(int count) {
    for (int i = 0; i < count; i++) all[i] = [[queue commandBuffer] retain];
}

static void encoders(int count) {
    for (int i = 0; i < count; i++) all[i] = [[work computeCommandEncoder] retain];
}

static void let_go(int i) {
    [all[i] release];
}

#define SENDS(name, ...)                                                                                               \
    static void name(int i) {                                                                                          \
        __VA_ARGS__;                                                                                                   \
    }
SENDS(clock_read, seconds())
SENDS(first_objects, begin())
SENDS(send_dispatch, [kernels dispatchThreadgroups:ONE threadsPerThreadgroup:ONE])
SENDS(send_threads, [kernels dispatchThreads:ONE threadsPerThreadgroup:ONE])
SENDS(send_indirect, [kernels dispatchThreadgroupsWithIndirectBuffer:memory indirectBufferOffset:0 threadsPerThreadgroup:ONE])
SENDS(send_commands, [kernels executeCommandsInBuffer:nil withRange:(NSRange){0, 1}])
SENDS(send_pipeline, [kernels setComputePipelineState:pipeline])
SENDS(send_end, [all[i] endEncoding])
SENDS(send_fill, [blit fillBuffer:memory range:(NSRange){0, 8} value:1])
SENDS(send_copy, [blit copyFromBuffer:memory sourceOffset:0 toBuffer:memory destinationOffset:32 size:8])
SENDS(send_copy_image, [blit copyFromTexture:image toTexture:other])
SENDS(send_copy_part, [blit copyFromTexture:image sourceSlice:0 sourceLevel:0 sourceOrigin:CORNER sourceSize:ONE
      toTexture:other destinationSlice:0 destinationLevel:0 destinationOrigin:CORNER])
SENDS(send_copy_levels, [blit copyFromTexture:image sourceSlice:0 sourceLevel:0
      toTexture:other destinationSlice:0 destinationLevel:0 sliceCount:1 levelCount:6])
SENDS(send_replace, [image replaceRegion:(MTLRegion){CORNER, ONE} mipmapLevel:0 withBytes:bytes bytesPerRow:4])
SENDS(send_read, [image getBytes:bytes bytesPerRow:4 fromRegion:(MTLRegion){CORNER, ONE} mipmapLevel:0])
SENDS(send_label, [work setLabel:label])
SENDS(send_label_long, [work setLabel:long_label])
SENDS(send_label_new, [work setLabel:labels[i]])
SENDS(send_label_new_long, [work setLabel:long_labels[i]])
SENDS(send_inner, [work computeCommandEncoderWithDispatchType:0])
SENDS(send_encoder, [work computeCommandEncoder])
SENDS(send_blit, [work blitCommandEncoder])
SENDS(send_render, [work renderCommandEncoderWithDescriptor:nil])
SENDS(send_command_buffer, [queue commandBuffer])
SENDS(send_enqueue, [all[i] enqueue])
SENDS(send_on_schedule, [all[i] addScheduledHandler:(id)(void *)&handler])
SENDS(send_on_end, [all[i] addCompletedHandler:(id)(void *)&handler])
SENDS(send_signal, [work encodeSignalEvent:idle value:1])
SENDS(send_gpu_wait, [work encodeWaitForEvent:idle value:0])
SENDS(send_wait, [over waitUntilCompleted])
SENDS(send_wait_scheduled, [over waitUntilScheduled])
SENDS(send_status, [over status])
SENDS(send_set_event, [idle setSignaledValue:1])
SENDS(send_event, [idle signaledValue])
SENDS(send_wait_event, [idle waitUntilSignaledValue:0 timeoutMS:1])
SENDS(send_notify, [idle notifyListener:nil atValue:1ull << 40 block:(id)(void *)&handler])
SENDS(send_queue, [device newCommandQueue])
SENDS(send_new_buffer, [device newBufferWithLength:64 options:0])
SENDS(send_new_bytes, [device newBufferWithBytes:bytes length:64 options:0])
SENDS(send_new_no_copy, [device newBufferWithBytesNoCopy:bytes length:64 options:0 deallocator:nil])
SENDS(send_new_texture, [device newTextureWithDescriptor:nil])
SENDS(send_new_heap, [device newHeapWithDescriptor:heap])
SENDS(send_new_event, [device newSharedEvent])
SENDS(send_new_pipeline, [device newComputePipelineStateWithFunction:function error:NULL])
SENDS(send_new_long, [device newComputePipelineStateWithFunction:long_named error:NULL])
SENDS(send_new_described, [device newComputePipelineStateWithDescriptor:described options:0 reflection:NULL error:NULL])
SENDS(send_begin4, [fresh4 beginCommandBufferWithAllocator:nil])
SENDS(send_encoder4, [fresh4 computeCommandEncoder])
SENDS(send_signal4, [queue4 signalEvent:idle value:1])
SENDS(send_gpu_wait4, [queue4 waitForEvent:idle value:0])
SENDS(send_new_queue4, [device newMTL4CommandQueue])
SENDS(send_new_buffer4, [device newCommandBuffer])

static const struct {
    const char *name;
    void (*send)(int), (*prepare)(int);
} KINDS[] = {
    {"clock", clock_read},
    {"first", first_objects},
    {"commit", commit, prepare_commits},
    {"completed", completed, prepare_completed},
    {"commit4", commit4, prepare4},
    {"commit4-new", commit4, first4},
    {"dispatch", send_dispatch},
    {"threads", send_threads},
    {"indirect", send_indirect},
    {"commands", send_commands},
    {"pipeline", send_pipeline},
    {"end", send_end, encoders},
    {"fill", send_fill},
    {"copy", send_copy},
    {"copy-image", send_copy_image},
    {"copy-part", send_copy_part},
    {"copy-levels", send_copy_levels},
    {"replace", send_replace},
    {"read", send_read},
    {"label", send_label},
    {"label-long", send_label_long},
    {"label-new", send_label_new},
    {"label-new-long", send_label_new_long},
    {"inner", send_inner},
    {"encoder", send_encoder},
    {"blit", send_blit},
    {"render", send_render},
    {"command-buffer", send_command_buffer},
    {"enqueue", send_enqueue, command_buffers},
    {"on-schedule", send_on_schedule, command_buffers},
    {"on-end", send_on_end, command_buffers},
    {"signal", send_signal},
    {"gpu-wait", send_gpu_wait},
    {"wait", send_wait},
    {"wait-scheduled", send_wait_scheduled},
    {"status", send_status},
    {"set-event", send_set_event},
    {"event", send_event},
    {"wait-event", send_wait_event},
    {"notify", send_notify},
    {"queue", send_queue},
    {"new-buffer", send_new_buffer},
    {"new-bytes", send_new_bytes},
    {"new-no-copy", send_new_no_copy},
    {"new-texture", send_new_texture},
    {"new-heap", send_new_heap},
    {"new-event", send_new_event},
    {"new-pipeline", send_new_pipeline},
    {"new-long", send_new_long},
    {"new-described", send_new_described},
    {"end-buffer", let_go, buffers},
    {"end-pipeline", let_go, pipelines},
    {"begin4", send_begin4},
    {"encoder4", send_encoder4},
    {"signal4", send_signal4},
    {"gpu-wait4", send_gpu_wait4},
    {"new-queue4", send_new_queue4},
    {"new-buffer4", send_new_buffer4},
};
enum { COUNT = sizeof KINDS / sizeof *KINDS };

/* What is counted; all of one call is of one kind. */
__attribute__((noinline)) static void messages(void (*send)(int), int count) {
    for (int i = 0; i < count; i++) send(i);
}

int main(int argc, char **argv) {
    void *pool = objc_autoreleasePoolPush();
    int is_first = argc > 1 && !strncmp(argv[1], "first", 5);
    if (!is_first) begin(), begin_more();
    for (int n = 1; n < argc; n++) {
        char name[32];
        int count, which = 0;
        flying = 0;
        if (sscanf(argv[n], "%31[^:]:%d:%d", name, &count, &flying) < 2 || count > MOST) return 2;
        while (which < COUNT && strcmp(KINDS[which].name, name)) which++;
        if (which == COUNT) return 2;
        if (KINDS[which].prepare) KINDS[which].prepare(count);
        double start = seconds();
        messages(KINDS[which].send, count);
        printf("%.2f\n", (seconds() - start) * 1e9 / count);
    }
    fflush(stdout);
    _Exit(0);
}
