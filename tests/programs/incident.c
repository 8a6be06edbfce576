/* Steps, and then something happens: incident STEPS WHAT [STEPS]
 *
 * A step is a launch, a wait for it and a pause of a millisecond. After STEPS of them WHAT happens: `error`, an allocation that
 * fails; `slow`, a wait for 5,000 launches in blocks of 32; `crash`, SIGSEGV; `term`, SIGTERM; `exit`, the end with code 3; `nothing`. What goes on makes STEPS more steps (none). Prints the number
 * of launches before and after. */
#include <dlfcn.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "cuda.h"

#define FUNCTIONS(DO)                                                                                                  \
    DO(cuInit)                                                                                                         \
    DO(cuDeviceGet)                                                                                                    \
    DO(cuDevicePrimaryCtxRetain)                                                                                       \
    DO(cuCtxSetCurrent)                                                                                                \
    DO(cuModuleLoadData)                                                                                               \
    DO(cuModuleGetFunction)                                                                                            \
    DO(cuMemAlloc_v2)                                                                                                  \
    DO(cuLaunchKernel)                                                                                                 \
    DO(cuCtxSynchronize)
#define DECLARE(name) static __typeof__(&name) p_##name;
FUNCTIONS(DECLARE)

static void must(int code) {
    if (code) {
        printf("a call returned %d\n", code);
        exit(1);
    }
}

static void steps(int count, CUfunction function) {
    for (int n = 0; n < count; n++) {
        must(p_cuLaunchKernel(function, 1, 1, 1, 64, 1, 1, 0, NULL, NULL, NULL));
        must(p_cuCtxSynchronize());
        nanosleep(&(struct timespec){0, 1000 * 1000}, NULL);
    }
}

int main(int argc, char **argv) {
    int before = argc > 1 ? atoi(argv[1]) : 10, after = argc > 3 ? atoi(argv[3]) : 0;
    const char *what = argc > 2 ? argv[2] : "nothing";
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
    CUfunction function, slow;
    CUdeviceptr address;
    must(p_cuInit(0));
    must(p_cuDeviceGet(&device, 0));
    must(p_cuDevicePrimaryCtxRetain(&context, device));
    must(p_cuCtxSetCurrent(context));
    must(p_cuModuleLoadData(&module, "fakecuda:spin_us_2"));
    must(p_cuModuleGetFunction(&function, module, "spin_us_2"));
    steps(before, function);
    if (!strcmp(what, "error") && !p_cuMemAlloc_v2(&address, (size_t)1 << 42)) return 4;
    if (!strcmp(what, "slow")) {
        must(p_cuModuleLoadData(&module, "fakecuda:spin_us_100"));
        must(p_cuModuleGetFunction(&slow, module, "spin_us_100"));
        for (int n = 0; n < 5000; n++) must(p_cuLaunchKernel(slow, 1, 1, 1, 32, 1, 1, 0, NULL, NULL, NULL));
        must(p_cuCtxSynchronize());
    }
    if (!strcmp(what, "crash")) raise(SIGSEGV);
    if (!strcmp(what, "term")) raise(SIGTERM);
    if (!strcmp(what, "exit")) return 3;
    steps(after, function);
    printf("%d %d\n", before, after);
    return 0;
}
