/* Calls that wait for work without saying so: each ROUNDS times with a kernel of 10 ms before it, and as often without.
 * Then code is compiled and loaded, and the legacy stream is used among others.
 *
 * usage: cuda_implicit */
#define _GNU_SOURCE
#include <dlfcn.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "cuda.h"

enum { ROUNDS = 4, BYTES = 100000 };

#define EACH(F) \
    F(cuInit) F(cuDevicePrimaryCtxRetain) F(cuCtxSetCurrent) F(cuModuleLoadData) F(cuModuleGetFunction) F(cuLaunchKernel) \
    F(cuMemAlloc_v2) F(cuMemFree_v2) F(cuMemHostAlloc) F(cuMemFreeHost) F(cuMemcpyDtoH_v2) F(cuMemcpyHtoD_v2) \
    F(cuMemcpyDtoHAsync_v2) F(cuMemsetD8_v2) F(cuStreamCreate) F(cuStreamSynchronize) F(cuCtxSynchronize)
#define DECLARE(name) static __typeof__(&name) p_##name;
EACH(DECLARE)
#define OK(call) do { if ((call) != CUDA_SUCCESS) return printf("%s failed\n", #call), 1; } while (0)

static CUfunction slow, fast;
static char pageable[BYTES];

/* Gives a stream 10 ms of work, or lets everybody finish. */
static int before(int busy, CUstream stream) {
    OK(p_cuCtxSynchronize());
    if (busy) OK(p_cuLaunchKernel(slow, 1, 1, 1, 1, 1, 1, 0, stream, NULL, NULL));
    return 0;
}

static int calls(int busy, CUdeviceptr memory, void *pinned, CUstream stream) {
    for (int i = 0; i < ROUNDS; i++) {
        CUdeviceptr block;
        void *host;
        OK(p_cuMemAlloc_v2(&block, BYTES));
        if (before(busy, stream)) return 1;
        OK(p_cuMemFree_v2(block));
        OK(p_cuMemHostAlloc(&host, BYTES, 0));
        if (before(busy, stream)) return 1;
        OK(p_cuMemFreeHost(host));
        if (before(busy, NULL)) return 1;
        OK(p_cuMemcpyDtoH_v2(pageable, memory, BYTES));
        if (before(busy, NULL)) return 1;
        OK(p_cuMemcpyHtoD_v2(memory, pageable, BYTES));
        if (before(busy, stream)) return 1;
        OK(p_cuMemcpyDtoHAsync_v2(pageable, memory, BYTES, stream));
        if (before(busy, NULL)) return 1;
        OK(p_cuMemsetD8_v2((CUdeviceptr)pinned, 1, BYTES));
        /* Not waits: an allocation here, and a copy in a stream that has nothing to do. */
        if (before(busy, stream)) return 1;
        OK(p_cuMemAlloc_v2(&block, BYTES));
        OK(p_cuMemcpyDtoHAsync_v2(pageable, memory, BYTES, NULL));
        OK(p_cuMemFree_v2(block));
    }
    return 0;
}

/* Text is compiled, machine code is only loaded; the rest of it at a kernel's first launch. */
static int loads(CUmodule module, CUstream stream) {
    char name[] = "load_us_5000_0";
    for (int i = 0; i < ROUNDS; i++) {
        CUmodule loaded;
        CUfunction lazy;
        if (before(1, stream)) return 1;
        OK(p_cuModuleLoadData(&loaded, "fakecuda:compile_us_3000"));
        OK(p_cuModuleLoadData(&loaded, "\177ELF and so on"));
        name[sizeof name - 2] = (char)('0' + i);
        OK(p_cuModuleGetFunction(&lazy, module, name));
        for (int n = 0; n < 4; n++) OK(p_cuLaunchKernel(lazy, 1, 1, 1, 1, 1, 1, 0, stream, NULL, NULL));
    }
    return 0;
}

static int legacy(CUstream ordinary, CUstream apart) {
    for (int i = 0; i < ROUNDS; i++) {
        OK(p_cuCtxSynchronize());
        OK(p_cuLaunchKernel(slow, 1, 1, 1, 1, 1, 1, 0, apart, NULL, NULL));
        OK(p_cuLaunchKernel(fast, 1, 1, 1, 1, 1, 1, 0, NULL, NULL, NULL));
        OK(p_cuStreamSynchronize(NULL));
        OK(p_cuLaunchKernel(slow, 1, 1, 1, 1, 1, 1, 0, ordinary, NULL, NULL));
        OK(p_cuLaunchKernel(fast, 1, 1, 1, 1, 1, 1, 0, NULL, NULL, NULL));
        OK(p_cuStreamSynchronize(NULL));
    }
    return 0;
}

int main(void) {
    void *driver = dlopen("libcuda.so.1", RTLD_NOW);
    if (!driver) return puts(dlerror()), 1;
#define FIND(name) p_##name = (__typeof__(p_##name))dlsym(driver, #name);
    EACH(FIND)
    CUcontext context;
    CUmodule module;
    CUstream ordinary, apart;
    CUdeviceptr memory;
    void *pinned;
    OK(p_cuInit(0));
    OK(p_cuDevicePrimaryCtxRetain(&context, 0));
    OK(p_cuCtxSetCurrent(context));
    OK(p_cuModuleLoadData(&module, "image"));
    OK(p_cuModuleGetFunction(&slow, module, "spin_us_10000"));
    OK(p_cuModuleGetFunction(&fast, module, "spin_us_1"));
    OK(p_cuStreamCreate(&ordinary, 0));
    OK(p_cuStreamCreate(&apart, CU_STREAM_NON_BLOCKING));
    OK(p_cuMemAlloc_v2(&memory, BYTES));
    OK(p_cuMemHostAlloc(&pinned, BYTES, 0));
    if (calls(0, memory, pinned, apart) || calls(1, memory, pinned, apart)) return 1;
    if (loads(module, apart) || legacy(ordinary, apart)) return 1;
    OK(p_cuCtxSynchronize());
    return 0;
}
