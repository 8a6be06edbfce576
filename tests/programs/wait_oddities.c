/* Waits in places and ways in which a hook may go wrong. Prints what each call returned.
 *
 * usage: wait_oddities locks        what the kinds of mutexes and locks answer, and in which order
 *        wait_oddities leave TIMES  calls left by siglongjmp and by cancellation, then TIMES calls that return
 *        wait_oddities early        calls before any library's constructor
 *        wait_oddities vfork TIMES  a child that shares its parent's memory waits
 *        wait_oddities small        a signal handler on a small stack of its own waits, in two threads
 *        wait_oddities short TIMES  reads of one byte that are there, and locks that are free */
#define _GNU_SOURCE
#include <errno.h>
#include <fcntl.h>
#include <pthread.h>
#include <semaphore.h>
#include <setjmp.h>
#include <signal.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/syscall.h>
#include <sys/time.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#define SHOW(call) printf("%-70s %d\n", #call, (int)(call))

static void *die_with_it(void *mutex) { return pthread_mutex_lock(mutex), NULL; }

static void kind(const char *name, int type, int robust, int protocol) {
    pthread_mutexattr_t attributes;
    pthread_mutex_t mutex;
    pthread_t thread;
    struct timespec past = {1, 0}, wrong = {0, 2000000000};
    pthread_mutexattr_init(&attributes);
    pthread_mutexattr_settype(&attributes, type);
    pthread_mutexattr_setrobust(&attributes, robust);
    pthread_mutexattr_setprotocol(&attributes, protocol);
    printf("%s: %d\n", name, pthread_mutex_init(&mutex, &attributes));
    SHOW(pthread_mutex_lock(&mutex));
    if (type != PTHREAD_MUTEX_NORMAL && type != PTHREAD_MUTEX_ADAPTIVE_NP) SHOW(pthread_mutex_lock(&mutex));
    SHOW(pthread_mutex_timedlock(&mutex, &past));
    SHOW(pthread_mutex_timedlock(&mutex, &wrong));
    SHOW(pthread_mutex_unlock(&mutex));
    SHOW(pthread_mutex_unlock(&mutex) == EPERM);
    SHOW(pthread_mutex_timedlock(&mutex, &wrong));
    SHOW(pthread_mutex_unlock(&mutex));
    SHOW(pthread_mutex_clocklock(&mutex, CLOCK_PROCESS_CPUTIME_ID, &past));
    SHOW(pthread_mutex_clocklock(&mutex, CLOCK_MONOTONIC, &past) == 0);
    if (robust != PTHREAD_MUTEX_ROBUST) return;
    while (pthread_mutex_unlock(&mutex) == 0) {}
    for (int mends = 1; mends >= 0; mends--) {
        pthread_create(&thread, NULL, die_with_it, &mutex);
        pthread_join(thread, NULL);
        SHOW(pthread_mutex_lock(&mutex));
        if (mends) SHOW(pthread_mutex_consistent(&mutex));
        SHOW(pthread_mutex_unlock(&mutex));
    }
    SHOW(pthread_mutex_lock(&mutex));
}

