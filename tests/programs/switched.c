/* Launches while recording is on and off: switched profiler | switched loop FILE
 *
 * profiler   100 launches, and between cuProfilerStart and cuProfilerStop 50 of spin_us_40, 100, again 25, and 10
 * loop       launches of a kernel and waits, until FILE.stop is there; how many it made is in FILE, 8 bytes
 *
 * Prints `ok`. */
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "cuda.h"

CUresult cuProfilerStart(void);
CUresult cuProfilerStop(void);

static CUfunction function;
static CUstream stream;

static void ok(int code) {
    if (code) exit(3);
}

static void launch(int count) {
    for (int n = 0; n < count; n++) ok(cuLaunchKernel(function, count, 1, 1, 32, 1, 1, 0, stream, NULL, NULL));
    ok(cuStreamSynchronize(stream));
}

int main(int argc, char **argv) {
    CUdevice device;
    CUcontext context;
    CUmodule module;
    ok(cuInit(0));
    ok(cuDeviceGet(&device, 0));
    ok(cuDevicePrimaryCtxRetain(&context, device));
    ok(cuCtxSetCurrent(context));
    ok(cuModuleLoadData(&module, "fakecuda:spin_us_40"));
    ok(cuModuleGetFunction(&function, module, "spin_us_40"));
    ok(cuStreamCreate(&stream, CU_STREAM_NON_BLOCKING));
    if (argc == 2 && !strcmp(argv[1], "profiler")) {
        launch(100);
        cuProfilerStart();
        launch(50);
        cuProfilerStop();
        launch(100);
        cuProfilerStart();
        launch(25);
        cuProfilerStop();
        launch(10);
    } else if (argc == 3) {
        char stop[4096];
        snprintf(stop, sizeof stop, "%s.stop", argv[2]);
        int file = open(argv[2], O_RDWR | O_CREAT, 0600);
        for (long made = 5; access(stop, F_OK); made += 5) {
            launch(5);
            if (pwrite(file, &made, sizeof made, 0) != sizeof made) return 4;
        }
    } else {
        return 2;
    }
    puts("ok");
    return 0;
}
