/* Reaches the CUDA driver by one route, does a small job and prints what came of it.
 *
 * usage: cuda_routes ROUTE
 *   link             through symbols of a library that this program is linked with: run it with libcuda.so.1 as a
 *                    needed library or in LD_PRELOAD; the symbols are weak, so that it also links without
 *   dlopen           dlopen(libcuda.so.1, RTLD_GLOBAL), dlsym on its handle
 *   dlopen_local     the same with RTLD_LOCAL
 *   default          dlsym(RTLD_DEFAULT) after a global dlopen
 *   next             dlsym(RTLD_NEXT) after a global dlopen
 *   dlvsym           dlvsym on the handle; the driver's symbols have no version, so it falls back to dlsym
 *   procaddr         cuGetProcAddress_v2, itself from dlsym
 *   procaddr_ptsz    the same with the flag for per-thread default streams
 *   procaddr_self    cuGetProcAddress_v2 fetched through cuGetProcAddress_v2
 *   procaddr_v1      cuGetProcAddress of CUDA 11
 *   deepbind_cuda    dlopen(libcuda.so.1, RTLD_DEEPBIND), dlsym on its handle
 *   dlmopen          dlmopen(LM_ID_NEWLM), dlsym on its handle
 *   walk             dlopen(libcuda.so.1, RTLD_LOCAL), then its symbol table read by hand
 *   python           as ctypes does: a local dlopen, then cuGetProcAddress_v2 for everything else
 *
 * With -Dmain=job it is a library, for past_symbols.c. Prints one line `route=ROUTE launches=3 copies=2 sum=... result=0` and exits 0 when all is right. */
#define _GNU_SOURCE
#include <dlfcn.h>
#include <link.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "cuda.h"

#pragma weak cuGetProcAddress_v2
#define FUNCTIONS(DO)                                                                                                  \
    DO(cuInit, cuInit)                                                                                                 \
    DO(cuDeviceGet, cuDeviceGet)                                                                                       \
    DO(cuCtxCreate_v2, cuCtxCreate)                                                                                    \
    DO(cuCtxDestroy_v2, cuCtxDestroy)                                                                                  \
    DO(cuModuleLoadData, cuModuleLoadData)                                                                             \
    DO(cuModuleGetFunction, cuModuleGetFunction)                                                                       \
    DO(cuModuleUnload, cuModuleUnload)                                                                                 \
    DO(cuMemAlloc_v2, cuMemAlloc)                                                                                      \
    DO(cuMemFree_v2, cuMemFree)                                                                                        \
    DO(cuMemcpyHtoD_v2, cuMemcpyHtoD)                                                                                  \
    DO(cuMemcpyDtoH_v2, cuMemcpyDtoH)                                                                                  \
    DO(cuLaunchKernel, cuLaunchKernel)                                                                                 \
    DO(cuStreamSynchronize, cuStreamSynchronize)

#define WEAK(symbol, base) _Pragma("weak " #symbol)
#define DECLARE(symbol, base) static __typeof__(&symbol) p_##symbol;
_Pragma("weak cuInit") _Pragma("weak cuDeviceGet") _Pragma("weak cuCtxCreate_v2") _Pragma("weak cuCtxDestroy_v2")
_Pragma("weak cuModuleLoadData") _Pragma("weak cuModuleGetFunction") _Pragma("weak cuModuleUnload")
_Pragma("weak cuMemAlloc_v2") _Pragma("weak cuMemFree_v2") _Pragma("weak cuMemcpyHtoD_v2")
_Pragma("weak cuMemcpyDtoH_v2") _Pragma("weak cuLaunchKernel") _Pragma("weak cuStreamSynchronize")
FUNCTIONS(DECLARE)

static const char *route;
static void *handle;
static __typeof__(&cuGetProcAddress_v2) get_proc_address;
static CUresult (*get_proc_address_v1)(const char *, void **, int, uint64_t);
static uint64_t flags;

static void fail(const char *what, long code) {
    printf("route=%s failed=%s result=%ld\n", route, what, code);
    exit(1);
}

static void *open_driver(int mode) {
    void *driver = dlopen("libcuda.so.1", mode);
    if (!driver) {
        fprintf(stderr, "%s\n", dlerror());
        fail("dlopen", 0);
    }
    return driver;
}

/* What the dynamic section of an open library says, without asking the loader. */
static void *walk(void *library, const char *symbol) {
    struct link_map *map = library;
    const ElfW(Sym) *symbols = NULL;
    const char *strings = NULL;
    size_t bytes = 0;
    for (ElfW(Dyn) *entry = map->l_ld; entry->d_tag != DT_NULL; entry++) {
        if (entry->d_tag == DT_SYMTAB) symbols = (const ElfW(Sym) *)entry->d_un.d_ptr;
        if (entry->d_tag == DT_STRSZ) bytes = entry->d_un.d_val;
        if (entry->d_tag == DT_STRTAB) strings = (const char *)entry->d_un.d_ptr;
    }
    /* Linkers put the strings behind the symbols, and perhaps other tables between them. */
    for (const ElfW(Sym) *one = symbols; (const char *)one < strings; one++)
        if (one->st_shndx && one->st_name < bytes && !strcmp(strings + one->st_name, symbol)) return (void *)(map->l_addr + one->st_value);
    return NULL;
}

