/* Condition variables of two layouts in one program: those of GLIBC_2.2.5, which hold a pointer, and today's.
 *
 * usage: old_conditions TIMES
 * Two threads hand a number to and fro TIMES times, with each kind. Prints the number. x86-64 only. */
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>

#define OLD(name) __asm__(".symver old_" #name "," #name "@GLIBC_2.2.5");
OLD(pthread_cond_wait)
OLD(pthread_cond_signal)
OLD(pthread_cond_init)
int old_pthread_cond_wait(pthread_cond_t *, pthread_mutex_t *);
int old_pthread_cond_signal(pthread_cond_t *);
int old_pthread_cond_init(pthread_cond_t *, const pthread_condattr_t *);

static pthread_mutex_t mutex = PTHREAD_MUTEX_INITIALIZER;
static pthread_cond_t turn[2];
static int number, times;
static int (*waits)(pthread_cond_t *, pthread_mutex_t *);
static int (*signals)(pthread_cond_t *);

static void *play(void *side) {
    long own = (long)side;
    pthread_mutex_lock(&mutex);
    for (int i = 0; i < times; i++) {
        while (number % 2 != own) waits(&turn[own], &mutex);
        number++;
        signals(&turn[!own]);
    }
    pthread_mutex_unlock(&mutex);
    return NULL;
}

static void match(const char *name) {
    pthread_t players[2];
    number = 0;
    for (long side = 0; side < 2; side++) pthread_create(&players[side], NULL, play, (void *)side);
    for (int side = 0; side < 2; side++) pthread_join(players[side], NULL);
    /* The old kind keeps the address of the real one in the first word, today's a count of turns. */
    printf("%s: %d, %s\n", name, number, *(unsigned long *)&turn[0] > 1ul << 32 ? "a pointer" : "no pointer");
}

int main(int argc, char **argv) {
    if (argc != 2) return 2;
    times = atoi(argv[1]);
    waits = old_pthread_cond_wait;
    signals = old_pthread_cond_signal;
    for (int side = 0; side < 2; side++) old_pthread_cond_init(&turn[side], NULL);
    match("old");
    waits = pthread_cond_wait;
    signals = pthread_cond_signal;
    for (int side = 0; side < 2; side++) pthread_cond_init(&turn[side], NULL);
    match("new");
    return 0;
}
