/* Leaves a hooked call by siglongjmp, again and again, and shows that the thread is still traced afterwards.
 *
 *   proc_longjmp [ROUNDS]
 *
 * A timer's handler jumps out of cuCtxSynchronize while the simulated driver's kernel of 100 ms runs. Then 100 heap pairs
 * and 10 device pairs follow. Prints `jumped N`; 3 to 6: the driver failed. */
#include "proc.h"
#include <setjmp.h>
#include <signal.h>
#include <sys/time.h>

typedef int (*cu_load)(void **, const void *);
typedef int (*cu_function)(void **, void *, const char *);
typedef int (*cu_launch)(void *, unsigned, unsigned, unsigned, unsigned, unsigned, unsigned, unsigned, void *, void **,
                         void **);

static sigjmp_buf back;
static volatile sig_atomic_t armed;

static void jump(int signal) {
    (void)signal;
    if (armed) {
        armed = 0;
        siglongjmp(back, 1);
    }
}

static void alarm_in_ms(long ms) {
    struct itimerval timer = {{0, 0}, {0, ms * 1000}};
    setitimer(ITIMER_REAL, &timer, NULL);
}

int main(int argc, char **argv) {
    int rounds = argc > 1 ? atoi(argv[1]) : 5;
    struct cuda cuda;
    struct sigaction action = {.sa_handler = jump};
    void *module = NULL, *function = NULL;
    volatile int jumped = 0;
    sigaction(SIGALRM, &action, NULL);
    if (cuda_open(&cuda) != 0) return 3;
    void *library = dlopen("libcuda.so.1", RTLD_NOW);
    cu_load load = (cu_load)dlsym(library, "cuModuleLoadData");
    cu_function find = (cu_function)dlsym(library, "cuModuleGetFunction");
    cu_launch launch = (cu_launch)dlsym(library, "cuLaunchKernel");
    if (load(&module, "fakecuda:spin_us_100000") != 0 || find(&function, module, "spin_us_100000") != 0) return 4;
    for (int i = 0; i < rounds; i++) {
        if (launch(function, 1, 1, 1, 1, 1, 1, 0, NULL, NULL, NULL) != 0) return 5;
        if (sigsetjmp(back, 1) == 0) {
            armed = 1;
            alarm_in_ms(10);
            cuda.sync();
            armed = 0;
        } else {
            jumped++;
        }
    }
    heap_pairs(100, 100);
    sleep_ms(150 * rounds);
    if (cuda_pairs(&cuda, 10) != 0) return 6;
    printf("jumped %d\n", (int)jumped);
    return 0;
}
