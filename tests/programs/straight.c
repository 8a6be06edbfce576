/* Tells of malloc, free and calloc whether their code jumps to libc's functions and loads nothing before, or goes by words that it reads (where
 * short lives are summed up, that of what it leads to), and whether any code can be written to; then allocates and frees 1,000 blocks of 35,001 bytes. With DENIED it does so where no page may be both written and run, as systemd's
 * MemoryDenyWriteExecute has it.
 */
#define _GNU_SOURCE
#include <dlfcn.h>
#include <errno.h>
#include <linux/filter.h>
#include <linux/seccomp.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/syscall.h>
#include <unistd.h>

static void deny(void) {
    struct sock_filter steps[] = {
        BPF_STMT(BPF_LD | BPF_W | BPF_ABS, offsetof(struct seccomp_data, nr)),
        BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, SYS_mprotect, 0, 4),
        BPF_STMT(BPF_LD | BPF_W | BPF_ABS, offsetof(struct seccomp_data, args[2])),
        BPF_STMT(BPF_ALU | BPF_AND | BPF_K, PROT_WRITE | PROT_EXEC),
        BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, PROT_WRITE | PROT_EXEC, 0, 1),
        BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ERRNO | EPERM),
        BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ALLOW),
    };
    struct sock_fprog filter = {sizeof steps / sizeof *steps, steps};
    if (prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0) || prctl(PR_SET_SECCOMP, SECCOMP_MODE_FILTER, &filter)) {
        perror("seccomp");
        exit(1);
    }
}

/* Where a jump or call leads. */
static uintptr_t led(const unsigned char *code) {
    int32_t away;
    memcpy(&away, code + 1, 4);
    return *code == 0xe9 || *code == 0xe8 ? (uintptr_t)code + 5 + away : 0;
}

static int jumps_to(const unsigned char *code, int bytes, uintptr_t to) {
    for (int at = 0; at + 5 <= bytes; at++)
        if (led(code + at) == to) return 1;
    return 0;
}

/* Whether it reads a word of its library, and does not jump away at once. What looks like that in a number of another instruction reads far away. */
static int loads(const unsigned char *code) {
    for (int at = 0; *code != 0xe9 && at + 7 <= 64; at++) {
        int32_t away;
        memcpy(&away, code + at + 3, 4);
        if ((code[at] & 0xfb) == 0x48 && code[at + 1] == 0x8b && (code[at + 2] & 0xc7) == 0x05 && abs(away) < 64 << 20) return 1;
    }
    return 0;
}

/* What sums up short lives reads where its table is, but not where the thread's words are. */
static int is_straight(const unsigned char *code, uintptr_t to) {
    if (!getenv("GPUTRACE_CULL")) return jumps_to(code, 64, to) && !loads(code);
    const unsigned char *other = (const unsigned char *)(*code == 0xe9 ? led(code) : 0);
    return other && jumps_to(other, 256, to) && !loads(other);
}

int main(int count, char **words) {
    if (count > 1 && !strcmp(words[1], "denied")) {
        deny();
        execl("/proc/self/exe", words[0], NULL);
        return 1;
    }
    /* Without -fpie these are stubs of the program, which the names stand for in all libraries. */
    void *volatile taken[] = {(void *)malloc, (void *)free, (void *)calloc};
    (void)taken;
    void *libc = dlopen("libc.so.6", RTLD_NOW);
    const char *names[] = {"malloc", "free", "calloc"};
    for (int n = 0; n < 3; n++) {
        const unsigned char *code = dlsym(RTLD_NEXT, names[n]);
        int straight = is_straight(code, (uintptr_t)dlsym(libc, names[n]));
        printf("%s: %s\n", names[n], straight ? "to libc" : "by a word");
    }
    FILE *maps = fopen("/proc/self/maps", "r");
    char line[4096];
    int writable = 0;
    while (fgets(line, sizeof line, maps)) writable += strstr(line, " rwx") != NULL;
    fclose(maps);
    printf("code that can be written to: %d\n", writable);
    for (int n = 0; n < 1000; n++) {
        void *block = n % 2 ? malloc(35001) : calloc(1, 35001);
        memset(block, n, 35001);
        free(block);
    }
    return 0;
}
