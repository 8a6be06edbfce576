/* Installs a system call filter that kills on everything but write and exit_group, and then works on.
 *
 *   proc_seccomp [cuda]
 *
 * 10,000 small blocks, all of which the heap holds already, so that malloc itself needs no system call; with `cuda`
 * also driver calls through a library that was opened before and that, simulated with FAKE_CUDA_INSTANT=1, makes
 * none for them. Prints `survived`. SIGSYS (exit 159 in a shell) means that a hook made a system call. */
#include "proc.h"
#include <linux/audit.h>
#include <linux/filter.h>
#include <linux/seccomp.h>
#include <stddef.h>
#include <sys/prctl.h>
#include <sys/syscall.h>

enum { BLOCKS = 10000 };
static void *volatile blocks[BLOCKS];

static void churn(void) {
    for (int i = 0; i < BLOCKS; i++) blocks[i] = malloc(16 + (size_t)(i % 64) * 8);
    for (int i = 0; i < BLOCKS; i++) free(blocks[i]);
}

int main(int argc, char **argv) {
    static const struct sock_filter rules[] = {
        BPF_STMT(BPF_LD | BPF_W | BPF_ABS, offsetof(struct seccomp_data, nr)),
        BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, SYS_write, 1, 0),
        BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, SYS_exit_group, 0, 1),
        BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ALLOW),
        BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_KILL_PROCESS),
    };
    struct sock_fprog program = {sizeof rules / sizeof *rules, (struct sock_filter *)rules};
    int with_cuda = argc > 1 && strcmp(argv[1], "cuda") == 0;
    struct cuda cuda = {0};
    /* A block above the churn keeps the heap from being given back to the kernel. */
    void *volatile lid;
    churn();
    lid = malloc(64);
    if (with_cuda && (cuda_open(&cuda) != 0 || cuda_pairs(&cuda, 10) != 0)) return 3;
    if (prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0) != 0 || prctl(PR_SET_SECCOMP, SECCOMP_MODE_FILTER, &program) != 0) {
        fail("seccomp");
    }
    churn();
    /* The driver's answer does not matter here: it may refuse, but no hook may make a system call. */
    if (with_cuda) {
        for (int i = 0; i < 1000; i++) cuda.set(NULL);
    }
    free(lid);
    say("survived\n");
    /* Not exit: its handlers may make system calls of their own, which is allowed to them. */
    syscall(SYS_exit_group, 0);
    return 1;
}
