/* Work for the simulated device whose durations are known: timed SCENARIO
 *
 * random      steps of 50 kernels in random order, and a pause
 * thin        kernels of 100 us with pauses between, so that the device waits for the host
 * multiple    a step of 128 kernels, of which the first eight of each 64 are long, and a pause
 * streams     two streams in turn
 * graph       launches of a graph of 10 kernels, and pauses
 * flood       3,000 launches of a graph that nobody waits for
 * capture     launches while another thread captures in global mode; prints how many nodes its graphs had
 * loads       launches of kernels whose code is loaded then, which waits for the device and holds others up, for a second
 * contexts    contexts that end while their work is under way, and a primary one that is released and reset
 * fork        a child that goes on launching
 *
 * Prints what calls returned that must not fail, and `ok`. */
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#include "cuda.h"

CUresult cuDevicePrimaryCtxReset_v2(CUdevice device);

#define OK(call)                                                                                                       \
    do {                                                                                                               \
        int code = call;                                                                                               \
        if (code) {                                                                                                    \
            printf("%s = %d\n", #call, code);                                                                          \
            exit(1);                                                                                                   \
        }                                                                                                              \
    } while (0)

#define KERNELS 7
static const char *names[KERNELS] = {"spin_us_40",  "spin_us_60",  "spin_us_80",  "spin_us_120",
                                     "spin_us_150", "spin_us_200", "spin_us_300"};
static CUfunction functions[KERNELS];
static CUdevice device;

static void load(void) {
    CUmodule module;
    OK(cuModuleLoadData(&module, "fakecuda:spin_us_40,spin_us_60,spin_us_80,spin_us_120,spin_us_150,spin_us_200,"
                                 "spin_us_300"));
    for (int n = 0; n < KERNELS; n++) OK(cuModuleGetFunction(&functions[n], module, names[n]));
}

static void launch(int which, CUstream stream) {
    OK(cuLaunchKernel(functions[which], 1, 1, 1, 32, 1, 1, 0, stream, NULL, NULL));
}

static void rest_us(long us) {
    struct timespec time = {0, us * 1000};
    nanosleep(&time, NULL);
}

/* Without a system call: the device waits for a host that is busy. */
static void spin_us(long us) {
    struct timespec time;
    clock_gettime(CLOCK_MONOTONIC, &time);
    long end = time.tv_sec * 1000000 + time.tv_nsec / 1000 + us;
    do clock_gettime(CLOCK_MONOTONIC, &time);
    while (time.tv_sec * 1000000 + time.tv_nsec / 1000 < end);
}

static unsigned random_number(void) {
    static unsigned state = 12345;
    return (state = state * 1664525 + 1013904223) >> 16;
}

static void in_steps(int streams, int steps, int launches, void (*work)(int, CUstream)) {
    CUstream all[2];
    for (int n = 0; n < streams; n++) OK(cuStreamCreate(&all[n], CU_STREAM_NON_BLOCKING));
    for (int step = 0; step < steps; step++) {
        CUstream stream = all[step % streams];
        for (int n = 0; n < launches; n++) work(n, stream);
        OK(cuStreamSynchronize(stream));
        rest_us(5000);
    }
}

static void any(int n, CUstream stream) {
    (void)n;
    launch(random_number() % KERNELS, stream);
}

static void thin(int n, CUstream stream) {
    launch(n % 2 ? 3 : 2, stream);
    spin_us(200);
}

/* Were each 64th launch timed, the long ones would be all of them, or none. */
static void long_first(int n, CUstream stream) { launch(n % 64 < 8 ? 6 : 0, stream); }

static CUgraphExec graph_of(int kernels, CUstream stream) {
    CUgraph graph;
    CUgraphExec exec;
    OK(cuStreamBeginCapture_v2(stream, CU_STREAM_CAPTURE_MODE_GLOBAL));
    for (int n = 0; n < kernels; n++) launch(0, stream);
    OK(cuStreamEndCapture(stream, &graph));
    OK(cuGraphInstantiateWithFlags(&exec, graph, 0));
    return exec;
}

static CUgraphExec exec;
static void replay(int n, CUstream stream) {
    (void)n;
    OK(cuGraphLaunch(exec, stream));
}

static volatile int captures_done;

static void *capture(void *context) {
    CUstream stream;
    OK(cuCtxSetCurrent(context));
    OK(cuStreamCreate(&stream, CU_STREAM_NON_BLOCKING));
    for (int n = 0; n < 60; n++) {
        CUgraph graph;
        size_t nodes = 0;
        OK(cuStreamBeginCapture_v2(stream, CU_STREAM_CAPTURE_MODE_GLOBAL));
        for (int k = 0; k < 200; k++) launch(0, stream);
        rest_us(2000);
        OK(cuStreamEndCapture(stream, &graph));
        OK(cuGraphGetNodes(graph, NULL, &nodes));
        printf("%zu nodes\n", nodes);
        OK(cuGraphDestroy(graph));
        rest_us(5000);
    }
    captures_done = 1;
    return NULL;
}

static void contexts(void) {
    CUstream stream;
    for (int n = 0; n < 30; n++) {
        CUcontext own;
        OK(cuCtxCreate_v2(&own, 0, device));
        load();
        OK(cuStreamCreate(&stream, CU_STREAM_NON_BLOCKING));
        for (int k = 0; k < 100 + 20 * n; k++) launch(k % 3, stream);
        if (n % 3) rest_us(n * 200);
        for (int k = 0; k < 200; k++) launch(k % 3, stream);
        OK(cuCtxDestroy_v2(own));
    }
    for (int n = 0; n < 30; n++) {
        CUcontext primary;
        OK(cuDevicePrimaryCtxRetain(&primary, device));
        OK(cuCtxSetCurrent(primary));
        load();
        for (int k = 0; k < 300; k++) launch(k % 3, NULL);
        if (n % 2) rest_us(8000);
        for (int k = 0; k < 300; k++) launch(k % 3, NULL);
        if (n % 3) OK(cuDevicePrimaryCtxRelease_v2(device));
        else OK(cuDevicePrimaryCtxReset_v2(device));
    }
}

int main(int argc, char **argv) {
    const char *what = argc > 1 ? argv[1] : "";
    CUcontext context;
    CUstream stream;
    pthread_t thread;
    OK(cuInit(0));
    OK(cuDeviceGet(&device, 0));
    if (!strcmp(what, "contexts")) {
        contexts();
        puts("ok");
        return 0;
    }
    OK(cuDevicePrimaryCtxRetain(&context, device));
    OK(cuCtxSetCurrent(context));
    load();
    OK(cuStreamCreate(&stream, CU_STREAM_NON_BLOCKING));
    if (!strcmp(what, "random")) in_steps(1, 80, 50, any);
    else if (!strcmp(what, "thin")) in_steps(1, 20, 200, thin);
    else if (!strcmp(what, "multiple")) in_steps(1, 60, 128, long_first);
    else if (!strcmp(what, "streams")) in_steps(2, 80, 50, any);
    else if (!strcmp(what, "graph")) {
        exec = graph_of(10, stream);
        in_steps(1, 40, 10, replay);
    } else if (!strcmp(what, "flood")) {
        exec = graph_of(1, stream);
        /* Whoever makes events for it gets the time to. */
        for (int n = 0; n < 30; n++) replay(n, stream), rest_us(10000);
        for (int n = 0; n < 3000; n++) replay(n, stream);
        OK(cuStreamSynchronize(stream));
    } else if (!strcmp(what, "capture")) {
        OK(pthread_create(&thread, NULL, capture, context));
        while (!captures_done) {
            launch(0, stream);
            launch(1, CU_STREAM_PER_THREAD);
            spin_us(50);
        }
        pthread_join(thread, NULL);
        OK(cuStreamSynchronize(stream));
    } else if (!strcmp(what, "loads")) {
        /* Should nothing go on any more. */
        alarm(60);
        for (int n = 0; n < 1000; n++) {
            CUmodule module;
            CUfunction function;
            char image[48];
            snprintf(image, sizeof image, "fakecuda:load_waits_us_50_%d", n);
            OK(cuModuleLoadData(&module, image));
            OK(cuModuleGetFunction(&function, module, strchr(image, ':') + 1));
            for (int m = 0; m < 8; m++) OK(cuLaunchKernel(function, 1, 1, 1, 32, 1, 1, 0, stream, NULL, NULL));
        }
        OK(cuStreamSynchronize(stream));
    } else if (!strcmp(what, "fork")) {
        for (int n = 0; n < 300; n++) launch(0, stream);
        fflush(stdout);
        pid_t child = fork();
        if (!child) {
            for (int n = 0; n < 1000; n++) cuLaunchKernel(functions[0], 1, 1, 1, 32, 1, 1, 0, stream, NULL, NULL);
            puts("child");
            exit(0);
        }
        int status;
        waitpid(child, &status, 0);
        printf("status %d\n", status);
        for (int n = 0; n < 300; n++) launch(0, stream);
        OK(cuStreamSynchronize(stream));
    } else {
        return 2;
    }
    puts("ok");
    return 0;
}
