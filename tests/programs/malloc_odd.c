/* What malloc refuses, and what a program does wrongly with it; for tests/host_memory/odd.rs.
 *
 * usage: malloc_odd refused     sizes that no memory is there for, of each function, with errno before and after
 *        malloc_odd limited     allocates until RLIMIT_AS allows no more, and says that it was told so
 *        malloc_odd twice       frees a block twice
 *        malloc_odd overrun     writes behind a block, over what the allocator keeps there
 *        malloc_odd wild        frees an address that is in the middle of a block
 *        malloc_odd late        allocates in a destructor that runs after all libraries', and in an atexit handler
 *        malloc_odd absurd      asks for three quarters of all there can be, then allocates 2,000 blocks of 33001 bytes
 *        malloc_odd first       20 threads that allocate one block of 34001 bytes each, and nothing else
 * As a library (-DEARLY) its constructor allocates, and what its destructor does comes last. */
#define _GNU_SOURCE
#include <errno.h>
#include <malloc.h>
#include <pthread.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>
#include <unistd.h>

#ifdef EARLY

static void *volatile kept[100];

__attribute__((constructor(101))) static void early(void) {
    for (int i = 0; i < 100; i++) kept[i] = malloc(30001);
}

__attribute__((destructor(101))) static void late(void) {
    for (int i = 0; i < 100; i++) {
        free(kept[i]);
        kept[i] = realloc(malloc(30002), 30003);
    }
    if (write(1, "late\n", 5) != 5) _exit(9);
}

#else

static volatile size_t huge = (size_t)1 << 40, odd = SIZE_MAX / 2 + 2, most = SIZE_MAX;
static void *volatile kept[4096];

static void say(const char *what, void *block) {
    printf("%s: %s, errno %d\n", what, block ? "a block" : "none", errno);
    free(block);
    errno = 77;
}

static void refused(void) {
    /* Nobody overcommits so much, wherever this runs. */
    setrlimit(RLIMIT_AS, &(struct rlimit){(rlim_t)1 << 38, (rlim_t)1 << 38});
    void *block = NULL;
    errno = 77;
    say("malloc of 1 TiB", malloc(huge));
    say("malloc of most", malloc(most));
    say("malloc of more than a half", malloc(odd));
    say("malloc of nothing", malloc(huge - huge));
    say("calloc of too many", calloc(odd, 2));
    say("calloc of none", calloc(0, huge));
    say("calloc of 1 TiB", calloc(huge, 1));
    say("reallocarray of too many", reallocarray(NULL, odd, 2));
    say("aligned_alloc of 1 TiB", aligned_alloc(64, huge));
    say("memalign of most", memalign(64, most));
    say("valloc of most", valloc(most));
    say("pvalloc of most", pvalloc(most));
    int result = posix_memalign(&block, 64, huge);
    printf("posix_memalign of 1 TiB: %d\n", result);
    say("posix_memalign of 1 TiB", block);
    result = posix_memalign(&block, 3, 100);
    printf("posix_memalign to 3: %d\n", result);
    say("posix_memalign to 3", block);
    /* A block that could not grow is there as it was. */
    char *old = malloc(31001);
    strcpy(old, "as it was");
    void *new = realloc(old, huge);
    printf("realloc to 1 TiB: %s, errno %d, %s\n", new ? "a block" : "none", errno, old);
    errno = 77;
    new = reallocarray(old, odd, 2);
    printf("reallocarray of too many: %s, errno %d, %s\n", new ? "a block" : "none", errno, old);
    errno = 77;
    free(old);
    free(NULL);
    printf("free: errno %d\n", errno);
    printf("realloc to nothing: %s\n", realloc(malloc(31002), 0) ? "a block" : "none");
    printf("usable size of nothing: %zu\n", malloc_usable_size(NULL));
}

static void limited(void) {
    setrlimit(RLIMIT_AS, &(struct rlimit){(rlim_t)512 << 20, (rlim_t)512 << 20});
    errno = 0;
    int blocks = 0;
    while (blocks < 4096 && (kept[blocks] = malloc(1 << 20))) blocks++;
    int error = errno;
    for (int i = 0; i < blocks; i++) free(kept[i]);
    printf("%s, errno %d\n", blocks < 512 ? "refused" : "not refused", error);
}

static void atexit_too(void) {
    void *volatile block = malloc(32001);
    free(block);
}

__attribute__((destructor)) static void after(void) {
    void *volatile block = malloc(32002);
    free(block);
}

static void absurd(void) {
    size_t most = (size_t)3 << 62;
    for (int i = 0; i < 5; i++) kept[i] = malloc(most + i);
    for (int i = 0; i < 5; i++) kept[i] = calloc(most / 2 + i, 2);
    for (int i = 0; i < 5; i++) kept[i] = memalign(64, most + i);
    for (int i = 0; i < 2000; i++) kept[i] = malloc(33001);
    for (int i = 0; i < 2000; i++) free(kept[i]);
}

static void *one(void *place) {
    *(void *volatile *)place = malloc(34001);
    return place;
}

static void first(void) {
    for (int i = 0; i < 20; i++) {
        pthread_t id;
        if (pthread_create(&id, NULL, one, (void *)&kept[i])) _exit(3);
        pthread_join(id, NULL);
    }
    for (int i = 0; i < 20; i++) free(kept[i]);
}

int main(int argc, char **argv) {
    if (argc < 2) return 2;
    char *volatile block = malloc(1000), *volatile next = malloc(1000);
    if (!strcmp(argv[1], "refused")) {
        refused();
    } else if (!strcmp(argv[1], "limited")) {
        limited();
    } else if (!strcmp(argv[1], "twice")) {
        free(block);
        free(block);
    } else if (!strcmp(argv[1], "overrun")) {
        memset(block, 'x', 1100);
        free(next);
        free(block);
    } else if (!strcmp(argv[1], "wild")) {
        free(block + 24);
    } else if (!strcmp(argv[1], "late")) {
        atexit(atexit_too);
    } else if (!strcmp(argv[1], "absurd")) {
        absurd();
    } else if (!strcmp(argv[1], "first")) {
        first();
    }
    puts("done");
    return 0;
}

#endif
