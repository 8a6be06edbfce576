/* launch_cost hot|cold ROUNDS CALLS: ns per cuLaunchKernel on the stub driver, called directly and through what dlsym
 * answers, in turn within one process. "cold" touches 1 MiB of other memory before each call, outside the time.
 * A pause after each round lets the collector catch up: no ring takes 30 million events a second for long. */
#define _GNU_SOURCE
#include <dlfcn.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

typedef int (*launch)(void *, unsigned, unsigned, unsigned, unsigned, unsigned, unsigned, unsigned, void *, void **,
                      void **);
static char other[1 << 20];

static double now(void) {
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    return t.tv_sec * 1e9 + t.tv_nsec;
}

static double one_round(launch f, int calls, int cold) {
    double spent = 0, start = now();
    static volatile unsigned long sink;
    for (int i = 0; i < calls; i++) {
        if (cold) {
            for (unsigned j = 0; j < sizeof other; j += 64) sink += other[j]++;
            double before = now();
            f((void *)0x5000, 1, 1, 1, 256, 1, 1, 0, (void *)0x77, 0, 0);
            spent += now() - before;
        } else {
            f((void *)0x5000, 1, 1, 1, 256, 1, 1, 0, (void *)0x77, 0, 0);
        }
    }
    return (cold ? spent : now() - start) / calls;
}

int main(int argc, char **argv) {
    int cold = argc > 1 && !strcmp(argv[1], "cold");
    int rounds = argc > 2 ? atoi(argv[2]) : 101, calls = argc > 3 ? atoi(argv[3]) : 50000;
    void *driver = dlopen("libcuda.so.1", RTLD_NOW);
    if (!driver) return fprintf(stderr, "%s\n", dlerror()), 2;
    launch hooked = (launch)dlsym(driver, "cuLaunchKernel");
    launch direct = ((launch(*)(void))dlsym(driver, "stubDirect"))();
    one_round(hooked, calls / 10, cold);
    for (int r = 0; r < rounds; r++) {
        double a = one_round(direct, calls, cold), b = one_round(hooked, calls, cold);
        printf("%.2f %.2f %.2f\n", a, b, b - a);
        usleep(30000);
    }
}
