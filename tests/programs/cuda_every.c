/* Calls every function that the simulated driver exports exactly once, and prints each one's result.
 *
 * usage: cuda_every dlsym|procaddr
 *   dlsym      every pointer by dlsym on the driver's handle
 *   procaddr   by cuGetProcAddress_v2, asked for the name, version and flags that give just that variant (that function
 *              itself is then called once for each)
 *
 * What can be done with right arguments is done so, in an order in which it makes sense; the rest is called with zeros,
 * which nearly every function answers with an error. Run it with FAKE_CUDA_VERSION=13050, so that no variant is too new
 * for cuGetProcAddress. One line `SYMBOL RESULT` each on stdout, in the order of the calls, the same with and without a
 * tracer. On stderr `functions=N once=N`: the second counts those that the driver itself saw exactly once, and those
 * that it did not are named; a tracer's own calls of the driver show there. */
#define _GNU_SOURCE
#include <dlfcn.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "cuda.h"

typedef uint64_t u64;
typedef int (*Function)(u64, u64, u64, u64, u64, u64, u64, u64, u64, u64, u64);

static struct {
    char symbol[64];
    Function function;
    int calls, seen;
} table[1024];
static int count;
static void *driver;
static __typeof__(&cuGetProcAddress_v2) get_proc_address;

static void add(const char *symbol, const char *base, unsigned version, u64 flags, void *user) {
    (void)user;
    void *found = NULL;
    if (get_proc_address && strcmp(symbol, "cuGetProcAddress_v2")) {
        int status = -1;
        int r = get_proc_address(base, &found, (int)version, flags, &status);
        /* A variant that is newer than the driver's version is not handed out. */
        if (r || status) found = NULL;
    }
    if (!found) found = dlsym(driver, symbol);
    if (!found) {
        printf("%s missing\n", symbol);
        exit(1);
    }
    snprintf(table[count].symbol, sizeof table[count].symbol, "%s", symbol);
    table[count++].function = (Function)found;
}

static int row(const char *symbol) {
    for (int i = 0; i < count; i++)
        if (!strcmp(table[i].symbol, symbol)) return i;
    return -1;
}

static int call(const char *name, const char *suffix, const u64 *a) {
    char symbol[80];
    snprintf(symbol, sizeof symbol, "%s%s", name, suffix);
    int i = row(symbol);
    if (i < 0 || table[i].calls++) {
        printf("%s %s\n", symbol, i < 0 ? "is not exported" : "called twice");
        exit(1);
    }
    int r = table[i].function(a[0], a[1], a[2], a[3], a[4], a[5], a[6], a[7], a[8], a[9], a[10]);
    printf("%s %d\n", symbol, r);
    return r;
}

#define V(name, suffix, ...) call(name, suffix, (const u64[11]){__VA_ARGS__})
#define C(name, ...) V(name, "", __VA_ARGS__)
#define P(x) (u64)(uintptr_t)(x)

static void host_function(void *data) { (void)data; }
static void callback(void *stream, int status, void *data) { (void)stream, (void)status, (void)data; }
static void see(const char *name, u64 calls, void *user) {
    (void)user;
    int i = row(name);
    if (i >= 0) table[i].seen = calls == 1;
}

/* The variants of a function that takes a stream, or works on the default one. */
static const char *PTSZ[] = {"", "_ptsz"}, *PTDS[] = {"", "_ptds"};
static char host[1 << 16];
static u64 stream[2], event[2], memory, function, module[4];

