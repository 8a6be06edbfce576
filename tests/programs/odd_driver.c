/* A libcuda.so.1 that does what a driver may do and the simulated one does not: it calls the program back on the
 * calling thread, gives the same handle to another function after an unload, calls its own exported functions, has no
 * cuFuncGetName (before CUDA 12.3), and keeps no state that a forked child could miss. A wait for stream 0x2a0 takes until
 * the file ODD_DRIVER_UNTIL is there. */
#define _GNU_SOURCE
#include <dlfcn.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "cuda.h"

static void (*on_synchronize)(void *);
static void *on_synchronize_data;
static unsigned functions;
static __thread CUcontext current;

/* What cuCtxSynchronize calls before it returns. */
void oddDriverCalls(void (*function)(void *), void *data);
void oddDriverCalls(void (*function)(void *), void *data) {
    on_synchronize = function;
    on_synchronize_data = data;
}

CUresult cuInit(unsigned flags) { return 0; }
CUresult cuDriverGetVersion(int *version) { return *version = 12000, 0; }
CUresult cuDeviceGet(CUdevice *device, int ordinal) { return *device = ordinal, 0; }
CUresult cuDeviceGetCount(int *count) { return *count = 1, 0; }
CUresult cuCtxGetCurrent(CUcontext *context);
CUresult cuCtxGetCurrent(CUcontext *context) { return *context = current, 0; }
CUresult cuCtxGetDevice(CUdevice *device);
CUresult cuCtxGetDevice(CUdevice *device) { return *device = 0, 0; }
CUresult cuDevicePrimaryCtxRetain(CUcontext *context, CUdevice device) { return *context = (CUcontext)0x100, 0; }
CUresult cuCtxSetCurrent(CUcontext context) { return current = context, 0; }

CUresult cuCtxSynchronize(void) {
    if (on_synchronize) on_synchronize(on_synchronize_data);
    return 0;
}

CUresult cuStreamSynchronize(CUstream stream) {
    const char *until = getenv("ODD_DRIVER_UNTIL");
    while (until && stream == (CUstream)0x2a0 && access(until, F_OK)) usleep(1000);
    return 0;
}

CUresult cuModuleLoadData(CUmodule *module, const void *image) { return *module = (CUmodule)0x200, 0; }

CUresult cuModuleUnload(CUmodule module) {
    functions = 0;
    return 0;
}

/* The first function of a module has the handle 0x1010, whatever it is. */
CUresult cuModuleGetFunction(CUfunction *function, CUmodule module, const char *name) {
    if (!strncmp(name, "missing_", 8)) return CUDA_ERROR_NOT_FOUND;
    *function = (CUfunction)(uintptr_t)(0x1000 + 16 * ++functions);
    return 0;
}

CUresult cuLaunchKernel(CUfunction function, unsigned grid_x, unsigned grid_y, unsigned grid_z, unsigned block_x,
                        unsigned block_y, unsigned block_z, unsigned shared_bytes, CUstream stream, void **params,
                        void **extra) {
    return 0;
}

/* Through the exported function, as a library does that is not linked -Bsymbolic. */
CUresult cuLaunchCooperativeKernel(CUfunction function, unsigned grid_x, unsigned grid_y, unsigned grid_z,
                                   unsigned block_x, unsigned block_y, unsigned block_z, unsigned shared_bytes,
                                   CUstream stream, void **params);
CUresult cuLaunchCooperativeKernel(CUfunction function, unsigned grid_x, unsigned grid_y, unsigned grid_z,
                                   unsigned block_x, unsigned block_y, unsigned block_z, unsigned shared_bytes,
                                   CUstream stream, void **params) {
    return cuLaunchKernel(function, grid_x, grid_y, grid_z, block_x, block_y, block_z, shared_bytes, stream, params, 0);
}
