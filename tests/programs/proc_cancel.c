/* Cancels a thread while it waits inside a hooked call.
 *
 *   proc_cancel
 *
 * The thread waits in cuCtxSynchronize for a long kernel (asynchronous cancellation, because the driver's wait may be no
 * cancellation point). Another thread then works on. Prints `cancelled` or `returned`, whichever the join reports;
 * exit 0 both ways: what counts is that the process lives (134 was seen from a hook with an unwinding guard). */
#include "proc.h"
#include <pthread.h>

typedef int (*cu_load)(void **, const void *);
typedef int (*cu_function)(void **, void *, const char *);
typedef int (*cu_launch)(void *, unsigned, unsigned, unsigned, unsigned, unsigned, unsigned, unsigned, void *, void **,
                         void **);

static struct cuda cuda;
static void *context;

static void *wait_inside(void *unused) {
    int old;
    (void)unused;
    cuda.set(context);
    pthread_setcanceltype(PTHREAD_CANCEL_ASYNCHRONOUS, &old);
    cuda.sync();
    pthread_testcancel();
    return NULL;
}

int main(void) {
    pthread_t thread;
    void *result = NULL, *module = NULL, *function = NULL;
    if (cuda_open(&cuda) != 0 || cuda.retain(&context, 0) != 0) return 3;
    void *library = dlopen("libcuda.so.1", RTLD_NOW);
    cu_load load = (cu_load)dlsym(library, "cuModuleLoadData");
    cu_function find = (cu_function)dlsym(library, "cuModuleGetFunction");
    cu_launch launch = (cu_launch)dlsym(library, "cuLaunchKernel");
    if (load(&module, "fakecuda:spin_us_500000") != 0 || find(&function, module, "spin_us_500000") != 0) return 4;
    if (launch(function, 1, 1, 1, 1, 1, 1, 0, NULL, NULL, NULL) != 0) return 5;
    if (pthread_create(&thread, NULL, wait_inside, NULL) != 0) fail("pthread_create");
    sleep_ms(100);
    pthread_cancel(thread);
    pthread_join(thread, &result);
    heap_pairs(100, 100);
    say(result == PTHREAD_CANCELED ? "cancelled\n" : "returned\n");
    /* A cancelled thread may have left the driver's own lock taken: no more driver calls, and no exit handlers. */
    _exit(0);
}
