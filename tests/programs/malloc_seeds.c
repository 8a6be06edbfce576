/* The same allocations in many threads, one after another: each thread draws its own samples.
 *
 * usage: malloc_seeds THREADS
 * Prints a line for each thread: its id, then for each size how many blocks of it the thread allocated, and how many it
 * left to live; those are freed by the main thread. */
#define _GNU_SOURCE
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <unistd.h>

#define BLOCKS 4000

static const size_t sizes[4] = {1025, 1200, 1900, 5000};
static void *volatile place;
static void *left[BLOCKS];
static pid_t thread;
static int allocated[4], live[4];

static void *work(void *data) {
    thread = gettid();
    for (int i = 0; i < 4; i++) allocated[i] = live[i] = 0;
    for (int i = 0; i < BLOCKS; i++) {
        left[i] = place = malloc(sizes[i % 4]);
        allocated[i % 4]++;
        if (i / 4 % 4 == 0) {
            live[i % 4]++;
        } else {
            free(place);
            left[i] = NULL;
        }
    }
    return data;
}

int main(int argc, char **argv) {
    for (int n = argc > 1 ? atoi(argv[1]) : 0; n > 0; n--) {
        pthread_t id;
        if (pthread_create(&id, NULL, work, NULL)) return 1;
        pthread_join(id, NULL);
        printf("%d", thread);
        for (int i = 0; i < 4; i++) printf(" %zu %d %d", sizes[i], allocated[i], live[i]);
        printf("\n");
        for (int i = 0; i < BLOCKS; i++) free(left[i]);
    }
    return 0;
}
