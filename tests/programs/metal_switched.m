/* Commits that go on until they are told to end, for recording that is switched meanwhile, with the simulated Metal.
 *
 * usage: metal_switched FILE
 * Commits command buffers and waits for each; makes FILE after fifty, and ends twenty after FILE.stop is there, or after two minutes. */
#include <fcntl.h>
#include <stdio.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

#include "metal.h"

int main(int argc, char **argv) {
    char stop[4096];
    if (argc < 2 || strlen(argv[1]) > 4000) return 2;
    sprintf(stop, "%s.stop", argv[1]);
    id<MTLCommandQueue> queue = [MTLCreateSystemDefaultDevice() newCommandQueue];
    int left = -1;
    time_t end = time(NULL) + 120;
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
