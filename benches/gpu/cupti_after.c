/* What launches cost before CUPTI is used, while its records are on, when they are off again, and after cuptiFinalize:
 * cupti_after LIBCUPTI NODES [KEEP]      a graph of NODES kernels too, unless 0; KEEP: without cuptiFinalize, which breaks graphs
 * cupti_after LIBCUPTI threads N CYCLES  CUPTI put on and taken off CYCLES times by another thread while N threads launch
 * cupti_after LIBCUPTI flush N TIMES     flushes while N threads launch: how long each lasts, and who gives buffers back meanwhile
 *
 *     cc -O2 -o cupti_after benches/gpu/cupti_after.c -ldl -lpthread */
#define _GNU_SOURCE
#include <dlfcn.h>
#include <pthread.h>
#include <stdatomic.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

typedef void *Handle;
#define DRIVER(DO)                                                                                                     \
    DO(cuInit, (unsigned)) DO(cuDevicePrimaryCtxRetain, (Handle *, int)) DO(cuCtxSetCurrent, (Handle))                 \
    DO(cuModuleLoadData, (Handle *, const void *)) DO(cuModuleGetFunction, (Handle *, Handle, const char *))           \
    DO(cuLaunchKernel, (Handle, unsigned, unsigned, unsigned, unsigned, unsigned, unsigned, unsigned, Handle,          \
                        Handle *, Handle *))                                                                           \
    DO(cuStreamCreate, (Handle *, unsigned)) DO(cuStreamSynchronize, (Handle))                                         \
    DO(cuStreamBeginCapture_v2, (Handle, int)) DO(cuStreamEndCapture, (Handle, Handle *))                              \
    DO(cuGraphInstantiateWithFlags, (Handle *, Handle, unsigned long long)) DO(cuGraphLaunch, (Handle, Handle))
#define CUPTI(DO)                                                                                                      \
    DO(cuptiActivityRegisterCallbacks, (void (*)(uint8_t **, size_t *, size_t *),                                      \
                                        void (*)(Handle, uint32_t, uint8_t *, size_t, size_t)))                        \
    DO(cuptiActivityEnable, (int)) DO(cuptiActivityDisable, (int)) DO(cuptiActivityFlushAll, (uint32_t))               \
    DO(cuptiFinalize, (void)) DO(cuptiActivityGetNextRecord, (uint8_t *, size_t, Handle *))                            \
    DO(cuptiActivityRegisterTimestampCallback, (uint64_t(*)(void)))
#define DECLARE(name, arguments) static int(*name) arguments;
DRIVER(DECLARE)
CUPTI(DECLARE)

enum { LAUNCHES = 256, ROUNDS = 40, REPLAYS = 200 };
static const int kinds[] = {10, 1, 2}; /* kernels, copies, sets */
static Handle context, stream, kernel, exec;
static atomic_long records, errors;
static atomic_int stop;
static _Atomic uint64_t longest;

static void ok(int result, const char *what) {
    if (result && errors++ < 5) printf("  ERROR %s: %d\n", what, result);
}
#define OK(call) ok(call, #call)

static uint64_t now(void) {
    struct timespec time;
    clock_gettime(CLOCK_MONOTONIC, &time);
    return (uint64_t)time.tv_sec * 1000000000 + (uint64_t)time.tv_nsec;
}

static void request(uint8_t **buffer, size_t *bytes, size_t *most) {
    *buffer = aligned_alloc(8, *bytes = 1 << 20);
    *most = 0;
}

/* Buffers that came back: in the thread that flushes, in another one meanwhile, between flushes. */
static atomic_long back[3];
static atomic_int flushing;

static void complete(Handle of, uint32_t id, uint8_t *buffer, size_t bytes, size_t valid) {
    int who = flushing;
    back[!who ? 2 : who != gettid()]++;
    for (Handle record = NULL; cuptiActivityGetNextRecord(buffer, valid, &record) == 0;) records++;
    free(buffer);
}

static void on(void) {
    OK(cuptiActivityRegisterTimestampCallback(now));
    OK(cuptiActivityRegisterCallbacks(request, complete));
    for (int i = 0; i < 3; i++) OK(cuptiActivityEnable(kinds[i]));
}

static void off(void) {
    for (int i = 0; i < 3; i++) OK(cuptiActivityDisable(kinds[i]));
    OK(cuptiActivityFlushAll(0));
}

static int by_size(const void *a, const void *b) {
    uint64_t one = *(const uint64_t *)a, other = *(const uint64_t *)b;
    return one < other ? -1 : one > other;
}

static double middle(uint64_t *times, int count) {
    qsort(times, (size_t)count, sizeof *times, by_size);
    return (double)times[count / 2];
}

static int launch(Handle at) { return cuLaunchKernel(kernel, 1, 1, 1, 32, 1, 1, 0, at, NULL, NULL); }

