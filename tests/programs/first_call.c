/* A library whose constructor waits for a thread that makes the process's first call of the driver (-DLIBRARY), or with
 * -DNCCL of NCCL, and the program that opens such libraries, one after the other: first_call LIBRARY... Without one, a
 * dlopen fails, and its error must still be there after the call. */
#include <dlfcn.h>
#include <pthread.h>
#include <stddef.h>
#include <stdio.h>
#include <string.h>

#ifdef NO_CALL
static void first_call(void) {}
#elif defined NCCL
int ncclMemAlloc(void **memory, size_t bytes);
static void first_call(void) {
    void *memory;
    ncclMemAlloc(&memory, 64);
}
#else
int cuInit(unsigned flags);
static void first_call(void) { cuInit(0); }
#endif

#ifdef LIBRARY
static void *call(void *unused) {
    first_call();
    return unused;
}

__attribute__((constructor)) static void construct(void) {
    pthread_t thread;
    pthread_create(&thread, 0, call, 0);
    pthread_join(thread, 0);
}
#else
int main(int argc, char **argv) {
    for (int i = 1; i < argc; i++) puts(dlopen(argv[i], RTLD_NOW) ? "opened" : dlerror());
    if (argc > 1) return 0;
    dlopen("no-such-library.so", RTLD_NOW);
    first_call();
    const char *error = dlerror();
    puts(error && strstr(error, "no-such-library.so") ? "the error is there" : "the error is gone");
    return 0;
}
#endif
