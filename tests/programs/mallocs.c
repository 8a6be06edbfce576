/* Allocates in a way that can be counted.
 *
 * usage: mallocs known COUNT | mallocs traffic BLOCKS BYTES | mallocs lasting SECONDS BYTES
 *        mallocs holes BLOCKS BYTES | mallocs killed BLOCKS BYTES | mallocs given BLOCKS BYTES | mallocs nothing COUNT
 *        mallocs turns SECONDS BYTES | mallocs swapped BLOCKS BYTES
 *   known     each function of malloc's family COUNT times, with sizes that nobody else uses (see below)
 *   traffic   BLOCKS blocks of BYTES, one after another, none of them touched
 *   holes     BLOCKS blocks of BYTES of which every second one is freed, and rests for two seconds
 *   killed    BLOCKS blocks of BYTES that it keeps, and between them as many that it does not; then it is killed
 *   nothing   COUNT frees of NULL, and for a tenth of a second more of them
 *   given     BLOCKS blocks of BYTES that another thread frees, and whose addresses it gets again
 *   lasting   the same for so many seconds, after which it prints the number of blocks
 *   turns     the same where each block lives until 2,000 others were allocated
 *   swapped   four threads with BLOCKS blocks of BYTES and up to 199 more each, which they put into one of 1,024 places and free what was there */
#define _GNU_SOURCE
#include <malloc.h>
#include <pthread.h>
#include <signal.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

/* What the compiler must not know, or it removes the pairs. */
static void *volatile place, *volatile nothing;
#define KEEP(block) (place = (block), place)

static pthread_barrier_t turn;

/* Frees what the main thread has put into the place, a hundred at a time. */
static void *frees(void *data) {
    void **blocks = data;
    for (;;) {
        pthread_barrier_wait(&turn);
        if (!blocks[0]) return NULL;
        for (int i = 0; i < 100; i++) free(blocks[i]);
        pthread_barrier_wait(&turn);
    }
}

static _Atomic(void *) places[1024];
static size_t block_bytes;

/* So many blocks, each for one of the places. */
static void *swaps(void *count) {
    unsigned random = (unsigned)(size_t)&random;
    for (size_t i = 0; i < (size_t)count; i++) {
        random = random * 1664525 + 1013904223;
        free(atomic_exchange(&places[random >> 22], malloc(block_bytes + (random >> 8) % 200)));
    }
    return NULL;
}

int main(int argc, char **argv) {
    if (argc < 3) return 2;
    int count = atoi(argv[2]);
    if (!strcmp(argv[1], "known")) {
        for (int i = 0; i < count; i++) {
            free(KEEP(malloc(70001)));
            free(KEEP(calloc(7, 10003)));
            void *grown = KEEP(realloc(KEEP(realloc(nothing, 70003)), 70004));
            free(grown);
            free(KEEP(memalign(64, 70005)));
            free(KEEP(aligned_alloc(64, 70016)));
            void *block = NULL;
            if (posix_memalign(&block, 128, 70007)) return 1;
            free(KEEP(block));
            free(KEEP(reallocarray(nothing, 2, 35004)));
            free(nothing);
        }
    } else if (!strcmp(argv[1], "lasting")) {
        size_t bytes = strtoul(argv[3], NULL, 10);
        time_t end = time(NULL) + count;
        long blocks = 0;
        for (; time(NULL) <= end; blocks += 1000)
            for (int i = 0; i < 1000; i++) free(KEEP(malloc(bytes)));
        printf("%ld\n", blocks);
    } else if (!strcmp(argv[1], "turns")) {
        static void *kept[2000];
        size_t bytes = strtoul(argv[3], NULL, 10);
        time_t end = time(NULL) + count;
        long blocks = 0;
        for (; time(NULL) <= end; blocks += 2000)
            for (int i = 0; i < 2000; i++) {
                free(kept[i]);
                kept[i] = malloc(bytes);
            }
        for (int i = 0; i < 2000; i++) free(kept[i]);
        printf("%ld\n", blocks);
    } else if (!strcmp(argv[1], "holes")) {
        size_t bytes = strtoul(argv[3], NULL, 10);
        void **blocks = malloc(count * sizeof *blocks);
        for (int i = 0; i < count; i++) blocks[i] = KEEP(malloc(bytes));
        for (int i = 0; i < count; i += 2) free(blocks[i]);
        sleep(2);
    } else if (!strcmp(argv[1], "killed")) {
        size_t bytes = strtoul(argv[3], NULL, 10);
        for (int i = 0; i < count; i++) {
            KEEP(malloc(bytes));
            free(KEEP(malloc(bytes)));
        }
        raise(SIGKILL);
    } else if (!strcmp(argv[1], "nothing")) {
        for (int i = 0; i < count; i++) free(nothing);
        free(KEEP(calloc(1, 777)));
        for (int i = 0; i < 1000; i++) free(nothing), usleep(100);
    } else if (!strcmp(argv[1], "swapped")) {
        pthread_t threads[4];
        block_bytes = strtoul(argv[3], NULL, 10);
        for (int i = 0; i < 4; i++)
            if (pthread_create(&threads[i], NULL, swaps, (void *)(size_t)count)) return 1;
        for (int i = 0; i < 4; i++) pthread_join(threads[i], NULL);
        for (int i = 0; i < 1024; i++) free(places[i]);
    } else if (!strcmp(argv[1], "given")) {
        size_t bytes = strtoul(argv[3], NULL, 10);
        static void *blocks[100];
        pthread_t other;
        pthread_barrier_init(&turn, NULL, 2);
        if (pthread_create(&other, NULL, frees, blocks)) return 1;
        for (int i = 0; i < count; i += 100) {
            for (int k = 0; k < 100; k++) blocks[k] = KEEP(malloc(bytes));
            pthread_barrier_wait(&turn);
            pthread_barrier_wait(&turn);
        }
        blocks[0] = NULL;
        pthread_barrier_wait(&turn);
        pthread_join(other, NULL);
    } else {
        size_t bytes = strtoul(argv[3], NULL, 10);
        for (int i = 0; i < count; i++) free(KEEP(malloc(bytes)));
    }
    puts("done");
    return 0;
}
