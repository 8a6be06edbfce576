/* Makes children in every way there is.
 *
 *   proc_fork WAY [PAIRS] [MS]
 *
 * WAY is fork (no exec), exec (this same process becomes `proc_fork work`), fork-exec, vfork (child execs), spawn
 * (posix_spawn), _Fork, clone (raw system call), daemon (double fork and setsid; lives MS longer than its
 * ancestors), or work (no child). Whoever does the work makes PAIRS heap pairs of 100 bytes, and as many pairs on the
 * device if PROC_CUDA is set. The exit code is the worker's; 0 if all went well. */
#include "proc.h"
#include <errno.h>
#include <signal.h>
#include <spawn.h>
#include <sys/syscall.h>
#include <sys/wait.h>

extern char **environ;
/* glibc has it from 2.34 on. */
extern pid_t _Fork(void) __attribute__((weak));

static int work(const char *who, int pairs) {
    char line[64];
    heap_pairs(pairs, 100);
    if (getenv("PROC_CUDA")) {
        struct cuda cuda;
        if (cuda_open(&cuda) != 0 || cuda_pairs(&cuda, pairs) != 0) return 3;
    }
    snprintf(line, sizeof line, "%s worked\n", who);
    say(line);
    return 0;
}

static int wait_for(pid_t child) {
    int status = 0;
    if (child < 0) fail("child");
    while (waitpid(child, &status, 0) < 0 && errno == EINTR) {
    }
    return WIFEXITED(status) ? WEXITSTATUS(status) : 128 + WTERMSIG(status);
}

int main(int argc, char **argv) {
    const char *way = argc > 1 ? argv[1] : "work";
    char *pairs_text = argc > 2 ? argv[2] : "100";
    char *ms_text = argc > 3 ? argv[3] : "1000";
    int pairs = atoi(pairs_text);
    char *worker[] = {"/proc/self/exe", "work", pairs_text, NULL};
    if (strcmp(way, "work") == 0) return work("worker", pairs);
    /* Whatever way is taken, the parent has used the heap before. */
    heap_pairs(pairs, 100);
    if (strcmp(way, "exec") == 0) {
        execv(worker[0], worker);
        fail("execv");
    }
    if (strcmp(way, "fork") == 0) {
        pid_t child = fork();
        if (child == 0) exit(work("child", pairs));
        return wait_for(child);
    }
    if (strcmp(way, "fork-exec") == 0) {
        pid_t child = fork();
        if (child == 0) {
            execv(worker[0], worker);
            _exit(98);
        }
        return wait_for(child);
    }
    if (strcmp(way, "vfork") == 0) {
        pid_t child = vfork();
        if (child == 0) {
            execv(worker[0], worker);
            _exit(98);
        }
        return wait_for(child);
    }
    if (strcmp(way, "spawn") == 0) {
        pid_t child = -1;
        errno = posix_spawn(&child, worker[0], NULL, NULL, worker, environ);
        return wait_for(errno ? -1 : child);
    }
    if (strcmp(way, "_Fork") == 0) {
        pid_t child = _Fork ? _Fork() : fork();
        if (child == 0) _exit(work("child", pairs));
        return wait_for(child);
    }
    if (strcmp(way, "clone") == 0) {
        pid_t child = (pid_t)syscall(SYS_clone, SIGCHLD, NULL, NULL, NULL, NULL);
        if (child == 0) _exit(work("child", pairs));
        return wait_for(child);
    }
    if (strcmp(way, "daemon") == 0) {
        pid_t child = fork();
        if (child == 0) {
            setsid();
            if (fork() != 0) _exit(0);
            int result = work("daemon", pairs);
            sleep_ms(atoi(ms_text));
            _exit(result ? result : work("daemon", pairs));
        }
        return wait_for(child);
    }
    fprintf(stderr, "proc_fork: unknown way %s\n", way);
    return 2;
}
