/* A library like those that enforce GPU quotas: preloaded, it answers dlsym and cuGetProcAddress_v2 with functions of
 * its own for some driver calls, and passes them on to the driver. At the end it prints what went through it. */
#define _GNU_SOURCE
#include <dlfcn.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "cuda.h"

static int allocations, launches, lookups;

static void *real_dlsym(void *handle, const char *name) {
    static void *(*real)(void *, const char *);
    if (!real) real = (void *(*)(void *, const char *))dlvsym(RTLD_NEXT, "dlsym", "GLIBC_2.34");
    if (!real) real = (void *(*)(void *, const char *))dlvsym(RTLD_NEXT, "dlsym", "GLIBC_2.2.5");
    return real(handle, name);
}

static void *driver_function(const char *name) {
    return real_dlsym(dlopen("libcuda.so.1", RTLD_LAZY | RTLD_NOLOAD), name);
}

CUresult cuMemAlloc_v2(CUdeviceptr *address, size_t bytes) {
    static __typeof__(&cuMemAlloc_v2) real;
    if (!real) real = (__typeof__(real))driver_function("cuMemAlloc_v2");
    allocations++;
    return bytes > 1ul << 40 ? CUDA_ERROR_OUT_OF_MEMORY : real(address, bytes);
}

CUresult cuLaunchKernel(CUfunction function, unsigned grid_x, unsigned grid_y, unsigned grid_z, unsigned block_x,
                        unsigned block_y, unsigned block_z, unsigned shared_bytes, CUstream stream, void **params,
                        void **extra) {
    static __typeof__(&cuLaunchKernel) real;
    if (!real) real = (__typeof__(real))driver_function("cuLaunchKernel");
    launches++;
    return real(function, grid_x, grid_y, grid_z, block_x, block_y, block_z, shared_bytes, stream, params, extra);
}

static void *mine(const char *name) {
    if (!strcmp(name, "cuMemAlloc_v2") || !strcmp(name, "cuMemAlloc")) return (void *)cuMemAlloc_v2;
    if (!strcmp(name, "cuLaunchKernel")) return (void *)cuLaunchKernel;
    if (!strcmp(name, "cuGetProcAddress_v2")) return (void *)cuGetProcAddress_v2;
    return NULL;
}

CUresult cuGetProcAddress_v2(const char *symbol, void **function, int version, uint64_t flags, int *status) {
    static __typeof__(&cuGetProcAddress_v2) real;
    if (!real) real = (__typeof__(real))driver_function("cuGetProcAddress_v2");
    lookups++;
    CUresult result = real(symbol, function, version, flags, status);
    void *own = !result && *function ? mine(symbol) : NULL;
    if (own) *function = own;
    return result;
}

void *dlsym(void *handle, const char *name) {
    void *own = !strncmp(name, "cu", 2) ? mine(name) : NULL;
    void *found = real_dlsym(handle, name);
    return own && found ? own : found;
}

__attribute__((destructor)) static void report(void) {
    if (allocations) printf("quota: %d allocations, %d launches, %s\n", allocations, launches, lookups ? "look-ups" : "no look-ups");
}
