/* Prints what a process is given: arguments, working directory, umask, descriptors, environment, signals, limits.
 *
 *   proc_env [ARGS...]
 *
 * One fact a line, `kind value`, in an order that depends on nothing else. */
#include "proc.h"
#include <fcntl.h>
#include <limits.h>
#include <signal.h>
#include <sys/resource.h>
#include <sys/stat.h>

extern char **environ;

int main(int argc, char **argv) {
    char path[PATH_MAX];
    sigset_t blocked;
    /* Before anything else can open one. */
    unsigned char open_fds[1024] = {0};
    for (int fd = 0; fd < 1024; fd++) open_fds[fd] = fcntl(fd, F_GETFD) >= 0;
    for (int i = 0; i < argc; i++) printf("arg %s\n", argv[i]);
    if (getcwd(path, sizeof path)) printf("cwd %s\n", path);
    mode_t mask = umask(0);
    umask(mask);
    printf("umask %04o\n", (unsigned)mask);
    printf("group %d session %d\n", getpgrp() == getpgid(getppid()), getsid(0) == getsid(getppid()));
    for (int fd = 0; fd < 1024; fd++) {
        if (open_fds[fd]) printf("fd %d flags %x\n", fd, (unsigned)fcntl(fd, F_GETFD));
    }
    for (char **entry = environ; *entry; entry++) printf("env %s\n", *entry);
    sigprocmask(SIG_BLOCK, NULL, &blocked);
    for (int signal = 1; signal <= 64; signal++) {
        struct sigaction action;
        if (sigismember(&blocked, signal) == 1) printf("blocked %d\n", signal);
        if (sigaction(signal, NULL, &action) == 0 && action.sa_handler == SIG_IGN) printf("ignored %d\n", signal);
    }
    for (int which = 0; which < RLIMIT_NLIMITS; which++) {
        struct rlimit limit;
        if (getrlimit(which, &limit) == 0) {
            printf("limit %d %llx %llx\n", which, (unsigned long long)limit.rlim_cur, (unsigned long long)limit.rlim_max);
        }
    }
    return 0;
}
