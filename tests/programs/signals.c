/* Prints which signals it got, and how often: one line `NAME count` each, by number.
 *
 * usage: signals COUNT QUIET_MS
 *
 * Says `ready <pid>` on stdout once its handlers stand. Ends when COUNT signals have come and QUIET_MS more have passed
 * without another one, so that a signal delivered twice shows. Ends after 20 s in any case. */
#define _GNU_SOURCE
#include <poll.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

static volatile sig_atomic_t counts[65];
static volatile sig_atomic_t total;

static void count(int signal) {
    counts[signal]++;
    total++;
}

int main(int argc, char **argv) {
    int wanted = argc > 1 ? atoi(argv[1]) : 1;
    int quiet_ms = argc > 2 ? atoi(argv[2]) : 200;
    struct sigaction action = {.sa_handler = count};
    sigfillset(&action.sa_mask);
    for (int signal = 1; signal <= 64; signal++) {
        if (signal != SIGCHLD && signal != SIGSEGV && signal != SIGBUS) sigaction(signal, &action, NULL);
    }
    printf("ready %d\n", (int)getpid());
    fflush(stdout);
    for (int waited_ms = 0; total < wanted && waited_ms < 20000; waited_ms += 10) poll(NULL, 0, 10);
    for (int before = -1; before != total;) {
        before = total;
        /* A signal interrupts poll: then the quiet time starts again. */
        poll(NULL, 0, quiet_ms);
    }
    for (int signal = 1; signal <= 64; signal++) {
        if (counts[signal]) printf("%s %d\n", sigabbrev_np(signal) ? sigabbrev_np(signal) : "RT", (int)counts[signal]);
    }
    return 0;
}
