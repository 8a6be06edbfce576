/* Everything at once that an allocator's books may get wrong: threads that allocate, free blocks of others, end and are made
 * anew, children that are forked among them, and a signal every 100 us.
 *
 * usage: malloc_stress THREADS LIVES BLOCKS SMALLEST
 *   THREADS at a time; each is followed by another when it ends, LIVES times; each life allocates BLOCKS blocks, a quarter
 *   with each of four functions, of SMALLEST to SMALLEST + KINDS - 1 bytes. Every 16th life forks a child, which allocates CHILD
 *   blocks of CHILD_BYTES, CHILD_BYTES + 1, ..., frees every second one, and one of its parent's.
 * Prints `BYTES ALLOCATED LIVE` for each size of the parent's, counts of blocks, then `children N`. */
#define _GNU_SOURCE
#include <pthread.h>
#include <semaphore.h>
#include <signal.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/time.h>
#include <sys/wait.h>
#include <unistd.h>

#define KINDS 64
#define PLACES 512
#define CHILD 40
#define CHILD_BYTES 50000
#define KEPT __attribute__((noinline, noclone, used))

static int lives, blocks, smallest;
static atomic_int children;
static volatile sig_atomic_t signals;
static sem_t over;

/* A block says how large it is. */
struct block {
    int bytes;
};

static struct block *_Atomic places[PLACES];
static atomic_long allocated[KINDS], freed[KINDS];

static struct block *marked(struct block *block, int bytes) {
    if (!block) abort();
    block->bytes = bytes;
    return block;
}

KEPT struct block *make_0(int bytes) { return marked(malloc(bytes), bytes); }
KEPT struct block *make_1(int bytes) { return marked(calloc(1, bytes), bytes); }
KEPT struct block *make_2(int bytes) { return marked(realloc(malloc(8), bytes), bytes); }
KEPT struct block *make_3(int bytes) {
    void *block = NULL;
    if (posix_memalign(&block, 64, bytes)) abort();
    return marked(block, bytes);
}

static struct block *(*const make[4])(int) = {make_0, make_1, make_2, make_3};

static void fork_one(void) {
    pid_t pid = fork();
    if (pid == 0) {
        struct block *mine[CHILD];
        for (int i = 0; i < CHILD; i++) mine[i] = make[i % 4](CHILD_BYTES + i);
        for (int i = 0; i < CHILD; i += 2) free(mine[i]);
        free(atomic_exchange(&places[0], NULL));
        _exit(0);
    }
    int status = 1;
    if (pid < 0 || waitpid(pid, &status, 0) != pid || status) abort();
    atomic_fetch_add(&children, 1);
}

static void begin(int life);

static void *live(void *data) {
    int life = (int)(size_t)data;
    unsigned random = 2654435761u * (life + 1);
    for (int i = 0; i < blocks; i++) {
        random = random * 1664525 + 1013904223;
        int kind = random >> 8 & (KINDS - 1), place = random >> 16 & (PLACES - 1);
        struct block *block = make[kind % 4](smallest + kind);
        atomic_fetch_add(&allocated[kind], 1);
        struct block *old = atomic_exchange(&places[place], block);
        if (!old) continue;
        atomic_fetch_add(&freed[old->bytes - smallest], 1);
        free(old);
    }
    if (life % 16 == 0) fork_one();
    if (life % lives + 1 < lives) begin(life + 1);
    else sem_post(&over);
    return NULL;
}

static void begin(int life) {
    pthread_attr_t alone;
    pthread_attr_init(&alone);
    pthread_attr_setdetachstate(&alone, PTHREAD_CREATE_DETACHED);
    pthread_attr_setstacksize(&alone, 256 << 10);
    pthread_t thread;
    if (pthread_create(&thread, &alone, live, (void *)(size_t)life)) abort();
    pthread_attr_destroy(&alone);
}

static void on_signal(int number) {
    (void)number;
    signals++;
}

int main(int argc, char **argv) {
    if (argc < 5) return 2;
    int threads = atoi(argv[1]);
    lives = atoi(argv[2]), blocks = atoi(argv[3]), smallest = atoi(argv[4]);
    struct sigaction action = {.sa_handler = on_signal, .sa_flags = SA_RESTART};
    sigaction(SIGALRM, &action, NULL);
    struct itimerval often = {{0, 100}, {0, 100}};
    setitimer(ITIMER_REAL, &often, NULL);
    sem_init(&over, 0, 0);
    for (int i = 0; i < threads; i++) begin(i * lives);
    for (int i = 0; i < threads; i++)
        while (sem_wait(&over)) {}
    setitimer(ITIMER_REAL, &(struct itimerval){0}, NULL);
    if (!signals) return 3;
    for (int i = 0; i < KINDS; i++) printf("%d %ld %ld\n", smallest + i, allocated[i], allocated[i] - freed[i]);
    printf("children %d\n", children);
    return 0;
}
