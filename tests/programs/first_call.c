/* A library whose constructor waits for a thread that makes the process's first call of the driver (-DLIBRARY), and the
 * program that opens it: first_call LIBRARY. Before that a dlopen fails; its error must still be there after the call. */
#include <dlfcn.h>
#include <pthread.h>
#include <stdio.h>
#include <string.h>

int cuInit(unsigned flags);

#ifdef LIBRARY
static void *call(void *unused) {
    cuInit(0);
    return unused;
}

__attribute__((constructor)) static void construct(void) {
    pthread_t thread;
    pthread_create(&thread, 0, call, 0);
    pthread_join(thread, 0);
}
#else
int main(int argc, char **argv) {
    if (argc > 1) return puts(dlopen(argv[1], RTLD_NOW) ? "opened" : dlerror()) < 0;
    dlopen("no-such-library.so", RTLD_NOW);
    cuInit(0);
    const char *error = dlerror();
    puts(error && strstr(error, "no-such-library.so") ? "the error is there" : "the error is gone");
    return 0;
}
#endif
