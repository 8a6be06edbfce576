/* thread_memory: 64 threads that allocate 8 MiB each in pieces and launch 5,000 kernels of the stub driver each, then VmRSS
 * in KiB while all of them still live. */
#include <dlfcn.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static pthread_barrier_t barrier;

static int (*launch)(void *, unsigned, unsigned, unsigned, unsigned, unsigned, unsigned, unsigned, void *, void **, void **);

static void *work(void *unused) {
    for (int i = 0; i < 2048; i++) free(malloc(4096));
    for (int i = 0; i < 5000; i++) launch((void *)0x5000, 1, 1, 1, 256, 1, 1, 0, (void *)0x77, 0, 0);
    pthread_barrier_wait(&barrier);
    pthread_barrier_wait(&barrier);
    return unused;
}

int main(void) {
    pthread_t id[64];
    void *driver = dlopen("libcuda.so.1", RTLD_NOW);
    if (!driver) return fprintf(stderr, "%s\n", dlerror()), 2;
    launch = dlsym(driver, "cuLaunchKernel");
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
