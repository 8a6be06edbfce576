/* A library to preload, as libfaketime is one: every clock is a year ahead. */
#define _GNU_SOURCE
#include <sys/syscall.h>
#include <time.h>
#include <unistd.h>

int clock_gettime(clockid_t clock, struct timespec *time) {
    int result = (int)syscall(SYS_clock_gettime, clock, time);
    if (!result) time->tv_sec += 365 * 24 * 3600;
    return result;
}
