/* Waits COUNT times in each function that waits for the operating system, each time until another thread has seen that
 * it waits, and 1 ms more. Prints for each function how often it was called, and the ns that the calls took as seen
 * from outside.
 *
 * usage: waits COUNT
 * The other thread makes its calls past libc, so that they are in no trace. */
#define _GNU_SOURCE
#include <errno.h>
#include <fcntl.h>
#include <linux/futex.h>
#include <poll.h>
#include <pthread.h>
#include <semaphore.h>
#include <signal.h>
#include <stdatomic.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/file.h>
#include <sys/mman.h>
#include <sys/select.h>
#include <sys/socket.h>
#include <sys/syscall.h>
#include <sys/time.h>
#include <sys/uio.h>
#include <sys/un.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

static long now(void) {
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    return t.tv_sec * 1000000000L + t.tv_nsec;
}

/* A system call that no library sees. */
static long raw(long number, long a, long b, long c, long d) {
#ifdef __x86_64__
    long result;
    register long r10 __asm__("r10") = d;
    __asm__ volatile("syscall" : "=a"(result) : "a"(number), "D"(a), "S"(b), "d"(c), "r"(r10) : "rcx", "r11", "memory");
    return result;
#else
    register long x8 __asm__("x8") = number, x0 __asm__("x0") = a, x1 __asm__("x1") = b, x2 __asm__("x2") = c,
                  x3 __asm__("x3") = d;
    __asm__ volatile("svc 0" : "+r"(x0) : "r"(x8), "r"(x1), "r"(x2), "r"(x3) : "memory");
    return x0;
#endif
}

/* Returns once the thread sleeps in the kernel, and 1 ms after that. */
static void until_it_waits(int tid) {
    char path[64], text[512];
    snprintf(path, sizeof path, "/proc/self/task/%d/stat", tid);
    for (char state = 0; state != 'S';) {
        int file = raw(SYS_openat, AT_FDCWD, (long)path, O_RDONLY, 0);
        long length = raw(SYS_read, file, (long)text, sizeof text - 1, 0);
        raw(SYS_close, file, 0, 0, 0);
        text[length > 0 ? length : 0] = 0;
        char *after = strrchr(text, ')');
        state = after ? after[2] : 0;
    }
    for (long end = now() + 1000000; now() < end;) {}
}

/* The other thread: waits for a piece of work, and for the main thread to be in its call. */
static _Atomic(void (*)(void)) work;
static atomic_int done, over;
static int main_tid;

static void *other(void *unused) {
    while (!over) {
        void (*release)(void) = work;
        if (!release) {
            raw(SYS_sched_yield, 0, 0, 0, 0);
            continue;
        }
        until_it_waits(main_tid);
        work = NULL;
        release();
        done = 1;
    }
    return NULL;
}

static pthread_mutex_t mutex = PTHREAD_MUTEX_INITIALIZER;
static pthread_rwlock_t lock = PTHREAD_RWLOCK_INITIALIZER;
static pthread_cond_t condition = PTHREAD_COND_INITIALIZER;
static pthread_barrier_t barrier;
static sem_t semaphore;
static unsigned word;
static atomic_int go;
static int pipes[2], full[2], sockets[2], server, epoll, a_file, locked_file, to_child[2];
static char byte, much[1 << 20];
static struct iovec part = {&byte, 1}, large = {much, sizeof much};
static struct timespec later;
static const struct timespec minute = {60, 0};
static struct sockaddr_un address = {.sun_family = AF_UNIX};

