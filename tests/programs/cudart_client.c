/* The first calls of a program of the CUDA runtime, through a real libcudart, and what came of each.
 *
 * usage: cudart_client PATH_OF_LIBCUDART
 *
 * At its first call libcudart resolves more than 400 functions of the driver and asks for private tables. Without a
 * genuine driver and GPU it goes no further and gives an error, so this program only prints the results, a line each;
 * they must be the same with and without a tracer. cudart_like.c goes the rest of the way. */
#include <dlfcn.h>
#include <stdio.h>

static void *runtime;

static int call(const char *name, void *argument, size_t bytes) {
    int (*function)(void *, size_t) = (int (*)(void *, size_t))dlsym(runtime, name);
    int result = function ? function(argument, bytes) : -1;
    printf("%s = %d\n", name, result);
    return result;
}

int main(int argc, char **argv) {
    if (argc != 2) {
        fprintf(stderr, "usage: cudart_client PATH_OF_LIBCUDART\n");
        return 2;
    }
    runtime = dlopen(argv[1], RTLD_NOW | RTLD_GLOBAL);
    if (!runtime) {
        fprintf(stderr, "%s\n", dlerror());
        return 1;
    }
    int runtime_version = 0, driver_version = 0, devices = -1;
    void *memory = NULL;
    if (!call("cudaRuntimeGetVersion", &runtime_version, 0)) printf("runtime %d\n", runtime_version);
    if (!call("cudaDriverGetVersion", &driver_version, 0)) printf("driver %d\n", driver_version);
    if (!call("cudaGetDeviceCount", &devices, 0)) printf("devices %d\n", devices);
    if (!call("cudaMalloc", &memory, 4096)) call("cudaFree", memory, 0);
    return 0;
}
