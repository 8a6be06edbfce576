/* A library that stands in for NCCL: its functions look libnccl.so.2's up and call on, as stubs of frameworks do. With
 * -DVALUE=N its ncclMemAlloc gives the address N instead, and -DPADDING moves its functions. */
#define _GNU_SOURCE
#include <dlfcn.h>
#include <stddef.h>

#ifdef PADDING
int padding(int n) {
    volatile int sum = 0;
    for (int i = 0; i < n; i++) sum += i * n;
    return sum;
}
#endif

int ncclMemAlloc(void **place, size_t bytes) {
#ifdef VALUE
    *place = (void *)VALUE;
    return bytes == 0;
#else
    void *library = dlopen("libnccl.so.2", RTLD_NOW | RTLD_LOCAL);
    int (*real)(void **, size_t) = library ? dlsym(library, "ncclMemAlloc") : NULL;
    return real ? real(place, bytes) : 2;
#endif
}

int ncclMemFree(void *memory) { return memory == NULL; }

// Calls its own export, which is ours when it is traced.
int stand_in_alloc(void **place) { return ncclMemAlloc(place, 64); }
