/* A driver that does nothing, as libcuda.so.1: what is left when a hook's cost is measured is the hook. */
typedef int (*launch)(void *, unsigned, unsigned, unsigned, unsigned, unsigned, unsigned, unsigned, void *, void **,
                      void **);
static volatile unsigned long calls;

int cuInit(unsigned flags) { return 0; }
int cuCtxGetDevice(int *device) { *device = 0; return 0; }
int cuFuncGetName(const char **name, void *function) { *name = "stub_kernel"; return 0; }
static int do_launch(void *f, unsigned gx, unsigned gy, unsigned gz, unsigned bx, unsigned by, unsigned bz,
                     unsigned shared, void *stream, void **params, void **extra) {
    calls++;
    return 0;
}
int cuLaunchKernel(void *, unsigned, unsigned, unsigned, unsigned, unsigned, unsigned, unsigned, void *, void **, void **)
    __attribute__((alias("do_launch")));
/* The function itself, past every hook: the baseline of the same process. */
launch stubDirect(void) { return do_launch; }

/* One function of each kind that is not a launch: one that only asks, one that does something, one that looks up.
 * Each has a second name that no hook knows. */
static int ask(void **context) { *context = (void *)0x1000; return 0; }
static int act(int limit, unsigned long value) { calls += value; return 0; }
static int look_up(const char *name, void **address, int version, unsigned long long flags, int *status) {
    *address = (void *)do_launch;
    if (status) *status = 0;
    return 0;
}
int stubAsk(void **) __attribute__((alias("ask")));
int stubAct(int, unsigned long) __attribute__((alias("act")));
int stubLookUp(const char *, void **, int, unsigned long long, int *) __attribute__((alias("look_up")));
int cuCtxGetCurrent(void **) __attribute__((alias("ask")));
int cuCtxSetLimit(int, unsigned long) __attribute__((alias("act")));
int cuGetProcAddress_v2(const char *, void **, int, unsigned long long, int *) __attribute__((alias("look_up")));
