/* Children, made in every way there is; each counts for itself, and its parent looks at how it ended. */
#ifndef CHAOS_CHILDREN_H
#define CHAOS_CHILDREN_H

#include <sched.h>
#include <signal.h>
#include <spawn.h>
#include <sys/wait.h>

#include "work.h"

extern char **environ;

static char self[4096], file[4096];
/* Somebody from outside kills children: how they end is not looked at. */
static int children_die;

static void make_leaf(char *text, size_t size, uint64_t seed) {
    /* It stands behind the plan's first comma, so a child's own values count. */
    snprintf(text, size, ",leaf=1,seed=%llu,operations=40,children=,end=code,code=%d%s", (unsigned long long)seed,
             (int)(seed % 5), plan);
}

static void ended(pid_t pid, int wanted) {
    int status = 0;
    if (pid < 0) return wrong("a child is not made", errno);
    while (waitpid(pid, &status, 0) != pid) {
        if (errno != EINTR) return wrong("waitpid", errno);
    }
    ADD(truth->children, 1);
    if (!children_die && status != wanted << 8) wrong("a child's status", status);
}

/* In a forked child: it is another process, with a slot of its own. */
static _Noreturn void be_child(uint64_t seed, int with_grandchild) {
    take_slot();
    forked = !odd;
    struct life life = {.state = seed};
    long linger = number("linger", 0);
    for (unsigned i = 0; i < 5 + (unsigned)(seed % 20); i++) {
        launches(&life, 1);
        if (linger) rest(linger);
    }
    for (int i = 0; i < 20; i++) give_back(allocate(&life));
    pid_t pid = with_grandchild ? fork() : -1;
    if (pid == 0) {
        take_slot();
        launches(&life, 11);
        slot->over = 1;
        _exit(3);
    }
    if (with_grandchild) ended(pid, 3);
    slot->over = 1;
    _exit((int)(seed % 7));
}

/* Without libc's handlers: a child that may do next to nothing. */
static _Noreturn void be_bare_child(uint64_t seed) {
    take_slot();
    forked = !odd;
    if (odd) {
        struct life life = {.state = seed};
        launches(&life, 5 + (unsigned)(seed % 20));
    }
    slot->over = 1;
    _exit((int)(seed % 7));
}

/* A grandchild in a session of its own goes on when everybody else has ended. */
static void leave_daemon(uint64_t seed) {
    pid_t pid = fork();
    if (pid == 0) {
        setsid();
        if (fork()) _exit(0);
        for (int fd = 0; fd < 3; fd++) close(fd);
        take_slot();
        forked = !odd;
        struct life life = {.state = seed};
        for (int i = 0; i < 20; i++) {
            launches(&life, 3);
            rest(5000);
        }
        slot->over = 1;
        _exit(0);
    }
    ended(pid, 0);
}

/* One child of this kind: f fork, F fork with a grandchild, b _Fork, c clone, v vfork and exec, p posix_spawn, s system,
 * d a daemon. */
static void make_child(char kind, uint64_t seed) {
    char leaf[4096], command[sizeof self + sizeof file + 4200];
    make_leaf(leaf, sizeof leaf, seed);
    char *arguments[] = {self, file, leaf, NULL};
    pid_t pid = -1;
    switch (kind) {
    case 'f':
    case 'F':
        pid = fork();
        if (pid == 0) be_child(seed, kind == 'F');
        return ended(pid, (int)(seed % 7));
    case 'b':
        pid = _Fork();
        if (pid == 0) be_bare_child(seed);
        return ended(pid, (int)(seed % 7));
    case 'c':
        pid = (pid_t)syscall(SYS_clone, SIGCHLD, NULL, NULL, NULL, NULL);
        if (pid == 0) be_bare_child(seed);
        return ended(pid, (int)(seed % 7));
    case 'v':
        pid = vfork();
        if (pid == 0) {
            execv(self, arguments);
            _exit(127);
        }
        return ended(pid, (int)(seed % 5));
    case 'p':
        if (posix_spawn(&pid, self, NULL, NULL, arguments, environ)) pid = -1;
        return ended(pid, (int)(seed % 5));
    case 's':
        snprintf(command, sizeof command, "exec '%s' '%s' '%s'", self, file, leaf);
        int status = system(command);
        ADD(truth->children, 1);
        if (!children_die && status != (int)(seed % 5) << 8) wrong("system", status);
        return;
    case 'd': return leave_daemon(seed);
    default: wrong("a kind of child", kind);
    }
}

#endif
