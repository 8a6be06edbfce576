/* A library to preload that counts every lock of a mutex, as tools that look for deadlocks do. In the program of
 * wait_oddities.c it says at the end how many there were. */
#define _GNU_SOURCE
#include <dlfcn.h>
#include <errno.h>
#include <pthread.h>
#include <stdatomic.h>
#include <stdio.h>
#include <string.h>

static atomic_int locks, tries;

int pthread_mutex_lock(pthread_mutex_t *mutex) {
    locks++;
    return ((int (*)(pthread_mutex_t *))dlsym(RTLD_NEXT, "pthread_mutex_lock"))(mutex);
}

int pthread_mutex_trylock(pthread_mutex_t *mutex) {
    tries++;
    return ((int (*)(pthread_mutex_t *))dlsym(RTLD_NEXT, "pthread_mutex_trylock"))(mutex);
}

__attribute__((destructor)) static void say(void) {
    if (strstr(program_invocation_short_name, "wait_oddities")) printf("%d locks, %d tries\n", locks, tries);
}
