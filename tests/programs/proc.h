/* What several of the proc_*.c targets need: the driver by dlopen, and output that needs no allocation. */
#ifndef PROC_H
#define PROC_H

#define _GNU_SOURCE
#include <dlfcn.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

static void say(const char *text) {
    ssize_t written = write(1, text, strlen(text));
    (void)written;
}

static void fail(const char *what) {
    perror(what);
    exit(99);
}

static void sleep_ms(long ms) {
    struct timespec rest = {ms / 1000, ms % 1000 * 1000000};
    while (nanosleep(&rest, &rest) != 0) {
    }
}

typedef int (*cu_init)(unsigned);
typedef int (*cu_retain)(void **, int);
typedef int (*cu_set)(void *);
typedef int (*cu_alloc)(unsigned long long *, size_t);
typedef int (*cu_free)(unsigned long long);
typedef int (*cu_sync)(void);

/* The few driver functions that the targets call, looked up as most programs do. */
struct cuda {
    cu_init init;
    cu_retain retain;
    cu_set set;
    cu_alloc alloc;
    cu_free free;
    cu_sync sync;
};

/* Opens the driver and makes the primary context current. 0: it worked. */
static int cuda_open(struct cuda *cuda) {
    void *library = dlopen("libcuda.so.1", RTLD_NOW);
    void *context = NULL;
    if (!library) return -1;
    cuda->init = (cu_init)dlsym(library, "cuInit");
    cuda->retain = (cu_retain)dlsym(library, "cuDevicePrimaryCtxRetain");
    cuda->set = (cu_set)dlsym(library, "cuCtxSetCurrent");
    cuda->alloc = (cu_alloc)dlsym(library, "cuMemAlloc_v2");
    cuda->free = (cu_free)dlsym(library, "cuMemFree_v2");
    cuda->sync = (cu_sync)dlsym(library, "cuCtxSynchronize");
    if (!cuda->init || !cuda->retain || !cuda->set || !cuda->alloc || !cuda->free || !cuda->sync) return -2;
    if (cuda->init(0) != 0 || cuda->retain(&context, 0) != 0) return -3;
    return cuda->set(context);
}

/* `pairs` allocations and frees of 4 KiB on the device, with a synchronisation after each. 0: all worked. */
static int cuda_pairs(const struct cuda *cuda, int pairs) {
    for (int i = 0; i < pairs; i++) {
        unsigned long long address = 0;
        if (cuda->alloc(&address, 4096) != 0 || cuda->sync() != 0 || cuda->free(address) != 0) return -1;
    }
    return 0;
}

/* malloc and free that the compiler cannot remove. */
static void heap_pairs(int pairs, size_t bytes) {
    for (int i = 0; i < pairs; i++) {
        char *volatile block = malloc(bytes);
        if (!block) fail("malloc");
        block[0] = (char)i;
        free(block);
    }
}

#endif
