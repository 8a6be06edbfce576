/* A trainer that is bound by its launches: steady KERNELS SECONDS RATE
 *
 * Steps of 950 launches of KERNELS kernels in turn, 20 copies and one wait, RATE calls a second (0: as fast as it can). Prints how
 * many calls it made. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "cuda.h"

#define MOST 1000
#define LAUNCHES 950
#define COPIES 20
#define OK(call)                                                                                                       \
    do {                                                                                                               \
        int code = call;                                                                                               \
        if (code) {                                                                                                    \
            printf("%s = %d\n", #call, code);                                                                          \
            exit(1);                                                                                                   \
        }                                                                                                              \
    } while (0)

static double now(void) {
    struct timespec time;
    clock_gettime(CLOCK_MONOTONIC, &time);
    return time.tv_sec + time.tv_nsec * 1e-9;
}

int main(int argc, char **argv) {
    int kernels = argc > 1 ? atoi(argv[1]) : 0;
    double seconds = argc > 2 ? atof(argv[2]) : 0, rate = argc > 3 ? atof(argv[3]) : 0;
    if (kernels < 1 || kernels > MOST || seconds <= 0) return 2;
    static char image[MOST * 32] = "fakecuda:", name[32], host[1 << 16];
    static CUfunction functions[MOST];
    CUdevice device;
    CUcontext context;
    CUmodule module;
    CUstream stream;
    CUdeviceptr memory;
    OK(cuInit(0));
    OK(cuDeviceGet(&device, 0));
    OK(cuDevicePrimaryCtxRetain(&context, device));
    OK(cuCtxSetCurrent(context));
    for (int n = 0; n < kernels; n++) {
        snprintf(name, sizeof name, "%skernel_%d_us_1", n ? "," : "", n);
        strcat(image, name);
    }
    OK(cuModuleLoadData(&module, image));
    for (int n = 0; n < kernels; n++) {
        snprintf(name, sizeof name, "kernel_%d_us_1", n);
        OK(cuModuleGetFunction(&functions[n], module, name));
    }
    OK(cuStreamCreate(&stream, CU_STREAM_NON_BLOCKING));
    OK(cuMemAlloc_v2(&memory, sizeof host));
    double begin = now();
    long calls = 0;
    while (now() < begin + seconds) {
        for (int n = 0; n < LAUNCHES; n++) {
            OK(cuLaunchKernel(functions[n % kernels], 1, 1, 1, 32, 1, 1, 0, stream, NULL, NULL));
            while (rate > 0 && n % 8 == 0 && now() < begin + (calls + n) / rate) {}
        }
        for (int n = 0; n < COPIES; n++) OK(cuMemcpyHtoDAsync_v2(memory, host, 4096 * (1 + n % 4), stream));
        OK(cuStreamSynchronize(stream));
        calls += LAUNCHES + COPIES + 1;
    }
    printf("%ld calls in %.1f s\n", calls, now() - begin);
    return 0;
}
