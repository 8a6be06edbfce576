/* Launches functions of every loader call, each with a grid of its own, and prints `GRID NAME CAPTURED` for each.
 *
 * Handles are used again after an unload (the driver of odd_driver.c gives the same ones out), a function is launched
 * for the first time inside a capture, another is even looked up there. What a driver lacks is left out. */
#define _GNU_SOURCE
#include <dlfcn.h>
#include <stdio.h>
#include <stdlib.h>

#include "cuda.h"

CUresult cuLibraryLoadData(CUlibrary *library, const void *code, void *jit_options, void *jit_values, unsigned jit_count,
                           void *options, void *values, unsigned count);
CUresult cuLibraryGetKernel(CUkernel *kernel, CUlibrary library, const char *name);
CUresult cuLibraryUnload(CUlibrary library);
CUresult cuKernelGetFunction(CUfunction *function, CUkernel kernel);
CUresult cuModuleEnumerateFunctions(CUfunction *functions, unsigned count, CUmodule module);

#define EACH(DO)                                                                                                       \
    DO(cuInit) DO(cuDevicePrimaryCtxRetain) DO(cuCtxSetCurrent) DO(cuModuleLoadData) DO(cuModuleUnload)                \
    DO(cuModuleGetFunction) DO(cuLaunchKernel) DO(cuStreamCreate) DO(cuStreamSynchronize) DO(cuStreamBeginCapture_v2)  \
    DO(cuStreamEndCapture) DO(cuGraphInstantiateWithFlags) DO(cuGraphLaunch) DO(cuLibraryLoadData)                     \
    DO(cuLibraryGetKernel) DO(cuLibraryUnload) DO(cuKernelGetFunction) DO(cuModuleEnumerateFunctions)
#define DECLARE(name) static __typeof__(&name) p_##name;
EACH(DECLARE)

#define OK(call)                                                                                                       \
    do {                                                                                                               \
        CUresult result = call;                                                                                        \
        if (result) {                                                                                                  \
            printf("%s: %d\n", #call, result);                                                                         \
            exit(1);                                                                                                   \
        }                                                                                                              \
    } while (0)

static unsigned grid;

static void launch(void *function, const char *name, CUstream stream, int captured) {
    OK(p_cuLaunchKernel(function, ++grid, 1, 1, 1, 1, 1, 0, stream, NULL, NULL));
    printf("%u %s %d\n", grid, name, captured);
}

static CUfunction find(CUmodule module, const char *name) {
    CUfunction function;
    OK(p_cuModuleGetFunction(&function, module, name));
    return function;
}

static void reload(void) {
    CUmodule module;
    for (int round = 0; round < 4; round++) {
        const char *names[] = {"spin_ns_1_alpha", "_ZN5torch4betaIfEEvPT_i", "gamma"};
        OK(p_cuModuleLoadData(&module, "image"));
        /* In another order each time, so that a handle that comes back belongs to another function. */
        for (int i = 0; i < 3; i++) {
            const char *name = names[(i + round) % 3];
            CUfunction function = find(module, name);
            for (int times = 0; times < 2; times++) launch(function, name, NULL, 0);
        }
        OK(p_cuModuleUnload(module));
    }
    /* A long name, as C++ templates make them. */
    static char name[3000];
    for (unsigned i = 0; i < sizeof name - 1; i++) name[i] = 'a' + i % 26;
    OK(p_cuModuleLoadData(&module, "image"));
    launch(find(module, name), name, NULL, 0);
}

static void capture(void) {
    CUmodule module;
    CUstream stream;
    CUgraph graph;
    CUgraphExec exec;
    OK(p_cuModuleLoadData(&module, "image"));
    CUfunction known = find(module, "known_before");
    OK(p_cuStreamCreate(&stream, CU_STREAM_NON_BLOCKING));
    OK(p_cuStreamBeginCapture_v2(stream, CU_STREAM_CAPTURE_MODE_GLOBAL));
    launch(known, "known_before", stream, 1);
    launch(find(module, "found_inside"), "found_inside", stream, 1);
    OK(p_cuStreamEndCapture(stream, &graph));
    OK(p_cuGraphInstantiateWithFlags(&exec, graph, 0));
    for (int i = 0; i < 5; i++) OK(p_cuGraphLaunch(exec, stream));
    launch(known, "known_before", stream, 0);
    OK(p_cuStreamSynchronize(stream));
}

static void libraries(void) {
    CUlibrary library;
    CUkernel kernel;
    CUfunction function;
    for (int round = 0; round < 2; round++) {
        const char *name = round ? "second_kernel" : "first_kernel";
        OK(p_cuLibraryLoadData(&library, "image", NULL, NULL, 0, NULL, NULL, 0));
        OK(p_cuLibraryGetKernel(&kernel, library, name));
        OK(p_cuKernelGetFunction(&function, kernel));
        launch(function, name, NULL, 0);
        launch(kernel, name, NULL, 0);
        OK(p_cuLibraryUnload(library));
    }
}

static void enumerated(void) {
    /* No hook sees these functions' loading: the driver is asked for the name. */
    CUmodule module;
    CUfunction functions[2];
    OK(p_cuModuleLoadData(&module, "fakecuda:one_of_two,two_of_two"));
    OK(p_cuModuleEnumerateFunctions(functions, 2, module));
    launch(functions[0], "one_of_two", NULL, 0);
    launch(functions[1], "two_of_two", NULL, 0);
}

int main(void) {
    void *driver = dlopen("libcuda.so.1", RTLD_NOW);
    if (!driver) return puts(dlerror()), 1;
#define FIND(name) p_##name = (__typeof__(p_##name))dlsym(driver, #name);
    EACH(FIND)
    CUcontext context;
    OK(p_cuInit(0));
    OK(p_cuDevicePrimaryCtxRetain(&context, 0));
    OK(p_cuCtxSetCurrent(context));
    reload();
    if (p_cuStreamBeginCapture_v2) capture();
    if (p_cuLibraryLoadData) libraries();
    if (p_cuModuleEnumerateFunctions) enumerated();
    return 0;
}
