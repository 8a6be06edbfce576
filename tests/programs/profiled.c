/* Profiles two stretches of its own work through CUPTI, as PyTorch's profiler does: profiled [ROUNDS] [WORD...]
 *
 * It works ROUNDS times (3 by default) before, between and after the two sessions and in each of them, and prints of each
 * session what it got: records by kind, their bytes or names, the time of the kernels, calls by correlation ids, launches
 * of graphs, and how many records were dropped. Nothing of it depends on who else looks on, or on when that was.
 *
 * Words: `subscribe` holds a subscription from the first session on; `finalize` ends each session with cuptiFinalize.
 * `plain` leaves graphs out. CUPTI's functions are linked with -DLINKED, and otherwise looked up at the first session, in the
 * library that PROFILED_CUPTI names, or in libcupti.so.13. */
#define _GNU_SOURCE
#include <dlfcn.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "cuda.h"
#include "cupti.h"

#define EACH(DO)                                                                                                       \
    DO(cuptiGetVersion) DO(cuptiSubscribe) DO(cuptiUnsubscribe) DO(cuptiActivityRegisterCallbacks)                     \
    DO(cuptiActivityEnable) DO(cuptiActivityDisable) DO(cuptiActivityFlushAll) DO(cuptiActivityGetNextRecord)          \
    DO(cuptiActivityGetNumDroppedRecords) DO(cuptiFinalize)
#define DECLARE(name) static __typeof__(&name) p_##name;
EACH(DECLARE)

