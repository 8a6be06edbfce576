/* Forks while another thread of it is with the loader, which has its lock then, for ever in the child: the child calls functions that
 * nobody has called yet. Its exit code is 0 when the child came to its end, 1 when it did not within ten seconds. */
#define _GNU_SOURCE
#include <link.h>
#include <malloc.h>
#include <poll.h>
#include <pthread.h>
#include <stdlib.h>
#include <sys/mman.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

static pthread_barrier_t there, left;
static void *volatile block;

static int looks(struct dl_phdr_info *info, size_t bytes, void *data) {
    (void)info, (void)bytes, (void)data;
    pthread_barrier_wait(&there);
    pthread_barrier_wait(&left);
    return 1;
}

static void *asks(void *data) {
    dl_iterate_phdr(looks, data);
    return data;
}

static void child(void) {
    void *aligned = NULL;
    alarm(10);
    if (posix_memalign(&aligned, 64, 100)) _exit(2);
    free(aligned);
    block = memalign(64, 100), free(block);
    block = aligned_alloc(64, 128), free(block);
    block = valloc(100), free(block);
    block = pvalloc(100), free(block);
    block = calloc(3, 50);
    block = realloc(block, 5000);
    block = reallocarray(block, 3, 500);
    if (malloc_usable_size(block) < 1500) _exit(3);
    free(block);
    block = mmap(NULL, 8192, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    block = mremap(block, 8192, 16384, MREMAP_MAYMOVE);
    munmap(block, 16384);
    sbrk(4096);
    poll(NULL, 0, 1);
    nanosleep(&(struct timespec){0, 1000}, NULL);
    _exit(0);
}

int main(void) {
    pthread_t thread;
    int status = 0;
    pthread_barrier_init(&there, NULL, 2);
    pthread_barrier_init(&left, NULL, 2);
    if (pthread_create(&thread, NULL, asks, NULL)) return 4;
    pthread_barrier_wait(&there);
    pid_t pid = fork();
    if (pid == 0) child();
    waitpid(pid, &status, 0);
    pthread_barrier_wait(&left);
    pthread_join(thread, NULL);
    return WIFSIGNALED(status) ? 1 : WEXITSTATUS(status);
}
