/* A GPU's clock that may be off and drift (gpu_clock.h). */
#include "gpu_clock.h"

#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "truth.h"

static int64_t offset_ns;
static double drift_ppm;
static char whose[16] = "";
static uint64_t since_ns;

static void read_clock(void) {
    const char *text = getenv("FAKE_METAL_GPU_CLOCK");
    long offset = 0;
    since_ns = now_ns();
    if (text && sscanf(text, "%ld,%lf,%15s", &offset, &drift_ppm, whose) != 3)
        abort();
    offset_ns = offset;
}

static uint64_t own(uint64_t ns) {
    static pthread_once_t once = PTHREAD_ONCE_INIT;
    pthread_once(&once, read_clock);
    return ns + offset_ns + (int64_t)((int64_t)(ns - since_ns) * drift_ppm / 1e6);
}

uint64_t gpu_stamp(uint64_t ns) {
    uint64_t stamp = own(ns);
    return strcmp(whose, "none") ? stamp : 0;
}

double gpu_seconds(uint64_t ns) {
    uint64_t time = own(ns);
    return (strcmp(whose, "times") ? ns : time) / 1e9;
}
