/* thread_memory: 64 threads that allocate 8 MiB each in pieces, then VmRSS in KiB while all of them still live. */
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static pthread_barrier_t barrier;

static void *work(void *unused) {
    for (int i = 0; i < 2048; i++) free(malloc(4096));
    pthread_barrier_wait(&barrier);
    pthread_barrier_wait(&barrier);
    return unused;
}

int main(void) {
    pthread_t id[64];
    pthread_barrier_init(&barrier, 0, 65);
    for (int i = 0; i < 64; i++) pthread_create(&id[i], 0, work, 0);
    pthread_barrier_wait(&barrier);
    char line[256];
    FILE *status = fopen("/proc/self/status", "r");
    while (fgets(line, sizeof line, status))
        if (!strncmp(line, "VmRSS:", 6)) printf("%d\n", atoi(line + 6));
    pthread_barrier_wait(&barrier);
    for (int i = 0; i < 64; i++) pthread_join(id[i], 0);
}
