/* Streams that wait for events of other streams, with kernels of 10 ms before them. The host waits for the last one.
 *
 * usage: cuda_joins */
#define _GNU_SOURCE
#include <dlfcn.h>
#include <stdio.h>

#include "cuda.h"

enum { ROUNDS = 3 };

#define EACH(F) \
    F(cuInit) F(cuDevicePrimaryCtxRetain) F(cuCtxSetCurrent) F(cuModuleLoadData) F(cuModuleGetFunction) F(cuLaunchKernel) \
    F(cuStreamCreate) F(cuStreamSynchronize) F(cuStreamWaitEvent) F(cuEventCreate) F(cuEventRecord) F(cuEventSynchronize) \
    F(cuCtxSynchronize)
#define DECLARE(name) static __typeof__(&name) p_##name;
EACH(DECLARE)
#define OK(call) do { if ((call) != CUDA_SUCCESS) return printf("%s failed\n", #call), 1; } while (0)

static CUfunction slow;

static int work(CUstream stream) {
    OK(p_cuLaunchKernel(slow, 1, 1, 1, 1, 1, 1, 0, stream, NULL, NULL));
    return 0;
}

static int joins(CUstream first, CUstream second, CUstream third, CUevent event, CUevent next) {
    /* The second stream has no work of its own; the first one has more after the event. */
    if (work(first)) return 1;
    OK(p_cuEventRecord(event, first));
    if (work(first)) return 1;
    OK(p_cuStreamWaitEvent(second, event, 0));
    OK(p_cuStreamSynchronize(second)); /* the first kernel */
    OK(p_cuStreamSynchronize(first));  /* the second one */
    OK(p_cuStreamWaitEvent(second, event, 0));
    OK(p_cuStreamSynchronize(second)); /* nothing */
    /* From stream to stream. */
    if (work(first)) return 1;
    OK(p_cuEventRecord(event, first));
    OK(p_cuStreamWaitEvent(second, event, 0));
    OK(p_cuEventRecord(next, second));
    OK(p_cuStreamWaitEvent(third, next, 0));
    OK(p_cuStreamSynchronize(third)); /* the kernel in the first stream */
    OK(p_cuStreamSynchronize(first)); /* nothing */
    /* By an event. */
    if (work(first)) return 1;
    OK(p_cuEventRecord(event, first));
    OK(p_cuStreamWaitEvent(second, event, 0));
    if (work(second)) return 1;
    OK(p_cuEventRecord(next, second));
    OK(p_cuEventSynchronize(next)); /* both kernels */
    OK(p_cuCtxSynchronize());       /* nothing */
    return 0;
}

int main(void) {
    void *driver = dlopen("libcuda.so.1", RTLD_NOW);
    if (!driver) return puts(dlerror()), 1;
#define FIND(name) p_##name = (__typeof__(p_##name))dlsym(driver, #name);
    EACH(FIND)
    CUcontext context;
    CUmodule module;
    CUstream streams[3];
    CUevent events[2];
    OK(p_cuInit(0));
    OK(p_cuDevicePrimaryCtxRetain(&context, 0));
    OK(p_cuCtxSetCurrent(context));
    OK(p_cuModuleLoadData(&module, "image"));
    OK(p_cuModuleGetFunction(&slow, module, "spin_us_10000"));
    for (int i = 0; i < 3; i++) OK(p_cuStreamCreate(&streams[i], CU_STREAM_NON_BLOCKING));
    for (int i = 0; i < 2; i++) OK(p_cuEventCreate(&events[i], 2 /* CU_EVENT_DISABLE_TIMING */));
    for (int i = 0; i < ROUNDS; i++)
        if (joins(streams[0], streams[1], streams[2], events[0], events[1])) return 1;
    return 0;
}
