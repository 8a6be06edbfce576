/* Eight threads that call the driver all at once, each a known number of times.
 *
 * usage: cuda_threads [ROUNDS [THREADS]]     (1000 and 8)
 *
 * A round of a thread: two launches, an asynchronous copy to the device and one back from pinned memory, a fill, an
 * allocation and its free (every tenth round), an event's record and query, a stream's synchronisation. Before and
 * after the rounds a thread makes and destroys its stream, event and memory. At the end the thread's memory is checked.
 *
 * Prints the number of calls that were made of each function, a line `SYMBOL N` each, sorted by name, and `ok`. With
 * FAKE_CUDA_INSTANT=1 the device takes no time and the calls follow each other as fast as they can. */
#include <pthread.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <dlfcn.h>

#include "cuda.h"

#define FUNCTIONS(DO)                                                                                                  \
    DO(cuCtxSetCurrent)                                                                                                \
    DO(cuDeviceGet)                                                                                                    \
    DO(cuDevicePrimaryCtxRelease_v2)                                                                                   \
    DO(cuDevicePrimaryCtxRetain)                                                                                       \
    DO(cuEventCreate)                                                                                                  \
    DO(cuEventDestroy_v2)                                                                                              \
    DO(cuEventQuery)                                                                                                   \
    DO(cuEventRecord)                                                                                                  \
    DO(cuInit)                                                                                                         \
    DO(cuLaunchKernel)                                                                                                 \
    DO(cuMemAllocHost_v2)                                                                                              \
    DO(cuMemAlloc_v2)                                                                                                  \
    DO(cuMemFreeHost)                                                                                                  \
    DO(cuMemFree_v2)                                                                                                   \
    DO(cuMemcpyDtoHAsync_v2)                                                                                           \
    DO(cuMemcpyHtoDAsync_v2)                                                                                           \
    DO(cuMemsetD8Async)                                                                                                \
    DO(cuModuleGetFunction)                                                                                            \
    DO(cuModuleLoadData)                                                                                               \
    DO(cuModuleUnload)                                                                                                 \
    DO(cuStreamCreate)                                                                                                 \
    DO(cuStreamDestroy_v2)                                                                                             \
    DO(cuStreamSynchronize)

#define DECLARE(name)                                                                                                  \
    static __typeof__(&name) p_##name;                                                                                 \
    static atomic_ulong n_##name;
FUNCTIONS(DECLARE)

static int rounds = 1000;
static CUcontext context;
static CUfunction function;

/* Counts the call before it is made. */
#define CALL(name, ...) (atomic_fetch_add_explicit(&n_##name, 1, memory_order_relaxed), p_##name(__VA_ARGS__))
#define OK(name, ...)                                                                                                  \
    do {                                                                                                               \
        int code = CALL(name, __VA_ARGS__);                                                                            \
        if (code) {                                                                                                    \
            printf("%s = %d\n", #name, code);                                                                          \
            exit(1);                                                                                                   \
        }                                                                                                              \
    } while (0)

static void *work(void *data) {
    unsigned char mine = (unsigned char)(uintptr_t)data, *host = NULL;
    CUstream stream;
    CUevent event;
    CUdeviceptr memory, extra;
    OK(cuCtxSetCurrent, context);
    OK(cuStreamCreate, &stream, CU_STREAM_NON_BLOCKING);
    OK(cuEventCreate, &event, 0);
    OK(cuMemAlloc_v2, &memory, 4096);
    OK(cuMemAllocHost_v2, (void **)&host, 4096);
    for (int i = 0; i < rounds; i++) {
        OK(cuMemsetD8Async, memory + 2048, mine, 2048, stream);
        memset(host, mine, 2048);
        OK(cuMemcpyHtoDAsync_v2, memory, host, 2048, stream);
        OK(cuLaunchKernel, function, 1, 1, 1, 64, 1, 1, 0, stream, NULL, NULL);
        OK(cuLaunchKernel, function, 1, 1, 1, 64, 1, 1, 0, stream, NULL, NULL);
        OK(cuMemcpyDtoHAsync_v2, host, memory, 4096, stream);
        OK(cuEventRecord, event, stream);
        int query = CALL(cuEventQuery, event);
        if (query && query != CUDA_ERROR_NOT_READY) {
            printf("cuEventQuery = %d\n", query);
            exit(1);
        }
        OK(cuStreamSynchronize, stream);
        for (int k = 0; k < 4096; k++) {
            if (host[k] != mine) {
                printf("byte %d is %d, not %d\n", k, host[k], mine);
                exit(1);
            }
        }
        memset(host, 0, 4096);
        if (i % 10 == 0) {
            OK(cuMemAlloc_v2, &extra, 1 << 16);
            OK(cuMemFree_v2, extra);
        }
    }
    OK(cuMemFreeHost, host);
    OK(cuMemFree_v2, memory);
    OK(cuEventDestroy_v2, event);
    OK(cuStreamDestroy_v2, stream);
    return NULL;
}

int main(int argc, char **argv) {
    int threads = 8;
    if (argc > 1) rounds = atoi(argv[1]);
    if (argc > 2) threads = atoi(argv[2]);
    pthread_t ids[256];
    void *driver = dlopen("libcuda.so.1", RTLD_NOW | RTLD_GLOBAL);
    if (!driver || threads < 1 || threads > 256) {
        fprintf(stderr, "%s\n", driver ? "1 to 256 threads" : dlerror());
        return 2;
    }
#define FIND(name)                                                                                                     \
    p_##name = (__typeof__(p_##name))dlsym(driver, #name);                                                             \
    if (!p_##name) return 2;
    FUNCTIONS(FIND)
    CUdevice device;
    CUmodule module;
    OK(cuInit, 0);
    OK(cuDeviceGet, &device, 0);
    OK(cuDevicePrimaryCtxRetain, &context, device);
    OK(cuCtxSetCurrent, context);
    OK(cuModuleLoadData, &module, "fakecuda:spin_us_2");
    OK(cuModuleGetFunction, &function, module, "spin_us_2");
    for (int i = 0; i < threads; i++)
        if (pthread_create(&ids[i], NULL, work, (void *)(uintptr_t)(i + 1))) return 2;
    for (int i = 0; i < threads; i++) pthread_join(ids[i], NULL);
    OK(cuModuleUnload, module);
    OK(cuDevicePrimaryCtxRelease_v2, device);
#define PRINT(name) printf("%s %lu\n", #name, atomic_load(&n_##name));
    FUNCTIONS(PRINT)
    puts("ok");
    return 0;
}
