/* Launches kernels as it is told, one after the other in one stream, and waits for them.
 *
 * usage: cuda_shapes (KERNEL BLOCK SHARED)...
 *
 * BLOCK: threads of a block; SHARED: its dynamic shared memory, bytes. */
#define _GNU_SOURCE
#include <dlfcn.h>
#include <stdio.h>
#include <stdlib.h>

#include "cuda.h"

#define EACH(F) \
    F(cuInit) F(cuDevicePrimaryCtxRetain) F(cuCtxSetCurrent) F(cuModuleLoadData) F(cuModuleGetFunction) F(cuLaunchKernel) \
    F(cuStreamCreate) F(cuStreamSynchronize)
#define DECLARE(name) static __typeof__(&name) p_##name;
EACH(DECLARE)
#define OK(call) do { if ((call) != CUDA_SUCCESS) return printf("%s failed\n", #call), 1; } while (0)

int main(int argc, char **argv) {
    void *driver = dlopen("libcuda.so.1", RTLD_NOW);
    if (!driver) return puts(dlerror()), 2;
#define FIND(name) if (!(p_##name = (__typeof__(p_##name))dlsym(driver, #name))) return puts(#name), 2;
    EACH(FIND)
    CUcontext context;
    CUmodule module;
    CUstream stream;
    OK(p_cuInit(0));
    OK(p_cuDevicePrimaryCtxRetain(&context, 0));
    OK(p_cuCtxSetCurrent(context));
    OK(p_cuStreamCreate(&stream, CU_STREAM_NON_BLOCKING));
    for (int at = 1; at + 2 < argc; at += 3) {
        CUfunction function;
        char image[256];
        snprintf(image, sizeof image, "fakecuda:%s", argv[at]);
        OK(p_cuModuleLoadData(&module, image));
        OK(p_cuModuleGetFunction(&function, module, argv[at]));
        unsigned block = (unsigned)atoi(argv[at + 1]), shared = (unsigned)atoi(argv[at + 2]);
        OK(p_cuLaunchKernel(function, 1, 1, 1, block, 1, 1, shared, stream, NULL, NULL));
    }
    OK(p_cuStreamSynchronize(stream));
    puts("ok");
    return 0;
}
