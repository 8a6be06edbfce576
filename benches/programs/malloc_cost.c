/* malloc_cost ROUNDS PAIRS THREADS LARGEST DEPTH: ns per malloc+free pair of 16..LARGEST bytes, 32 blocks alive per thread,
 * made by a function that so many others have called, one the next. */
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <time.h>
#include <unistd.h>

static int pairs, largest, depth;

static double now(void) {
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    return t.tv_sec * 1e9 + t.tv_nsec;
}

static __attribute__((noinline)) void *work_at(int above, void *seed) {
    if (above > 1) {
        void *result = work_at(above - 1, seed);
        __asm__ volatile("" ::: "memory"); /* or the call would be a jump */
        return result;
    }
    unsigned x = 12345 + (unsigned)(size_t)seed;
    void *alive[32] = {0};
    double start = now();
    for (int i = 0; i < pairs; i++) {
        x = x * 1664525 + 1013904223;
        unsigned slot = x >> 27;
        free(alive[slot]);
        alive[slot] = malloc(16 + (x >> 8) % (largest - 15));
    }
    double *result = malloc(sizeof *result);
    *result = (now() - start) / pairs;
    for (int i = 0; i < 32; i++) free(alive[i]);
    return result;
}

static void *work(void *seed) {
    return work_at(depth, seed);
}

int main(int argc, char **argv) {
    int rounds = argc > 1 ? atoi(argv[1]) : 101;
    pairs = argc > 2 ? atoi(argv[2]) : 50000;
    int threads = argc > 3 ? atoi(argv[3]) : 1;
    largest = argc > 4 ? atoi(argv[4]) : 512;
    depth = argc > 5 ? atoi(argv[5]) : 1;
    for (int r = 0; r < rounds; r++) {
        pthread_t id[64];
        double sum = 0;
        for (long t = 0; t < threads; t++) pthread_create(&id[t], 0, work, (void *)t);
        for (int t = 0; t < threads; t++) {
            void *result;
            pthread_join(id[t], &result);
            sum += *(double *)result;
            free(result);
        }
        printf("%.2f\n", sum / threads);
        usleep(30000); /* as in launch_cost.c */
    }
}
