/* call_cost ROUNDS CALLS: ns per call of driver functions that are not launches, on the stub driver, each by a name that no
 * hook knows and through what dlsym answers, in turn within one process. A line each: kind;direct;hooked. A pause after
 * each round lets the collector catch up. */
#define _GNU_SOURCE
#include <dlfcn.h>
#include <stdio.h>
#include <stdlib.h>
#include <time.h>
#include <unistd.h>

static double now(void) {
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    return t.tv_sec * 1e9 + t.tv_nsec;
}

static void asks(void *function) {
    void *context;
    ((int (*)(void **))function)(&context);
}

static void acts(void *function) { ((int (*)(int, unsigned long))function)(1, 4096); }

static void looks_up(void *function) {
    static const char *names[] = {"cuLaunchKernel", "cuMemAlloc", "cuStreamSynchronize", "cuNobodyKnowsThis"};
    static unsigned nth;
    void *address;
    int status;
    ((int (*)(const char *, void **, int, unsigned long long, int *))function)(names[nth++ % 4], &address, 12000, 0, &status);
}

static double one_round(void (*call)(void *), void *function, int calls) {
    double start = now();
    for (int i = 0; i < calls; i++) call(function);
    return (now() - start) / calls;
}

int main(int argc, char **argv) {
    int rounds = argc > 1 ? atoi(argv[1]) : 51, calls = argc > 2 ? atoi(argv[2]) : 25000;
    static const struct { const char *kind, *hooked, *direct; void (*call)(void *); } kinds[] = {
        {"a function that only asks, counted", "cuCtxGetCurrent", "stubAsk", asks},
        {"a function that does something, recorded", "cuCtxSetLimit", "stubAct", acts},
        {"cuGetProcAddress", "cuGetProcAddress_v2", "stubLookUp", looks_up}};
    void *driver = dlopen("libcuda.so.1", RTLD_NOW);
    if (!driver) return fprintf(stderr, "%s\n", dlerror()), 2;
    for (int r = 0; r < rounds; r++)
        for (unsigned k = 0; k < sizeof kinds / sizeof *kinds; k++) {
            double direct = one_round(kinds[k].call, dlsym(driver, kinds[k].direct), calls);
            double hooked = one_round(kinds[k].call, dlsym(driver, kinds[k].hooked), calls);
            printf("%s;%.2f;%.2f\n", kinds[k].kind, direct, hooked);
            usleep(20000);
        }
    return 0;
}
