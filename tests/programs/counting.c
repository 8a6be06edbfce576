/* Calls a function that only asks, from many threads at once, from a signal handler, while paused, and in a child.
 *
 * usage: counting THREADS CALLS
 * Prints how often each process called cuDeviceGetAttribute while recording was on: `PID CALLS`, the parent last. */
#define _GNU_SOURCE
#include <dlfcn.h>
#include <pthread.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/time.h>
#include <sys/wait.h>
#include <unistd.h>

#include "cuda.h"

typedef CUresult (*Ask)(int *, int, CUdevice);
static Ask ask;
static int calls;
static pthread_barrier_t all;
static volatile long in_handler;

static void handler(int signal) {
    int value;
    ask(&value, 1, 0);
    in_handler++;
}

static void *work(void *unused) {
    int value;
    pthread_barrier_wait(&all);
    for (int i = 0; i < calls; i++) ask(&value, 1, 0);
    /* Every thread has its counters before the first one ends. */
    pthread_barrier_wait(&all);
    return NULL;
}

static void control(const char *name) {
    int (*function)(void) = (int (*)(void))dlsym(RTLD_DEFAULT, name);
    if (function) function();
}

int main(int argc, char **argv) {
    if (argc != 3) return 2;
    int threads = atoi(argv[1]), value;
    calls = atoi(argv[2]);
    void *driver = dlopen("libcuda.so.1", RTLD_NOW);
    if (!driver) return puts(dlerror()), 1;
    ask = (Ask)dlsym(driver, "cuDeviceGetAttribute");
    ((__typeof__(&cuInit))dlsym(driver, "cuInit"))(0);

    pthread_t *thread = calloc((size_t)threads, sizeof *thread);
    pthread_attr_t small;
    pthread_attr_init(&small);
    pthread_attr_setstacksize(&small, 64 << 10);
    pthread_barrier_init(&all, NULL, (unsigned)threads);
    for (int i = 0; i < threads; i++)
        if (pthread_create(&thread[i], &small, work, NULL)) return 3;
    for (int i = 0; i < threads; i++) pthread_join(thread[i], NULL);
    long made = (long)threads * calls;

    /* The handler comes between any two instructions of the same addition. */
    struct sigaction action = {.sa_handler = handler};
    sigaction(SIGPROF, &action, NULL);
    struct itimerval often = {{0, 100}, {0, 100}}, never = {{0, 0}, {0, 0}};
    setitimer(ITIMER_PROF, &often, NULL);
    while (in_handler < 20) {
        ask(&value, 1, 0);
        made++;
    }
    setitimer(ITIMER_PROF, &never, NULL);
    signal(SIGPROF, SIG_IGN);
    made += in_handler;

    control("gputrace_pause");
    for (int i = 0; i < 100; i++) ask(&value, 1, 0);
    control("gputrace_resume");

    fflush(stdout);
    pid_t child = fork();
    if (!child) {
        for (int i = 0; i < 77; i++) ask(&value, 1, 0);
        printf("%d 77\n", getpid());
        fflush(stdout);
        _exit(0);
    }
    waitpid(child, NULL, 0);
    printf("%d %ld\n", getpid(), made);
    return 0;
}