static void *find(const char *symbol, const char *base) {
    void *found = NULL;
    if (get_proc_address) {
        int status = -1;
        /* A later version would give cuCtxCreate_v3, which takes other arguments. */
        CUresult r = get_proc_address(base, &found, 11030, flags, &status);
        if (r || status) fail(base, r ? r : status);
    } else if (get_proc_address_v1) {
        CUresult r = get_proc_address_v1(base, &found, 11030, flags);
        if (r) fail(base, r);
    } else if (!strcmp(route, "walk")) {
        found = walk(handle, symbol);
    } else if (!strcmp(route, "dlvsym")) {
        found = dlvsym(handle, symbol, "libcuda.so.1");
        if (!found) found = dlsym(handle, symbol);
    } else {
        found = dlsym(handle, symbol);
    }
    if (!found) fail(symbol, 0);
    return found;
}

static void resolve(void) {
    if (!strcmp(route, "link")) {
#define LINKED(symbol, base)                                                                                           \
    p_##symbol = symbol;                                                                                               \
    if (!p_##symbol) fail(#symbol, 0);
        FUNCTIONS(LINKED)
        return;
    }
    if (!strcmp(route, "dlopen") || !strcmp(route, "dlvsym")) {
        handle = open_driver(RTLD_NOW | RTLD_GLOBAL);
    } else if (!strcmp(route, "dlopen_local") || !strcmp(route, "walk")) {
        handle = open_driver(RTLD_LAZY | RTLD_LOCAL);
    } else if (!strcmp(route, "default")) {
        open_driver(RTLD_NOW | RTLD_GLOBAL);
        handle = RTLD_DEFAULT;
    } else if (!strcmp(route, "next")) {
        open_driver(RTLD_NOW | RTLD_GLOBAL);
        handle = RTLD_NEXT;
    } else if (!strcmp(route, "deepbind_cuda")) {
        handle = open_driver(RTLD_NOW | RTLD_LOCAL | RTLD_DEEPBIND);
    } else if (!strcmp(route, "dlmopen")) {
        handle = dlmopen(LM_ID_NEWLM, "libcuda.so.1", RTLD_NOW);
        if (!handle) {
            fprintf(stderr, "%s\n", dlerror());
            fail("dlmopen", 0);
        }
    } else {
        handle = open_driver(RTLD_NOW | (strcmp(route, "python") ? RTLD_GLOBAL : RTLD_LOCAL));
        if (!strcmp(route, "procaddr_ptsz")) flags = CU_GET_PROC_ADDRESS_PER_THREAD_DEFAULT_STREAM;
        if (!strcmp(route, "procaddr_v1")) {
            get_proc_address_v1 = (CUresult(*)(const char *, void **, int, uint64_t))dlsym(handle, "cuGetProcAddress");
            if (!get_proc_address_v1) fail("cuGetProcAddress", 0);
        } else if (!strncmp(route, "procaddr", 8) || !strcmp(route, "python")) {
            get_proc_address = (__typeof__(get_proc_address))dlsym(handle, "cuGetProcAddress_v2");
            if (!get_proc_address) fail("cuGetProcAddress_v2", 0);
            if (!strcmp(route, "procaddr_self")) {
                void *self = NULL;
                int status = -1;
                CUresult r = get_proc_address("cuGetProcAddress", &self, 12000, 0, &status);
                if (r || status || !self) fail("cuGetProcAddress through itself", r);
                get_proc_address = (__typeof__(get_proc_address))self;
            }
        } else {
            fail("route", 0);
        }
    }
#define FIND(symbol, base) p_##symbol = (__typeof__(p_##symbol))find(#symbol, #base);
    FUNCTIONS(FIND)
}

#define OK(call)                                                                                                       \
    do {                                                                                                               \
        CUresult r = call;                                                                                             \
        if (r) fail(#call, r);                                                                                         \
    } while (0)

int main(int argc, char **argv) {
    if (argc != 2) {
        fprintf(stderr, "usage: cuda_routes ROUTE\n");
        return 2;
    }
    route = argv[1];
    resolve();
    CUdevice device;
    CUcontext context;
    CUmodule module;
    CUfunction function;
    CUdeviceptr memory;
    unsigned char in[4096], out[4096];
    for (unsigned i = 0; i < sizeof in; i++) in[i] = (unsigned char)(i * 7);
    memset(out, 0, sizeof out);
    OK(p_cuInit(0));
    OK(p_cuDeviceGet(&device, 0));
    OK(p_cuCtxCreate_v2(&context, 0, device));
    OK(p_cuModuleLoadData(&module, "fakecuda:spin_us_20"));
    OK(p_cuModuleGetFunction(&function, module, "spin_us_20"));
    OK(p_cuMemAlloc_v2(&memory, sizeof in));
    OK(p_cuMemcpyHtoD_v2(memory, in, sizeof in));
    for (int i = 0; i < 3; i++) OK(p_cuLaunchKernel(function, 4, 2, 1, 128, 1, 1, 256, NULL, NULL, NULL));
    OK(p_cuStreamSynchronize(NULL));
    OK(p_cuMemcpyDtoH_v2(out, memory, sizeof out));
    OK(p_cuMemFree_v2(memory));
    OK(p_cuModuleUnload(module));
    OK(p_cuCtxDestroy_v2(context));
    unsigned long sum = 0;
    for (unsigned i = 0; i < sizeof out; i++) sum += out[i];
    int same = !memcmp(in, out, sizeof in);
    printf("route=%s launches=3 copies=2 sum=%lu result=%d\n", route, sum, same ? 0 : 1);
    /* In a namespace of its own this is another libc's stdout, which nobody flushes. */
    fflush(stdout);
    return same ? 0 : 1;
}
