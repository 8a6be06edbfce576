/* A driver that does nothing, as libcuda.so.1: what is left when a hook's cost is measured is the hook. */
typedef int (*launch)(void *, unsigned, unsigned, unsigned, unsigned, unsigned, unsigned, unsigned, void *, void **,
                      void **);
static volatile unsigned long calls;

int cuInit(unsigned flags) { return 0; }
int cuCtxGetCurrent(void **context) { *context = (void *)0x1000; return 0; }
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
