/* Brings a malloc of its own, as programs do that hold jemalloc or mimalloc, and uses it. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static char arena[1 << 20];
static size_t used;

void *malloc(size_t bytes) {
    size_t at = used;
    used += (bytes + 31) & ~(size_t)15;
    if (used > sizeof arena)
        abort();
    memcpy(arena + at, &bytes, sizeof bytes);
    return arena + at + 16;
}

void free(void *block) {
    (void)block;
}

void *calloc(size_t count, size_t bytes) {
    return malloc(count * bytes);
}

void *realloc(void *block, size_t bytes) {
    void *larger = malloc(bytes);
    size_t old = 0;
    if (block != NULL) {
        memcpy(&old, (char *)block - 16, sizeof old);
        memcpy(larger, block, old < bytes ? old : bytes);
    }
    return larger;
}

/* Of C23: of a libc that has it, if it has. */
extern void free_sized(void *, size_t) __attribute__((weak));
extern void free_aligned_sized(void *, size_t, size_t) __attribute__((weak));

int main(void) {
    if (free_sized) free_sized(malloc(64), 64);
    if (free_aligned_sized) free_aligned_sized(malloc(64), 16, 64);
    char *block = malloc(1000);
    strcpy(block, "allocated");
    block = realloc(block, 2000);
    puts(block);
    free(block);
    return 0;
}
