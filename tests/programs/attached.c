/* Threads that call the driver through pointers that they found long ago: attached FILE [THREADS [SIGNALS [FILTER]]]     (4, 0, 0)
 *
 * FILE is what it is told by, and tells: eight-byte words, of which the first is a number that grows with each order.
 *
 * | word | what |
 * |---|---|
 * | 0 | order; 0: none yet |
 * | 1 | launches that each thread makes for it; 0: until the next one |
 * | 2 | the grid of these launches; 0: end |
 * | 3 | threads that are through with the order (of those that have an end) |
 * | 4 | launches so far |
 * | 5 | signals that came, with SIGNALS: a thread sends them to the others, each a microsecond after the last |
 *
 * With FILTER it has a seccomp filter, which allows everything. Beside them threads sleep, wait for a condition with a time, read a pipe and allocate; nothing of that may fail, or return too early.
 * Prints `ok`, or what went wrong. */
#define _GNU_SOURCE
#include <dlfcn.h>
#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <pthread.h>
#include <signal.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/syscall.h>
#include <time.h>
#include <unistd.h>
#include <linux/filter.h>
#include <linux/seccomp.h>

#include "cuda.h"

#define FUNCTIONS(DO)                                                                                                  \
    DO(cuInit)                                                                                                         \
    DO(cuDeviceGet)                                                                                                    \
    DO(cuDevicePrimaryCtxRetain)                                                                                       \
    DO(cuCtxSetCurrent)                                                                                                \
    DO(cuModuleLoadData)                                                                                               \
    DO(cuModuleGetFunction)                                                                                            \
    DO(cuStreamCreate)                                                                                                 \
    DO(cuLaunchKernel)                                                                                                 \
    DO(cuStreamSynchronize)
#define DECLARE(name) static __typeof__(&name) p_##name;
FUNCTIONS(DECLARE)

static volatile _Atomic unsigned long *word;
static CUcontext context;
static CUfunction function;
static pthread_t ids[256];
static int threads = 4;
static atomic_int over, leave;
static atomic_ulong sent, came;

static void fail(const char *what, long value) {
    printf("%s: %ld, errno %d\n", what, value, errno);
    fflush(stdout);
    _exit(3);
}

static void ok(const char *what, int code) {
    if (code) fail(what, code);
}

static void *work(void *nothing) {
    CUstream stream;
    ok("cuCtxSetCurrent", p_cuCtxSetCurrent(context));
    ok("cuStreamCreate", p_cuStreamCreate(&stream, CU_STREAM_NON_BLOCKING));
    for (unsigned long order = 0;;) {
        while (atomic_load(&word[0]) == order) usleep(100);
        order = atomic_load(&word[0]);
        unsigned long count = atomic_load(&word[1]), grid = atomic_load(&word[2]);
        if (!grid) {
            /* Until no signal comes any more. */
            while (!atomic_load(&leave)) usleep(100);
            return NULL;
        }
        for (unsigned long n = 0; count ? n < count : atomic_load(&word[0]) == order; n++) {
            ok("cuLaunchKernel", p_cuLaunchKernel(function, grid, 1, 1, 32, 1, 1, 0, stream, NULL, NULL));
            atomic_fetch_add(&word[4], 1);
            if (n % 8 == 0) ok("cuStreamSynchronize", p_cuStreamSynchronize(stream));
            if (n % 16 == 0) {
                /* Under the allocator's lock, and the kernel's. */
                char *memory = malloc(200000 + n % 1000);
                memset(memory, 1, 4096);
                free(memory);
            }
        }
        ok("cuStreamSynchronize", p_cuStreamSynchronize(stream));
        if (count) atomic_fetch_add(&word[3], 1);
    }
}

static double now(void) {
    struct timespec time;
    clock_gettime(CLOCK_MONOTONIC, &time);
    return time.tv_sec + time.tv_nsec / 1e9;
}

