/* The program that chaos traces and mistreats: what it does follows from its plan, and it counts all of it itself.
 *
 * usage: victim FILE PLAN
 * FILE is shared with whoever looks on (truth.h). PLAN is `,key=value,...,` (plan.h; src/program.rs draws it and says what
 * the keys mean). At its end it prints what a process can see of itself and what its calls came to: both must be the
 * same whoever looks on. */
#define _GNU_SOURCE
#include <dirent.h>
#include <sys/resource.h>
#include <sys/stat.h>

#include "children.h"
#include "signals.h"

static int threads;
/* 0: not asked. Else somebody asked us to end. */
static volatile sig_atomic_t asked;

static void on_term(int signal) { asked = 1; }

/* Dies in the way that the plan names. */
static void die(void) {
    signal(SIGSEGV, SIG_DFL);
    if (is("end", "segv")) *(volatile int *)16 = 0;
    if (is("end", "abort")) abort();
    if (is("end", "kill")) kill(getpid(), SIGKILL);
    if (is("end", "term")) kill(getpid(), SIGTERM);
    if (is("end", "_exit")) _exit((int)number("code", 0));
}

static long dies_at;
static void each_of_first(long operation) {
    if (operation == dies_at) die();
    /* Where it handles the signal, the first thread ends its work early. */
    if (asked) exit(77);
}

static void *live(void *data) {
    long index = (long)data, hz = number("hz", 0);
    struct life life = {.state = (uint64_t)number("seed", 1) * 1000003 + (uint64_t)index};
    life.stack_bytes = index ? (size_t)number("stack", 256) << 10 : 0;
    if (index) take_slot();
    /* A thread's first call of the driver may allocate, which a handler must not be the first to do. */
    cu.cuCtxSetCurrent(context);
    timer_t timer = 0;
    if (hz) timer = begin_signals(hz);
    const char *kinds = planned("kinds");
    int is_first = index == 0;
    work(&life, number("operations", 100), kinds ? kinds : "L", is_first ? each_of_first : NULL);
    if (hz) end_signals(timer);
    if (odd && number("jumps", 0)) jump_about(&life, number("jumps", 0));
    slot->over = 1;
    return NULL;
}

/* A thread that is cancelled in a wait. */
static void *sleeps(void *data) {
    for (;;) rest(1000000);
    return data;
}

static void cancel_one(void) {
    pthread_t thread;
    void *came = NULL;
    if (pthread_create(&thread, NULL, sleeps, NULL)) return wrong("pthread_create", errno);
    pthread_cancel(thread);
    pthread_join(thread, &came);
    if (came != PTHREAD_CANCELED) wrong("a cancelled thread", (long)came);
}

static pthread_t start(long index) {
    pthread_t thread;
    pthread_attr_t how;
    pthread_attr_init(&how);
    pthread_attr_setstacksize(&how, (size_t)number("stack", 256) << 10);
    int result = pthread_create(&thread, &how, live, (void *)index);
    if (result) wrong("pthread_create", result), exit(94);
    pthread_attr_destroy(&how);
    return thread;
}

static int running(const char *folder) {
    int count = 0;
    DIR *tasks = opendir(folder);
    for (struct dirent *entry; tasks && (entry = readdir(tasks));) count += entry->d_name[0] != '.';
    if (tasks) closedir(tasks);
    return count;
}

/* What it can see of itself. */
static void look(void) {
    for (int fd = 0; fd < 500; fd++) {
        struct stat about;
        if (!fstat(fd, &about)) printf("fd %d type %o cloexec %d\n", fd, about.st_mode & S_IFMT, fcntl(fd, F_GETFD));
    }
    int next = open("/dev/null", O_RDONLY);
    printf("next fd %d\n", next);
    close(next);
    sigset_t set;
    sigprocmask(SIG_BLOCK, NULL, &set);
    for (int signal = 1; signal < 65; signal++) {
        struct sigaction action;
        if (sigismember(&set, signal) == 1) printf("blocked %d\n", signal);
        if (!sigaction(signal, NULL, &action) && action.sa_handler != SIG_DFL) printf("handled %d\n", signal);
    }
    if (number("look", 0)) printf("threads %d\n", running("/proc/self/task"));
    for (int i = 0; i < RLIM_NLIMITS; i++) {
        struct rlimit limit;
        if (!getrlimit(i, &limit)) printf("limit %d %lx\n", i, (long)limit.rlim_cur);
    }
    int variables = 0;
    for (char **entry = environ; *entry; entry++) {
        variables += strncmp(*entry, "LD_PRELOAD=", 11) && strncmp(*entry, "GPUTRACE_", 9) &&
                     strncmp(*entry, "NVTX_INJECTION64_PATH=", 22) && strncmp(*entry, "LD_AUDIT=", 9);
    }
    char folder[4096];
    printf("variables %d folder %s mask %o\n", variables, getcwd(folder, sizeof folder) ? folder : "?", umask(022));
    errno = 0;
    pid_t child = waitpid(-1, NULL, WNOHANG);
    printf("child %d errno %d\n", (int)child, errno);
}

static void end(void) {
    for (int i = 0; i < SHARED; i++) give_back(atomic_exchange(&shared[i], NULL));
    slot->over = 1;
    die();
    if (is("end", "exec")) {
        char leaf[4096];
        make_leaf(leaf, sizeof leaf, 3);
        fflush(stdout);
        execl(self, self, file, leaf, NULL);
    }
    if (is("end", "pthread_exit")) {
        fflush(stdout);
        pthread_exit(NULL);
    }
    exit((int)number("code", 0));
}

int main(int argc, char **argv) {
    if (argc != 3) return 2;
    snprintf(file, sizeof file, "%s", argv[1]);
    plan = argv[2];
    ssize_t length = readlink("/proc/self/exe", self, sizeof self - 1);
    if (length < 0) return 2;
    open_truth(file);
    int leaf = (int)number("leaf", 0);
    if (!leaf) truth->root = getpid();
    children_die = (int)number("children_die", 0);
    if (number("term", 0)) signal(SIGTERM, on_term), signal(SIGINT, on_term);
    if (number("warn", 0) && !leaf && write(2, "the victim's own line\n", 22) != 22) return 3;
    load_driver();
    prepare_signals();
    threads = leaf ? 0 : (int)number("threads", 0);
    dies_at = leaf ? -1 : number("dies", -1);
    long lives = number("lives", 1), hz = number("hz", 0);
    const char *children = planned("children");
    for (long life = 0; life < lives && !leaf; life++) {
        pthread_t all[64];
        for (int i = 0; i < threads && i < 64; i++) all[i] = start(1 + life * 64 + i);
        /* Children of a process whose threads are at work. */
        if (life == 0) {
            timer_t timer = hz ? begin_signals(hz) : 0;
            for (int n = 0; children && children[n] && children[n] != ','; n++)
                make_child(children[n], (uint64_t)number("seed", 1) + 31 * (uint64_t)n);
            if (hz) end_signals(timer);
        }
        if (number("cancels", 0)) cancel_one();
        if (life + 1 == lives) live((void *)0);
        for (int i = 0; i < threads && i < 64; i++) pthread_join(all[i], NULL);
    }
    if (leaf) live((void *)0);
    if (!leaf) {
        look();
        printf("sum %llx children %llu wrong %llu %s\n", (unsigned long long)truth->sum,
               (unsigned long long)truth->children, (unsigned long long)truth->wrong, truth->first_wrong);
        fflush(stdout);
        ADD(truth->finished, 1);
    }
    if (leaf) {
        slot->over = 1;
        exit((int)number("code", 0));
    }
    end();
}
