/* Steps of known work, for some time: steps SECONDS [LAUNCHES [MICROSECONDS [PAUSE [GRAPHS [HOLD [PEER]]]]]]
 *
 * A step is so many launches (20) of a kernel that runs so many microseconds (one of 2, 5, 10, 20, 50 or 100; 10), a wait for
 * them, and a pause of so many microseconds (200) in which nothing is given. After GRAPHS seconds (never) the launches of a
 * step are captured into a graph, which is launched in their place from then on; the capture stays open for HOLD seconds (0).
 * After PEER seconds (never) it opens memory of another process, which need not be there.
 * Prints the number of steps. */
#include <dlfcn.h>
#include <stdio.h>
#include <stdlib.h>
#include <time.h>

#include "cuda.h"

#define FUNCTIONS(DO)                                                                                                  \
    DO(cuInit)                                                                                                         \
    DO(cuDeviceGet)                                                                                                    \
    DO(cuDevicePrimaryCtxRetain)                                                                                       \
    DO(cuCtxSetCurrent)                                                                                                \
    DO(cuStreamCreate)                                                                                                 \
    DO(cuModuleLoadData)                                                                                               \
    DO(cuModuleGetFunction)                                                                                            \
    DO(cuLaunchKernel)                                                                                                 \
    DO(cuStreamBeginCapture_v2)                                                                                        \
    DO(cuStreamEndCapture)                                                                                             \
    DO(cuGraphInstantiateWithFlags)                                                                                    \
    DO(cuGraphLaunch)                                                                                                  \
    DO(cuIpcOpenMemHandle)                                                                                             \
    DO(cuStreamSynchronize)
#define DECLARE(name) static __typeof__(&name) p_##name;
FUNCTIONS(DECLARE)

#define OK(name, ...)                                                                                                  \
    do {                                                                                                               \
        int code = p_##name(__VA_ARGS__);                                                                              \
        if (code) {                                                                                                    \
            printf("%s = %d\n", #name, code);                                                                          \
            exit(1);                                                                                                   \
        }                                                                                                              \
    } while (0)

static double now(void) {
    struct timespec time;
    clock_gettime(CLOCK_MONOTONIC, &time);
    return (double)time.tv_sec + (double)time.tv_nsec * 1e-9;
}

int main(int argc, char **argv) {
    double seconds = argc > 1 ? atof(argv[1]) : 1;
    int launches = argc > 2 ? atoi(argv[2]) : 20, spin = argc > 3 ? atoi(argv[3]) : 10;
    long pause = argc > 4 ? atol(argv[4]) : 200;
    double graphs = argc > 5 ? atof(argv[5]) : 1e9, hold = argc > 6 ? atof(argv[6]) : 0;
    double peer = argc > 7 ? atof(argv[7]) : 1e9;
    void *driver = dlopen("libcuda.so.1", RTLD_NOW | RTLD_GLOBAL);
    if (!driver) {
        fprintf(stderr, "%s\n", dlerror());
        return 2;
    }
#define FIND(name)                                                                                                     \
    p_##name = (__typeof__(p_##name))dlsym(driver, #name);                                                             \
    if (!p_##name) return 2;
    FUNCTIONS(FIND)
    CUdevice device;
    CUcontext context;
    CUmodule module;
    CUfunction function;
    CUstream stream;
    CUgraph graph;
    CUgraphExec exec = NULL;
    char kernel[32], image[48];
    snprintf(kernel, sizeof kernel, "spin_us_%d", spin);
    snprintf(image, sizeof image, "fakecuda:%s", kernel);
    OK(cuInit, 0);
    OK(cuDeviceGet, &device, 0);
    OK(cuDevicePrimaryCtxRetain, &context, device);
    OK(cuCtxSetCurrent, context);
    OK(cuStreamCreate, &stream, CU_STREAM_NON_BLOCKING);
    OK(cuModuleLoadData, &module, image);
    OK(cuModuleGetFunction, &function, module, kernel);
    long steps = 0;
    double begin = now();
    for (; now() < begin + seconds; steps++) {
        if (now() > begin + peer) {
            CUdeviceptr memory;
            CUipcMemHandle shared = {0};
            p_cuIpcOpenMemHandle(&memory, shared, 1);
            peer = 1e9;
        }
        int first = !exec && now() > begin + graphs;
        if (first) OK(cuStreamBeginCapture_v2, stream, 0);
        for (int n = 0; n < launches && !exec; n++) OK(cuLaunchKernel, function, 1, 1, 1, 64, 1, 1, 0, stream, NULL, NULL);
        if (first) {
            struct timespec held = {(time_t)hold, (long)((hold - (time_t)hold) * 1e9)};
            nanosleep(&held, NULL);
            OK(cuStreamEndCapture, stream, &graph);
            OK(cuGraphInstantiateWithFlags, &exec, graph, 0);
        }
        if (exec) OK(cuGraphLaunch, exec, stream);
        OK(cuStreamSynchronize, stream);
        struct timespec rest = {0, pause * 1000};
        nanosleep(&rest, NULL);
    }
    printf("%ld\n", steps);
    return 0;
}
