/* Many threads, each of which allocates; then as many again after the first have ended.
 *
 *   proc_threads [THREADS] [PAIRS]
 *
 * All threads of a round live at once. Prints the number of threads that did their work. With PROC_CUDA every thread
 * makes one pair on the device as well. */
#include "proc.h"
#include <pthread.h>

static pthread_barrier_t all_live;
static struct cuda cuda;
static int with_cuda;
static int pairs = 100;

static void *work(void *unused) {
    (void)unused;
    heap_pairs(pairs, 64);
    pthread_barrier_wait(&all_live);
    heap_pairs(pairs, 256);
    if (with_cuda && cuda_pairs(&cuda, 1) != 0) return NULL;
    return &all_live;
}

int main(int argc, char **argv) {
    int threads = argc > 1 ? atoi(argv[1]) : 2000;
    int done = 0;
    pthread_attr_t small;
    pthread_t *ids = calloc((size_t)threads, sizeof *ids);
    pairs = argc > 2 ? atoi(argv[2]) : pairs;
    with_cuda = getenv("PROC_CUDA") != NULL;
    if (with_cuda && cuda_open(&cuda) != 0) return 3;
    pthread_attr_init(&small);
    pthread_attr_setstacksize(&small, 64 << 10);
    for (int round = 0; round < 2; round++) {
        pthread_barrier_init(&all_live, NULL, (unsigned)threads);
        for (int i = 0; i < threads; i++) {
            if (pthread_create(&ids[i], &small, work, NULL) != 0) fail("pthread_create");
        }
        for (int i = 0; i < threads; i++) {
            void *result = NULL;
            pthread_join(ids[i], &result);
            done += result != NULL;
        }
        pthread_barrier_destroy(&all_live);
    }
    printf("%d threads\n", done);
    free(ids);
    return done == 2 * threads ? 0 : 1;
}
