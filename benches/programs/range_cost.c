/* range_cost ROUNDS PAIRS: ns per push and pop, with nobody's callbacks (as without an injection) and with ours, in
 * turn within one process. Prints for a short name, one of 40 characters, a registered one with attributes in a domain,
 * and for a start and an end. A pause after each round lets the collector catch up. */
#define _GNU_SOURCE
#include <stdio.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

#include "../../tests/programs/nvtx.h"

static nvtx_domain domain;
static struct nvtx_attributes said;

static double now(void) {
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    return t.tv_sec * 1e9 + t.tv_nsec;
}

static void short_name(void) { nvtx_push("forward"), nvtx_pop(); }
static void long_name(void) { nvtx_push("aten::convolution_backward, seq = 123456"), nvtx_pop(); }
static void registered(void) { nvtx_push_in(domain, &said), nvtx_pop_in(domain); }
static void numbered(void) { nvtx_end(nvtx_start("forward")); }

static double one_round(void (*pair)(void), int pairs) {
    double start = now();
    for (int i = 0; i < pairs; i++) pair();
    return (now() - start) / pairs;
}

int main(int argc, char **argv) {
    int rounds = argc > 1 ? atoi(argv[1]) : 51, pairs = argc > 2 ? atoi(argv[2]) : 25000;
    static const struct { const char *name; void (*pair)(void); } kinds[] = {
        {"push+pop, 7 characters", short_name}, {"push+pop, 40 characters", long_name},
        {"push+pop, registered, in a domain", registered}, {"start+end", numbered}};
    nvtx_function core[NVTX_SLOTS], core2[NVTX_SLOTS];
    if (!nvtx_initialise()) return fprintf(stderr, "no injection\n"), 2;
    domain = nvtx_create("bench");
    said = NVTX_ATTRIBUTES(.category = 1, .color_type = 1, .color = 0xff00ff00, .payload_type = NVTX_I64,
                           .message_type = NVTX_REGISTERED);
    said.message.registered = nvtx_register(domain, "a registered name");
    memcpy(core, nvtx_core, sizeof core), memcpy(core2, nvtx_core2, sizeof core2);
    for (int r = 0; r < rounds; r++)
        for (unsigned k = 0; k < sizeof kinds / sizeof *kinds; k++) {
            memset(nvtx_core, 0, sizeof core), memset(nvtx_core2, 0, sizeof core2);
            double none = one_round(kinds[k].pair, pairs);
            memcpy(nvtx_core, core, sizeof core), memcpy(nvtx_core2, core2, sizeof core2);
            double ours = one_round(kinds[k].pair, pairs);
            printf("%s;%.2f;%.2f\n", kinds[k].name, none, ours);
            usleep(20000);
        }
    return 0;
}
