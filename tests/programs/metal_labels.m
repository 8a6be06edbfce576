/* Command buffers with labels of every length from several threads, with the simulated Metal.
 *
 * usage: metal_labels THREADS EACH
 * The label of command buffer n of thread t is "t n " and so many x behind it that it has n % 120 + 8 bytes. */
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "metal.h"

static id<MTLCommandQueue> queue;
static int each;

static void *commit(void *thread) {
    for (int n = 0; n < each; n++) {
        void *pool = objc_autoreleasePoolPush();
        char label[160];
        memset(label, 'x', sizeof label);
        int begin = sprintf(label, "%d %d ", (int)(size_t)thread, n);
        label[begin] = 'x';
        label[n % 120 + 8] = 0;
        id<MTLCommandBuffer> work = [queue commandBuffer];
        [work setLabel:[NSString stringWithUTF8String:label]];
        [work commit];
        [work waitUntilCompleted];
        objc_autoreleasePoolPop(pool);
    }
    return NULL;
}

int main(int argc, char **argv) {
    if (argc < 3) return 2;
    int count = atoi(argv[1]);
    each = atoi(argv[2]);
    queue = [MTLCreateSystemDefaultDevice() newCommandQueue];
    pthread_t threads[64];
    for (int t = 0; t < count && t < 64; t++) pthread_create(&threads[t], NULL, commit, (void *)(size_t)t);
    for (int t = 0; t < count && t < 64; t++) pthread_join(threads[t], NULL);
    [queue release];
    return 0;
}
