/* A program without a GPU for ci/on-a-mac: allocates, and does what its first argument says: exit N, signal, fork, spawn,
   bare (children by posix_spawn and execve with an empty environment). */

#include <signal.h>
#include <spawn.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

extern char **environ;

static void allocate(void) {
    for (int i = 0; i < 1000; i++) {
        volatile char *block = malloc(64 + (size_t)i);
        block[0] = 1;
        free((void *)block);
    }
}

/* Waits for a child; whether it ended well. */
static int ended(pid_t child) {
    int status = 1;
    return child > 0 && waitpid(child, &status, 0) == child && WIFEXITED(status) && WEXITSTATUS(status) == 0;
}

static int spawned(const char *self, char **environment) {
    char *arguments[] = {(char *)self, NULL};
    pid_t child = 0;
    return posix_spawn(&child, self, NULL, NULL, arguments, environment) == 0 && ended(child);
}

int main(int count, char **words) {
    const char *what = count > 1 ? words[1] : "";
    char *nothing[] = {NULL};
    allocate();
    if (strcmp(what, "exit") == 0) exit(count > 2 ? atoi(words[2]) : 0);
    if (strcmp(what, "signal") == 0) raise(SIGTERM);
    if (strcmp(what, "spawn") == 0) return !spawned(words[0], environ);
    if (strcmp(what, "fork") == 0) {
        pid_t child = fork();
        if (child == 0) {
            allocate();
            _exit(0);
        }
        return !ended(child);
    }
    if (strcmp(what, "bare") == 0) {
        int first = spawned(words[0], nothing);
        pid_t child = fork();
        if (child == 0) {
            char *arguments[] = {words[0], NULL};
            execve(words[0], arguments, nothing);
            _exit(127);
        }
        return !(ended(child) && first);
    }
    return 0;
}