static void memory_calls(void) {
    u64 x = 0, managed = 0, pinned[3] = {0}, pool = 0, array[2] = {0}, free_bytes, total;
    u64 descriptor[3] = {64, 4, 0x20 | (u64)1 << 32}, descriptor_3d[5] = {64, 4, 2, 0x20 | (u64)1 << 32, 0};
    C("cuMemAlloc_v2", P(&memory), 1 << 20);
    C("cuMemAllocManaged", P(&managed), 1 << 16, 1);
    C("cuMemAllocHost", P(&pinned[0]), 4096);
    C("cuMemAllocHost_v2", P(&pinned[1]), 4096);
    C("cuMemHostAlloc", P(&pinned[2]), 4096, 0);
    C("cuMemHostRegister", P(host), 4096, 0);
    C("cuMemHostUnregister", P(host));
    C("cuMemHostRegister_v2", P(host + 8192), 4096, 0);
    C("cuMemAllocPitch_v2", P(&x), P(&total), 100, 10, 4);
    C("cuMemHostGetDevicePointer_v2", P(&x), pinned[0], 0);
    C("cuMemHostGetFlags", P(&x), pinned[0]);
    C("cuMemGetInfo_v2", P(&free_bytes), P(&total));
    C("cuMemGetAddressRange_v2", P(&x), P(&total), memory + 10);
    C("cuPointerGetAttribute", P(&x), 2, memory);
    C("cuArrayCreate_v2", P(&array[0]), P(descriptor));
    C("cuArray3DCreate_v2", P(&array[1]), P(descriptor_3d));
    C("cuDeviceGetDefaultMemPool", P(&pool), 0);
    for (int i = 0; i < 2; i++) {
        u64 async = 0, from_pool = 0;
        V("cuMemAllocAsync", PTSZ[i], P(&async), 4096, stream[0]);
        V("cuMemAllocFromPoolAsync", PTSZ[i], P(&from_pool), 4096, pool, stream[0]);
        V("cuMemFreeAsync", PTSZ[i], async, stream[0]);

        V("cuMemcpy", PTDS[i], memory, P(host), 256);
        V("cuMemcpyAsync", PTSZ[i], memory, pinned[0], 256, stream[0]);
        V("cuMemcpyPeer", PTDS[i], memory, 0, memory + 4096, 0, 256);
        V("cuMemcpyPeerAsync", PTSZ[i], memory, 0, memory + 4096, 0, 256, stream[0]);
        V("cuMemcpyHtoD_v2", PTDS[i], memory, P(host), 256);
        V("cuMemcpyDtoH_v2", PTDS[i], P(host), memory, 256);
        V("cuMemcpyDtoD_v2", PTDS[i], memory, memory + 4096, 256);
        V("cuMemcpyHtoDAsync_v2", PTSZ[i], memory, pinned[0], 256, stream[0]);
        V("cuMemcpyDtoHAsync_v2", PTSZ[i], pinned[0], memory, 256, stream[0]);
        V("cuMemcpyDtoDAsync_v2", PTSZ[i], memory, memory + 4096, 256, stream[0]);
        V("cuMemcpyDtoA_v2", PTDS[i], array[0], 0, memory, 256);
        V("cuMemcpyAtoD_v2", PTDS[i], memory, array[0], 0, 256);
        V("cuMemcpyHtoA_v2", PTDS[i], array[0], 0, P(host), 256);
        V("cuMemcpyAtoH_v2", PTDS[i], P(host), array[0], 0, 256);
        V("cuMemcpyAtoA_v2", PTDS[i], array[1], 0, array[0], 0, 256);
        V("cuMemcpyHtoAAsync_v2", PTSZ[i], array[0], 0, pinned[0], 256, stream[0]);
        V("cuMemcpyAtoHAsync_v2", PTSZ[i], pinned[0], array[0], 0, 256, stream[0]);
        /* CUDA_MEMCPY2D: source x, y, type (1 host, 2 device), host, device, array, pitch; the same of the target;
         * width in bytes, height. CUDA_MEMCPY3D has z and a level of detail too, a reserved word and a height. */
        u64 plane[16] = {0, 0, 1, P(host), 0, 0, 64, 0, 0, 2, 0, memory, 0, 64, 64, 4};
        V("cuMemcpy2D_v2", PTDS[i], P(plane));
        V("cuMemcpy2DUnaligned_v2", PTDS[i], P(plane));
        V("cuMemcpy2DAsync_v2", PTSZ[i], P(plane), stream[0]);
        u64 block[25] = {0, 0, 0, 0, 1, P(host), 0,      0, 0, 64, 4, 0, 0,
                         0, 0, 2, 0, memory, 0, 0, 64, 4, 64, 4, 2};
        V("cuMemcpy3D_v2", PTDS[i], P(block));
        V("cuMemcpy3DAsync_v2", PTSZ[i], P(block), stream[0]);
        V("cuMemcpy3DPeer", PTDS[i], P(block));
        V("cuMemcpy3DPeerAsync", PTSZ[i], P(block), stream[0]);
        u64 to[2] = {memory, memory + 512}, from[2] = {memory + 8192, memory + 16384}, size[2] = {256, 128}, failed;
        V("cuMemcpyBatchAsync", PTSZ[i], P(to), P(from), P(size), 2, 0, 0, 0, P(&failed), stream[0]);
        V("cuMemcpyBatchAsync_v2", PTSZ[i], P(to), P(from), P(size), 2, 0, 0, 0, stream[0]);
        u64 operation[14] = {1, memory, 0, 0, 0, 1, memory + 8192, 0, 0, 0, 64, 4, 1, 0};
        V("cuMemcpy3DBatchAsync", PTSZ[i], 1, P(operation), P(&failed), 0, stream[0]);
        V("cuMemcpy3DBatchAsync_v2", PTSZ[i], 1, P(operation), 0, stream[0]);
        V("cuMemcpyWithAttributesAsync", PTSZ[i], memory, memory + 4096, 256, 0, stream[0]);
        V("cuMemcpy3DWithAttributesAsync", PTSZ[i], P(operation), 0, stream[0]);

        V("cuMemsetD8_v2", PTDS[i], memory, 1, 64);
        V("cuMemsetD16_v2", PTDS[i], memory, 1, 64);
        V("cuMemsetD32_v2", PTDS[i], memory, 1, 64);
        V("cuMemsetD2D8_v2", PTDS[i], memory, 256, 1, 64, 4);
        V("cuMemsetD2D16_v2", PTDS[i], memory, 256, 1, 64, 4);
        V("cuMemsetD2D32_v2", PTDS[i], memory, 256, 1, 64, 4);
        V("cuMemsetD8Async", PTSZ[i], memory, 1, 64, stream[0]);
        V("cuMemsetD16Async", PTSZ[i], memory, 1, 64, stream[0]);
        V("cuMemsetD32Async", PTSZ[i], memory, 1, 64, stream[0]);
        V("cuMemsetD2D8Async", PTSZ[i], memory, 256, 1, 64, 4, stream[0]);
        V("cuMemsetD2D16Async", PTSZ[i], memory, 256, 1, 64, 4, stream[0]);
        V("cuMemsetD2D32Async", PTSZ[i], memory, 256, 1, 64, 4, stream[0]);
        V("cuMemPrefetchAsync", PTSZ[i], managed, 4096, 0, stream[0]);
        V("cuMemPrefetchAsync_v2", PTSZ[i], managed, 4096, 1, 0, stream[0]);
    }
    C("cuMemAdvise", managed, 4096, 1, 0);
    C("cuMemAdvise_v2", managed, 4096, 1, 1);
    C("cuArrayDestroy", array[0]);
    C("cuMemFreeHost", pinned[2]);

    u64 range = 0, physical = 0, prop[4] = {1, 1, 0, 0}, access[2] = {1, 3};
    C("cuMemAddressReserve", P(&range), 2 << 20, 0, 0, 0);
    C("cuMemCreate", P(&physical), 2 << 20, P(prop), 0);
    C("cuMemMap", range, 2 << 20, 0, physical, 0);
    C("cuMemSetAccess", range, 2 << 20, P(access), 1);
    C("cuMemGetAccess", P(&x), 0, range);
    C("cuMemUnmap", range, 2 << 20);
    C("cuMemRelease", physical);
    C("cuMemAddressFree", range, 2 << 20);
}

