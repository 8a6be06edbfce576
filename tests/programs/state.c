/* Prints everything that a process can see of itself and that must not depend on being traced.
 *
 * Left out is only what is allowed to differ: LD_PRELOAD, GPUTRACE_* and NVTX_INJECTION64_PATH. */
#define _GNU_SOURCE
#include <errno.h>
#include <fcntl.h>
#include <sched.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/personality.h>
#include <sys/prctl.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>
#include <dirent.h>

extern char **environ;

static int compare(const void *a, const void *b) { return strcmp(*(char *const *)a, *(char *const *)b); }

static int may_differ(const char *entry) {
    return !strncmp(entry, "LD_PRELOAD=", 11) || !strncmp(entry, "GPUTRACE_", 9) ||
           !strncmp(entry, "NVTX_INJECTION64_PATH=", 22);
}

static void environment(void) {
    size_t count = 0;
    while (environ[count]) count++;
    char **sorted = malloc((count + 1) * sizeof *sorted);
    memcpy(sorted, environ, count * sizeof *sorted);
    qsort(sorted, count, sizeof *sorted, compare);
    for (size_t i = 0; i < count; i++)
        if (!may_differ(sorted[i])) printf("env %s\n", sorted[i]);
    free(sorted);
}

static void descriptors(void) {
    for (int fd = 0; fd < 2048; fd++) {
        struct stat about;
        if (fstat(fd, &about)) continue;
        /* Pipes and files of the test have other numbers in each run; what they are is the same. */
        printf("fd %d type %o cloexec %d status %o\n", fd, about.st_mode & S_IFMT, fcntl(fd, F_GETFD) & FD_CLOEXEC,
               fcntl(fd, F_GETFL));
    }
    int next = open("/dev/null", O_RDONLY);
    printf("next fd %d\n", next);
    close(next);
}

static void signals(void) {
    sigset_t set;
    for (int signal = 1; signal < 65; signal++) {
        struct sigaction action;
        if (sigaction(signal, NULL, &action)) continue;
        if (action.sa_handler != SIG_DFL) printf("signal %d ignored %d\n", signal, action.sa_handler == SIG_IGN);
    }
    sigprocmask(SIG_BLOCK, NULL, &set);
    for (int signal = 1; signal < 65; signal++)
        if (sigismember(&set, signal)) printf("blocked %d\n", signal);
    sigpending(&set);
    for (int signal = 1; signal < 65; signal++)
        if (sigismember(&set, signal)) printf("pending %d\n", signal);
    stack_t stack;
    sigaltstack(NULL, &stack);
    printf("alternate stack %x\n", stack.ss_flags);
}

static void rest(void) {
    for (int i = 0; i < RLIM_NLIMITS; i++) {
        struct rlimit limit;
        if (!getrlimit(i, &limit)) printf("limit %d %lx %lx\n", i, (long)limit.rlim_cur, (long)limit.rlim_max);
    }
    int value = -1;
    prctl(PR_GET_PDEATHSIG, &value);
    printf("death signal %d\n", value);
    prctl(PR_GET_CHILD_SUBREAPER, &value);
    printf("subreaper %d dumpable %d no new privileges %d timer slack %d keep capabilities %d\n", value,
           prctl(PR_GET_DUMPABLE), prctl(PR_GET_NO_NEW_PRIVS, 0, 0, 0, 0), prctl(PR_GET_TIMERSLACK),
           prctl(PR_GET_KEEPCAPS));
    char text[4096];
    printf("cwd %s umask %o nice %d personality %x\n", getcwd(text, sizeof text), umask(022),
           getpriority(PRIO_PROCESS, 0), personality(0xffffffff));
    cpu_set_t processors;
    sched_getaffinity(0, sizeof processors, &processors);
    printf("processors %d policy %d\n", CPU_COUNT(&processors), sched_getscheduler(0));
    FILE *name = fopen("/proc/self/comm", "r");
    printf("name %s", fgets(text, sizeof text, name));
    fclose(name);
    int threads = 0;
    DIR *tasks = opendir("/proc/self/task");
    for (struct dirent *entry; (entry = readdir(tasks));) threads += entry->d_name[0] != '.';
    closedir(tasks);
    printf("threads %d\n", threads);
    errno = 0;
    printf("child %d errno %d\n", (int)waitpid(-1, NULL, WNOHANG), errno);
}

int main(int argc, char **argv) {
    printf("errno at start %d\n", errno);
    for (int i = 0; i < argc; i++) printf("argument %s\n", argv[i]);
    descriptors();
    environment();
    signals();
    rest();
    fprintf(stderr, "to stderr\n");
    return 42;
}
