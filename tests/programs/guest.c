/* What a program does to the library in it, without a GPU: ends, children, threads, errno.
 *
 * usage: guest allocate COUNT         malloc's family, each COUNT times with a size that nobody else uses
 *        guest exit|_exit|_Exit|return CODE
 *        guest fork COUNT             the parent allocates COUNT times, its child COUNT + 1 times, the child's child COUNT + 2
 *        guest bare COUNT             children with an empty environment: by posix_spawn, posix_spawnp and execve, which
 *                                     allocate COUNT + 1, COUNT + 2 and COUNT + 3 times
 *        guest titled COUNT           the same of a program that first writes a title over its environment, as setproctitle does
 *        guest threads COUNT          8 threads, each allocates COUNT times, and once more when its last key is destroyed
 *        guest errno                  errno is what the allocations leave, not what the library's own calls do */
#include <errno.h>
#include <pthread.h>
#include <spawn.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

/* macOS' own. */
void *reallocf(void *block, size_t bytes);
void *valloc(size_t bytes);

enum { THREADS = 8 };

/* What the compiler must not know, or it removes the pairs. */
static void *volatile place, *volatile nothing;
#define KEEP(block) (place = (block), place)

static pthread_key_t late;
static int count;

static void family(int times) {
    for (int i = 0; i < times; i++) {
        free(KEEP(malloc(70001)));
        free(KEEP(calloc(7, 10003)));
        free(KEEP(realloc(KEEP(realloc(nothing, 70003)), 70004)));
        free(KEEP(aligned_alloc(64, 70016)));
        free(KEEP(valloc(70005)));
        free(KEEP(reallocf(malloc(70006), 70008)));
        /* Too large, so that the block is gone. */
        int before = errno;
        if (reallocf(KEEP(malloc(70009)), (size_t)1 << 62)) exit(1);
        errno = before;
        void *block = NULL;
        if (posix_memalign(&block, 128, 70007)) exit(1);
        free(KEEP(block));
        free(nothing);
    }
}

static void at_thread_end(void *value) {
    free(KEEP(malloc(70002)));
    /* Comes again in the last rounds, after the library's own destructor. */
    long rounds = (long)value;
    if (rounds > 1) pthread_setspecific(late, (void *)(rounds - 1));
}

static void *thread(void *unused) {
    pthread_setspecific(late, (void *)3);
    for (int i = 0; i < count; i++) free(KEEP(malloc(70001)));
    return NULL;
}

static int ended_well(pid_t child) {
    int status;
    return waitpid(child, &status, 0) == child && status == 0;
}

/* Children end by _exit: exit would write the parent's output once more. */
static int forks(void) {
    family(count);
    pid_t child = fork();
    if (child == 0) {
        family(count + 1);
        pid_t grandchild = fork();
        if (grandchild == 0) {
            family(count + 2);
            _exit(0);
        }
        _exit(ended_well(grandchild) ? 0 : 1);
    }
    if (!ended_well(child)) return 1;
    puts("done");
    return 0;
}

static int bares(void) {
    char *nothing_at_all[] = {NULL};
    char *self = "/proc/self/exe";
    char times[3][16];
    for (int i = 0; i < 3; i++) snprintf(times[i], sizeof times[i], "%d", count + 1 + i);
    char *words[3][4] = {{"guest.c", "allocate", times[0], NULL}, {"guest.c", "allocate", times[1], NULL},
                         {"guest.c", "allocate", times[2], NULL}};
    pid_t children[3];
    family(count);
    if (posix_spawn(&children[0], self, NULL, NULL, words[0], nothing_at_all) || !ended_well(children[0])) return 1;
    if (posix_spawnp(&children[1], self, NULL, NULL, words[1], nothing_at_all) || !ended_well(children[1])) return 1;
    children[2] = fork();
    if (children[2] == 0) {
        execve(self, words[2], nothing_at_all);
        _exit(127);
    }
    return !ended_well(children[2]);
}

extern char **environ;

static int titled(void) {
    static char *none[] = {NULL};
    char *first = environ[0], *last = first;
    for (char **entry = environ; *entry; entry++)
        if (*entry > last) last = *entry;
    environ = none;
    memset(first, 'x', last + strlen(last) - first);
    return bares();
}

static int threads(void) {
    pthread_t all[THREADS];
    pthread_key_create(&late, at_thread_end);
    for (int i = 0; i < THREADS; i++)
        if (pthread_create(&all[i], NULL, thread, NULL)) return 1;
    for (int i = 0; i < THREADS; i++) pthread_join(all[i], NULL);
    puts("done");
    return 0;
}

static int errnos(void) {
    errno = 77;
    family(10);
    printf("%d", errno);
    errno = 0;
    void *none = KEEP(malloc((size_t)1 << 62));
    printf(" %p %d", none, errno);
    errno = 78;
    free(nothing);
    printf(" %d\n", errno);
    return 0;
}

int main(int argc, char **argv) {
    const char *what = argc > 1 ? argv[1] : "";
    count = argc > 2 ? atoi(argv[2]) : 0;
    if (!strcmp(what, "allocate")) return family(count), puts("done"), 0;
    if (!strcmp(what, "exit")) exit(count);
    if (!strcmp(what, "_exit")) _exit(count);
    if (!strcmp(what, "_Exit")) _Exit(count);
    if (!strcmp(what, "return")) return count;
    if (!strcmp(what, "fork")) return forks();
    if (!strcmp(what, "bare")) return bares();
    if (!strcmp(what, "titled")) return titled();
    if (!strcmp(what, "threads")) return threads();
    if (!strcmp(what, "errno")) return errnos();
    return 2;
}
