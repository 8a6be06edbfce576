/* Prints errno around every hooked allocation function, and around driver calls when there is a driver. */
#define _GNU_SOURCE
#include <dlfcn.h>
#include <errno.h>
#include <malloc.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>

#include "cuda.h"

/* A resize that fails leaves the old block alone, which the compiler does not see. */
#if __GNUC__ >= 12 // which knows it
#pragma GCC diagnostic ignored "-Wuse-after-free"
#endif

#define SHOW(what, call)                                                                                               \
    do {                                                                                                               \
        errno = 77;                                                                                                    \
        long result = (long)(call);                                                                                    \
        int after = errno;                                                                                             \
        printf("%s result %s errno %d\n", what, result ? "something" : "nothing", after);                              \
    } while (0)

int main(void) {
    volatile size_t huge = SIZE_MAX / 2, odd = 3;
    void *block, *other = NULL;
    SHOW("malloc", block = malloc(100));
    SHOW("malloc of too much", malloc(huge));
    SHOW("calloc", other = calloc(10, 10));
    SHOW("calloc that overflows", calloc(huge, 8));
    SHOW("realloc", block = realloc(block, 5000));
    SHOW("realloc to too much", realloc(block, huge));
    SHOW("reallocarray", block = reallocarray(block, 100, 100));
    SHOW("reallocarray that overflows", reallocarray(block, huge, 8));
    SHOW("usable size", malloc_usable_size(block) >= 10000);
    SHOW("free", (free(block), 0));
    SHOW("free of nothing", (free(NULL), 0));
    SHOW("posix_memalign", posix_memalign(&block, 4096, 100));
    SHOW("free", (free(block), 0));
    SHOW("posix_memalign, alignment not a power of two", posix_memalign(&block, odd, 100) == EINVAL);
    SHOW("posix_memalign of too much", posix_memalign(&block, 64, huge) == ENOMEM);
    SHOW("aligned_alloc", block = aligned_alloc(64, 128));
    SHOW("aligned", (uintptr_t)block % 64 == 0);
    SHOW("free", (free(block), 0));
    SHOW("memalign", block = memalign(256, 10));
    SHOW("free", (free(block), 0));
    SHOW("realloc of nothing", block = realloc(NULL, 10));
    SHOW("realloc to nothing", realloc(block, 0));
    free(other);
    void *driver = dlopen("libcuda.so.1", RTLD_NOW);
    printf("driver %d\n", driver != NULL);
    if (!driver) return 0;
#define FIND(name) __typeof__(&name) p_##name = (__typeof__(&name))dlsym(driver, #name)
    FIND(cuInit);
    FIND(cuDevicePrimaryCtxRetain);
    FIND(cuCtxSetCurrent);
    FIND(cuMemAlloc_v2);
    FIND(cuMemFree_v2);
    FIND(cuCtxSynchronize);
    CUcontext context;
    CUdeviceptr memory = 0;
    SHOW("cuInit", p_cuInit(0));
    SHOW("cuDevicePrimaryCtxRetain", p_cuDevicePrimaryCtxRetain(&context, 0));
    SHOW("cuCtxSetCurrent", p_cuCtxSetCurrent(context));
    SHOW("cuMemAlloc", p_cuMemAlloc_v2(&memory, 1 << 20));
    SHOW("cuMemAlloc of too much", p_cuMemAlloc_v2(&memory, SIZE_MAX / 4));
    SHOW("cuMemFree of rubbish", p_cuMemFree_v2(12345));
    SHOW("cuCtxSynchronize", p_cuCtxSynchronize());
    return 0;
}
