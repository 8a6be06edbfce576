/* A program for the sanitizers: sound, or with one fault that one of them reports.
 *
 * usage: sanitized sound | race | uninitialised | overflow | leak | undefined
 *   sound   threads, allocations, look-ups and launches; prints what came of them
 *   others  the fault, then `after it` where the sanitizer lets the program go on */
#include <dlfcn.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "cuda.h"

enum { THREADS = 8, ROUNDS = 2000 };

/* Statics: MemorySanitizer does not see a driver write, and would take automatic variables for uninitialised. */
static CUresult (*launch)(CUfunction, unsigned, unsigned, unsigned, unsigned, unsigned, unsigned, unsigned, CUstream,
                          void **, void **);
static volatile int shared;
static int ready;
static void *volatile kept;

static void *work(void *unused) {
    long sum = 0;
    for (int i = 0; i < ROUNDS; i++) {
        unsigned char *block = malloc(i % 3000 + 1);
        memset(block, 1, i % 3000 + 1);
        block = realloc(block, 5000);
        sum += block[i % 3000];
        free(block);
        sum += launch(NULL, 1, 1, 1, 1, 1, 1, 0, NULL, NULL, NULL);
    }
    return (void *)sum;
}

static int sound(void) {
    void *driver = dlopen("libcuda.so.1", RTLD_NOW);
    if (!driver) return 2;
    *(void **)&launch = dlsym(driver, "cuLaunchKernel");
    if (!launch || dlsym(RTLD_DEFAULT, "no such function")) return 2;
    pthread_t threads[THREADS];
    long sums = 0;
    for (int i = 0; i < THREADS; i++)
        if (pthread_create(&threads[i], NULL, work, NULL)) return 2;
    for (int i = 0; i < THREADS; i++) {
        void *sum = NULL;
        pthread_join(threads[i], &sum);
        sums += (long)sum;
    }
    printf("%ld\n", sums);
    return 7;
}

static void *race(void *unused) {
    shared = 1;
    __atomic_store_n(&ready, 1, __ATOMIC_RELAXED);
    return unused;
}

int main(int argc, char **argv) {
    const char *fault = argc > 1 ? argv[1] : "sound";
    if (!strcmp(fault, "sound")) return sound();
    char *block = malloc(40);
    kept = block;
    if (!strcmp(fault, "race")) {
        pthread_t thread;
        if (pthread_create(&thread, NULL, race, NULL)) return 2;
        /* Relaxed: it orders the two writes, and ThreadSanitizer knows that it need not. */
        while (!__atomic_load_n(&ready, __ATOMIC_RELAXED)) {
        }
        shared = 2;
        pthread_join(thread, NULL);
    } else if (!strcmp(fault, "uninitialised")) {
        if (((volatile char *)kept)[argc]) puts("a byte");
    } else if (!strcmp(fault, "overflow")) {
        ((char *)kept)[40 + argc] = 1;
    } else if (!strcmp(fault, "leak")) {
        kept = block = NULL;
    } else if (!strcmp(fault, "undefined")) {
        shared = 2147483647;
        shared += argc;
    }
    free(block);
    puts("after it");
    return 0;
}
