/* Threads that push, pop, start and end ranges as fast as they can.
 *
 * usage: nvtx_threads THREADS ROUNDS. Each round of a thread makes 8 events and 4 rows; every 100th name is new. */
#define _GNU_SOURCE
#include <pthread.h>
#include <stdio.h>

#include "nvtx.h"

static int rounds;
static nvtx_domain domain;
static pthread_barrier_t all;

static void *work(void *data) {
    pthread_barrier_wait(&all);
    char name[64];
    struct nvtx_attributes said = NVTX_ATTRIBUTES(NVTX_NAMED("in a domain"));
    for (int i = 0; i < rounds; i++) {
        snprintf(name, sizeof name, "round %d of %ld", i / 100, (long)data);
        nvtx_push(name);
        uint64_t number = nvtx_start("numbered");
        nvtx_push_in(domain, &said);
        nvtx_pop();
        nvtx_pop_in(domain);
        nvtx_push(name), nvtx_pop();
        nvtx_end(number);
    }
    return NULL;
}

int main(int argc, char **argv) {
    if (argc != 3) return 2;
    int count = atoi(argv[1]);
    rounds = atoi(argv[2]);
    nvtx_initialise();
    domain = nvtx_create("threads");
    pthread_barrier_init(&all, NULL, count);
    pthread_t *threads = calloc(count, sizeof *threads);
    for (long i = 0; i < count; i++)
        if (pthread_create(&threads[i], NULL, work, (void *)i)) return puts("no more threads"), 1;
    for (int i = 0; i < count; i++) pthread_join(threads[i], NULL);
    free(threads);
    printf("%d threads, %d rounds\n", count, rounds);
    return 0;
}
