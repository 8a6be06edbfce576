/* launch_threads THREADS LAUNCHES ROUNDS: ns per cuLaunchKernel of an empty kernel, each thread on a stream of its own,
 * a wait after every 256 launches, which is left out. Prints one median over rounds of the mean over threads. */
#include <dlfcn.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <time.h>

static const char ptx[] = ".version 6.0\n.target sm_50\n.address_size 64\n.visible .entry nothing() { ret; }\n";
static int (*launch)(void *, unsigned, unsigned, unsigned, unsigned, unsigned, unsigned, unsigned, void *, void **, void **);
static int (*wait_for)(void *), (*new_stream)(void **, unsigned), (*use)(void *);
static void *context, *kernel;
static int launches;
static pthread_barrier_t together;

static double now(void) {
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    return t.tv_sec * 1e9 + t.tv_nsec;
}

static void *work(void *result) {
    void *stream;
    double spent = 0;
    if (use(context) || new_stream(&stream, 1)) exit(3);
    pthread_barrier_wait(&together);
    for (int done = 0; done < launches; done += 256) {
        double start = now();
        for (int i = 0; i < 256; i++)
            if (launch(kernel, 1, 1, 1, 32, 1, 1, 0, stream, 0, 0)) exit(4);
        spent += now() - start;
        wait_for(stream);
    }
    *(double *)result = spent / launches;
    return 0;
}

static int ascending(const void *a, const void *b) { return *(double *)a < *(double *)b ? -1 : 1; }

int main(int argc, char **argv) {
    int threads = argc > 1 ? atoi(argv[1]) : 1, rounds = argc > 3 ? atoi(argv[3]) : 21;
    launches = (argc > 2 ? atoi(argv[2]) : 25600) / 256 * 256;
    void *driver = dlopen("libcuda.so.1", RTLD_NOW), *module;
    int device;
    if (!driver) return fprintf(stderr, "%s\n", dlerror()), 2;
    int (*init)(unsigned) = dlsym(driver, "cuInit"), (*get)(int *, int) = dlsym(driver, "cuDeviceGet");
    int (*retain)(void **, int) = dlsym(driver, "cuDevicePrimaryCtxRetain");
    int (*load)(void **, const void *) = dlsym(driver, "cuModuleLoadData");
    int (*find)(void **, void *, const char *) = dlsym(driver, "cuModuleGetFunction");
    launch = dlsym(driver, "cuLaunchKernel");
    wait_for = dlsym(driver, "cuStreamSynchronize");
    new_stream = dlsym(driver, "cuStreamCreate");
    use = dlsym(driver, "cuCtxSetCurrent");
    if (init(0) || get(&device, 0) || retain(&context, device) || use(context) || load(&module, ptx) ||
        find(&kernel, module, "nothing"))
        return fprintf(stderr, "no kernel\n"), 2;
    double *medians = calloc(rounds, sizeof *medians);
    for (int r = 0; r < rounds; r++) {
        pthread_t id[64];
        double each[64];
        pthread_barrier_init(&together, 0, threads);
        for (int t = 0; t < threads; t++) pthread_create(&id[t], 0, work, &each[t]);
        for (int t = 0; t < threads; t++) pthread_join(id[t], 0), medians[r] += each[t] / threads;
    }
    qsort(medians, rounds, sizeof *medians, ascending);
    printf("%.0f\n", medians[rounds / 2]);
}
