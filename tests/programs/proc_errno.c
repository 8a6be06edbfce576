/* Checks that hooked calls leave errno as the functions themselves leave it.
 *
 *   proc_errno
 *
 * Prints one line per function whose errno came out wrong; exit code 1 then. With PROC_CUDA driver calls too. */
#include "proc.h"
#include <errno.h>
#include <malloc.h>
#include <stdint.h>

static int wrong;

static void expect(const char *what, int found, int expected) {
    if (found != expected) {
        printf("%s left errno %d, not %d\n", what, found, expected);
        wrong = 1;
    }
}

#define KEEPS(call)                 \
    do {                            \
        errno = EXDEV;              \
        call;                       \
        expect(#call, errno, EXDEV); \
    } while (0)

#define FAILS(call, code)          \
    do {                           \
        errno = EXDEV;             \
        call;                      \
        expect(#call, errno, code); \
    } while (0)

int main(void) {
    void *volatile block = NULL;
    void *out = NULL;
    /* Volatile, or the compiler warns about sizes that no heap can give. */
    volatile size_t huge = PTRDIFF_MAX;
    /* Enough rounds that a sampled allocation is among them. */
    for (int i = 0; i < 2000; i++) {
        KEEPS(block = malloc(4096));
        KEEPS(block = realloc(block, 8192));
        KEEPS((void)malloc_usable_size(block));
        KEEPS(free(block));
        KEEPS(block = calloc(16, 256));
        KEEPS(free(block));
        KEEPS(block = aligned_alloc(64, 4096));
        KEEPS(free(block));
    }
    KEEPS((void)posix_memalign(&out, 64, 100));
    KEEPS(free(out));
    FAILS(block = malloc(huge), ENOMEM);
    FAILS(block = calloc(huge, 4), ENOMEM);
    FAILS(block = reallocarray(NULL, huge, 4), ENOMEM);
    KEEPS((void)dlsym(RTLD_DEFAULT, "cuLaunchKernel"));
    if (getenv("PROC_CUDA")) {
        struct cuda cuda;
        unsigned long long address = 0;
        if (cuda_open(&cuda) != 0) return 3;
        for (int i = 0; i < 200; i++) {
            KEEPS(cuda.alloc(&address, 4096));
            KEEPS(cuda.free(address));
            KEEPS(cuda.sync());
        }
    }
    if (!wrong) say("errno kept\n");
    return wrong;
}
