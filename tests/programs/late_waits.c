/* A library for endings.py: a thread that called arm() waits once more when its thread-specific data is destroyed, after
 * Python has forgotten the thread. */
#include <pthread.h>

static pthread_key_t key;
static pthread_once_t once = PTHREAD_ONCE_INIT;

__attribute__((noinline)) static void wait_at_the_end(void *wait_for) {
    ((int (*)(void *))wait_for)(0);
    __asm__ volatile("");
}

static void make(void) { pthread_key_create(&key, wait_at_the_end); }

void arm(void *wait_for) {
    pthread_once(&once, make);
    pthread_setspecific(key, wait_for);
}
