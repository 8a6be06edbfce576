/* Commits from many threads at once, for the simulated Metal.
 *
 * usage: metal_stress THREADS COMMITS one|each waits|before|after|four
 *   one    all threads commit to one queue
 *   each   each thread has its own
 *   waits  waits for every hundredth
 *   before, after   waits for none, and lets go of all of it before it has run; each tenth commit is left by an exception first,
 *          and another one puts its own commit into the class, before the first command buffer or after
 *   four   queues of Metal 4: each commit has three command buffers, of one, two and three dispatches, and each twentieth is waited for
 * Each thread makes COMMITS command buffers with one dispatch. Prints how many completed handlers ran, how many exceptions were
 * caught, and how many commits the other one saw. */
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "metal.h"

static id<MTLDevice> device;
static id<MTLCommandQueue> shared;
static id<MTLComputePipelineState> pipeline;
static int commits, waits;
static unsigned long handled, caught, seen;

static void count(struct block *block, id buffer, uint64_t unused) {
    __atomic_fetch_add(&handled, 1, __ATOMIC_RELAXED);
}

static const struct block_descriptor DESCRIPTOR = {0, sizeof(struct block)};
static struct block handler = {NULL, BLOCK_IS_GLOBAL, 0, count, &DESCRIPTOR};

/* Whether this thread's next commit is to be left. */
static __thread int leaves;

static void throw_it(void) {
    if (leaves) @throw [[NSObject new] autorelease];
}

static void commit(id<MTLCommandBuffer> work, int nth) {
    leaves = !waits && nth % 10 == 9;
    @try {
        [work commit];
    } @catch (NSObject *thrown) {
        __atomic_fetch_add(&caught, 1, __ATOMIC_RELAXED);
        leaves = 0;
        [work commit];
    }
}

/* All threads begin at once: the first objects of their classes appear at the same moment. */
static pthread_barrier_t gate;

static void *commit_all(void *unused) {
    pthread_barrier_wait(&gate);
    id<MTLCommandQueue> queue = shared ? [shared retain] : [device newCommandQueue];
    id<MTLCommandBuffer> last = nil;
    for (int i = 0; i < commits; i++) {
        void *pool = objc_autoreleasePoolPush();
        id<MTLCommandBuffer> work = [queue commandBuffer];
        id<MTLComputeCommandEncoder> kernels = [work computeCommandEncoder];
        [kernels setComputePipelineState:pipeline];
        [kernels dispatchThreadgroups:(MTLSize){1, 1, 1} threadsPerThreadgroup:(MTLSize){1, 1, 1}];
        [kernels endEncoding];
        [work addCompletedHandler:(id)(void *)&handler];
        commit(work, i);
        if (waits && i % 100 == 99) [work waitUntilCompleted];
        if (waits && i == commits - 1) last = [work retain];
        objc_autoreleasePoolPop(pool);
    }
    [last waitUntilCompleted];
    [last release];
    [queue release];
    return NULL;
}

static void encode4(id<MTL4CommandBuffer> work, int dispatches) {
    [work beginCommandBufferWithAllocator:nil];
    id<MTLComputeCommandEncoder> kernels = [work computeCommandEncoder];
    [kernels setComputePipelineState:pipeline];
    for (int i = 0; i < dispatches; i++) [kernels dispatchThreadgroups:(MTLSize){1, 1, 1} threadsPerThreadgroup:(MTLSize){1, 1, 1}];
    [kernels endEncoding];
    [work endCommandBuffer];
}

static void *commit_all4(void *unused) {
    pthread_barrier_wait(&gate);
    id<MTL4CommandQueue> queue = [device newMTL4CommandQueue];
    id<MTLSharedEvent> event = [device newSharedEvent];
    for (int i = 1; i <= commits; i++) {
        void *pool = objc_autoreleasePoolPush();
        id<MTL4CommandBuffer> work[3];
        for (int nth = 0; nth < 3; nth++) encode4(work[nth] = [device newCommandBuffer], nth + 1);
        [queue commit:work count:3];
        [queue signalEvent:event value:i];
        if (i % 20 == 0 || i == commits) [event waitUntilSignaledValue:i timeoutMS:UINT64_MAX];
        for (int nth = 0; nth < 3; nth++) [work[nth] release];
        __atomic_fetch_add(&handled, 1, __ATOMIC_RELAXED);
        objc_autoreleasePoolPop(pool);
    }
    [queue release];
    return NULL;
}

static void (*original_commit)(id, SEL);

static void their_commit(id self, SEL selector) {
    __atomic_fetch_add(&seen, 1, __ATOMIC_RELAXED);
    original_commit(self, selector);
}

static void swizzle(int after) {
    id work = after ? [[device newCommandQueue] commandBuffer] : [objc_getClass("AGXSimCommandBuffer") alloc];
    SEL selector = sel_registerName("commit");
    Method method = class_getInstanceMethod(object_getClass(work), selector);
    original_commit = (void (*)(id, SEL))(void *)method_getImplementation(method);
    method_setImplementation(method, (IMP)(void *)their_commit);
}

int main(int argc, char **argv) {
    if (argc < 5) return 2;
    int threads = atoi(argv[1]);
    commits = atoi(argv[2]);
    int four = !strcmp(argv[4], "four");
    waits = four || !strcmp(argv[4], "waits");
    void *pool = objc_autoreleasePoolPush();
    device = MTLCreateSystemDefaultDevice();
    if (!strcmp(argv[3], "one")) shared = [device newCommandQueue];
    id<MTLLibrary> library = [device newDefaultLibrary];
    id<MTLFunction> function = [library newFunctionWithName:[NSString stringWithUTF8String:"nothing"]];
    pipeline = [device newComputePipelineStateWithFunction:function error:NULL];
    int others = 0;
    if (!waits) {
        fake_at_commit = throw_it;
        swizzle(!strcmp(argv[4], "after"));
        others = fake_command_buffers;
    }
    pthread_t all[64];
    pthread_barrier_init(&gate, NULL, threads);
    for (int i = 0; i < threads; i++) pthread_create(&all[i], NULL, four ? commit_all4 : commit_all, NULL);
    for (int i = 0; i < threads; i++) pthread_join(all[i], NULL);
    /* The last of all that handlers do is over when their command buffers are gone. */
    while (fake_command_buffers > others) usleep(1000);
    printf("%lu completed, %lu caught, %lu seen\n", handled, caught, seen);
    objc_autoreleasePoolPop(pool);
    return 0;
}