static void module_calls(void) {
    u64 x, library[2] = {0}, kernel = 0;
    const char *image = "fakecuda:spin_us_5,other";
    C("cuModuleLoad", P(&module[0]), P("/proc/self/exe"));
    C("cuModuleLoadData", P(&module[1]), P(image));
    C("cuModuleLoadDataEx", P(&module[2]), P(image), 0, 0, 0);
    C("cuModuleLoadFatBinary", P(&module[3]), P(image));
    C("cuModuleGetFunction", P(&function), module[1], P("spin_us_5"));
    C("cuModuleGetFunctionCount", P(&x), module[1]);
    C("cuModuleGetGlobal_v2", P(&x), 0, module[0], P("variable"));
    C("cuLibraryLoadData", P(&library[0]), P(image), 0, 0, 0, 0, 0, 0);
    C("cuLibraryLoadFromFile", P(&library[1]), P("/proc/self/exe"), 0, 0, 0, 0, 0, 0);
    C("cuLibraryGetKernel", P(&kernel), library[0], P("other"));
    C("cuLibraryGetModule", P(&x), library[0]);
    C("cuLibraryGetKernelCount", P(&x), library[0]);
    C("cuKernelGetFunction", P(&x), kernel);
    C("cuKernelGetName", P(&x), kernel);
    C("cuKernelGetLibrary", P(&x), kernel);
    C("cuFuncGetName", P(&x), function);
    C("cuFuncGetModule", P(&x), function);
    C("cuFuncGetAttribute", P(&x), 0, function);
    C("cuFuncSetAttribute", function, 8, 1024);
    C("cuModuleUnload", module[2]);
    C("cuLibraryUnload", library[1]);
}

