/* What two events around something tell beyond what it takes: pairs around nothing, a set of four bytes, an empty kernel and one that
 * runs for some us. Run it also under `gputrace --gpu-time full`, whose trace has what CUPTI says of the same work.
 *
 *     cc -O2 -o pairs benches/gpu/pairs.c -ldl && ./pairs */
#include <dlfcn.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>

typedef void *Handle;
#define DRIVER(DO)                                                                                                     \
    DO(cuInit, (unsigned)) DO(cuDevicePrimaryCtxRetain, (Handle *, int)) DO(cuCtxSetCurrent, (Handle))                 \
    DO(cuModuleLoadData, (Handle *, const void *)) DO(cuModuleGetFunction, (Handle *, Handle, const char *))           \
    DO(cuLaunchKernel, (Handle, unsigned, unsigned, unsigned, unsigned, unsigned, unsigned, unsigned, Handle,          \
                        Handle *, Handle *))                                                                           \
    DO(cuStreamCreate, (Handle *, unsigned)) DO(cuStreamSynchronize, (Handle)) DO(cuEventCreate, (Handle *, unsigned)) \
    DO(cuEventRecord, (Handle, Handle)) DO(cuEventElapsedTime, (float *, Handle, Handle))                              \
    DO(cuMemAlloc_v2, (uint64_t *, size_t)) DO(cuMemsetD32Async, (uint64_t, unsigned, size_t, Handle))
#define DECLARE(name, arguments) static int(*name) arguments;
DRIVER(DECLARE)

enum { PAIRS = 400 };
static Handle stream, empty, spin;
static uint64_t memory;

static void ok(int result, const char *what) {
    if (result) fprintf(stderr, "%s: %d\n", what, result), exit(1);
}
#define OK(call) ok(call, #call)

static const char *const source =
    ".version 7.0\n.target sm_70\n.address_size 64\n.visible .entry empty() { ret; }\n"
    ".visible .entry spin(.param .u64 n) { .reg .u64 %b, %e, %n, %t; .reg .pred %p; ld.param.u64 %n, [n]; mov.u64 %b, %clock64;\n"
    "more: mov.u64 %e, %clock64; sub.u64 %t, %e, %b; setp.lt.u64 %p, %t, %n; @%p bra more; ret; }\n";

static void work(int kind) {
    uint64_t cycles = kind == 3 ? 8000 : 40000;
    Handle arguments[] = {&cycles};
    if (kind == 1) OK(cuMemsetD32Async(memory, 7, 1, stream));
    if (kind == 2) OK(cuLaunchKernel(empty, 1, 1, 1, 32, 1, 1, 0, stream, NULL, NULL));
    if (kind > 2) OK(cuLaunchKernel(spin, 1, 1, 1, 32, 1, 1, 0, stream, arguments, NULL));
}

static int by_size(const void *a, const void *b) {
    float one = *(const float *)a, other = *(const float *)b;
    return one < other ? -1 : one > other;
}

int main(void) {
    static const char *const names[] = {"nothing", "set of 4 bytes", "empty kernel", "kernel of 8,000 cycles", "kernel of 40,000 cycles"};
    Handle cuda = dlopen("libcuda.so.1", RTLD_NOW), context, module, events[2 * PAIRS];
    if (!cuda) return fprintf(stderr, "%s\n", dlerror()), 2;
#define FIND(name, arguments)                                                                                          \
    if (!(name = dlsym(cuda, #name))) return fprintf(stderr, "no %s\n", #name), 2;
    DRIVER(FIND)
    OK(cuInit(0));
    OK(cuDevicePrimaryCtxRetain(&context, 0));
    OK(cuCtxSetCurrent(context));
    OK(cuModuleLoadData(&module, source));
    OK(cuModuleGetFunction(&empty, module, "empty"));
    OK(cuModuleGetFunction(&spin, module, "spin"));
    OK(cuStreamCreate(&stream, 1));
    OK(cuMemAlloc_v2(&memory, 4096));
    for (int i = 0; i < 2 * PAIRS; i++) OK(cuEventCreate(&events[i], 0));
    for (int waits = 0; waits < 2; waits++) {
        for (int kind = 0; kind < 5; kind++) {
            float times[PAIRS];
            for (int i = 0; i < PAIRS; i++) {
                OK(cuEventRecord(events[2 * i], stream));
                work(kind);
                OK(cuEventRecord(events[2 * i + 1], stream));
                if (waits) OK(cuStreamSynchronize(stream));
            }
            OK(cuStreamSynchronize(stream));
            for (int i = 0; i < PAIRS; i++) OK(cuEventElapsedTime(&times[i], events[2 * i], events[2 * i + 1]));
            qsort(times, PAIRS, sizeof *times, by_size);
            printf("  %-24s %s  least %6.0f  median %6.0f  nine tenths %6.0f ns\n", names[kind], waits ? "waited for" : "in a row  ",
                   1e6 * times[0], 1e6 * times[PAIRS / 2], 1e6 * times[PAIRS * 9 / 10]);
        }
    }
    return 0;
}
