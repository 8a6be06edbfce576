/* Leaves a blocking call of the driver by force, once by pthread_cancel and once by siglongjmp out of a signal handler,
 * and goes on to use the driver.
 *
 * Prints `cancelled`, `jumped`, and after each what the driver then says of the stream (600: not ready), then the
 * result of an undisturbed wait (0). A tracer must still see the calls that follow. */
#include <dlfcn.h>
#include <pthread.h>
#include <setjmp.h>
#include <signal.h>
#include <stdio.h>
#include <unistd.h>

#include "cuda.h"

static void *driver;
static CUcontext context;
static CUstream stream;
static sigjmp_buf before;
static int pipe_of_waiter[2];

#define FIND(name) __typeof__(&name) p_##name = (__typeof__(&name))dlsym(driver, #name)

static void *wait_for_ever(void *unused) {
    FIND(cuCtxSetCurrent);
    FIND(cuStreamSynchronize);
    p_cuCtxSetCurrent(context);
    if (write(pipe_of_waiter[1], "", 1) != 1) return NULL;
    p_cuStreamSynchronize(stream);
    return unused;
}

static void jump(int signal) {
    (void)signal;
    siglongjmp(before, 1);
}

int main(void) {
    driver = dlopen("libcuda.so.1", RTLD_NOW);
    if (!driver) {
        fprintf(stderr, "%s\n", dlerror());
        return 2;
    }
    FIND(cuInit);
    FIND(cuCtxCreate_v2);
    FIND(cuModuleLoadData);
    FIND(cuModuleGetFunction);
    FIND(cuLaunchKernel);
    FIND(cuStreamCreate);
    FIND(cuStreamQuery);
    FIND(cuStreamSynchronize);
    CUmodule module;
    CUfunction function;
    int r = p_cuInit(0);
    r |= p_cuCtxCreate_v2(&context, 0, 0);
    r |= p_cuModuleLoadData(&module, "fakecuda:spin_us_2000000");
    r |= p_cuModuleGetFunction(&function, module, "spin_us_2000000");
    r |= p_cuStreamCreate(&stream, CU_STREAM_NON_BLOCKING);
    r |= p_cuLaunchKernel(function, 1, 1, 1, 1, 1, 1, 0, stream, NULL, NULL);
    if (r || pipe(pipe_of_waiter)) return 1;

    pthread_t waiter;
    char byte;
    void *result = NULL;
    if (pthread_create(&waiter, NULL, wait_for_ever, NULL) || read(pipe_of_waiter[0], &byte, 1) != 1) return 1;
    pthread_cancel(waiter);
    pthread_join(waiter, &result);
    puts(result == PTHREAD_CANCELED ? "cancelled" : "not cancelled");
    printf("query %d\n", p_cuStreamQuery(stream));

    signal(SIGALRM, jump);
    if (!sigsetjmp(before, 1)) {
        ualarm(50000, 0);
        p_cuStreamSynchronize(stream);
        puts("not interrupted");
    } else {
        puts("jumped");
    }
    printf("query %d\n", p_cuStreamQuery(stream));
    printf("synchronize %d\n", p_cuStreamSynchronize(stream));
    return 0;
}
