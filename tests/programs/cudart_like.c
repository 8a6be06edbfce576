/* Does what libcudart does to reach the driver, and goes on to a checked result.
 *
 * As libcudart 12 and 13 do: dlopen(libcuda.so.1), dlsym of cuGetProcAddress_v2 only, a probe with the empty name and
 * version 0, every function looked up at the version that it was written for, those that take a stream both with flags
 * 0 and with flags 2 (per-thread default stream), private tables asked for by their UUID, the primary context, kernels
 * of a library launched by their CUkernel handle.
 *
 * Prints `launches=6 ok` when y = 2 x + y came out right twice and kernels of 50 us took their time. */
#include <dlfcn.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "cuda.h"

static __typeof__(&cuGetProcAddress_v2) get;

static void fail(const char *what, int code) {
    printf("%s = %d\n", what, code);
    exit(1);
}

static void *find(const char *name, int version, uint64_t flags) {
    void *found = NULL;
    int status = -1;
    CUresult r = get(name, &found, version, flags, &status);
    if (r || status || !found) fail(name, r ? r : status);
    return found;
}

#define OK(call)                                                                                                       \
    do {                                                                                                               \
        CUresult code = call;                                                                                          \
        if (code) fail(#call, code);                                                                                   \
    } while (0)
#define GET(symbol, name, version) __typeof__(&symbol) p_##name = (__typeof__(&symbol))find(#name, version, 0)
#define GET_BOTH(symbol, name, version)                                                                                \
    __typeof__(&symbol) p_##name[2] = {(__typeof__(&symbol))find(#name, version, 0),                                   \
                                       (__typeof__(&symbol))find(#name, 7000, 2)}

typedef CUresult (*LibraryLoadData)(CUlibrary *, const void *, void *, void *, unsigned, void *, void *, unsigned);
typedef CUresult (*LibraryGetKernel)(CUkernel *, CUlibrary, const char *);
typedef CUresult (*LibraryUnload)(CUlibrary);
typedef CUresult (*GetExportTable)(const void **, const unsigned char *);

int main(void) {
    void *driver = dlopen("libcuda.so.1", RTLD_NOW | RTLD_LOCAL);
    if (!driver) fail(dlerror(), 0);
    get = (__typeof__(get))dlsym(driver, "cuGetProcAddress_v2");
    if (!get) fail("dlsym", 0);
    void *none = NULL;
    int status = -1;
    OK(get("", &none, 0, 0, &status));
    if (none || status != 1) fail("the empty name", status);

    GET(cuInit, cuInit, 2000);
    GET(cuDeviceGet, cuDeviceGet, 2000);
    GET(cuDevicePrimaryCtxRetain, cuDevicePrimaryCtxRetain, 7000);
    GET(cuDevicePrimaryCtxRelease_v2, cuDevicePrimaryCtxRelease, 11000);
    GET(cuCtxSetCurrent, cuCtxSetCurrent, 4000);
    GET(cuCtxSynchronize, cuCtxSynchronize, 2000);
    GET(cuMemAlloc_v2, cuMemAlloc, 3020);
    GET(cuMemFree_v2, cuMemFree, 3020);
    GET(cuEventCreate, cuEventCreate, 2000);
    GET(cuEventElapsedTime, cuEventElapsedTime, 2000);
    GET(cuEventDestroy_v2, cuEventDestroy, 4000);
    GET_BOTH(cuMemcpyHtoD_v2, cuMemcpyHtoD, 3020);
    GET_BOTH(cuMemcpyDtoH_v2, cuMemcpyDtoH, 3020);
    GET_BOTH(cuLaunchKernel, cuLaunchKernel, 4000);
    GET_BOTH(cuEventRecord, cuEventRecord, 2000);
    GET_BOTH(cuStreamSynchronize, cuStreamSynchronize, 2000);
    LibraryLoadData load = (LibraryLoadData)find("cuLibraryLoadData", 12000, 0);
    LibraryGetKernel get_kernel = (LibraryGetKernel)find("cuLibraryGetKernel", 12000, 0);
    LibraryUnload unload = (LibraryUnload)find("cuLibraryUnload", 12000, 0);
    GetExportTable table = (GetExportTable)find("cuGetExportTable", 3000, 0);

    CUdevice device;
    CUcontext context;
    OK(p_cuInit(0));
    OK(p_cuDeviceGet(&device, 0));
    /* The runtime's own table; a table of no known UUID must be refused, not granted in silence. */
    static const unsigned char known[16] = {0x6b, 0xd5, 0xfb, 0x6c, 0x5b, 0xf4, 0xe7, 0x4a,
                                            0x89, 0x87, 0xd9, 0x39, 0x12, 0xfd, 0x9d, 0xf9};
    static const unsigned char unknown[16] = {1, 2, 3};
    const void *slots = NULL;
    OK(table(&slots, known));
    if (!slots || !table(&slots, unknown)) fail("cuGetExportTable", -1);
    OK(p_cuDevicePrimaryCtxRetain(&context, device));
    OK(p_cuCtxSetCurrent(context));

    CUlibrary library;
    CUkernel saxpy, spin;
    OK(load(&library, "fakecuda:_Z5saxpyifPfS_,_Z10spin_us_50v", NULL, NULL, 0, NULL, NULL, 0));
    OK(get_kernel(&saxpy, library, "_Z5saxpyifPfS_"));
    OK(get_kernel(&spin, library, "_Z10spin_us_50v"));

    enum { N = 1000 };
    float host_x[N], host_y[N], a = 2;
    int n = N;
    CUdeviceptr x, y;
    OK(p_cuMemAlloc(&x, sizeof host_x));
    OK(p_cuMemAlloc(&y, sizeof host_y));
    for (int i = 0; i < N; i++) host_x[i] = (float)i, host_y[i] = 1;
    void *arguments[] = {&n, &a, &x, &y};
    CUevent start, end;
    OK(p_cuEventCreate(&start, 0));
    OK(p_cuEventCreate(&end, 0));
    for (int per_thread = 0; per_thread < 2; per_thread++) {
        OK(p_cuMemcpyHtoD[per_thread](x, host_x, sizeof host_x));
        OK(p_cuMemcpyHtoD[per_thread](y, host_y, sizeof host_y));
        OK(p_cuLaunchKernel[per_thread]((CUfunction)saxpy, 8, 1, 1, 128, 1, 1, 0, NULL, arguments, NULL));
        OK(p_cuEventRecord[per_thread](start, NULL));
        for (int i = 0; i < 2; i++)
            OK(p_cuLaunchKernel[per_thread]((CUfunction)spin, 8, 1, 1, 128, 1, 1, 0, NULL, NULL, NULL));
        OK(p_cuEventRecord[per_thread](end, NULL));
        OK(p_cuStreamSynchronize[per_thread](NULL));
        float ms = 0;
        OK(p_cuEventElapsedTime(&ms, start, end));
        if (ms < 0.0999f) fail("two kernels of 50 us took too little", (int)(ms * 1000));
        OK(p_cuMemcpyDtoH[per_thread](host_y, y, sizeof host_y));
        for (int i = 0; i < N; i++)
            if (host_y[i] != 2 * (float)i * (float)(per_thread + 1) + 1) fail("y", i);
    }
    OK(p_cuCtxSynchronize());
    OK(p_cuEventDestroy(start));
    OK(p_cuEventDestroy(end));
    OK(p_cuMemFree(x));
    OK(p_cuMemFree(y));
    OK(unload(library));
    OK(p_cuDevicePrimaryCtxRelease(device));
    printf("launches=6 ok\n");
    return 0;
}
