/* A libcuda.so.1 of CUDA 10.2: no cuGetProcAddress, no libraries, no pools, no updates of graphs; its functions do as
 * little as they may. Copies of it in two folders are two drivers. */
#include <stddef.h>

#include "cuda.h"

static CUdeviceptr next = 0x10000;

CUresult cuInit(unsigned flags) { return 0; }
CUresult cuDriverGetVersion(int *version) { return *version = 10020, 0; }
CUresult cuDeviceGet(CUdevice *device, int ordinal) { return *device = ordinal, 0; }
CUresult cuDevicePrimaryCtxRetain(CUcontext *context, CUdevice device) { return *context = (CUcontext)0x100, 0; }
CUresult cuCtxSetCurrent(CUcontext context) { return 0; }
CUresult cuCtxSynchronize(void) { return 0; }
CUresult cuMemAlloc_v2(CUdeviceptr *address, size_t bytes) { return *address = next, next += bytes, 0; }
CUresult cuMemFree_v2(CUdeviceptr address) { return 0; }
CUresult cuModuleLoadData(CUmodule *module, const void *image) { return *module = (CUmodule)0x200, 0; }
CUresult cuModuleGetFunction(CUfunction *function, CUmodule module, const char *name) {
    return *function = (CUfunction)0x300, 0;
}
CUresult cuLaunchKernel(CUfunction f, unsigned gx, unsigned gy, unsigned gz, unsigned bx, unsigned by, unsigned bz,
                        unsigned shared, CUstream stream, void **params, void **extra) {
    return 0;
}