static void show(const char *what) {
    uint64_t launches[ROUNDS], graphs[REPLAYS] = {0};
    long before = records;
    for (int round = 0; round < ROUNDS; round++) {
        uint64_t begin = now();
        for (int i = 0; i < LAUNCHES; i++) OK(launch(stream));
        launches[round] = now() - begin;
        OK(cuStreamSynchronize(stream));
    }
    for (int i = 0; exec && i < REPLAYS; i++) {
        uint64_t begin = now();
        OK(cuGraphLaunch(exec, stream));
        OK(cuStreamSynchronize(stream));
        graphs[i] = now() - begin;
    }
    printf("  %-10s a launch %5.0f ns   the graph %7.1f us   records %ld   errors %ld\n", what,
           middle(launches, ROUNDS) / LAUNCHES, middle(graphs, REPLAYS) / 1000, records - before, (long)errors);
}

static void *load(void *unused) {
    Handle own;
    OK(cuCtxSetCurrent(context));
    OK(cuStreamCreate(&own, 1));
    while (!stop) {
        for (int i = 0; i < 350; i++) {
            uint64_t begin = now();
            OK(launch(own));
            uint64_t took = now() - begin;
            if (took > longest) longest = took;
        }
        OK(cuStreamSynchronize(own));
    }
    return NULL;
}

static void nap(void) { nanosleep(&(struct timespec){0, 15000000}, NULL); }

/* The most that launches were held up by something, us. */
static uint64_t held(void (*work)(void), uint64_t *took) {
    longest = 0;
    uint64_t begin = now();
    work();
    *took = (now() - begin) / 1000;
    return longest / 1000;
}

static void finalize(void) { OK(cuptiFinalize()); }

static void cycle(int threads, int cycles) {
    pthread_t all[64];
    uint64_t times[2][1000], worst[2] = {0};
    for (int i = 0; i < threads; i++) pthread_create(&all[i], NULL, load, NULL);
    for (int n = 0; n < cycles && !errors; n++) {
        for (int end = 0; end < 2; end++) {
            uint64_t most = held(end ? finalize : on, &times[end][n]);
            if (most > worst[end]) worst[end] = most;
            nap();
            if (!end) off(), nap();
        }
    }
    stop = 1;
    for (int i = 0; i < threads; i++) pthread_join(all[i], NULL);
    printf("  %d times: on %.0f us, launches held up %lu at most; off %.0f us, %lu; errors %ld\n", cycles,
           middle(times[0], cycles), worst[0], middle(times[1], cycles), worst[1], (long)errors);
}

static void flushes(int threads, int times) {
    pthread_t all[64];
    on();
    for (int i = 0; i < threads; i++) pthread_create(&all[i], NULL, load, NULL);
    for (int n = 0; n < times && !errors; n++) {
        nanosleep(&(struct timespec){0, 200000000}, NULL);
        long own = back[0], other = back[1], between = back[2], before = records;
        flushing = gettid();
        uint64_t begin = now();
        OK(cuptiActivityFlushAll(0));
        uint64_t took = now() - begin;
        flushing = 0;
        printf("  flush %.1f ms: %ld records, buffers back in its own thread %ld, in another %ld; %ld between flushes so far\n",
               (double)took / 1e6, records - before, back[0] - own, back[1] - other, between);
    }
    stop = 1;
    for (int i = 0; i < threads; i++) pthread_join(all[i], NULL);
    off();
}

int main(int argc, char **argv) {
    Handle cuda = dlopen("libcuda.so.1", RTLD_NOW), cupti = argc > 2 ? dlopen(argv[1], RTLD_NOW) : NULL, module, graph;
    if (!cuda || !cupti) return fprintf(stderr, "cupti_after LIBCUPTI NODES [KEEP] | threads N CYCLES | flush N TIMES: %s\n", dlerror()), 2;
#define FIND(library, name)                                                                                            \
    if (!(name = dlsym(library, #name))) return fprintf(stderr, "no %s\n", #name), 2;
#define OF_DRIVER(name, arguments) FIND(cuda, name)
#define OF_CUPTI(name, arguments) FIND(cupti, name)
    DRIVER(OF_DRIVER)
    CUPTI(OF_CUPTI)
    OK(cuInit(0));
    OK(cuDevicePrimaryCtxRetain(&context, 0));
    OK(cuCtxSetCurrent(context));
    OK(cuModuleLoadData(&module, ".version 7.0\n.target sm_70\n.address_size 64\n.visible .entry empty() { ret; }\n"));
    OK(cuModuleGetFunction(&kernel, module, "empty"));
    OK(cuStreamCreate(&stream, 1));
    if (argc > 4 && strcmp(argv[2], "threads") == 0) {
        int cycles = atoi(argv[4]);
        cycle(atoi(argv[3]) % 64, cycles < 1000 ? cycles : 1000);
        return errors != 0;
    }
    if (argc > 4 && strcmp(argv[2], "flush") == 0) {
        flushes(atoi(argv[3]) % 64, atoi(argv[4]));
        return errors != 0;
    }
    if (atoi(argv[2]) > 0) {
        OK(cuStreamBeginCapture_v2(stream, 2));
        for (int i = 0; i < atoi(argv[2]); i++) OK(launch(stream));
        OK(cuStreamEndCapture(stream, &graph));
        OK(cuGraphInstantiateWithFlags(&exec, graph, 0));
    }
    show("warm");
    show("plain");
    for (int turn = 0; turn < 2; turn++) {
        on();
        show("on");
        off();
        show("off");
        if (argc < 4) finalize(), show("finalized");
    }
    return errors != 0;
}
