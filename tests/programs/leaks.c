/* A loop that keeps a block of each step, makes others for a moment, fills a table in its first steps, and holds much for a while; for
 * tests/allocations.rs.
 *
 * usage: leaks STEPS */
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include "cuda.h"

#define KEPT __attribute__((noinline, noclone, used, visibility("default")))
/* What stands behind a call keeps it from becoming a jump. */
#define AFTER __asm__ volatile("" ::: "memory")

struct kept {
    struct kept *next;
    char room[1000];
};

static struct kept *history;
static void *volatile table[20];
static void *volatile seen;

KEPT void keep_history(void) {
    struct kept *one = malloc(sizeof *one);
    one->next = history;
    history = one;
    AFTER;
}

KEPT void fill_table(int step) {
    table[step] = calloc(1, 100000);
    AFTER;
}

KEPT void format_text(void) {
    char *text = malloc(300);
    seen = text;
    free(text);
    AFTER;
}

KEPT void *load_all(void) {
    void *all = malloc(5000000);
    seen = all;
    AFTER;
    return all;
}

int main(int argc, char **argv) {
    CUcontext context;
    CUmodule module;
    CUfunction kernel;
    if (argc != 2 || cuInit(0) || cuDevicePrimaryCtxRetain(&context, 0) || cuCtxSetCurrent(context)) return 1;
    if (cuModuleLoadData(&module, "fakecuda:k") || cuModuleGetFunction(&kernel, module, "k")) return 2;
    int steps = atoi(argv[1]);
    for (int step = 0; step < steps; step++) {
        keep_history();
        if (step < 20) fill_table(step);
        for (int i = 0; i < 10; i++) format_text();
        void *all = step == steps / 2 ? load_all() : NULL;
        for (int i = 0; i < 3; i++)
            if (cuLaunchKernel(kernel, 1, 1, 1, 1, 1, 1, 0, NULL, NULL, NULL)) return 3;
        if (cuStreamSynchronize(NULL)) return 4;
        free(all);
    }
    return 0;
}
