/* lttng_cost ROUNDS CALLS: ns per lttng-ust tracepoint with four integers. gcc -I. lttng_cost.c -llttng-ust -ldl */
#define LTTNG_UST_TRACEPOINT_CREATE_PROBES
#define LTTNG_UST_TRACEPOINT_DEFINE
#include "lttng_events.h"
#include <stdio.h>
#include <stdlib.h>
#include <time.h>
#include <unistd.h>

static double now(void) {
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    return t.tv_sec * 1e9 + t.tv_nsec;
}

int main(int argc, char **argv) {
    int rounds = argc > 1 ? atoi(argv[1]) : 101, calls = argc > 2 ? atoi(argv[2]) : 50000;
    for (int r = 0; r < rounds; r++) {
        double start = now();
        for (int i = 0; i < calls; i++) lttng_ust_tracepoint(bench, launch, 0x5000, 0x77, i, 256);
        printf("%.2f\n", (now() - start) / calls);
        usleep(30000);
    }
}
