/* Counts its launches in a shared file, so that somebody who kills it knows how many there were.
 *
 * usage: victim FILE LAUNCHES [MICROSECONDS]
 * Each launch has its number as its grid. The count is raised after each call has come back. After LAUNCHES it waits to be killed; with MICROSECONDS between
 * launches it ends by itself and prints the count. Works with any driver. */
#define _GNU_SOURCE
#include <dlfcn.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/mman.h>
#include <time.h>
#include <unistd.h>

#include "cuda.h"

int main(int argc, char **argv) {
    if (argc < 3) return 2;
    int fd = open(argv[1], O_RDWR | O_CREAT, 0600);
    if (fd < 0 || ftruncate(fd, 4096)) return perror(argv[1]), 3;
    volatile unsigned long *count = mmap(NULL, 4096, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
    unsigned long launches = strtoul(argv[2], NULL, 10);
    struct timespec pause_between = {0, argc > 3 ? atol(argv[3]) * 1000 : 0};
    void *driver = dlopen("libcuda.so.1", RTLD_NOW);
    if (!driver) return puts(dlerror()), 1;
    CUcontext context;
    CUmodule module;
    CUfunction function;
    ((__typeof__(&cuInit))dlsym(driver, "cuInit"))(0);
    ((__typeof__(&cuDevicePrimaryCtxRetain))dlsym(driver, "cuDevicePrimaryCtxRetain"))(&context, 0);
    ((__typeof__(&cuCtxSetCurrent))dlsym(driver, "cuCtxSetCurrent"))(context);
    ((__typeof__(&cuModuleLoadData))dlsym(driver, "cuModuleLoadData"))(&module, "image");
    ((__typeof__(&cuModuleGetFunction))dlsym(driver, "cuModuleGetFunction"))(&function, module, "spin_ns_0");
    __typeof__(&cuLaunchKernel) launch = (__typeof__(&cuLaunchKernel))dlsym(driver, "cuLaunchKernel");
    for (unsigned long i = 1; i <= launches; i++) {
        launch(function, (unsigned)i, 1, 1, 1, 1, 1, 0, NULL, NULL, NULL);
        *count = i;
        if (argc > 3) nanosleep(&pause_between, NULL);
    }
    if (argc > 3) return printf("launched %lu\n", *count), 0;
    for (;;) pause();
}
