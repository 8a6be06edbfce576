/* embeds_python LIBPYTHON: opens Python late, runs it twice, and waits before it, in it, between, in it again, and after. */
#define _GNU_SOURCE
#include <dlfcn.h>
#include <stdio.h>

static int (*wait_for)(void *);

__attribute__((noinline)) static void wait_in_c(void) {
    wait_for(0);
    __asm__ volatile("");
}

int main(int argc, char **argv) {
    static const char code[] = "import ctypes\n"
                               "def in_python():\n"
                               "    ctypes.CDLL('libcuda.so.1').cuStreamSynchronize(None)\n"
                               "in_python()\n";
    void *driver = dlopen("libcuda.so.1", RTLD_NOW), *context;
    int (*start)(unsigned) = dlsym(driver, "cuInit");
    int (*retain)(void **, int) = dlsym(driver, "cuDevicePrimaryCtxRetain");
    int (*use)(void *) = dlsym(driver, "cuCtxSetCurrent");
    wait_for = dlsym(driver, "cuStreamSynchronize");
    if (argc < 2 || start(0) || retain(&context, 0) || use(context)) return 2;
    wait_in_c();
    void *python = dlopen(argv[1], RTLD_NOW | RTLD_GLOBAL);
    if (!python) return fprintf(stderr, "%s\n", dlerror()), 2;
    void (*initialise)(int) = dlsym(python, "Py_InitializeEx");
    int (*run)(const char *, void *) = dlsym(python, "PyRun_SimpleStringFlags");
    int (*finalise)(void) = dlsym(python, "Py_FinalizeEx");
    for (int n = 0; n < 2; n++) {
        initialise(0);
        if (run(code, 0) || finalise()) return 3;
        wait_in_c();
    }
    puts("done");
    return 0;
}
