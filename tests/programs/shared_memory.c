/* Fills /dev/shm as a data loader does: workers put blocks into shared memory files, the parent reads them.
 *
 * usage: shared_memory MEGABYTES
 * Prints a sum over everything. A write to a full /dev/shm is a SIGBUS, which is how data loaders die. */
#define _GNU_SOURCE
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/wait.h>
#include <unistd.h>

enum { WORKERS = 4 };

int main(int argc, char **argv) {
    if (argc != 2) return 2;
    size_t bytes = (size_t)atoi(argv[1]) << 20, part = bytes / WORKERS;
    for (int worker = 0; worker < WORKERS; worker++) {
        if (fork()) continue;
        char name[64];
        snprintf(name, sizeof name, "/loader-%d-%d", getppid(), worker);
        int fd = shm_open(name, O_CREAT | O_EXCL | O_RDWR, 0600);
        if (fd < 0 || ftruncate(fd, part)) return perror(name), 3;
        char *block = mmap(NULL, part, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
        char *source = malloc(1 << 16);
        memset(source, worker + 1, 1 << 16);
        for (size_t at = 0; at < part; at += 1 << 16) memcpy(block + at, source, part - at < 1 << 16 ? part - at : 1 << 16);
        free(source);
        return 0;
    }
    int status, bad = 0;
    while (wait(&status) > 0) {
        if (WIFSIGNALED(status)) printf("worker died of signal %d\n", WTERMSIG(status));
        bad |= status;
    }
    unsigned long sum = 0;
    for (int worker = 0; worker < WORKERS; worker++) {
        char name[64];
        snprintf(name, sizeof name, "/loader-%d-%d", getpid(), worker);
        int fd = shm_open(name, O_RDONLY, 0);
        if (fd < 0) return perror(name), 3;
        unsigned char *block = mmap(NULL, part, PROT_READ, MAP_SHARED, fd, 0);
        for (size_t i = 0; i < part && !bad; i += 64) sum += block[i];
        shm_unlink(name);
    }
    printf("sum %lu\n", sum);
    return bad != 0;
}