static void work_calls(void) {
    u64 x, status;
    for (int i = 0; i < 2; i++) {
        u64 config[8] = {1 | (u64)1 << 32, 1 | (u64)64 << 32, 1 | (u64)1 << 32, 0, stream[0], 0, 0};
        V("cuLaunchKernel", PTSZ[i], function, 1, 1, 1, 64, 1, 1, 0, stream[0], 0, 0);
        V("cuLaunchKernelEx", PTSZ[i], P(config), function, 0, 0);
        V("cuLaunchCooperativeKernel", PTSZ[i], function, 1, 1, 1, 64, 1, 1, 0, stream[0], 0);
        V("cuLaunchHostFunc", PTSZ[i], stream[0], P(host_function), 0);
        V("cuLaunchHostFunc_v2", PTSZ[i], stream[0], P(host_function), 0, 0);
        V("cuStreamAddCallback", PTSZ[i], stream[0], P(callback), 0, 0);
        V("cuEventRecord", PTSZ[i], event[0], stream[0]);
        V("cuEventRecordWithFlags", PTSZ[i], event[1], stream[0], 0);
        V("cuStreamWaitEvent", PTSZ[i], stream[1], event[0], 0);
        V("cuStreamSynchronize", PTSZ[i], stream[1]);
        V("cuStreamQuery", PTSZ[i], stream[1]);
        V("cuStreamGetCtx", PTSZ[i], stream[0], P(&x));
        V("cuStreamGetFlags", PTSZ[i], stream[0], P(&x));
        V("cuStreamGetId", PTSZ[i], stream[0], P(&x));
    }
    C("cuEventSynchronize", event[1]);
    C("cuEventQuery", event[1]);
    C("cuEventElapsedTime", P(&x), event[0], event[1]);
    C("cuEventElapsedTime_v2", P(&x), event[0], event[1]);
    C("cuCtxSynchronize", 0);
    C("cuCtxSynchronize_v2", 0);

    u64 graph[4] = {0}, exec[3] = {0}, node[2] = {0}, mode = 2;
    C("cuThreadExchangeStreamCaptureMode", P(&mode));
    V("cuStreamBeginCapture", "", stream[0]);
    V("cuStreamIsCapturing", "", stream[0], P(&status));
    V("cuStreamEndCapture", "", stream[0], P(&graph[0]));
    V("cuStreamBeginCapture_v2", "_ptsz", stream[0], 2);
    V("cuStreamEndCapture", "_ptsz", stream[0], P(&graph[1]));
    /* With 0 these would leave a capture open on a default stream. */
    V("cuStreamBeginCapture", "_ptsz", event[0], 2);
    V("cuStreamBeginCapture_v2", "", event[0], 2);
    C("cuGraphCreate", P(&graph[2]), 0);
    C("cuGraphAddEmptyNode", P(&node[0]), graph[2], 0, 0);
    u64 parameters[9] = {function, 1 | (u64)1 << 32, 1 | (u64)64 << 32, 1 | (u64)1 << 32, 0, 0, 0, 0, 0};
    C("cuGraphAddKernelNode_v2", P(&node[1]), graph[2], P(&node[0]), 1, P(parameters));
    C("cuGraphInstantiateWithFlags", P(&exec[0]), graph[2], 0);
    C("cuGraphInstantiate_v2", P(&exec[1]), graph[0], 0, 0, 0);
    u64 instantiate[4] = {0};
    V("cuGraphInstantiateWithParams", "", P(&exec[2]), graph[1], P(instantiate));
    for (int i = 0; i < 2; i++) {
        V("cuGraphUpload", PTSZ[i], exec[0], stream[0]);
        V("cuGraphLaunch", PTSZ[i], exec[0], stream[0]);
    }
    C("cuGraphExecDestroy", exec[1]);
    C("cuGraphDestroy", graph[0]);
}

