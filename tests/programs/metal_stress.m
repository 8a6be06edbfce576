/* Commits from many threads at once, for the simulated Metal.
 *
 * usage: metal_stress THREADS COMMITS one|each
 *   one    all threads commit to one queue
 *   each   each thread has its own
 * Each thread makes COMMITS command buffers with one dispatch, and waits for every hundredth. Prints how many completed
 * handlers ran. */
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "metal.h"

static id<MTLDevice> device;
static id<MTLCommandQueue> shared;
static id<MTLComputePipelineState> pipeline;
static int commits;
static unsigned long handled;

static void count(struct block *block, id buffer, uint64_t unused) {
    __atomic_fetch_add(&handled, 1, __ATOMIC_RELAXED);
}

static const struct block_descriptor DESCRIPTOR = {0, sizeof(struct block)};
static struct block handler = {NULL, BLOCK_IS_GLOBAL, 0, count, &DESCRIPTOR};

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
        [work commit];
        if (i % 100 == 99) [work waitUntilCompleted];
        if (i == commits - 1) last = [work retain];
        objc_autoreleasePoolPop(pool);
    }
    [last waitUntilCompleted];
    [last release];
    [queue release];
    return NULL;
}

int main(int argc, char **argv) {
    if (argc < 4) return 2;
    int threads = atoi(argv[1]);
    commits = atoi(argv[2]);
    void *pool = objc_autoreleasePoolPush();
    device = MTLCreateSystemDefaultDevice();
    if (!strcmp(argv[3], "one")) shared = [device newCommandQueue];
    id<MTLLibrary> library = [device newDefaultLibrary];
    id<MTLFunction> function = [library newFunctionWithName:[NSString stringWithUTF8String:"nothing"]];
    pipeline = [device newComputePipelineStateWithFunction:function error:NULL];
    pthread_t all[64];
    pthread_barrier_init(&gate, NULL, threads);
    for (int i = 0; i < threads; i++) pthread_create(&all[i], NULL, commit_all, NULL);
    for (int i = 0; i < threads; i++) pthread_join(all[i], NULL);
    printf("%lu completed\n", handled);
    objc_autoreleasePoolPop(pool);
    return 0;
}
