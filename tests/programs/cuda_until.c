/* Has the first device until somebody makes a file, and works on the processor meanwhile.
 *
 * usage: cuda_until FILE [none]     (none: without the driver)
 *
 * Prints `ok`. */
#include <dlfcn.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

#include "cuda.h"

int main(int argc, char **argv) {
    if (argc < 2) return 2;
    if (argc < 3 || strcmp(argv[2], "none")) {
        void *driver = dlopen("libcuda.so.1", RTLD_NOW | RTLD_GLOBAL);
        if (!driver) return puts(dlerror()), 1;
        CUresult (*init)(unsigned) = (CUresult(*)(unsigned))dlsym(driver, "cuInit");
        if (init(0)) return puts("cuInit failed"), 1;
    }
    volatile unsigned long work = 0;
    while (access(argv[1], F_OK)) {
        for (int i = 0; i < 1000000; i++) work += i;
        usleep(1000);
    }
    puts("ok");
    return 0;
}
