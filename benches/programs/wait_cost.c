/* wait_cost ROUNDS CALLS: ns per call that returns at once, a line a round: a read of one byte of /dev/zero, a lock and
 * unlock of a free mutex, a poll that does not wait, a futex call that has nothing to wait for, another system call. */
#define _GNU_SOURCE
#include <fcntl.h>
#include <linux/futex.h>
#include <poll.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/syscall.h>
#include <time.h>
#include <unistd.h>

static double now(void) {
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    return t.tv_sec * 1e9 + t.tv_nsec;
}

#define TIME(call)                                                                                                     \
    ({                                                                                                                 \
        double start = now();                                                                                          \
        for (int i = 0; i < calls; i++) call;                                                                          \
        (now() - start) / calls;                                                                                       \
    })

int main(int argc, char **argv) {
    int rounds = argc > 1 ? atoi(argv[1]) : 101, calls = argc > 2 ? atoi(argv[2]) : 20000;
    pthread_mutex_t mutex = PTHREAD_MUTEX_INITIALIZER;
    int zero = open("/dev/zero", O_RDONLY), word = 1;
    struct pollfd always = {zero, POLLIN, 0};
    char byte;
    for (int r = 0; r < rounds; r++) {
        double read_ns = TIME(if (read(zero, &byte, 1) != 1) return 1);
        double lock_ns = TIME((pthread_mutex_lock(&mutex), pthread_mutex_unlock(&mutex)));
        double poll_ns = TIME(if (poll(&always, 1, 0) != 1) return 1);
        double futex_ns = TIME(syscall(SYS_futex, &word, FUTEX_WAIT_PRIVATE, 0, NULL, NULL, 0));
        double call_ns = TIME(syscall(SYS_getppid));
        printf("%.2f %.2f %.2f %.2f %.2f\n", read_ns, lock_ns, poll_ns, futex_ns, call_ns);
        fflush(stdout);
    }
}
