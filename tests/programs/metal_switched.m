/* Commits that go on until they are told to end, for recording that is switched meanwhile, with the simulated Metal.
 *
 * usage: metal_switched FILE [held | changed | renamed]
 * Commits command buffers and waits for each; makes FILE after fifty, and ends twenty after FILE.stop is there, or after two minutes.
 * held: makes a command buffer of a queue with a label, then FILE; sets the value of an event until FILE.stop
 * is there, then commits it, and three more.
 * changed: gives an encoder a pipeline, makes FILE, commits others until FILE.stop is there, gives it another pipeline, makes FILE.set,
 * waits for FILE.go, and dispatches; then the same pipeline for a second encoder, in one step.
 * renamed: gives two command buffers labels, makes FILE, commits others until FILE.stop is there; gives one another label, lets the other go,
 * makes one in its place, whose address it prints beside that one's, makes FILE.set, waits for FILE.go, and commits both, and one with a label. */
#include <fcntl.h>
#include <stdio.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

#include "metal.h"

static time_t end;

static id<MTLCommandBuffer> encode(id<MTLCommandQueue> queue) {
    id<MTLCommandBuffer> work = [queue commandBuffer];
    id<MTLComputeCommandEncoder> kernels = [work computeCommandEncoder];
    for (int i = 0; i < 2; i++) [kernels dispatchThreadgroups:(MTLSize){1, 1, 1} threadsPerThreadgroup:(MTLSize){1, 1, 1}];
    [kernels endEncoding];
    return work;
}

static void hold(id<MTLCommandQueue> queue, const char *file, const char *stop) {
    void *pool = objc_autoreleasePoolPush();
    [queue setLabel:[NSString stringWithUTF8String:"named before"]];
    id<MTLCommandBuffer> work = encode(queue);
    close(open(file, O_CREAT | O_WRONLY, 0644));
    id<MTLSharedEvent> event = [[queue device] newSharedEvent];
    for (uint64_t asked = 1; access(stop, F_OK) != 0 && time(NULL) < end; asked++) {
        [event setSignaledValue:asked];
        usleep(1000);
    }
    for (int i = 0; i < 4; i++) {
        if (i > 0) work = encode(queue);
        [work commit];
        [work waitUntilCompleted];
    }
    objc_autoreleasePoolPop(pool);
}

static void make(const char *file) {
    close(open(file, O_CREAT | O_WRONLY, 0644));
}

/* Until recording is off. */
static void commit_others(id<MTLCommandQueue> queue, const char *file, const char *stop) {
    make(file);
    while (access(stop, F_OK) != 0 && time(NULL) < end) {
        void *pool = objc_autoreleasePoolPush();
        id<MTLCommandBuffer> other = [queue commandBuffer];
        [other commit];
        [other waitUntilCompleted];
        objc_autoreleasePoolPop(pool);
        usleep(1000);
    }
}

/* Says that it was done, and waits until recording is on again. */
static void await_recording(const char *file) {
    char set[4096], go[4096];
    sprintf(set, "%s.set", file), sprintf(go, "%s.go", file);
    make(set);
    while (access(go, F_OK) != 0 && time(NULL) < end) usleep(1000);
}

static void call(id<MTLCommandBuffer> work, const char *label) {
    [work setLabel:[NSString stringWithUTF8String:label]];
}

static void rename_it(id<MTLCommandQueue> queue, const char *file, const char *stop) {
    void *pool = objc_autoreleasePoolPush();
    id<MTLCommandBuffer> work[3] = {[queue commandBuffer]};
    call(work[0], "before");
    void *inner = objc_autoreleasePoolPush();
    id<MTLCommandBuffer> gone = encode(queue);
    call(gone, "of one that is gone, and of which nobody sees that it goes");
    commit_others(queue, file, stop);
    call(work[0], "meanwhile");
    objc_autoreleasePoolPop(inner);
    work[1] = [queue commandBuffer];
    printf("%d\n", work[1] == gone);
    await_recording(file);
    work[2] = [queue commandBuffer];
    call(work[2], "after");
    for (int i = 0; i < 3; i++) {
        [work[i] commit];
        [work[i] waitUntilCompleted];
    }
    objc_autoreleasePoolPop(pool);
}

static void change(id<MTLCommandQueue> queue, const char *file, const char *stop) {
    void *pool = objc_autoreleasePoolPush();
    id<MTLLibrary> library = [[queue device] newDefaultLibrary];
    id<MTLComputePipelineState> pipelines[2];
    const char *names[] = {"first", "second"};
    for (int i = 0; i < 2; i++) {
        id<MTLFunction> function = [library newFunctionWithName:[NSString stringWithUTF8String:names[i]]];
        pipelines[i] = [[queue device] newComputePipelineStateWithFunction:function error:NULL];
    }
    id<MTLCommandBuffer> work = [queue commandBuffer];
    id<MTLComputeCommandEncoder> kernels = [work computeCommandEncoder];
    [kernels setComputePipelineState:pipelines[0]];
    commit_others(queue, file, stop);
    [kernels setComputePipelineState:pipelines[1]];
    await_recording(file);
    for (int i = 0; i < 2; i++) {
        if (i > 0) kernels = [work computeCommandEncoder], [kernels setComputePipelineState:pipelines[1]];
        [kernels dispatchThreadgroups:(MTLSize){1, 1, 1} threadsPerThreadgroup:(MTLSize){1, 1, 1}];
        [kernels endEncoding];
    }
    [work commit];
    [work waitUntilCompleted];
    objc_autoreleasePoolPop(pool);
}

int main(int argc, char **argv) {
    char stop[4096];
    if (argc < 2 || strlen(argv[1]) > 4000) return 2;
    sprintf(stop, "%s.stop", argv[1]);
    id<MTLCommandQueue> queue = [MTLCreateSystemDefaultDevice() newCommandQueue];
    end = time(NULL) + 120;
    if (argc > 2) {
        (!strcmp(argv[2], "held") ? hold : !strcmp(argv[2], "changed") ? change : rename_it)(queue, argv[1], stop);
        return 0;
    }
    int left = -1;
    for (long made = 0; left != 0; made++) {
        void *pool = objc_autoreleasePoolPush();
        id<MTLCommandBuffer> work = [queue commandBuffer];
        [work commit];
        [work waitUntilCompleted];
        objc_autoreleasePoolPop(pool);
        if (made == 50) close(open(argv[1], O_CREAT | O_WRONLY, 0644));
        if (left > 0) left--;
        if (left < 0 && (access(stop, F_OK) == 0 || time(NULL) > end)) left = 20;
        usleep(200);
    }
    [queue release];
    return 0;
}
