/* The driver's functions, found in one of two ways. The odd driver has few of them: the others stay NULL. */
#ifndef CHAOS_DRIVER_H
#define CHAOS_DRIVER_H

#include <dlfcn.h>
#include <string.h>

#include "cuda.h"
#include "plan.h"
#include "truth.h"

#define FUNCTIONS(DO)                                                                                                  \
    DO(cuInit)                                                                                                         \
    DO(cuDeviceGet)                                                                                                    \
    DO(cuDevicePrimaryCtxRetain)                                                                                       \
    DO(cuCtxSetCurrent)                                                                                                \
    DO(cuCtxSynchronize)                                                                                               \
    DO(cuModuleLoadData)                                                                                               \
    DO(cuModuleUnload)                                                                                                 \
    DO(cuModuleGetFunction)                                                                                            \
    DO(cuStreamCreate)                                                                                                 \
    DO(cuStreamDestroy_v2)                                                                                             \
    DO(cuStreamSynchronize)                                                                                            \
    DO(cuStreamQuery)                                                                                                  \
    DO(cuStreamBeginCapture_v2)                                                                                        \
    DO(cuStreamEndCapture)                                                                                             \
    DO(cuEventCreate)                                                                                                  \
    DO(cuEventRecord)                                                                                                  \
    DO(cuEventSynchronize)                                                                                             \
    DO(cuEventDestroy_v2)                                                                                              \
    DO(cuMemAlloc_v2)                                                                                                  \
    DO(cuMemFree_v2)                                                                                                   \
    DO(cuMemAllocAsync)                                                                                                \
    DO(cuMemFreeAsync)                                                                                                 \
    DO(cuMemAllocHost_v2)                                                                                              \
    DO(cuMemFreeHost)                                                                                                  \
    DO(cuMemsetD8_v2)                                                                                                  \
    DO(cuMemsetD8Async)                                                                                                \
    DO(cuMemcpyHtoD_v2)                                                                                                \
    DO(cuMemcpyDtoH_v2)                                                                                                \
    DO(cuMemcpyHtoDAsync_v2)                                                                                           \
    DO(cuMemcpyDtoHAsync_v2)                                                                                           \
    DO(cuLaunchKernel)                                                                                                 \
    DO(cuGraphInstantiateWithFlags)                                                                                    \
    DO(cuGraphLaunch)                                                                                                  \
    DO(cuGraphExecDestroy)                                                                                             \
    DO(cuGraphDestroy)

static struct {
#define FIELD(name) __typeof__(&name) name;
    FUNCTIONS(FIELD)
} cu;

static int odd, forked;
static CUcontext context;
static CUmodule module;
static CUfunction function, slow;

/* The function of this name: by dlsym, or, as the runtime does, by the name without its version. */
static void *found(void *driver, const char *name, int by_address) {
    __typeof__(&cuGetProcAddress_v2) get = dlsym(driver, "cuGetProcAddress_v2");
    if (!by_address || !get) return dlsym(driver, name);
    char base[64];
    snprintf(base, sizeof base, "%s", name);
    char *version = strstr(base, "_v2");
    if (version) *version = 0;
    void *function = NULL;
    int status;
    int result = get(base, &function, 12000, CU_GET_PROC_ADDRESS_DEFAULT, &status);
    if (result || !function) wrong(name, result);
    return function;
}

static void load_driver(void) {
    void *driver = dlopen("libcuda.so.1", RTLD_NOW);
    if (!driver) _exit(93);
    int by_address = is("route", "procaddr");
#define FIND(name) cu.name = (__typeof__(&name))found(driver, #name, by_address && strcmp(#name, "cuInit"));
    FUNCTIONS(FIND)
    odd = is("driver", "odd");
    driver_waits = !odd;
    CUdevice device;
    int result = cu.cuInit(0);
    if (result) wrong("cuInit", result);
    cu.cuDeviceGet(&device, 0);
    cu.cuDevicePrimaryCtxRetain(&context, device);
    cu.cuCtxSetCurrent(context);
    cu.cuModuleLoadData(&module, "fakecuda:spin_ns_0,spin_us_20");
    cu.cuModuleGetFunction(&function, module, "spin_ns_0");
    result = cu.cuModuleGetFunction(&slow, module, "spin_us_20");
    if (result) wrong("cuModuleGetFunction", result);
}

/* In a forked child the simulated driver refuses what it looks at, as the vendor's does; where no call takes time it does
 * not look. */
static void launch(CUfunction what, unsigned grid, CUstream stream) {
    int result = CALL(LAUNCH, cu.cuLaunchKernel(what, grid, 1, 1, 32, 1, 1, 0, stream, NULL, NULL));
    if (result && !(forked && result == 3)) wrong("cuLaunchKernel", result);
}

#endif
