/* Opens one libcuda.so.1 after the other, works with each, and closes it again.
 *
 * usage: drivers PATH...
 * Prints for each which functions it has, by dlsym and by cuGetProcAddress at a version that no driver has reached, and
 * what its calls gave. */
#define _GNU_SOURCE
#include <dlfcn.h>
#include <stdio.h>

#include "cuda.h"

#define GET(name) __typeof__(&name) p_##name = (__typeof__(&name))dlsym(driver, #name)

static const char *const asked[] = {"cuInit",        "cuGetProcAddress_v2", "cuLibraryLoadData",
                                    "cuGraphLaunch", "cuMemAllocAsync",     "cuNextYearsFunction"};

static int use(const char *path) {
    void *driver = dlopen(path, RTLD_NOW | RTLD_LOCAL);
    if (!driver) return puts(dlerror()), 1;
    GET(cuGetProcAddress_v2);
    for (unsigned i = 0; i < sizeof asked / sizeof *asked; i++) {
        void *found = NULL;
        int status = -1;
        if (p_cuGetProcAddress_v2) p_cuGetProcAddress_v2(asked[i], &found, 14000, 0, &status);
        printf("%s: dlsym %s, cuGetProcAddress %s\n", asked[i], dlsym(driver, asked[i]) ? "yes" : "no",
               found ? "yes" : "no");
    }
    GET(cuInit);
    GET(cuDriverGetVersion);
    GET(cuDevicePrimaryCtxRetain);
    GET(cuCtxSetCurrent);
    GET(cuMemAlloc_v2);
    GET(cuMemFree_v2);
    GET(cuModuleLoadData);
    GET(cuModuleGetFunction);
    GET(cuLaunchKernel);
    GET(cuCtxSynchronize);
    int version = 0;
    CUcontext context = NULL;
    CUmodule module = NULL;
    CUfunction function = NULL;
    CUdeviceptr memory = 0;
    int r[] = {p_cuInit(0),
               p_cuDriverGetVersion(&version),
               p_cuDevicePrimaryCtxRetain(&context, 0),
               p_cuCtxSetCurrent(context),
               p_cuMemAlloc_v2(&memory, 4096),
               p_cuModuleLoadData(&module, "fakecuda:spin_us_5"),
               p_cuModuleGetFunction(&function, module, "spin_us_5"),
               p_cuLaunchKernel(function, 1, 1, 1, 1, 1, 1, 0, NULL, NULL, NULL),
               p_cuCtxSynchronize(),
               p_cuMemFree_v2(memory)};
    CUresult (*future)(void) = (CUresult(*)(void))dlsym(driver, "cuNextYearsFunction");
    printf("version %d, results", version);
    for (unsigned i = 0; i < sizeof r / sizeof *r; i++) printf(" %d", r[i]);
    printf(", next year's function %d\n", future ? future() : -1);
    return dlclose(driver);
}

int main(int argc, char **argv) {
    for (int i = 1; i < argc; i++)
        if (use(argv[i])) return 1;
    return 0;
}