static void locks(void) {
    struct timespec past = {1, 0}, wrong = {0, 2000000000};
    kind("normal", PTHREAD_MUTEX_NORMAL, PTHREAD_MUTEX_STALLED, PTHREAD_PRIO_NONE);
    kind("recursive", PTHREAD_MUTEX_RECURSIVE, PTHREAD_MUTEX_STALLED, PTHREAD_PRIO_NONE);
    kind("error checking", PTHREAD_MUTEX_ERRORCHECK, PTHREAD_MUTEX_STALLED, PTHREAD_PRIO_NONE);
    kind("adaptive", PTHREAD_MUTEX_ADAPTIVE_NP, PTHREAD_MUTEX_STALLED, PTHREAD_PRIO_NONE);
    kind("robust", PTHREAD_MUTEX_NORMAL, PTHREAD_MUTEX_ROBUST, PTHREAD_PRIO_NONE);
    kind("robust recursive", PTHREAD_MUTEX_RECURSIVE, PTHREAD_MUTEX_ROBUST, PTHREAD_PRIO_NONE);
    kind("robust error checking", PTHREAD_MUTEX_ERRORCHECK, PTHREAD_MUTEX_ROBUST, PTHREAD_PRIO_NONE);
    kind("inheriting", PTHREAD_MUTEX_ERRORCHECK, PTHREAD_MUTEX_STALLED, PTHREAD_PRIO_INHERIT);
    kind("inheriting, robust", PTHREAD_MUTEX_ERRORCHECK, PTHREAD_MUTEX_ROBUST, PTHREAD_PRIO_INHERIT);
    kind("protecting", PTHREAD_MUTEX_ERRORCHECK, PTHREAD_MUTEX_STALLED, PTHREAD_PRIO_PROTECT);
    pthread_rwlock_t lock = PTHREAD_RWLOCK_WRITER_NONRECURSIVE_INITIALIZER_NP;
    SHOW(pthread_rwlock_timedrdlock(&lock, &wrong));
    SHOW(pthread_rwlock_timedwrlock(&lock, &wrong));
    SHOW(pthread_rwlock_clockrdlock(&lock, CLOCK_PROCESS_CPUTIME_ID, &past));
    SHOW(pthread_rwlock_clockwrlock(&lock, CLOCK_PROCESS_CPUTIME_ID, &past));
    SHOW(pthread_rwlock_wrlock(&lock));
    SHOW(pthread_rwlock_wrlock(&lock));
    SHOW(pthread_rwlock_rdlock(&lock));
    SHOW(pthread_rwlock_timedrdlock(&lock, &past));
    SHOW(pthread_rwlock_unlock(&lock));
    SHOW(pthread_rwlock_rdlock(&lock));
    SHOW(pthread_rwlock_rdlock(&lock));
    SHOW(pthread_rwlock_timedwrlock(&lock, &past));
    SHOW(pthread_rwlock_unlock(&lock));
    errno = 77;
    SHOW(pthread_rwlock_unlock(&lock));
    SHOW(errno);
    sem_t semaphore;
    sem_init(&semaphore, 0, 1);
    SHOW(sem_wait(&semaphore));
    SHOW(errno);
    SHOW(sem_timedwait(&semaphore, &past));
    SHOW(errno == ETIMEDOUT);
    SHOW(read(-1, &past, 1));
    SHOW(errno == EBADF);
    SHOW(syscall(SYS_futex, NULL, 0, 0, NULL, NULL, 0));
    SHOW(errno == EFAULT);
    SHOW(syscall(SYS_getppid) == getppid());
    SHOW(fcntl(0, F_GETFD) >= 0);
    SHOW(fcntl(1, F_SETLKW, NULL));
    SHOW(errno == EFAULT);
}

static sigjmp_buf back;
static int pipes[2];
static sem_t semaphore;
static pthread_mutex_t mutex = PTHREAD_MUTEX_INITIALIZER;
static pthread_cond_t condition = PTHREAD_COND_INITIALIZER;
static char byte;

static void jump(int signal) { siglongjmp(back, 1); }

/* Below the frame that is left, so that what it left on the stack is overwritten or not, as chance has it. */
static void deeper(int depth) {
    volatile char room[256];
    memset((char *)room, depth, sizeof room);
    if (depth) {
        deeper(depth - 1);
        return;
    }
    struct itimerval soon = {{0, 1000}, {0, 1000}};
    setitimer(ITIMER_REAL, &soon, NULL);
    if (read(pipes[0], &byte, 1) >= 0) _exit(3);
}

static void cleaned(void *count) { ++*(int *)count; }
static void unlocked(void *count) { pthread_mutex_unlock(&mutex); }

static void *read_for_ever(void *count) {
    pthread_cleanup_push(cleaned, count);
    while (read(pipes[0], &byte, 1) < 1) {}
    pthread_cleanup_pop(0);
    return NULL;
}

static void *wait_for_ever(void *count) {
    pthread_cleanup_push(cleaned, count);
    while (sem_wait(&semaphore)) {}
    pthread_cleanup_pop(0);
    return NULL;
}

static void *wait_for_condition(void *count) {
    pthread_mutex_lock(&mutex);
    pthread_cleanup_push(cleaned, count);
    pthread_cleanup_push(unlocked, count);
    for (;;) pthread_cond_wait(&condition, &mutex);
    pthread_cleanup_pop(0);
    pthread_cleanup_pop(0);
    return NULL;
}

static void *cancelled_anywhere(void *count) {
    pthread_cleanup_push(cleaned, count);
    pthread_setcanceltype(PTHREAD_CANCEL_ASYNCHRONOUS, NULL);
    int zero = open("/dev/zero", O_RDONLY);
    for (;;)
        if (read(zero, &byte, 1) != 1) _exit(3);
    pthread_cleanup_pop(0);
    return NULL;
}

static void leave(int times) {
    if (pipe(pipes)) _exit(3);
    int clean = 0;
    signal(SIGALRM, jump);
    for (volatile int i = 0; i < times; i++)
        if (!sigsetjmp(back, 1)) deeper(i % 7);
    setitimer(ITIMER_REAL, &(struct itimerval){{0, 0}, {0, 0}}, NULL);
    signal(SIGALRM, SIG_IGN);
    printf("left %d calls by siglongjmp\n", times);
    void *(*bodies[])(void *) = {read_for_ever, wait_for_ever, wait_for_condition, cancelled_anywhere};
    sem_init(&semaphore, 0, 0);
    for (int i = 0; i < times * 4; i++) {
        pthread_t thread;
        void *result;
        pthread_create(&thread, NULL, bodies[i % 4], &clean);
        /* Until it is in its call, or in one of the many short ones. */
        for (int turn = 0; turn < 200 + 50 * (i % 11); turn++) syscall(SYS_sched_yield);
        pthread_cancel(thread);
        pthread_join(thread, &result);
        if (result != PTHREAD_CANCELED) _exit(4);
    }
    printf("cancelled %d threads\n", times * 4);
    int zero = open("/dev/zero", O_RDONLY);
    for (int i = 0; i < times; i++)
        if (read(zero, &byte, 1) != 1) _exit(3);
    printf("read %d times\n", times);
}

