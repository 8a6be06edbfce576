/* Calls with known arguments, one after another, for comparing each column of the trace.
 *
 * Runs on the simulated driver. Prints `KEY VALUE` for what the driver chose: addresses and handles, in hexadecimal. */
#define _GNU_SOURCE
#include <dlfcn.h>
#include <stdio.h>
#include <stdlib.h>
#include <unistd.h>

#include "cuda.h"
#include "nvtx.h"

CUresult cuMemAllocManaged(CUdeviceptr *address, size_t bytes, unsigned flags);
CUresult cuMemHostAlloc(void **address, size_t bytes, unsigned flags);
CUresult cuMemHostRegister_v2(void *address, size_t bytes, unsigned flags);
CUresult cuMemHostUnregister(void *address);
CUresult cuMemcpy(CUdeviceptr dst, CUdeviceptr src, size_t bytes);
CUresult cuMemcpyAsync(CUdeviceptr dst, CUdeviceptr src, size_t bytes, CUstream stream);
CUresult cuMemcpyDtoD_v2(CUdeviceptr dst, CUdeviceptr src, size_t bytes);
CUresult cuMemsetD32_v2(CUdeviceptr dst, unsigned value, size_t count);
CUresult cuMemsetD2D8_v2(CUdeviceptr dst, size_t pitch, unsigned char value, size_t width, size_t height);

#define EACH(DO)                                                                                                       \
    DO(cuInit) DO(cuDevicePrimaryCtxRetain) DO(cuCtxSetCurrent) DO(cuModuleLoadData) DO(cuModuleGetFunction)           \
    DO(cuLaunchKernel) DO(cuStreamCreate) DO(cuStreamSynchronize) DO(cuMemAlloc_v2) DO(cuMemFree_v2)                   \
    DO(cuMemAllocAsync) DO(cuMemFreeAsync) DO(cuMemAllocHost_v2) DO(cuMemFreeHost) DO(cuMemHostAlloc)                  \
    DO(cuMemHostRegister_v2) DO(cuMemHostUnregister) DO(cuMemAllocManaged) DO(cuMemcpyHtoD_v2) DO(cuMemcpyDtoH_v2)     \
    DO(cuMemcpyDtoD_v2) DO(cuMemcpyHtoDAsync_v2) DO(cuMemcpyDtoHAsync_v2) DO(cuMemcpy) DO(cuMemcpyAsync)               \
    DO(cuMemsetD8Async) DO(cuMemsetD32_v2) DO(cuMemsetD2D8_v2) DO(cuStreamBeginCapture_v2) DO(cuStreamEndCapture)      \
    DO(cuGraphInstantiateWithFlags) DO(cuGraphLaunch) DO(cuEventCreate) DO(cuEventRecord) DO(cuStreamWaitEvent)        \
    DO(cuEventSynchronize) DO(cuEventQuery)
#define DECLARE(name) static __typeof__(&name) p_##name;
EACH(DECLARE)

static void show(const char *key, uint64_t value) { printf("%s %lx\n", key, value); }

