/* Threads that wait for streams which do nothing until somebody makes the file ODD_DRIVER_UNTIL.
 *
 * usage: cuda_hangs steady|killed|short
 *
 * steady: one waits for a stream that another thread gives work all the time; a third one waits for what nobody touches, in
 * cuCtxSynchronize, when the first has long been waiting. killed: one waits for ever. short: one waits for 0.3 s.
 * Prints `begun` and `ok`. */
#define _GNU_SOURCE
#include <dlfcn.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "cuda.h"

void oddDriverCalls(void (*function)(void *), void *data);

static CUfunction kernel;
static volatile int over;
static CUstream const SLOW = (CUstream)0x2a0;

static void *wait_for_stream(void *unused) { return (void *)(intptr_t)cuStreamSynchronize(SLOW); }

static void *give_work(void *unused) {
    while (!over) {
        cuLaunchKernel(kernel, 1, 1, 1, 1, 1, 1, 0, SLOW, NULL, NULL);
        usleep(1000);
    }
    return NULL;
}

static void until_the_file(void *unused) {
    while (access(getenv("ODD_DRIVER_UNTIL"), F_OK)) usleep(1000);
}

static void for_ever(void *unused) {
    for (;;) pause();
}

static void for_a_moment(void *unused) { usleep(300000); }

int main(int argc, char **argv) {
    if (argc < 2) return 2;
    CUcontext context;
    CUmodule module;
    cuInit(0);
    cuDevicePrimaryCtxRetain(&context, 0);
    cuCtxSetCurrent(context);
    cuModuleLoadData(&module, "image");
    cuModuleGetFunction(&kernel, module, "kernel");
    puts("begun");
    fflush(stdout);
    if (!strcmp(argv[1], "steady")) {
        pthread_t waiting, giving;
        pthread_create(&giving, NULL, give_work, NULL);
        pthread_create(&waiting, NULL, wait_for_stream, NULL);
        usleep(300000);
        // Alone in a process whose other thread goes on: a child without it.
        if (fork() == 0) {
            oddDriverCalls(until_the_file, NULL);
            _exit(cuCtxSynchronize());
        }
        pthread_join(waiting, NULL);
        over = 1;
        pthread_join(giving, NULL);
    } else {
        oddDriverCalls(strcmp(argv[1], "short") ? for_ever : for_a_moment, NULL);
        cuCtxSynchronize();
    }
    puts("ok");
    return 0;
}
