/* Makes children in every way and launches kernels in all of them.
 *
 * usage: forks fork|_Fork|clone|vfork|spawn|exec|threads
 *        forks daemon FILE     a grandchild in a session of its own goes on when FILE.go is there, launches 13, and then
 *                              makes FILE; its parents are gone before
 * Needs the driver of odd_driver.c. Each process prints `PID launched N`; a parent waits for its children. */
#define _GNU_SOURCE
#include <dlfcn.h>
#include <pthread.h>
#include <sched.h>
#include <signal.h>
#include <spawn.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#include "cuda.h"

extern char **environ;
static __typeof__(&cuLaunchKernel) launch_kernel;
static CUfunction function;

static void launch(int times) {
    for (int i = 0; i < times; i++) launch_kernel(function, times, 1, 1, 1, 1, 1, 0, NULL, NULL, NULL);
    char line[64];
    int length = snprintf(line, sizeof line, "%ld launched %d\n", syscall(SYS_getpid), times);
    if (write(1, line, length) != length) _exit(3);
}

static void load(void) {
    void *driver = dlopen("libcuda.so.1", RTLD_NOW);
    if (!driver) _exit(4);
    CUmodule module;
    CUcontext context;
    ((__typeof__(&cuInit))dlsym(driver, "cuInit"))(0);
    ((__typeof__(&cuDevicePrimaryCtxRetain))dlsym(driver, "cuDevicePrimaryCtxRetain"))(&context, 0);
    ((__typeof__(&cuCtxSetCurrent))dlsym(driver, "cuCtxSetCurrent"))(context);
    ((__typeof__(&cuModuleLoadData))dlsym(driver, "cuModuleLoadData"))(&module, "image");
    ((__typeof__(&cuModuleGetFunction))dlsym(driver, "cuModuleGetFunction"))(&function, module, "forked");
    launch_kernel = (__typeof__(launch_kernel))dlsym(driver, "cuLaunchKernel");
}

static pid_t make_child(const char *how) {
    if (!strcmp(how, "fork")) return fork();
    if (!strcmp(how, "_Fork")) return _Fork();
    return (pid_t)syscall(SYS_clone, SIGCHLD, NULL, NULL, NULL, NULL);
}

static void *in_thread(void *data) {
    launch(7);
    return NULL;
}

static void again(const char *self, int times) {
    char number[16];
    snprintf(number, sizeof number, "%d", times);
    execl(self, self, "launch", number, NULL);
    _exit(5);
}

static int daemonize(const char *file) {
    char go[4096];
    snprintf(go, sizeof go, "%s.go", file);
    if (fork()) return 0;
    setsid();
    if (fork()) _exit(0);
    launch(12);
    fclose(stdout);
    for (int fd = 0; fd < 3; fd++) close(fd);
    struct timespec rest = {0, 5000000};
    for (int i = 0; i < 6000 && access(go, F_OK); i++) nanosleep(&rest, NULL);
    for (int i = 0; i < 13; i++) launch_kernel(function, 13, 1, 1, 1, 1, 1, 0, NULL, NULL, NULL);
    char *block = strdup("done");
    FILE *out = fopen(file, "w");
    fputs(block, out);
    free(block);
    fclose(out);
    _exit(0);
}

int main(int argc, char **argv) {
    if (argc < 2) return 2;
    const char *how = argv[1];
    char self[4096] = {0};
    if (readlink("/proc/self/exe", self, sizeof self - 1) < 0) return 3;
    load();
    if (!strcmp(how, "launch")) {
        launch(atoi(argv[2]));
    } else if (!strcmp(how, "daemon")) {
        launch(10);
        return daemonize(argv[2]);
    } else if (!strcmp(how, "vfork")) {
        launch(10);
        for (volatile int i = 1; i <= 3; i++)
            if (!vfork()) again(self, 20 + i);
    } else if (!strcmp(how, "spawn")) {
        launch(10);
        char *arguments[] = {self, "launch", "21", NULL};
        pid_t child;
        if (posix_spawn(&child, self, NULL, NULL, arguments, environ)) return 6;
    } else if (!strcmp(how, "exec")) {
        /* The same pid, three images. */
        launch(10);
        if (argc == 2) execl(self, self, "exec", "again", NULL);
        again(self, 30);
    } else if (!strcmp(how, "threads")) {
        /* A child forked while other threads launch. */
        pthread_t threads[4];
        for (int i = 0; i < 4; i++) pthread_create(&threads[i], NULL, in_thread, NULL);
        if (!fork()) {
            launch(21);
            _exit(0);
        }
        for (int i = 0; i < 4; i++) pthread_join(threads[i], NULL);
    } else {
        launch(10);
        for (int i = 1; i <= 3; i++) {
            if (make_child(how)) continue;
            launch(20 + i);
            /* A grandchild. */
            if (i == 3 && !make_child(how)) launch(40);
            while (wait(NULL) > 0) {}
            _exit(0);
        }
        launch(11);
    }
    int status, bad = 0;
    while (wait(&status) > 0) bad |= status;
    return bad != 0;
}