int main(int argc, char **argv) {
    if (argc != 2) {
        fprintf(stderr, "usage: cuda_every dlsym|procaddr\n");
        return 2;
    }
    driver = dlopen("libcuda.so.1", RTLD_NOW | RTLD_LOCAL);
    void (*functions)(void (*)(const char *, const char *, unsigned, u64, void *), void *) =
        driver ? (__typeof__(functions))dlsym(driver, "fakeCudaFunctions") : NULL;
    void (*counters)(void (*)(const char *, u64, void *), void *) =
        driver ? (__typeof__(counters))dlsym(driver, "fakeCudaCounters") : NULL;
    if (!functions || !counters) {
        fprintf(stderr, "cuda_every needs the simulated driver: %s\n", dlerror());
        return 1;
    }
    int by_procaddr = !strcmp(argv[1], "procaddr");
    if (by_procaddr) get_proc_address = (__typeof__(get_proc_address))dlsym(driver, "cuGetProcAddress_v2");
    functions(add, NULL);

    u64 context[5] = {0}, x;
    C("cuInit", 0);
    C("cuDevicePrimaryCtxRetain", P(&context[0]), 0);
    C("cuCtxSetCurrent", context[0]);
    C("cuCtxCreate", P(&context[1]), 0, 0);
    C("cuCtxPopCurrent", P(&x));
    C("cuCtxCreate_v2", P(&context[2]), 0, 0);
    C("cuCtxPopCurrent_v2", P(&x));
    C("cuCtxPushCurrent", context[0]);
    C("cuCtxPushCurrent_v2", context[0]);
    C("cuCtxDestroy", context[1]);
    C("cuCtxDestroy_v2", context[2]);
    C("cuCtxGetCurrent", P(&x));
    C("cuCtxGetDevice", P(&x));
    C("cuStreamCreate", P(&stream[0]), 1);
    C("cuStreamCreateWithPriority", P(&stream[1]), 1, 0);
    C("cuEventCreate", P(&event[0]), 0);
    /* The second event is one of a graph-free client: the same function cannot be called twice. */
    event[1] = event[0];
    module_calls();
    memory_calls();
    work_calls();

    /* What would take the current context away comes last, and with it what would end the objects above. */
    static const char *late[] = {"cuCtxCreate_v3",    "cuCtxCreate_v4",       "cuDevicePrimaryCtxReset",
                                 "cuStreamDestroy",   "cuStreamDestroy_v2",   "cuDevicePrimaryCtxReset_v2",
                                 "cuEventDestroy",    "cuEventDestroy_v2",    "cuDevicePrimaryCtxRelease",
                                 "cuMemFree_v2",      "cuDevicePrimaryCtxRelease_v2"};
    for (int i = 0; i < count; i++) {
        int is_late = 0;
        for (unsigned k = 0; k < sizeof late / sizeof *late; k++) is_late |= !strcmp(table[i].symbol, late[k]);
        if (table[i].calls || is_late || (by_procaddr && !strcmp(table[i].symbol, "cuGetProcAddress_v2"))) continue;
        call(table[i].symbol, "", (const u64[11]){0});
    }
    C("cuStreamDestroy", stream[0]);
    C("cuStreamDestroy_v2", stream[1]);
    C("cuEventDestroy", event[0]);
    C("cuEventDestroy_v2", 0);
    C("cuMemFree_v2", memory);
    C("cuCtxCreate_v3", P(&context[3]), 0, 0, 0, 0);
    C("cuCtxCreate_v4", P(&context[4]), 0, 0, 0);
    C("cuDevicePrimaryCtxRelease", 0);
    C("cuDevicePrimaryCtxRelease_v2", 0);
    C("cuDevicePrimaryCtxReset", 0);
    C("cuDevicePrimaryCtxReset_v2", 0);

    counters(see, NULL);
    int once = 0;
    for (int i = 0; i < count; i++) {
        once += table[i].seen;
        if (!table[i].seen) fprintf(stderr, "%s was not seen once\n", table[i].symbol);
    }
    fprintf(stderr, "functions=%d once=%d\n", count, once);
    return 0;
}
