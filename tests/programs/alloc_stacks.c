/* Allocates at the ends of known chains of calls; for tests/host_memory/stacks.rs. Compiled as C++ it has operator new as well.
 *
 * usage: alloc_stacks WAY...
 * With -DLIBRARY=N it is a library that allocates N bytes in a function whose name ends in N, and others are opened in its place. */
#ifndef _GNU_SOURCE
#define _GNU_SOURCE
#endif
#include <alloca.h>
#include <dlfcn.h>
#include <malloc.h>
#include <pthread.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <ucontext.h>
#include <unistd.h>

#ifdef __cplusplus
#define NAMED extern "C"
#else
#define NAMED
#endif
#define KEPT NAMED __attribute__((noinline, used, visibility("default")))
/* What stands behind a call keeps it from becoming a jump. */
#define AFTER __asm__ volatile("" ::: "memory")

#ifdef LIBRARY

#define JOIN_(a, b) a##b
#define JOIN(a, b) JOIN_(a, b)

KEPT void JOIN(in_library_, LIBRARY)(void) {
    void *volatile block = malloc(LIBRARY);
    free(block);
}

static inline __attribute__((always_inline)) void inlined_there(void) {
    void *volatile block = malloc(LIBRARY + 1);
    free(block);
}
/* For Python to call. */
KEPT void around_there(void) {
    inlined_there();
    AFTER;
}

/* The same place in each library's file. */
KEPT void enter(void) {
    JOIN(in_library_, LIBRARY)();
    AFTER;
}

#else

static void *volatile place, *volatile nothing;

static void drop(void *block) {
    place = block;
    free(place);
}

KEPT void by_malloc(void) { drop(malloc(40001)); AFTER; }
KEPT void by_calloc(void) { drop(calloc(1, 40002)); AFTER; }
KEPT void by_realloc(void) { drop(realloc(nothing, 40003)); AFTER; }
KEPT void by_memalign(void) { drop(memalign(64, 40004)); AFTER; }
KEPT void by_aligned_alloc(void) { drop(aligned_alloc(64, 40064)); AFTER; }
KEPT void by_posix_memalign(void) {
    void *block = NULL;
    if (posix_memalign(&block, 64, 40006)) abort();
    drop(block);
    AFTER;
}

#ifdef __cplusplus
KEPT void by_new(void) {
    char *volatile block = new char[40007];
    delete[] block;
    AFTER;
}
#endif

static inline __attribute__((always_inline)) void inlined(void) {
    drop(malloc(40010));
    AFTER;
}
KEPT void around_inlined(void) {
    inlined();
    AFTER;
}

KEPT void deep(int n) {
    if (n) deep(n - 1);
    else drop(malloc(40011));
    AFTER;
}

/* Allocates at its end, and on its way back. */
KEPT void down(int n) {
    if (n) down(n - 1);
    else drop(malloc(40021));
    if (n == 1290) drop(malloc(40022));
    AFTER;
}
KEPT void left(int n) {
    if (n) left(n - 1);
    else down(1500);
    AFTER;
}
KEPT void right(int n) {
    if (n) right(n - 1);
    else down(1500);
    AFTER;
}

/* One function, two places, in turn. */
KEPT void here_and_there(int n) {
    if (n % 2) {
        drop(malloc(40012));
        AFTER;
    } else {
        drop(malloc(40013));
        __asm__ volatile("# there" ::: "memory");
    }
}

KEPT void in_changing_frame(int n) {
    volatile char *room = (volatile char *)alloca(16 + 16 * (n * 7 % 13));
    room[0] = (char)n;
    drop(malloc(40014));
    AFTER;
}
KEPT void changing(int n) {
    volatile char *room = (volatile char *)alloca(16 + 16 * (n % 5));
    room[0] = (char)n;
    in_changing_frame(n);
    AFTER;
}

KEPT int compared(const void *a, const void *b) {
    drop(malloc(40015));
    return *(const int *)a - *(const int *)b;
}

KEPT void on_signal(int number) {
    drop(malloc(40016 + number - SIGUSR1));
    AFTER;
}

/* On a stack of its own, in a thread that has room for one right beside its own stack. */
KEPT void *with_alternate_stack(void *data) {
    stack_t stack = {};
    stack.ss_sp = malloc(16 << 10);
    stack.ss_size = 16 << 10;
    sigaltstack(&stack, NULL);
    struct sigaction action = {};
    action.sa_handler = on_signal;
    action.sa_flags = SA_ONSTACK;
    sigaction(SIGUSR1, &action, NULL);
    for (int i = 0; i < 100; i++) {
        pthread_kill(pthread_self(), SIGUSR1);
        by_malloc();
    }
    stack.ss_flags = SS_DISABLE;
    sigaltstack(&stack, NULL);
    free(stack.ss_sp);
    return data;
}

static ucontext_t caller, coroutine;

KEPT void in_coroutine(void) {
    for (;;) {
        drop(malloc(40017));
        swapcontext(&coroutine, &caller);
    }
}

KEPT void resume(void) {
    swapcontext(&caller, &coroutine);
    drop(malloc(40018));
    AFTER;
}

KEPT void in_child(void) { drop(malloc(40019)); AFTER; }

int main(int argc, char **argv) {
    for (int i = 1; i < argc; i++) {
        const char *way = argv[i];
        if (!strcmp(way, "functions")) {
            by_malloc(), by_calloc(), by_realloc(), by_memalign(), by_aligned_alloc(), by_posix_memalign();
#ifdef __cplusplus
            by_new();
#endif
        } else if (!strcmp(way, "inlined")) {
            around_inlined();
        } else if (!strcmp(way, "deep")) {
            deep(1300);
        } else if (!strcmp(way, "back")) {
            left(1200), right(1200);
        } else if (!strcmp(way, "turns")) {
            for (int n = 0; n < 100; n++) here_and_there(n);
        } else if (!strcmp(way, "frames")) {
            for (int n = 0; n < 100; n++) changing(n);
        } else if (!strcmp(way, "callback")) {
            int numbers[40];
            for (int n = 0; n < 40; n++) numbers[n] = n * 17 % 40;
            qsort(numbers, 40, sizeof *numbers, compared);
        } else if (!strcmp(way, "signal")) {
            pthread_attr_t small;
            pthread_attr_init(&small);
            pthread_attr_setstacksize(&small, 128 << 10);
            pthread_t thread;
            pthread_create(&thread, &small, with_alternate_stack, NULL);
            pthread_join(thread, NULL);
        } else if (!strcmp(way, "coroutine")) {
            getcontext(&coroutine);
            coroutine.uc_stack.ss_size = 64 << 10;
            coroutine.uc_stack.ss_sp = malloc(coroutine.uc_stack.ss_size);
            makecontext(&coroutine, in_coroutine, 0);
            for (int n = 0; n < 50; n++) resume();
        } else if (!strcmp(way, "child")) {
            if (!fork()) {
                in_child();
                _exit(0);
            }
            wait(NULL);
        } else {
            /* Libraries, in each other's place. */
            void *library = dlopen(way, RTLD_NOW);
            void *enter = library ? dlsym(library, "enter") : NULL;
            if (!enter) return 3;
            for (int n = 0; n < 3; n++) ((void (*)(void))enter)();
            dlclose(library);
        }
    }
    return 0;
}

#endif
