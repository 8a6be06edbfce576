/* Goes on under a filter that kills the process at any system call but write(1) and exit_group.
 *
 * usage: sandboxed malloc|cuda|both
 * For cuda the simulated driver must run with FAKE_CUDA_INSTANT=1, when launches make no system call of their own. */
#define _GNU_SOURCE
#include <dlfcn.h>
#include <linux/audit.h>
#include <linux/filter.h>
#include <linux/seccomp.h>
#include <malloc.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/syscall.h>
#include <unistd.h>

#include "cuda.h"

static __typeof__(&cuLaunchKernel) launch_kernel;
static CUfunction function;

static void close_the_door(void) {
    struct sock_filter filter[] = {
        BPF_STMT(BPF_LD | BPF_W | BPF_ABS, offsetof(struct seccomp_data, nr)),
        BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, SYS_write, 1, 0),
        BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, SYS_exit_group, 0, 1),
        BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ALLOW),
        BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_KILL_PROCESS),
    };
    struct sock_fprog program = {sizeof filter / sizeof *filter, filter};
    if (prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0) || prctl(PR_SET_SECCOMP, SECCOMP_MODE_FILTER, &program)) _exit(9);
}

static void load(void) {
    void *driver = dlopen("libcuda.so.1", RTLD_NOW);
    if (!driver) _exit(8);
    CUmodule module;
    CUcontext context;
    ((__typeof__(&cuInit))dlsym(driver, "cuInit"))(0);
    ((__typeof__(&cuDevicePrimaryCtxRetain))dlsym(driver, "cuDevicePrimaryCtxRetain"))(&context, 0);
    ((__typeof__(&cuCtxSetCurrent))dlsym(driver, "cuCtxSetCurrent"))(context);
    ((__typeof__(&cuModuleLoadData))dlsym(driver, "cuModuleLoadData"))(&module, "image");
    ((__typeof__(&cuModuleGetFunction))dlsym(driver, "cuModuleGetFunction"))(&function, module, "sandboxed");
    launch_kernel = (__typeof__(launch_kernel))dlsym(driver, "cuLaunchKernel");
}

static void allocate(void) {
    static void *blocks[1000];
    for (int round = 0; round < 60; round++) {
        for (int i = 0; i < 1000; i++) {
            blocks[i] = round % 2 ? calloc(1, 16 + i) : malloc(16 + i);
            blocks[i] = realloc(blocks[i], 32 + i);
        }
        for (int i = 0; i < 1000; i++) free(blocks[i]);
    }
}

int main(int argc, char **argv) {
    if (argc != 2) return 2;
    int cuda = !strcmp(argv[1], "cuda") || !strcmp(argv[1], "both");
    int memory = strcmp(argv[1], "cuda") != 0;
    /* Memory that the allocator keeps, so that it needs no system call later. */
    mallopt(M_TRIM_THRESHOLD, 1 << 30);
    mallopt(M_MMAP_THRESHOLD, 32 << 20);
    void *volatile room = malloc(16 << 20);
    free(room);
    if (cuda) load();
    if (cuda) launch_kernel(function, 1, 1, 1, 1, 1, 1, 0, NULL, NULL, NULL);
    close_the_door();
    if (memory) allocate();
    if (cuda)
        for (int i = 0; i < 20000; i++)
            if (launch_kernel(function, 1, 1, 1, 1, 1, 1, 0, NULL, NULL, NULL)) return 7;
    static const char done[] = "went on\n";
    if (write(1, done, sizeof done - 1) != sizeof done - 1) return 6;
    _exit(17);
}
