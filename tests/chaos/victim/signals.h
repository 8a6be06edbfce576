/* Signals that come often, into each thread, by a timer of its own: handlers that count, that launch, that jump away. */
#ifndef CHAOS_SIGNALS_H
#define CHAOS_SIGNALS_H

#include <setjmp.h>
#include <signal.h>
#include <sys/syscall.h>
#include <time.h>

#include "work.h"

#ifndef sigev_notify_thread_id
#define sigev_notify_thread_id _sigev_un._tid
#endif

static int handler_launches;
static __thread sigjmp_buf *back;
static __thread stack_t own_stack;

static void on_timer(int signal) {
    int kept = errno;
    if (handler_launches && slot) {
        ADD(slot->extra[LAUNCH], 1);
        cu.cuLaunchKernel(function, 7, 1, 1, 1, 1, 1, 0, NULL, NULL, NULL);
    }
    struct timespec now;
    clock_gettime(CLOCK_MONOTONIC, &now);
    errno = kept;
}

static void on_jump(int signal) { siglongjmp(*back, 1); }

static timer_t make_timer(int signal) {
    timer_t timer;
    struct sigevent event = {.sigev_notify = SIGEV_THREAD_ID, .sigev_signo = signal};
    event.sigev_notify_thread_id = (int)syscall(SYS_gettid);
    if (timer_create(CLOCK_MONOTONIC, &event, &timer)) wrong("timer_create", errno);
    return timer;
}

static void prepare_signals(void) {
    handler_launches = odd && number("handler", 0);
    int flags = SA_RESTART | (number("altstack", 0) ? SA_ONSTACK : 0);
    sigaction(SIGUSR1, &(struct sigaction){.sa_handler = on_timer, .sa_flags = flags}, NULL);
    sigaction(SIGUSR2, &(struct sigaction){.sa_handler = on_jump, .sa_flags = flags & ~SA_RESTART}, NULL);
}

/* The calling thread is interrupted so many times a second from now on. */
static timer_t begin_signals(long hz) {
    if (number("altstack", 0)) {
        own_stack = (stack_t){.ss_sp = malloc(1 << 15), .ss_size = 1 << 15};
        sigaltstack(&own_stack, NULL);
    }
    timer_t timer = make_timer(SIGUSR1);
    long ns = 1000000000 / hz;
    struct itimerspec often = {{ns / 1000000000, ns % 1000000000}, {ns / 1000000000, ns % 1000000000}};
    timer_settime(timer, 0, &often, NULL);
    return timer;
}

static void end_signals(timer_t timer) {
    timer_delete(timer);
    if (!own_stack.ss_sp) return;
    sigaltstack(&(stack_t){.ss_flags = SS_DISABLE}, NULL);
    free(own_stack.ss_sp);
    own_stack.ss_sp = NULL;
}

/* Is thrown out of launches, so many times, at any instruction. */
static void jump_about(struct life *life, long times) {
    timer_t timer = make_timer(SIGUSR2);
    sigjmp_buf here;
    back = &here;
    for (volatile long n = 0; n < times; n++) {
        if (!sigsetjmp(here, 1)) {
            struct itimerspec soon = {.it_value = {0, 2000 + (long)below(&life->state, 60000)}};
            timer_settime(timer, 0, &soon, NULL);
            for (;;) {
                ADD(slot->begun[LAUNCH], 1);
                cu.cuLaunchKernel(function, 1, 1, 1, 1, 1, 1, 0, NULL, NULL, NULL);
                ADD(slot->done[LAUNCH], 1);
            }
        }
    }
    timer_delete(timer);
}

#endif
