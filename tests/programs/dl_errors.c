/* Prints the loader's error texts after look-ups that fail, and whether CUDA is there.
 *
 * usage: dl_errors [DRIVER]
 * Linked against nothing of CUDA. With DRIVER (a path of a libcuda.so.1) it also leaves an error waiting across the
 * first calls of the driver: its text must still be there afterwards. */
#define _GNU_SOURCE
#include <dlfcn.h>
#include <stdio.h>

#include "cuda.h"

static void show(const char *what, void *found) {
    const char *error = dlerror();
    printf("%s: %s, %s\n", what, found ? "found" : "not found", error ? error : "no error");
}

int main(int argc, char **argv) {
    show("a function of libc", dlsym(RTLD_DEFAULT, "printf"));
    show("nothing", dlsym(RTLD_DEFAULT, "no_such_function"));
    show("nothing next", dlsym(RTLD_NEXT, "no_such_function"));
    show("a driver function that no hook has", dlsym(RTLD_DEFAULT, "cuNoSuchFunction"));
    show("the driver", dlsym(RTLD_DEFAULT, "cuInit") ? (void *)1 : NULL);
    show("the driver next", dlsym(RTLD_NEXT, "cuLaunchKernel") ? (void *)1 : NULL);
    void *self = dlopen(NULL, RTLD_NOW);
    show("the driver in the program", dlsym(self, "cuMemAlloc_v2") ? (void *)1 : NULL);
    show("the driver by version", dlvsym(RTLD_DEFAULT, "cuInit", "libcuda.so.1") ? (void *)1 : NULL);
    void *libc = dlopen("libc.so.6", RTLD_NOW | RTLD_NOLOAD);
    show("the driver in libc", dlsym(libc, "cuGetProcAddress_v2") ? (void *)1 : NULL);
    show("a library that is not there", dlopen("libnot_there.so", RTLD_NOW));
    if (argc < 2) return 0;
    void *driver = dlopen(argv[1], RTLD_NOW | RTLD_LOCAL);
    show("the driver's library", driver);
    if (!driver) return 1;
    show("a local driver in the global scope", dlsym(RTLD_DEFAULT, "cuInit") ? (void *)1 : NULL);
    dlopen(argv[1], RTLD_NOW | RTLD_GLOBAL | RTLD_NOLOAD);
    show("a global driver in the global scope", dlsym(RTLD_DEFAULT, "cuInit") ? (void *)1 : NULL);
    show("with a version that it lacks", dlvsym(RTLD_DEFAULT, "cuInit", "libcuda.so.9") ? (void *)1 : NULL);
    show("a function that it lacks", dlsym(driver, "cuNoSuchFunction"));
    CUresult (*init)(unsigned) = (CUresult(*)(unsigned))dlsym(driver, "cuInit");
    CUresult (*count)(int *) = (CUresult(*)(int *))dlsym(driver, "cuDeviceGetCount");
    dlopen("libnot_there.so", RTLD_NOW);
    int devices = 0;
    printf("cuInit %d count %d\n", init(0), count(&devices));
    show("the error that waited", NULL);
    show("no error left", NULL);
    return 0;
}
