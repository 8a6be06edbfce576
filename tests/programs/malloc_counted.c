/* Allocates and frees so that every tool must count the same: nothing but its own calls, and no stdio.
 *
 * usage: malloc_counted ROUNDS
 * Each round: malloc, calloc, a realloc of nothing, one that grows and one that shrinks, memalign, aligned_alloc,
 * posix_memalign, and the free of all but one block of every tenth round. */
#define _GNU_SOURCE
#include <malloc.h>
#include <stdlib.h>

static void *volatile place, *volatile nothing, *volatile leaked[100000];
#define KEEP(block) (place = (block), place)

int main(int argc, char **argv) {
    int rounds = argc > 1 ? atoi(argv[1]) : 0;
    for (int i = 0; i < rounds; i++) {
        free(KEEP(malloc(100 + i % 50)));
        free(KEEP(calloc(3, 50)));
        void *block = KEEP(realloc(nothing, 20));
        block = KEEP(realloc(block, 5000));
        block = KEEP(realloc(block, 40));
        free(block);
        free(KEEP(memalign(64, 300)));
        free(KEEP(aligned_alloc(128, 384)));
        void *aligned = NULL;
        if (posix_memalign(&aligned, 256, 70)) return 1;
        if (i % 10) free(KEEP(aligned));
        else leaked[i] = aligned;
    }
    return 0;
}
