/* Four threads whose timer's signal handler leaves launches by siglongjmp, at random instants; two of the handlers run on
 * a stack of their own. Then each thread launches 100,000 times undisturbed, with a grid of 7. Whoever reads what is
 * recorded gets time to do so between the rounds, or, where these have no rest, among the last launches.
 *
 * usage: jumps ROUNDS REST_US
 * Needs the driver of odd_driver.c. */
#define _GNU_SOURCE
#include <dlfcn.h>
#include <pthread.h>
#include <setjmp.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/syscall.h>
#include <time.h>
#include <unistd.h>

#include "cuda.h"

#ifndef sigev_notify_thread_id
#define sigev_notify_thread_id _sigev_un._tid
#endif

static __typeof__(&cuLaunchKernel) launch_kernel;
static CUfunction function;
static int rounds, rest_us;
static __thread sigjmp_buf *back;

static void on_timer(int signal) { siglongjmp(*back, 1); }

static void launch(unsigned grid) { launch_kernel(function, grid, 1, 1, 1, 1, 1, 0, NULL, NULL, NULL); }

static void *work(void *data) {
    long number = (long)data;
    int which = number % 2 ? SIGUSR1 : SIGUSR2; /* SIGUSR1 has the stack of its own */
    stack_t own = {.ss_sp = malloc(1 << 16), .ss_size = 1 << 16};
    sigaltstack(&own, NULL);
    timer_t timer;
    struct sigevent event = {.sigev_notify = SIGEV_THREAD_ID, .sigev_signo = which};
    event.sigev_notify_thread_id = syscall(SYS_gettid);
    if (timer_create(CLOCK_MONOTONIC, &event, &timer)) return perror("timer_create"), (void *)1;
    for (int i = 0; i < 100; i++) launch(1);
    sigjmp_buf here;
    back = &here;
    static __thread unsigned random;
    random = 7919 * (number + 1);
    for (volatile int round = 0; round < rounds; round++) {
        if (!sigsetjmp(here, 1)) {
            random = random * 1103515245 + 12345;
            struct itimerspec soon = {.it_value = {0, 1000 + random / 65536 % 40000}};
            timer_settime(timer, 0, &soon, NULL);
            for (;;) launch(1);
        }
        if (rest_us) usleep(rest_us);
    }
    timer_delete(timer);
    for (int i = 0; i < 100000; i++) {
        launch(7);
        if (!rest_us && i % 100 == 0) usleep(1000);
    }
    sigaltstack(&(stack_t){.ss_flags = SS_DISABLE}, NULL);
    free(own.ss_sp);
    return NULL;
}

int main(int argc, char **argv) {
    if (argc != 3) return 2;
    rounds = atoi(argv[1]);
    rest_us = atoi(argv[2]);
    void *driver = dlopen("libcuda.so.1", RTLD_NOW);
    if (!driver) return puts(dlerror()), 1;
    CUmodule module;
    ((__typeof__(&cuInit))dlsym(driver, "cuInit"))(0);
    ((__typeof__(&cuModuleLoadData))dlsym(driver, "cuModuleLoadData"))(&module, "image");
    ((__typeof__(&cuModuleGetFunction))dlsym(driver, "cuModuleGetFunction"))(&function, module, "after");
    launch_kernel = (__typeof__(launch_kernel))dlsym(driver, "cuLaunchKernel");
    sigaction(SIGUSR1, &(struct sigaction){.sa_handler = on_timer, .sa_flags = SA_ONSTACK}, NULL);
    sigaction(SIGUSR2, &(struct sigaction){.sa_handler = on_timer}, NULL);
    pthread_t threads[4];
    for (long i = 0; i < 4; i++) pthread_create(&threads[i], NULL, work, (void *)i);
    void *failed = NULL, *one;
    for (int i = 0; i < 4; i++) pthread_join(threads[i], &one), failed = one ? one : failed;
    if (!failed) puts("four threads were thrown out and went on");
    return failed != NULL;
}