static void put(void) { raw(SYS_write, pipes[1], (long)"x", 1, 0); }
static void take(void) { raw(SYS_read, pipes[0], (long)&byte, 1, 0); }
static void empty(void) { raw(SYS_read, full[0], (long)much, 1 << 16, 0); }
static void say(void) { raw(SYS_write, sockets[1], (long)"x", 1, 0); }
static void post(void) { sem_post(&semaphore); }
static void unlock_file(void) { raw(SYS_flock, locked_file, LOCK_UN, 0, 0); }
static void let_child_go(void) { raw(SYS_write, to_child[1], (long)"x", 1, 0); }
static void let_thread_go(void) { go = 1; }
static void meet(void) { pthread_barrier_wait(&barrier); }
static void wake(void) {
    word = 1;
    raw(SYS_futex, (long)&word, FUTEX_WAKE, 1, 0);
}
static void visit(void) {
    int visitor = raw(SYS_socket, AF_UNIX, SOCK_STREAM, 0, 0);
    raw(SYS_connect, visitor, (long)&address, sizeof address, 0);
    raw(SYS_close, visitor, 0, 0, 0);
}
/* The holder of a lock is a thread of its own, since a lock is freed by who has it. */
static void *(*take_lock)(void);
static void *hold(void *free_it) {
    take_lock();
    go = 2;
    while (go != 1) raw(SYS_sched_yield, 0, 0, 0, 0);
    ((void (*)(void))free_it)();
    return NULL;
}
static void *take_mutex(void) { return pthread_mutex_trylock(&mutex), NULL; }
static void free_mutex(void) { pthread_mutex_unlock(&mutex); }
static void *take_lock_for_writing(void) { return pthread_rwlock_trywrlock(&lock), NULL; }
static void free_lock(void) { pthread_rwlock_unlock(&lock); }
static void signal_condition(void) {
    /* By then the waiter has given the mutex up: it sleeps. */
    pthread_cond_signal(&condition);
}
static void *until_told(void *unused) {
    while (go != 1) raw(SYS_sched_yield, 0, 0, 0, 0);
    return NULL;
}

static pthread_t start(void *(*body)(void *), void *data) {
    pthread_t thread;
    go = 0;
    if (pthread_create(&thread, NULL, body, data)) _exit(4);
    return thread;
}

static int child(void) {
    int pid = fork();
    if (pid) return pid;
    raw(SYS_read, to_child[0], (long)&byte, 1, 0);
    raw(SYS_exit_group, 0, 0, 0, 0);
    return 0;
}

static int times;

/* Calls it `times` times; `prepare` before and `clean` after each. `release`: what ends the wait. */
#define CALLS(name, prepare, release, call, clean)                                                                     \
    do {                                                                                                               \
        long spent = 0;                                                                                                \
        for (int i = 0; i < times; i++) {                                                                              \
            prepare;                                                                                                   \
            clock_gettime(CLOCK_REALTIME, &later);                                                                     \
            later.tv_sec += 60;                                                                                        \
            done = 0;                                                                                                  \
            void (*ending)(void) = release;                                                                            \
            work = ending;                                                                                             \
            long begin = now();                                                                                        \
            long result = (long)(call);                                                                                \
            spent += now() - begin;                                                                                    \
            if (result < 0) return printf("%s: %s\n", name, strerror(errno)), 1;                                       \
            while (ending && !done) {}                                                                                 \
            clean;                                                                                                     \
        }                                                                                                              \
        printf("%s %d %ld %d\n", name, times, spent, (void (*)(void))release != NULL);                                 \
    } while (0)

#define LOCKED(taker, freer)                                                                                           \
    take_lock = taker;                                                                                                 \
    pthread_t holder = start(hold, freer);                                                                             \
    while (go != 2) {}
#define HOLDER_ENDS pthread_tryjoin(holder)

/* pthread_join is one of the functions under test: threads are waited for without it. */
static void pthread_tryjoin(pthread_t thread) {
    while (pthread_tryjoin_np(thread, NULL)) {}
}

