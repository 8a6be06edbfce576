/* What CUPTI's calls wait for: cupti_waits LIBCUPTI
 *
 * A kernel runs until the host says so, 0.7 s after each call begins; another thread launches empty kernels in a stream of its
 * own. For each call: how long it took, how many launches were made meanwhile, and how long the longest of them was held up.
 *
 *     cc -O2 -o cupti_waits benches/gpu/cupti_waits.c -ldl -lpthread */
#define _GNU_SOURCE
#include <dlfcn.h>
#include <pthread.h>
#include <stdatomic.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <time.h>
#include <unistd.h>

static const char ptx[] = ".version 6.0\n.target sm_50\n.address_size 64\n.visible .entry nothing() { ret; }\n"
                          ".visible .entry spin(.param .u64 p) { .reg .u64 %a; .reg .u32 %v; .reg .pred %q; ld.param.u64 %a, [p];\n"
                          "again: ld.volatile.global.u32 %v, [%a]; setp.eq.u32 %q, %v, 0; @%q bra again; ret; }\n";
typedef void *Handle;
#define DRIVER(DO)                                                                                                     \
    DO(cuInit, (unsigned)) DO(cuDevicePrimaryCtxRetain, (Handle *, int)) DO(cuCtxSetCurrent, (Handle))                 \
    DO(cuModuleLoadData, (Handle *, const void *)) DO(cuModuleGetFunction, (Handle *, Handle, const char *))           \
    DO(cuLaunchKernel, (Handle, unsigned, unsigned, unsigned, unsigned, unsigned, unsigned, unsigned, Handle,          \
                        Handle *, Handle *))                                                                           \
    DO(cuStreamCreate, (Handle *, unsigned)) DO(cuStreamSynchronize, (Handle))                                         \
    DO(cuMemHostAlloc, (Handle *, size_t, unsigned)) DO(cuMemHostGetDevicePointer_v2, (uint64_t *, Handle, unsigned))
#define CUPTI(DO)                                                                                                      \
    DO(cuptiActivityRegisterCallbacks, (void (*)(uint8_t **, size_t *, size_t *),                                      \
                                        void (*)(Handle, uint32_t, uint8_t *, size_t, size_t)))                        \
    DO(cuptiActivityEnable, (int)) DO(cuptiActivityDisable, (int)) DO(cuptiActivityFlushAll, (uint32_t))               \
    DO(cuptiFinalize, (void))
#define DECLARE(name, arguments) static int(*p_##name) arguments;
DRIVER(DECLARE) CUPTI(DECLARE)

#define OK(name, ...)                                                                                                  \
    do {                                                                                                               \
        int code = p_##name(__VA_ARGS__);                                                                              \
        if (code) exit((printf("%s = %d\n", #name, code), 1));                                                         \
    } while (0)

static Handle context, nothing, spin, spins;
static _Atomic double longest;
static atomic_long launches;
static volatile unsigned *flag;
static uint64_t flag_there;
static const int KINDS[] = {10, 1, 2, 22};

static double now(void) {
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    return t.tv_sec * 1e3 + t.tv_nsec / 1e6;
}

static void *launch(void *unused) {
    Handle stream;
    OK(cuCtxSetCurrent, context);
    OK(cuStreamCreate, &stream, 1);
    for (long n = 0;; n++) {
        double begin = now();
        OK(cuLaunchKernel, nothing, 1, 1, 1, 32, 1, 1, 0, stream, NULL, NULL);
        if (n % 8 == 7) OK(cuStreamSynchronize, stream);
        if (now() - begin > longest) longest = now() - begin;
        launches++;
        usleep(20);
    }
    return unused;
}

static void request(uint8_t **buffer, size_t *size, size_t *most) {
    *size = 1 << 20;
    *buffer = aligned_alloc(8, *size);
    *most = 0;
}

static void complete(Handle context, uint32_t stream, uint8_t *buffer, size_t size, size_t valid) {
    (void)context, (void)stream, (void)size, (void)valid;
    free(buffer);
}

static void put_on(void) {
    OK(cuptiActivityRegisterCallbacks, request, complete);
    for (int n = 0; n < 4; n++) OK(cuptiActivityEnable, KINDS[n]);
}

static void switch_off(void) {
    for (int n = 0; n < 4; n++) OK(cuptiActivityDisable, KINDS[n]);
}

static void flush(void) { OK(cuptiActivityFlushAll, 0); }
static void finalize(void) { OK(cuptiFinalize); }
static void wait_a_little(void) { usleep(300000); }

static void *release(void *unused) {
    usleep(700000);
    *flag = 1;
    return unused;
}

static void begin_to_spin(void) {
    Handle arguments[] = {&flag_there};
    *flag = 0;
    OK(cuLaunchKernel, spin, 1, 1, 1, 1, 1, 1, 0, spins, arguments, NULL);
    usleep(20000);
}

static void meanwhile(const char *what, void (*call)(void)) {
    pthread_t thread;
    pthread_create(&thread, NULL, release, NULL);
    longest = 0;
    long before = launches;
    double begin = now();
    call();
    double took = now() - begin;
    long made = launches - before;
    usleep(30000);
    printf("%-48s %7.1f ms, %ld launches meanwhile, the longest held up for %.1f ms\n", what, took, made, longest);
    pthread_join(thread, NULL);
    OK(cuStreamSynchronize, spins);
}

int main(int argc, char **argv) {
    Handle driver = dlopen("libcuda.so.1", RTLD_NOW), cupti = dlopen(argc > 1 ? argv[1] : "libcupti.so", RTLD_NOW), module;
    if (!driver || !cupti) return puts(dlerror()), 2;
#define FIND_DRIVER(name, arguments) *(void **)&p_##name = dlsym(driver, #name);
#define FIND_CUPTI(name, arguments) *(void **)&p_##name = dlsym(cupti, #name);
    DRIVER(FIND_DRIVER) CUPTI(FIND_CUPTI)
    setvbuf(stdout, NULL, _IONBF, 0);
    OK(cuInit, 0);
    OK(cuDevicePrimaryCtxRetain, &context, 0);
    OK(cuCtxSetCurrent, context);
    OK(cuModuleLoadData, &module, ptx);
    OK(cuModuleGetFunction, &nothing, module, "nothing");
    OK(cuModuleGetFunction, &spin, module, "spin");
    OK(cuStreamCreate, &spins, 1);
    OK(cuMemHostAlloc, (Handle *)&flag, 64, 2);
    OK(cuMemHostGetDevicePointer_v2, &flag_there, (Handle)flag, 0);
    begin_to_spin();
    *flag = 1;
    OK(cuStreamSynchronize, spins);
    pthread_t thread;
    pthread_create(&thread, NULL, launch, NULL);
    usleep(200000);
    begin_to_spin(), meanwhile("nothing", wait_a_little);
    begin_to_spin(), meanwhile("CUPTI put on for the first time", put_on);
    begin_to_spin(), meanwhile("records off, of a kernel that began with them", switch_off);
    put_on(), begin_to_spin(), switch_off(), meanwhile("flush", flush);
    begin_to_spin(), meanwhile("records on again", put_on);
    switch_off(), begin_to_spin(), meanwhile("cuptiFinalize, a kernel that began without records", finalize);
    put_on(), begin_to_spin(), switch_off(), meanwhile("cuptiFinalize, a kernel that began with records", finalize);
    begin_to_spin(), meanwhile("put on after cuptiFinalize", put_on);
    return 0;
}
