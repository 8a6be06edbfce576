/* Starts victims and kills each in the middle of its work.
 *
 * usage: killing VICTIM ROUNDS FILE
 * Prints `PID COUNT` for each: the launches that had come back when it died. */
#define _GNU_SOURCE
#include <fcntl.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

static long milliseconds(void) {
    struct timespec now;
    clock_gettime(CLOCK_MONOTONIC, &now);
    return now.tv_sec * 1000 + now.tv_nsec / 1000000;
}

int main(int argc, char **argv) {
    if (argc != 4) return 2;
    int fd = open(argv[3], O_RDWR | O_CREAT, 0600);
    if (fd < 0 || ftruncate(fd, 4096)) return perror(argv[3]), 3;
    volatile unsigned long *count = mmap(NULL, 4096, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
    unsigned random = 12345;
    for (int round = 0; round < atoi(argv[2]); round++) {
        random = random * 1103515245 + 12345;
        /* Early and late, but never more than the segment holds: nothing may be dropped. */
        unsigned long wanted = random >> 8 & ((1ul << (3 + round % 13)) - 1);
        *count = 0;
        pid_t child = fork();
        if (!child) {
            execl(argv[1], argv[1], argv[3], "100000", NULL);
            _exit(4);
        }
        for (long start = milliseconds(); *count <= wanted;)
            if (milliseconds() - start > 20000) return puts("the victim does nothing"), 5;
        kill(child, SIGKILL);
        waitpid(child, NULL, 0);
        printf("%d %lu\n", child, *count);
    }
    return 0;
}
