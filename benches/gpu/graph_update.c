/* graph_update NODES UPDATES: us per cuGraphExecUpdate of a captured graph of so many empty kernels: median, lower and
 * upper quartile. Runs on the simulated driver too. cc -O2 graph_update.c -ldl */
#include <dlfcn.h>
#include <stdio.h>
#include <stdlib.h>
#include <time.h>

static const char ptx[] = ".version 6.0\n.target sm_50\n.address_size 64\n.visible .entry nothing() { ret; }\n";

static double now(void) {
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    return t.tv_sec * 1e6 + t.tv_nsec / 1e3;
}

static int ascending(const void *a, const void *b) { return *(double *)a < *(double *)b ? -1 : 1; }

int main(int argc, char **argv) {
    int nodes = argc > 1 ? atoi(argv[1]) : 10, updates = argc > 2 ? atoi(argv[2]) : 2000, device;
    void *context, *module, *kernel, *stream, *graph, *exec, *driver = dlopen("libcuda.so.1", RTLD_NOW);
    if (!driver) return fprintf(stderr, "%s\n", dlerror()), 2;
    int (*init)(unsigned) = dlsym(driver, "cuInit"), (*get)(int *, int) = dlsym(driver, "cuDeviceGet");
    int (*retain)(void **, int) = dlsym(driver, "cuDevicePrimaryCtxRetain"), (*use)(void *) = dlsym(driver, "cuCtxSetCurrent");
    int (*load)(void **, const void *) = dlsym(driver, "cuModuleLoadData");
    int (*find)(void **, void *, const char *) = dlsym(driver, "cuModuleGetFunction");
    int (*new_stream)(void **, unsigned) = dlsym(driver, "cuStreamCreate");
    int (*begin)(void *, int) = dlsym(driver, "cuStreamBeginCapture_v2"), (*end)(void *, void **) = dlsym(driver, "cuStreamEndCapture");
    int (*launch)(void *, unsigned, unsigned, unsigned, unsigned, unsigned, unsigned, unsigned, void *, void **, void **) =
        dlsym(driver, "cuLaunchKernel");
    int (*instantiate)(void **, void *, unsigned long long) = dlsym(driver, "cuGraphInstantiateWithFlags");
    int (*update)(void *, void *, void *) = dlsym(driver, "cuGraphExecUpdate_v2");
    if (init(0) || get(&device, 0) || retain(&context, device) || use(context) || load(&module, ptx) ||
        find(&kernel, module, "nothing") || new_stream(&stream, 1) || begin(stream, 0))
        return fprintf(stderr, "no kernel\n"), 2;
    for (int i = 0; i < nodes; i++)
        if (launch(kernel, 1, 1, 1, 32, 1, 1, 0, stream, 0, 0)) return 3;
    if (end(stream, &graph) || instantiate(&exec, graph, 0)) return fprintf(stderr, "no graph\n"), 3;
    double *each = calloc(updates, sizeof *each);
    for (int i = 0; i < updates; i++) {
        char result[64];
        double start = now();
        if (update(exec, graph, result)) return fprintf(stderr, "update %d failed\n", i), 4;
        each[i] = now() - start;
    }
    qsort(each, updates, sizeof *each, ascending);
    printf("%.2f (%.2f .. %.2f)\n", each[updates / 2], each[updates / 4], each[3 * updates / 4]);
    free(each);
    return 0;
}
