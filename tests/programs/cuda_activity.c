/* Waits of every kind, and managed memory that is written on the GPU and read by the host, in rounds.
 *
 * usage: cuda_activity ROUNDS
 *
 * A round: two kernels, a recorded event, a wait for it by the host and one by a stream, 4,096 bytes of managed memory set and
 * copied back, a wait for the stream and one for the context. */
#define _GNU_SOURCE
#include <dlfcn.h>
#include <stdio.h>
#include <stdlib.h>

#include "cuda.h"

CUresult cuMemAllocManaged(CUdeviceptr *address, size_t bytes, unsigned flags);

#define EACH(F) \
    F(cuInit) F(cuDevicePrimaryCtxRetain) F(cuCtxSetCurrent) F(cuModuleLoadData) F(cuModuleGetFunction) F(cuLaunchKernel) \
    F(cuStreamCreate) F(cuStreamSynchronize) F(cuStreamWaitEvent) F(cuEventCreate) F(cuEventRecord) F(cuEventSynchronize) \
    F(cuCtxSynchronize) F(cuMemAllocManaged) F(cuMemsetD8Async) F(cuMemcpyDtoHAsync_v2) F(cuMemFree_v2)
#define DECLARE(name) static __typeof__(&name) p_##name;
EACH(DECLARE)
#define OK(call) do { if ((call) != CUDA_SUCCESS) return printf("%s failed\n", #call), 1; } while (0)

int main(int argc, char **argv) {
    void *driver = dlopen("libcuda.so.1", RTLD_NOW);
    if (!driver || argc < 2) return puts("no driver, or no number of rounds"), 2;
#define FIND(name) if (!(p_##name = (__typeof__(p_##name))dlsym(driver, #name))) return puts(#name), 2;
    EACH(FIND)
    static char host[4096];
    CUcontext context;
    CUmodule module;
    CUfunction function;
    CUstream stream, other;
    CUevent event;
    CUdeviceptr managed;
    OK(p_cuInit(0));
    OK(p_cuDevicePrimaryCtxRetain(&context, 0));
    OK(p_cuCtxSetCurrent(context));
    OK(p_cuModuleLoadData(&module, "fakecuda:spin_us_20"));
    OK(p_cuModuleGetFunction(&function, module, "spin_us_20"));
    OK(p_cuStreamCreate(&stream, CU_STREAM_NON_BLOCKING));
    OK(p_cuStreamCreate(&other, CU_STREAM_NON_BLOCKING));
    OK(p_cuEventCreate(&event, 0));
    OK(p_cuMemAllocManaged(&managed, sizeof host, 1));
    for (int round = atoi(argv[1]); round > 0; round--) {
        OK(p_cuLaunchKernel(function, 1, 1, 1, 32, 1, 1, 0, stream, NULL, NULL));
        OK(p_cuLaunchKernel(function, 2, 1, 1, 64, 1, 1, 0, stream, NULL, NULL));
        OK(p_cuEventRecord(event, stream));
        OK(p_cuEventSynchronize(event));
        OK(p_cuStreamWaitEvent(other, event, 0));
        OK(p_cuMemsetD8Async(managed, 7, sizeof host, stream));
        OK(p_cuMemcpyDtoHAsync_v2(host, managed, sizeof host, stream));
        OK(p_cuStreamSynchronize(stream));
        OK(p_cuCtxSynchronize());
    }
    OK(p_cuMemFree_v2(managed));
    printf("ok %d\n", host[4095]);
    return 0;
}
