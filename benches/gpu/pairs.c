/* What two events around something tell beyond what it takes: pairs around nothing, sets of four bytes and of 64 KiB, an empty kernel and
 * ones that run for some us. In a row: as fast as the host gives them; queued: the stream waits until all are given; waited for: one
 * after the other. Run it also under `gputrace --gpu-time full`, whose trace has what CUPTI says of the same work.
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
    DO(cuMemAlloc_v2, (uint64_t *, size_t)) DO(cuMemsetD32Async, (uint64_t, unsigned, size_t, Handle))                 \
    DO(cuMemHostAlloc, (void **, size_t, unsigned)) DO(cuMemHostGetDevicePointer_v2, (uint64_t *, void *, unsigned))   \
    DO(cuStreamWaitValue32_v2, (Handle, uint64_t, unsigned, unsigned))
#define DECLARE(name, arguments) static int(*name) arguments;
DRIVER(DECLARE)

enum { PAIRS = 200, QUEUED = 1, WAITED_FOR = 2 };
static volatile unsigned *gate;
static uint64_t gate_there;
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
    uint64_t cycles = kind == 4 ? 8000 : 40000;
    Handle arguments[] = {&cycles};
    if (kind == 1) OK(cuMemsetD32Async(memory, 7, 1, stream));
    if (kind == 2) OK(cuMemsetD32Async(memory, 7, 16384, stream));
    if (kind == 3) OK(cuLaunchKernel(empty, 1, 1, 1, 32, 1, 1, 0, stream, NULL, NULL));
    if (kind > 3) OK(cuLaunchKernel(spin, 1, 1, 1, 32, 1, 1, 0, stream, arguments, NULL));
}

static int by_size(const void *a, const void *b) {
    float one = *(const float *)a, other = *(const float *)b;
    return one < other ? -1 : one > other;
}

int main(void) {
    static const char *const ways[] = {"in a row  ", "queued    ", "waited for"};
    static const char *const names[] = {"nothing", "set of 4 bytes", "set of 64 KiB", "empty kernel", "kernel of 8,000 cycles", "kernel of 40,000 cycles"};
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
    OK(cuMemAlloc_v2(&memory, 65536));
    for (int i = 0; i < 2 * PAIRS; i++) OK(cuEventCreate(&events[i], 0));
    OK(cuMemHostAlloc((void **)&gate, 4, 2));
    OK(cuMemHostGetDevicePointer_v2(&gate_there, (void *)gate, 0));
    for (int way = 0; way < 3; way++) {
        for (int kind = 0; kind < 6; kind++) {
            float times[PAIRS];
            *gate = 0;
            if (way == QUEUED) OK(cuStreamWaitValue32_v2(stream, gate_there, 1, 1));
            for (int i = 0; i < PAIRS; i++) {
                OK(cuEventRecord(events[2 * i], stream));
                work(kind);
                OK(cuEventRecord(events[2 * i + 1], stream));
                if (way == WAITED_FOR) OK(cuStreamSynchronize(stream));
                if (i == PAIRS / 2) *gate = 1;
            }
            OK(cuStreamSynchronize(stream));
            for (int i = 0; i < PAIRS; i++) OK(cuEventElapsedTime(&times[i], events[2 * i], events[2 * i + 1]));
            qsort(times, PAIRS, sizeof *times, by_size);
            printf("  %-24s %s  least %6.0f  median %6.0f  nine tenths %6.0f ns\n", names[kind], ways[way],
                   1e6 * times[0], 1e6 * times[PAIRS / 2], 1e6 * times[PAIRS * 9 / 10]);
        }
    }
    return 0;
}
