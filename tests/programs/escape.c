/* Leaves hooked calls by other ways than returning, and shows that the thread goes on as it should.
 *
 * usage: escape siglongjmp|longjmp|holes|cancel|cancel_async|nested|handler
 * Needs the driver of odd_driver.c. Prints how many launches came after; they are named `after`. */
#define _GNU_SOURCE
#include <dlfcn.h>
#include <pthread.h>
#include <setjmp.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/time.h>
#include <unistd.h>

#include "cuda.h"

#define EACH(DO)                                                                                                       \
    DO(cuInit) DO(cuDevicePrimaryCtxRetain) DO(cuCtxSetCurrent) DO(cuCtxSynchronize) DO(cuModuleLoadData)              \
    DO(cuModuleGetFunction) DO(cuLaunchKernel) DO(cuStreamSynchronize)
#define DECLARE(name) static __typeof__(&name) p_##name;
EACH(DECLARE)
static void (*driver_calls)(void (*)(void *), void *);
static CUfunction function;
static sigjmp_buf back;
static pthread_barrier_t inside;
static const char *mode;

static void launch(int times) {
    for (int i = 0; i < times; i++) p_cuLaunchKernel(function, 1, 1, 1, 1, 1, 1, 0, NULL, NULL, NULL);
}

static void jump(void *data) { siglongjmp(back, 1); }

/* Below the frame that is left, so that what it left on the stack is overwritten or not, as chance has it. */
static void deeper(int depth) {
    volatile char room[256];
    memset((char *)room, depth, sizeof room);
    if (depth) deeper(depth - 1);
    else p_cuCtxSynchronize();
}

/* The same, of frames of which nobody writes more than a word. */
static __attribute__((noinline)) int launch_from(int depth) {
    volatile char room[200];
    room[0] = depth;
    if (depth) return launch_from(depth - 1) + room[0] - depth;
    launch(1);
    return 1;
}

static void on_alarm(int signal) {
    if (!strcmp(mode, "siglongjmp")) siglongjmp(back, 1);
    launch(1);
}

static void wait_for_signal(void *data) {
    struct itimerval soon = {{0, 0}, {0, 1000}};
    setitimer(ITIMER_REAL, &soon, NULL);
    pause();
}

static void wait_for_cancel(void *data) {
    pthread_barrier_wait(&inside);
    for (;;) pause();
}

static void spin_for_cancel(void *data) {
    pthread_setcanceltype(PTHREAD_CANCEL_ASYNCHRONOUS, NULL);
    pthread_barrier_wait(&inside);
    for (volatile int forever = 1; forever;) {}
}

static void cleaned(void *data) { *(int *)data = 1; }

static void *cancelled(void *data) {
    pthread_cleanup_push(cleaned, data);
    p_cuCtxSynchronize();
    pthread_cleanup_pop(0);
    return NULL;
}

static void launch_inside(void *data) { launch(5); }

int main(int argc, char **argv) {
    if (argc != 2) return 2;
    mode = argv[1];
    void *driver = dlopen("libcuda.so.1", RTLD_NOW | RTLD_GLOBAL);
    if (!driver) return puts(dlerror()), 1;
#define FIND(name) p_##name = (__typeof__(p_##name))dlsym(driver, #name);
    EACH(FIND)
    driver_calls = (__typeof__(driver_calls))dlsym(driver, "oddDriverCalls");
    CUcontext context;
    CUmodule module;
    p_cuInit(0);
    p_cuDevicePrimaryCtxRetain(&context, 0);
    p_cuCtxSetCurrent(context);
    p_cuModuleLoadData(&module, "image");
    p_cuModuleGetFunction(&function, module, "after");
    signal(SIGALRM, on_alarm);
    if (!strcmp(mode, "longjmp")) {
        driver_calls(jump, NULL);
        for (volatile int i = 0; i < 100; i++)
            if (!sigsetjmp(back, 1)) deeper(i % 7);
    } else if (!strcmp(mode, "holes")) {
        driver_calls(jump, NULL);
        if (!sigsetjmp(back, 1)) p_cuCtxSynchronize();
        int made = 0;
        for (int i = 0; i < 50; i++) made += launch_from(3);
        printf("launched %d meanwhile\n", made);
    } else if (!strcmp(mode, "siglongjmp")) {
        driver_calls(wait_for_signal, NULL);
        for (volatile int i = 0; i < 20; i++)
            if (!sigsetjmp(back, 1)) p_cuCtxSynchronize();
    } else if (!strcmp(mode, "handler")) {
        /* A handler that calls a hooked function while another one runs below it. */
        driver_calls(wait_for_signal, NULL);
        for (int i = 0; i < 20; i++) p_cuCtxSynchronize();
    } else if (!strcmp(mode, "nested")) {
        driver_calls(launch_inside, NULL);
        for (int i = 0; i < 20; i++) p_cuCtxSynchronize();
    } else if (!strncmp(mode, "cancel", 6)) {
        pthread_barrier_init(&inside, NULL, 2);
        driver_calls(strcmp(mode, "cancel") ? spin_for_cancel : wait_for_cancel, NULL);
        for (int i = 0; i < 20; i++) {
            pthread_t thread;
            void *result;
            int clean = 0;
            pthread_create(&thread, NULL, cancelled, &clean);
            pthread_barrier_wait(&inside);
            pthread_cancel(thread);
            pthread_join(thread, &result);
            if (result != PTHREAD_CANCELED || !clean) return puts("not cancelled, or not cleaned up"), 1;
        }
    } else {
        return 2;
    }
    driver_calls(NULL, NULL);
    p_cuCtxSynchronize();
    launch(100);
    puts("launched 100 after");
    return 0;
}