/* Waits that have an end, each of which is to come neither too early nor with an error. */
static void *sleeps(void *nothing) {
    pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
    pthread_cond_t never = PTHREAD_COND_INITIALIZER;
    int ends[2];
    if (pipe(ends)) fail("pipe", 0);
    while (!atomic_load(&over)) {
        double begin = now();
        struct timespec time = {0, 3000000};
        errno = 77;
        ok("nanosleep", nanosleep(&time, NULL));
        if (errno != 77) fail("errno", errno);
        if (now() - begin < 0.003) fail("nanosleep was short", 0);
        struct pollfd nothing_comes = {ends[0], POLLIN, 0};
        begin = now();
        ok("poll", poll(&nothing_comes, 1, 3));
        if (now() - begin < 0.003) fail("poll was short", 0);
        clock_gettime(CLOCK_REALTIME, &time);
        time.tv_nsec += 3000000;
        time.tv_sec += time.tv_nsec / 1000000000;
        time.tv_nsec %= 1000000000;
        pthread_mutex_lock(&lock);
        int code = pthread_cond_timedwait(&never, &lock, &time);
        pthread_mutex_unlock(&lock);
        if (code && code != ETIMEDOUT) fail("pthread_cond_timedwait", code);
        char byte = 5;
        if (write(ends[1], &byte, 1) != 1 || read(ends[0], &byte, 1) != 1 || byte != 5) fail("pipe", byte);
    }
    return NULL;
}

static void *reads(void *end) {
    char byte;
    /* It waits for the whole run. */
    if (read(*(int *)end, &byte, 1) != 1 || byte != 9) fail("read", byte);
    return NULL;
}

static void handler(int number) { atomic_fetch_add(&came, 1); }

/* Signals that queue: each must come. */
static void *signals(void *nothing) {
    while (!atomic_load(&over)) {
        for (int n = 0; n < threads; n++) {
            if (!pthread_kill(ids[n], SIGRTMIN)) atomic_fetch_add(&sent, 1);
            atomic_store(&word[5], atomic_load(&came));
            usleep(50);
        }
    }
    return NULL;
}

int main(int argc, char **argv) {
    if (argc < 2) return 2;
    if (argc > 2) threads = atoi(argv[2]);
    int file = open(argv[1], O_RDWR | O_CREAT, 0600);
    if (file < 0 || ftruncate(file, 4096)) return 2;
    word = mmap(NULL, 4096, PROT_READ | PROT_WRITE, MAP_SHARED, file, 0);
    close(file);
    void *driver = dlopen("libcuda.so.1", RTLD_NOW);
    if (word == MAP_FAILED || !driver || threads < 1 || threads > 256) return 2;
#define FIND(name)                                                                                                     \
    p_##name = (__typeof__(p_##name))dlsym(driver, #name);                                                             \
    if (!p_##name) return 2;
    FUNCTIONS(FIND)
    CUdevice device;
    CUmodule module;
    ok("cuInit", p_cuInit(0));
    ok("cuDeviceGet", p_cuDeviceGet(&device, 0));
    ok("cuDevicePrimaryCtxRetain", p_cuDevicePrimaryCtxRetain(&context, device));
    ok("cuCtxSetCurrent", p_cuCtxSetCurrent(context));
    ok("cuModuleLoadData", p_cuModuleLoadData(&module, "fakecuda:spin_us_2"));
    ok("cuModuleGetFunction", p_cuModuleGetFunction(&function, module, "spin_us_2"));
    if (argc > 4 && atoi(argv[4])) {
        struct sock_filter all = BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ALLOW);
        struct sock_fprog filter = {1, &all};
        ok("prctl", prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0));
        ok("seccomp", syscall(SYS_seccomp, SECCOMP_SET_MODE_FILTER, 0, &filter));
    }
    struct sigaction action = {.sa_handler = handler, .sa_flags = SA_RESTART};
    sigaction(SIGRTMIN, &action, NULL);
    int ends[2];
    if (pipe(ends)) return 2;
    pthread_t sleeper, reader, sender;
    for (int n = 0; n < threads; n++)
        if (pthread_create(&ids[n], NULL, work, NULL)) return 2;
    if (pthread_create(&sleeper, NULL, sleeps, NULL) || pthread_create(&reader, NULL, reads, &ends[0])) return 2;
    int with_signals = argc > 3 && atoi(argv[3]);
    if (with_signals && pthread_create(&sender, NULL, signals, NULL)) return 2;
    /* Signals come to threads that are there. */
    while (!atomic_load(&word[0]) || atomic_load(&word[2])) usleep(1000);
    atomic_store(&over, 1);
    if (with_signals) pthread_join(sender, NULL);
    atomic_store(&leave, 1);
    for (int n = 0; n < threads; n++) pthread_join(ids[n], NULL);
    pthread_join(sleeper, NULL);
    char byte = 9;
    if (write(ends[1], &byte, 1) != 1) return 2;
    pthread_join(reader, NULL);
    if (atomic_load(&came) != atomic_load(&sent)) fail("signals were lost", atomic_load(&sent) - atomic_load(&came));
    puts("ok");
    return 0;
}