#define OK(call)                                                                                                       \
    do {                                                                                                               \
        int result = (call);                                                                                           \
        if (result)                                                                                                    \
            printf("%s = %d\n", #call, result);                                                                        \
    } while (0)

enum { KERNELS = 10, COPY_BYTES = 4000, SET_BYTES = 300, BUFFER_BYTES = 8192, MOST_CALLS = 1 << 16 };

static const uint32_t kinds[] = {CUPTI_KIND_CONCURRENT_KERNEL, CUPTI_KIND_MEMCPY, CUPTI_KIND_MEMSET};
static CUstream streams[2];
static CUfunction kernels[2];
static CUgraphExec exec;
static CUdeviceptr memory;
static void *pinned;

/* What a session got; buffers come from CUPTI's thread too. */
static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
static struct {
    unsigned kernels, first_name, copies, sets, others, in_graphs, calls;
    uint64_t kernel_ns, copy_bytes, set_bytes;
    unsigned char seen[MOST_CALLS];
} got;

static void find(void) {
#ifdef LINKED
#define FIND(name) p_##name = name;
    EACH(FIND)
#else
    const char *file = getenv("PROFILED_CUPTI");
    void *library = dlopen(file ? file : "libcupti.so.13", RTLD_NOW | RTLD_LOCAL);
    if (!library) {
        printf("no CUPTI: %s\n", dlerror());
        exit(1);
    }
#define FIND(name) p_##name = (__typeof__(&name))dlsym(library, #name);
    EACH(FIND)
#endif
}

static void request(uint8_t **buffer, size_t *bytes, size_t *records) {
    *buffer = aligned_alloc(8, BUFFER_BYTES);
    *bytes = BUFFER_BYTES;
    *records = 0;
}

static uint32_t word(const CuptiRecord *record, size_t at) {
    uint32_t value;
    memcpy(&value, (const uint8_t *)record + at, sizeof value);
    return value;
}

static uint64_t number(const CuptiRecord *record, size_t at) {
    uint64_t value;
    memcpy(&value, (const uint8_t *)record + at, sizeof value);
    return value;
}

static void take(const CuptiRecord *record) {
    uint32_t correlation = word(record, 44), graph = word(record, 72);
    if (record->kind == CUPTI_KIND_CONCURRENT_KERNEL) {
        got.kernels++;
        got.first_name += strcmp((const char *)number(record, 104), "spin_us_20") == 0;
        got.kernel_ns += number(record, 24) - number(record, 16);
        correlation = word(record, 92), graph = word(record, 156);
    } else if (record->kind == CUPTI_KIND_MEMCPY) {
        got.copies++;
        got.copy_bytes += number(record, 8);
    } else if (record->kind == CUPTI_KIND_MEMSET) {
        got.sets++;
        got.set_bytes += number(record, 8);
    } else {
        got.others++;
        return;
    }
    got.in_graphs += graph != 0;
    got.calls += !got.seen[correlation % MOST_CALLS]++;
}

static void complete(void *context, uint32_t stream, uint8_t *buffer, size_t bytes, size_t valid) {
    CuptiRecord *record = NULL;
    pthread_mutex_lock(&lock);
    while (p_cuptiActivityGetNextRecord(buffer, valid, &record) == 0)
        take(record);
    pthread_mutex_unlock(&lock);
    free(buffer);
}

/* A round: 20 kernels on two streams, two copies, a set, and a graph of two kernels and a set: 24 calls. */
static void work(int rounds) {
    for (int round = 0; round < rounds; round++) {
        for (int i = 0; i < 2 * KERNELS; i++)
            OK(cuLaunchKernel(kernels[i % 2], 1, 1, 1, 32, 1, 1, 0, streams[i % 2], NULL, NULL));
        OK(cuMemcpyHtoDAsync_v2(memory, pinned, COPY_BYTES, streams[0]));
        OK(cuMemcpyDtoHAsync_v2(pinned, memory, COPY_BYTES, streams[1]));
        OK(cuMemsetD8Async(memory, 1, SET_BYTES, streams[0]));
        if (exec)
            OK(cuGraphLaunch(exec, streams[0]));
    }
    OK(cuCtxSynchronize());
}

static void session(int nth, int rounds, int finalize) {
    memset(&got, 0, sizeof got);
    OK(p_cuptiActivityRegisterCallbacks(request, complete));
    for (int i = 0; i < 3; i++)
        OK(p_cuptiActivityEnable(kinds[i]));
    work(rounds);
    for (int i = 0; i < 3; i++)
        OK(p_cuptiActivityDisable(kinds[i]));
    OK(p_cuptiActivityFlushAll(0));
    size_t dropped = 0;
    OK(p_cuptiActivityGetNumDroppedRecords(NULL, 0, &dropped));
    pthread_mutex_lock(&lock);
    printf("session %d: %u kernels (%u of the first, %llu ns), %u copies (%llu bytes), %u sets (%llu bytes), %u others, "
           "%u calls, %u in graphs, %zu dropped\n",
           nth, got.kernels, got.first_name, (unsigned long long)got.kernel_ns, got.copies,
           (unsigned long long)got.copy_bytes, got.sets, (unsigned long long)got.set_bytes, got.others, got.calls,
           got.in_graphs, dropped);
    pthread_mutex_unlock(&lock);
    if (finalize)
        OK(p_cuptiFinalize());
}

static void prepare(int graphs) {
    CUcontext context;
    CUmodule module;
    CUgraph graph;
    OK(cuInit(0));
    OK(cuDevicePrimaryCtxRetain(&context, 0));
    OK(cuCtxSetCurrent(context));
    OK(cuModuleLoadData(&module, "any image"));
    OK(cuModuleGetFunction(&kernels[0], module, "spin_us_20"));
    OK(cuModuleGetFunction(&kernels[1], module, "spin_us_5"));
    OK(cuStreamCreate(&streams[0], CU_STREAM_NON_BLOCKING));
    OK(cuStreamCreate(&streams[1], CU_STREAM_NON_BLOCKING));
    OK(cuMemAlloc_v2(&memory, COPY_BYTES));
    OK(cuMemAllocHost_v2(&pinned, COPY_BYTES));
    if (!graphs)
        return;
    OK(cuStreamBeginCapture_v2(streams[0], CU_STREAM_CAPTURE_MODE_RELAXED));
    for (int i = 0; i < 2; i++)
        OK(cuLaunchKernel(kernels[1], 1, 1, 1, 32, 1, 1, 0, streams[0], NULL, NULL));
    OK(cuMemsetD8Async(memory, 2, SET_BYTES, streams[0]));
    OK(cuStreamEndCapture(streams[0], &graph));
    OK(cuGraphInstantiateWithFlags(&exec, graph, 0));
}

int main(int argc, char **argv) {
    int rounds = 3, subscribe = 0, finalize = 0, graphs = 1;
    for (int i = 1; i < argc; i++) {
        subscribe |= strcmp(argv[i], "subscribe") == 0;
        finalize |= strcmp(argv[i], "finalize") == 0;
        graphs &= strcmp(argv[i], "plain") != 0;
        rounds = atoi(argv[i]) > 0 ? atoi(argv[i]) : rounds;
    }
    setvbuf(stdout, NULL, _IOLBF, 0);
    prepare(graphs);
    work(rounds);
    find();
    uint32_t version = 0;
    void *subscriber = NULL;
    OK(p_cuptiGetVersion(&version));
    if (subscribe)
        OK(p_cuptiSubscribe(&subscriber, (void *)find, NULL));
    session(1, rounds, finalize);
    work(rounds);
    session(2, rounds, finalize);
    if (subscribe && !finalize)
        OK(p_cuptiUnsubscribe(subscriber));
    work(rounds);
    printf("version %u, done\n", version);
    return 0;
}