static char early[8];
static int early_result = -1, early_error;

static void before_everything(void) {
    static pthread_mutex_t first = PTHREAD_MUTEX_INITIALIZER;
    pthread_mutex_lock(&first);
    int zero = open("/dev/zero", O_RDONLY);
    early_result = read(zero, early, sizeof early) == sizeof early;
    close(zero);
    errno = 0;
    if (syscall(SYS_futex, NULL, 0, 0, NULL, NULL, 0) == -1) early_error = errno;
    pthread_mutex_unlock(&first);
}
__attribute__((section(".preinit_array"), used)) static void (*at_first)(void) = before_everything;

static void *write_later(void *end) {
    for (;;) {
        int state = *(volatile int *)end;
        if (state < 0) return NULL;
        if (state) {
            *(volatile int *)end = 0;
            syscall(SYS_sched_yield);
            if (write(pipes[1], "x", 1) != 1) _exit(3);
        }
        syscall(SYS_sched_yield);
    }
}

static void share(int times) {
    if (pipe(pipes)) _exit(3);
    volatile int wanted = 0, all = 0;
    pthread_t writer;
    pthread_create(&writer, NULL, write_later, (void *)&wanted);
    for (volatile int i = 0; i < times; i++) {
        int pid = vfork();
        if (pid == 0) {
            wanted = 1;
            int got = read(pipes[0], &byte, 1);
            _exit(got == 1 ? 7 : 1);
        }
        int status;
        if (waitpid(pid, &status, 0) == pid && WEXITSTATUS(status) == 7) all++;
    }
    wanted = -1;
    pthread_join(writer, NULL);
    printf("%d of %d children read their byte\n", all, times);
}

static char *handlers_stack;
static volatile int handled;

static void wait_a_moment(int signal) {
    struct timespec moment = {0, 2000000};
    char here;
    nanosleep(&moment, NULL);
    handled += &here > handlers_stack && &here < handlers_stack + (1 << 16);
}

/* What the kernel puts there, and 4 KiB; below it nothing is mapped. */
static void *on_a_small_stack(void *unused) {
    size_t bytes = (sysconf(_SC_MINSIGSTKSZ) + 4096 + 4095) & ~4095ul;
    char *room = mmap(NULL, bytes + 4096, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    handlers_stack = room + 4096;
    mprotect(handlers_stack, bytes, PROT_READ | PROT_WRITE);
    stack_t stack = {.ss_sp = handlers_stack, .ss_size = bytes};
    sigaltstack(&stack, NULL);
    struct sigaction action = {.sa_handler = wait_a_moment, .sa_flags = SA_ONSTACK};
    sigaction(SIGUSR1, &action, NULL);
    raise(SIGUSR1);
    return NULL;
}

static void small(void) {
    on_a_small_stack(NULL);
    pthread_t thread;
    pthread_create(&thread, NULL, on_a_small_stack, NULL);
    pthread_join(thread, NULL);
    printf("%d waits on a small stack\n", handled);
}

static void shortly(int times) {
    int zero = open("/dev/zero", O_RDONLY);
    pthread_rwlock_t lock = PTHREAD_RWLOCK_INITIALIZER;
    for (int i = 0; i < times; i++) {
        if (read(zero, &byte, 1) != 1) _exit(3);
        pthread_mutex_lock(&mutex);
        pthread_mutex_unlock(&mutex);
        pthread_rwlock_rdlock(&lock);
        pthread_rwlock_unlock(&lock);
    }
    printf("%d\n", times);
}

int main(int argc, char **argv) {
    if (argc < 2) return 2;
    int times = argc > 2 ? atoi(argv[2]) : 1;
    /* stdout is written once, at the end. */
    static char all[1 << 16];
    setvbuf(stdout, all, _IOFBF, sizeof all);
    if (!strcmp(argv[1], "locks")) locks();
    else if (!strcmp(argv[1], "leave")) leave(times);
    else if (!strcmp(argv[1], "vfork")) share(times);
    else if (!strcmp(argv[1], "short")) shortly(times);
    else if (!strcmp(argv[1], "small")) small();
    else printf("early %d, error %d\n", early_result, early_error);
    return 0;
}
