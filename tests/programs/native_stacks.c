/* Waits at the ends of known chains of calls, in a program and a library without frame pointers; for tests/stacks.rs.
 *
 * usage: native_stacks [wait | thread | callback | signal | own_stack | deep] ...
 * With -DLIBRARY it is the library that calls back. */
#define _GNU_SOURCE
#include <pthread.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <ucontext.h>

#include "cuda.h"

#define KEPT __attribute__((noinline, noclone, used, visibility("default")))
/* What stands behind a call keeps it from becoming a jump. */
#define AFTER __asm__ volatile("" ::: "memory")

typedef void (*step)(int);

#ifdef LIBRARY

KEPT void in_library(step back, int n) {
    char room[200 + 8 * n];
    memset(room, n, sizeof room);
    back(room[n]);
    AFTER;
}

#else

void in_library(step back, int n);

KEPT void wait_here(int n) {
    volatile char room[100];
    room[n & 63] = (char)n;
    cuStreamSynchronize((CUstream)(size_t)(room[n & 63] & 0));
    AFTER;
}

KEPT void middle(int n) {
    wait_here(n + 1);
    AFTER;
}

KEPT void outer(int n) {
    middle(n);
    AFTER;
}

KEPT void deep(int n) {
    if (n == 0) wait_here(n);
    else deep(n - 1);
    AFTER;
}

KEPT void *work(void *data) {
    outer(1);
    AFTER;
    return data;
}

KEPT void on_signal(int signal) {
    wait_here(signal);
    AFTER;
}

static ucontext_t main_context, own_context;

KEPT void on_own_stack(void) {
    outer(3);
    AFTER;
}

int main(int argc, char **argv) {
    CUcontext context;
    if (cuInit(0) || cuDevicePrimaryCtxRetain(&context, 0) || cuCtxSetCurrent(context)) return 1;
    for (int i = 1; i < argc; i++) {
        if (!strcmp(argv[i], "wait")) {
            outer(2);
        } else if (!strcmp(argv[i], "thread")) {
            pthread_t thread;
            pthread_create(&thread, NULL, work, NULL);
            pthread_join(thread, NULL);
        } else if (!strcmp(argv[i], "callback")) {
            in_library(outer, 5);
        } else if (!strcmp(argv[i], "signal")) {
            signal(SIGUSR1, on_signal);
            raise(SIGUSR1);
        } else if (!strcmp(argv[i], "deep")) {
            deep(300);
        } else if (!strcmp(argv[i], "own_stack")) {
            getcontext(&own_context);
            own_context.uc_stack.ss_size = 256 << 10;
            own_context.uc_stack.ss_sp = malloc(own_context.uc_stack.ss_size);
            own_context.uc_link = &main_context;
            makecontext(&own_context, on_own_stack, 0);
            swapcontext(&main_context, &own_context);
        }
    }
    AFTER;
    return 0;
}

#endif
