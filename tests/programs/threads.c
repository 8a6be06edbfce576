/* Many threads at once, each with allocations and launches; then as many again one after another.
 *
 * usage: threads COUNT LAUNCHES
 * Prints the launches and the bytes of a hash over what the allocations held. */
#define _GNU_SOURCE
#include <dlfcn.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "cuda.h"

static __typeof__(&cuLaunchKernel) launch_kernel;
static __typeof__(&cuCtxSetCurrent) set_current;
static CUfunction function;
static CUcontext context;
static int launches;
static pthread_barrier_t all;
static long sum;
static int failed;

static void work(void) {
    if (set_current(context)) failed = 1;
    for (int i = 0; i < launches; i++)
        if (launch_kernel(function, 1, 1, 1, 1, 1, 1, 0, CU_STREAM_PER_THREAD, NULL, NULL)) failed = 1;
    char *block = malloc(3000);
    memset(block, 1, 3000);
    __sync_fetch_and_add(&sum, block[2999]);
    free(block);
}

static void *together(void *data) {
    pthread_barrier_wait(&all);
    work();
    pthread_barrier_wait(&all);
    return NULL;
}

static void *alone(void *data) {
    work();
    return NULL;
}

int main(int argc, char **argv) {
    if (argc != 3) return 2;
    int count = atoi(argv[1]);
    launches = atoi(argv[2]);
    void *driver = dlopen("libcuda.so.1", RTLD_NOW);
    if (!driver) return puts(dlerror()), 1;
    CUmodule module;
    ((__typeof__(&cuInit))dlsym(driver, "cuInit"))(0);
    set_current = (__typeof__(set_current))dlsym(driver, "cuCtxSetCurrent");
    ((__typeof__(&cuDevicePrimaryCtxRetain))dlsym(driver, "cuDevicePrimaryCtxRetain"))(&context, 0);
    set_current(context);
    ((__typeof__(&cuModuleLoadData))dlsym(driver, "cuModuleLoadData"))(&module, "image");
    ((__typeof__(&cuModuleGetFunction))dlsym(driver, "cuModuleGetFunction"))(&function, module, "spin_ns_0");
    launch_kernel = (__typeof__(launch_kernel))dlsym(driver, "cuLaunchKernel");
    pthread_attr_t small;
    pthread_attr_init(&small);
    pthread_attr_setstacksize(&small, 128 << 10);
    pthread_barrier_init(&all, NULL, count);
    pthread_t *threads = calloc(count, sizeof *threads);
    for (int i = 0; i < count; i++)
        if (pthread_create(&threads[i], &small, together, NULL)) return puts("no more threads"), 1;
    for (int i = 0; i < count; i++) pthread_join(threads[i], NULL);
    for (int i = 0; i < count; i++) {
        if (pthread_create(&threads[0], &small, alone, NULL)) return puts("no more threads"), 1;
        pthread_join(threads[0], NULL);
    }
    free(threads);
    printf("threads %d sum %ld failed %d\n", 2 * count, sum, failed);
    return failed;
}
