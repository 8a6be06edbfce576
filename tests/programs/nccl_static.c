/* A library with NCCL linked into it, which reduces and launches the kernel that NCCL would launch (-DLIBRARY), and the
 * program that opens it: nccl_static LIBRARY. */
#ifdef LIBRARY
#include "nccl_work.h"
#include <dlfcn.h>

#include "cuda.h"

int reduce_once(void);
int reduce_once(void) {
    ncclComm_t comm;
    double mine = 3, sum = 0;
    CHECK(ncclCommInitAll(&comm, 1, NULL));
    CHECK(ncclAllReduce(&mine, &sum, 1, FLOAT64, SUM, comm, NULL));
    CHECK(ncclCommDestroy(comm));
    void *driver = dlopen("libcuda.so.1", RTLD_NOW);
    CUmodule module;
    CUfunction function;
    ((__typeof__(&cuInit))dlsym(driver, "cuInit"))(0);
    ((__typeof__(&cuModuleLoadData))dlsym(driver, "cuModuleLoadData"))(&module, "image");
    const char *name = "ncclDevKernel_AllReduce_Sum_f64_RING_LL";
    ((__typeof__(&cuModuleGetFunction))dlsym(driver, "cuModuleGetFunction"))(&function, module, name);
    ((__typeof__(&cuLaunchKernel))dlsym(driver, "cuLaunchKernel"))(function, 1, 1, 1, 1, 1, 1, 0, NULL, NULL, NULL);
    return (int)sum;
}
#else
#include <dlfcn.h>
#include <stdio.h>

int main(int argc, char **argv) {
    void *library = argc == 2 ? dlopen(argv[1], RTLD_NOW | RTLD_LOCAL) : NULL;
    int (*reduce_once)(void) = library ? (int (*)(void))dlsym(library, "reduce_once") : NULL;
    if (!reduce_once) return puts(dlerror()), 1;
    printf("sum %d\n", reduce_once());
    return 0;
}
#endif
