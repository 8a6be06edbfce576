/* Commits that are left by an exception, and what comes after them, for the simulated Metal.
 *
 * usage: metal_left deep     one is left, then 25 are made, twice, by functions that lie over its frame and leave holes there
 *        metal_left taken    each second one is left when Metal has taken its work already */
#include <stdio.h>
#include <string.h>

#include "metal.h"

static id<MTLDevice> device;
static id<MTLCommandQueue> queue;
static id<MTLComputePipelineState> pipeline;
static int throws;

static void throw_it(void) {
    if (throws) @throw [[NSObject new] autorelease];
}

static id<MTLCommandBuffer> encode(void) {
    id<MTLCommandBuffer> work = [queue commandBuffer];
    id<MTLComputeCommandEncoder> kernels = [work computeCommandEncoder];
    [kernels setComputePipelineState:pipeline];
    [kernels dispatchThreadgroups:(MTLSize){1, 1, 1} threadsPerThreadgroup:(MTLSize){1, 1, 1}];
    [kernels endEncoding];
    return work;
}

/* Frames of which nobody writes more than a word. */
static __attribute__((noinline)) int deeper(int depth) {
    volatile char room[200];
    room[0] = depth;
    if (depth) return deeper(depth - 1) + room[0] - depth;
    void *pool = objc_autoreleasePoolPush();
    id<MTLCommandBuffer> work = encode();
    [work commit];
    [work waitUntilCompleted];
    objc_autoreleasePoolPop(pool);
    return 1;
}

static __attribute__((noinline)) void leave_one(void) {
    fake_at_commit = throw_it;
    throws = 1;
    id<MTLCommandBuffer> work = encode();
    @try {
        [work commit];
    } @catch (NSObject *thrown) {
        throws = 0;
    }
}

/* Each second one, and each is waited for. */
static void taken(void) {
    fake_after_commit = throw_it;
    int caught = 0;
    for (int i = 0; i < 20; i++) {
        void *pool = objc_autoreleasePoolPush();
        id<MTLCommandBuffer> work = encode();
        throws = i % 2;
        @try {
            [work commit];
        } @catch (NSObject *thrown) {
            caught++;
        }
        [work waitUntilCompleted];
        objc_autoreleasePoolPop(pool);
    }
    printf("caught %d\n", caught);
}

int main(int argc, char **argv) {
    const char *what = argc > 1 ? argv[1] : "";
    void *pool = objc_autoreleasePoolPush();
    device = MTLCreateSystemDefaultDevice();
    queue = [device newCommandQueue];
    /* Who is left by an exception goes on before the GPU is done. */
    const char *name = strcmp(what, "taken") ? "short_300us" : "long_20000us";
    id<MTLFunction> function = [[device newDefaultLibrary] newFunctionWithName:[NSString stringWithUTF8String:name]];
    pipeline = [device newComputePipelineStateWithFunction:function error:NULL];
    int made = 0;
    if (!strcmp(what, "deep")) {
        /* From two places: what lies where is as the compiler has it. */
        leave_one();
        for (int i = 0; i < 25; i++) made += deeper(3);
        throws = 1;
        id<MTLCommandBuffer> work = encode();
        @try {
            [work commit];
        } @catch (NSObject *thrown) {
            throws = 0;
        }
        for (int i = 0; i < 25; i++) made += deeper(3);
    } else if (!strcmp(what, "taken")) taken();
    else return 2;
    printf("made %d\n", made);
    objc_autoreleasePoolPop(pool);
    return 0;
}