int main(int argc, char **argv) {
    if (argc != 2) return 2;
    times = atoi(argv[1]);
    main_tid = getpid();
    sem_init(&semaphore, 0, 0);
    pthread_barrier_init(&barrier, NULL, 2);
    char name[] = "/tmp/waits-XXXXXX";
    a_file = mkstemp(name);
    locked_file = open(name, O_RDWR);
    unlink(name);
    if (ftruncate(a_file, 8192)) return 3;
    char *map = mmap(NULL, 4096, PROT_READ | PROT_WRITE, MAP_SHARED, a_file, 0);
    if (pipe(pipes) || pipe(full) || pipe(to_child) || socketpair(AF_UNIX, SOCK_STREAM, 0, sockets)) return 3;
    snprintf(address.sun_path + 1, sizeof address.sun_path - 1, "gputrace-waits-%d", getpid());
    server = socket(AF_UNIX, SOCK_STREAM, 0);
    if (bind(server, (void *)&address, sizeof address) || listen(server, 8)) return 3;
    epoll = epoll_create1(0);
    struct epoll_event event = {.events = EPOLLIN};
    epoll_ctl(epoll, EPOLL_CTL_ADD, pipes[0], &event);
    struct pollfd readable = {pipes[0], POLLIN, 0}, two[2] = {{pipes[0], POLLIN, 0}, {sockets[0], POLLIN, 0}};
    struct msghdr message = {.msg_iov = &part, .msg_iovlen = 1};
    struct mmsghdr messages = {.msg_hdr = message};
    fd_set set;
    pthread_t helper, joined = 0;
    if (pthread_create(&helper, NULL, other, NULL)) return 3;

    CALLS("pthread_mutex_lock", LOCKED(take_mutex, free_mutex), let_thread_go, pthread_mutex_lock(&mutex), free_mutex(); HOLDER_ENDS);
    CALLS("pthread_mutex_timedlock", LOCKED(take_mutex, free_mutex), let_thread_go, pthread_mutex_timedlock(&mutex, &later), free_mutex(); HOLDER_ENDS);
    CALLS("pthread_rwlock_rdlock", LOCKED(take_lock_for_writing, free_lock), let_thread_go, pthread_rwlock_rdlock(&lock), free_lock(); HOLDER_ENDS);
    CALLS("pthread_rwlock_timedrdlock", LOCKED(take_lock_for_writing, free_lock), let_thread_go, pthread_rwlock_timedrdlock(&lock, &later), free_lock(); HOLDER_ENDS);
    CALLS("pthread_rwlock_wrlock", LOCKED(take_lock_for_writing, free_lock), let_thread_go, pthread_rwlock_wrlock(&lock), free_lock(); HOLDER_ENDS);
    CALLS("pthread_rwlock_timedwrlock", LOCKED(take_lock_for_writing, free_lock), let_thread_go, pthread_rwlock_timedwrlock(&lock, &later), free_lock(); HOLDER_ENDS);
    CALLS("flock", raw(SYS_flock, locked_file, LOCK_EX, 0, 0), unlock_file, flock(a_file, LOCK_EX), raw(SYS_flock, a_file, LOCK_UN, 0, 0));
    struct flock whole = {.l_type = F_WRLCK, .l_whence = SEEK_SET}, none = {.l_type = F_UNLCK, .l_whence = SEEK_SET};
    CALLS("fcntl", , NULL, fcntl(a_file, F_OFD_SETLKW, &whole), fcntl(a_file, F_SETLK, &none));

    CALLS("pthread_cond_wait", pthread_mutex_lock(&mutex), signal_condition, pthread_cond_wait(&condition, &mutex), free_mutex());
    CALLS("pthread_cond_timedwait", pthread_mutex_lock(&mutex), signal_condition, pthread_cond_timedwait(&condition, &mutex, &later), free_mutex());
    CALLS("pthread_cond_clockwait", pthread_mutex_lock(&mutex), signal_condition, pthread_cond_clockwait(&condition, &mutex, CLOCK_REALTIME, &later), free_mutex());
    CALLS("sem_wait", , post, sem_wait(&semaphore), );
    CALLS("sem_timedwait", , post, sem_timedwait(&semaphore, &later), );
    CALLS("sem_clockwait", , post, sem_clockwait(&semaphore, CLOCK_REALTIME, &later), );
    CALLS("pthread_join", joined = start(until_told, NULL), let_thread_go, pthread_join(joined, NULL), );
    CALLS("pthread_timedjoin_np", joined = start(until_told, NULL), let_thread_go, pthread_timedjoin_np(joined, NULL, &later), );
    CALLS("pthread_clockjoin_np", joined = start(until_told, NULL), let_thread_go, pthread_clockjoin_np(joined, NULL, CLOCK_REALTIME, &later), );
    CALLS("syscall", word = 0, wake, syscall(SYS_futex, &word, FUTEX_WAIT, 0, NULL, NULL, 0), );

    CALLS("poll", , put, poll(&readable, 1, 60000), take());
    CALLS("ppoll", , put, ppoll(two, 2, &minute, NULL), take());
    CALLS("select", FD_ZERO(&set); FD_SET(pipes[0], &set), put, select(pipes[0] + 1, &set, NULL, NULL, &(struct timeval){60, 0}), take());
    CALLS("pselect", FD_ZERO(&set); FD_SET(pipes[0], &set), put, pselect(pipes[0] + 1, &set, NULL, NULL, &minute, NULL), take());
    CALLS("epoll_wait", , put, epoll_wait(epoll, &event, 1, 60000), take());
    CALLS("epoll_pwait", , put, epoll_pwait(epoll, &event, 1, 60000, NULL), take());
    CALLS("epoll_pwait2", , put, epoll_pwait2(epoll, &event, 1, &minute, NULL), take());

    CALLS("read", , put, read(pipes[0], &byte, 1), );
    CALLS("readv", , put, readv(pipes[0], &part, 1), );
    CALLS("recv", , say, recv(sockets[0], &byte, 1, 0), );
    CALLS("recvfrom", , say, recvfrom(sockets[0], &byte, 1, 0, NULL, NULL), );
    CALLS("recvmsg", , say, recvmsg(sockets[0], &message, 0), );
    CALLS("recvmmsg", , say, recvmmsg(sockets[0], &messages, 1, 0, NULL), );
    int guest;
    CALLS("accept", , visit, guest = accept(server, NULL, NULL), raw(SYS_close, guest, 0, 0, 0));
    CALLS("accept4", , visit, guest = accept4(server, NULL, NULL, SOCK_CLOEXEC), raw(SYS_close, guest, 0, 0, 0));

    /* A pipe that is full, but for what the other thread takes out. */
    fcntl(full[1], F_SETFL, O_NONBLOCK);
    while (raw(SYS_write, full[1], (long)much, sizeof much, 0) > 0) {}
    fcntl(full[1], F_SETFL, 0);
    CALLS("write", , empty, write(full[1], much, 1 << 16), );
    large.iov_len = 1 << 16;
    CALLS("writev", , empty, writev(full[1], &large, 1), );

    CALLS("nanosleep", , NULL, nanosleep(&(struct timespec){0, 2000000}, NULL), );
    CALLS("clock_nanosleep", , NULL, clock_nanosleep(CLOCK_MONOTONIC, 0, &(struct timespec){0, 2000000}, NULL), );
    CALLS("usleep", , NULL, usleep(2000), );
    CALLS("pread64", , NULL, pread64(a_file, &byte, 1, 0), );
    CALLS("pwrite64", , NULL, pwrite64(a_file, &byte, 1, 0), );
    CALLS("preadv64", , NULL, preadv64(a_file, &part, 1, 0), );
    CALLS("pwritev64", , NULL, pwritev64(a_file, &part, 1, 0), );
    CALLS("send", , NULL, send(sockets[0], &byte, 1, 0), );
    CALLS("sendmsg", , NULL, sendmsg(sockets[0], &message, 0), );
    CALLS("fsync", , NULL, fsync(a_file), );
    CALLS("fdatasync", , NULL, fdatasync(a_file), );
    CALLS("msync", map[0]++, NULL, msync(map, 4096, MS_SYNC), );

    int pid;
    siginfo_t ended;
    CALLS("wait", child(), let_child_go, wait(NULL), );
    CALLS("wait3", child(), let_child_go, wait3(NULL, 0, NULL), );
    CALLS("wait4", pid = child(), let_child_go, wait4(pid, NULL, 0, NULL), );
    CALLS("waitpid", pid = child(), let_child_go, waitpid(pid, NULL, 0), );
    CALLS("waitid", pid = child(), let_child_go, waitid(P_PID, pid, &ended, WEXITED), );
    CALLS("pthread_barrier_wait", , meet, pthread_barrier_wait(&barrier) > 0, );
    over = 1;
    pthread_tryjoin(helper);
    return 0;
}