#define OK(call)                                                                                                       \
    do {                                                                                                               \
        CUresult result = call;                                                                                        \
        if (result) {                                                                                                  \
            printf("%s: %d\n", #call, result);                                                                         \
            exit(1);                                                                                                   \
        }                                                                                                              \
    } while (0)

enum { BYTES = 1 << 20 };
static CUstream stream, joined;
static CUfunction function;

static void launches(void) {
    OK(p_cuLaunchKernel(function, 2147483647, 65535, 65535, 1024, 1, 1, 232448, stream, NULL, NULL));
    OK(p_cuLaunchKernel(function, 1, 2, 3, 2, 8, 64, 0, NULL, NULL, NULL));
    /* Refused: too many threads. */
    show("refused", p_cuLaunchKernel(function, 1, 1, 1, 1024, 2, 1, 0, stream, NULL, NULL));
    OK(p_cuStreamSynchronize(stream));
}

static void memory(void) {
    CUdeviceptr device, other, managed, pooled;
    void *pinned, *mapped, *registered = aligned_alloc(4096, BYTES), *pageable = malloc(BYTES);
    OK(p_cuMemAlloc_v2(&device, BYTES));
    OK(p_cuMemAlloc_v2(&other, 2 * BYTES));
    OK(p_cuMemAllocManaged(&managed, BYTES, 1));
    OK(p_cuMemAllocAsync(&pooled, 3 * BYTES, stream));
    OK(p_cuMemAllocHost_v2(&pinned, BYTES));
    OK(p_cuMemHostAlloc(&mapped, BYTES, 0));
    OK(p_cuMemHostRegister_v2(registered, BYTES, 0));
    CUdeviceptr none;
    show("out of memory", p_cuMemAlloc_v2(&none, (size_t)1 << 50));
    show("device", device), show("other", other), show("managed", managed), show("pooled", pooled);
    show("pinned", (uint64_t)pinned), show("mapped", (uint64_t)mapped), show("registered", (uint64_t)registered);
    show("pageable", (uint64_t)pageable);
    /* Bytes number the copies. */
    OK(p_cuMemcpyHtoD_v2(device, pageable, 1));
    OK(p_cuMemcpyHtoD_v2(device, pinned, 2));
    OK(p_cuMemcpyHtoDAsync_v2(device, (char *)pageable + 100, 3, stream));
    OK(p_cuMemcpyHtoDAsync_v2(device + 64, (char *)mapped + 100, 4, stream));
    OK(p_cuMemcpyHtoDAsync_v2(device, registered, 5, stream));
    OK(p_cuMemcpyDtoHAsync_v2(pinned, other, 6, stream));
    OK(p_cuMemcpyDtoH_v2(pageable, pooled, 7));
    OK(p_cuMemcpyDtoD_v2(other, device, 8));
    OK(p_cuMemcpy((CUdeviceptr)pinned, device, 9));
    OK(p_cuMemcpyAsync(managed, device, 10, stream));
    OK(p_cuMemcpyAsync(device, (CUdeviceptr)pageable, 11, stream));
    OK(p_cuMemcpy((CUdeviceptr)pageable, (CUdeviceptr)pinned, 12));
    OK(p_cuMemcpyAsync(other, device, 13, stream));
    OK(p_cuMemsetD8Async(device, 7, 14, stream));
    OK(p_cuMemsetD32_v2(device, 7, 5));
    OK(p_cuMemsetD2D8_v2(device, 512, 9, 100, 3));
    OK(p_cuStreamSynchronize(stream));
    OK(p_cuMemHostUnregister(registered));
    /* Pageable again. */
    OK(p_cuMemcpyHtoD_v2(device, registered, 15));
    OK(p_cuMemFree_v2(other));
    OK(p_cuMemFree_v2(device));
    OK(p_cuMemFree_v2(managed));
    OK(p_cuMemFreeAsync(pooled, stream));
    OK(p_cuMemFreeHost(pinned));
    OK(p_cuMemFreeHost(mapped));
    free(registered);
    free(pageable);
}

static void captured(void) {
    CUgraph graph;
    CUgraphExec exec;
    CUevent fork, join;
    OK(p_cuEventCreate(&fork, 0));
    OK(p_cuEventCreate(&join, 0));
    OK(p_cuStreamBeginCapture_v2(stream, CU_STREAM_CAPTURE_MODE_RELAXED));
    OK(p_cuLaunchKernel(function, 101, 1, 1, 1, 1, 1, 0, stream, NULL, NULL));
    /* Another stream joins the capture by an event, and comes back. */
    OK(p_cuEventRecord(fork, stream));
    OK(p_cuStreamWaitEvent(joined, fork, 0));
    OK(p_cuLaunchKernel(function, 102, 1, 1, 1, 1, 1, 0, joined, NULL, NULL));
    OK(p_cuEventRecord(join, joined));
    OK(p_cuStreamWaitEvent(stream, join, 0));
    OK(p_cuStreamEndCapture(stream, &graph));
    OK(p_cuLaunchKernel(function, 103, 1, 1, 1, 1, 1, 0, stream, NULL, NULL));
    OK(p_cuLaunchKernel(function, 104, 1, 1, 1, 1, 1, 0, joined, NULL, NULL));
    OK(p_cuGraphInstantiateWithFlags(&exec, graph, 0));
    OK(p_cuGraphLaunch(exec, stream));
    show("exec", (uint64_t)exec);
    OK(p_cuEventRecord(fork, stream));
    p_cuEventQuery(fork);
    OK(p_cuEventSynchronize(fork));
    show("event", (uint64_t)fork);
    OK(p_cuStreamSynchronize(NULL));
}

int main(void) {
    void *driver = dlopen("libcuda.so.1", RTLD_NOW);
    if (!driver) return puts(dlerror()), 1;
#define FIND(name) p_##name = (__typeof__(p_##name))dlsym(driver, #name);
    EACH(FIND)
    CUcontext context;
    CUmodule module;
    OK(p_cuInit(0));
    OK(p_cuDevicePrimaryCtxRetain(&context, 0));
    OK(p_cuCtxSetCurrent(context));
    OK(p_cuStreamCreate(&stream, CU_STREAM_NON_BLOCKING));
    OK(p_cuStreamCreate(&joined, CU_STREAM_NON_BLOCKING));
    OK(p_cuModuleLoadData(&module, "image"));
    OK(p_cuModuleGetFunction(&function, module, "spin_us_1"));
    show("stream", (uint64_t)stream), show("joined", (uint64_t)joined), show("function", (uint64_t)function);
    nvtx_initialise();
    nvtx_push("values");
    launches();
    memory();
    captured();
    nvtx_pop();
    usleep(1000); /* a wait for the operating system */
    return 0;
}
