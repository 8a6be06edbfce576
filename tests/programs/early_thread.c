/* A library that has a thread before any other library has begun. */
#include <pthread.h>
#include <unistd.h>

static void *waits(void *none) {
    for (;;) pause();
    return none;
}

__attribute__((constructor)) static void begin(void) {
    pthread_t thread;
    pthread_create(&thread, NULL, waits, NULL);
    pthread_detach(thread);
}
