/* Many kernels of 100 ms, and one wait for all of them: cuda_long KERNELS. Prints `ok`. */
#include <stdio.h>
#include <stdlib.h>

#include "cuda.h"

int main(int argc, char **argv) {
    CUcontext context;
    CUmodule module;
    CUfunction kernel;
    if (cuInit(0) || cuDevicePrimaryCtxRetain(&context, 0) || cuCtxSetCurrent(context)) return 1;
    if (cuModuleLoadData(&module, "fakecuda:spin_us_100000") || cuModuleGetFunction(&kernel, module, "spin_us_100000")) return 1;
    for (int i = 0; i < atoi(argv[1]); i++)
        if (cuLaunchKernel(kernel, 1, 1, 1, 1, 1, 1, 0, NULL, NULL, NULL)) return 1;
    if (cuStreamSynchronize(NULL)) return 1;
    puts("ok");
    return 0;
}
