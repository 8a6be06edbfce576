/* Calls every function of a list once, with nothing but zeros, by one route.
 *
 * usage: cuda_zeros dlsym|default|next|dlvsym|link
 * Compiled with -DSYMBOLS="file", a file with one X(name) per function; with -DLINK its names are linked; dlvsym wants a
 * driver whose symbols have the version libcuda.so.1. The driver's answers do not matter; that each call arrives does:
 * cuda_every.c calls them as they are meant. Prints `NAME called` or `NAME not reached`. */
#define _GNU_SOURCE
#include <dlfcn.h>
#include <stdio.h>
#include <string.h>

#include "cuda.h"

typedef int (*any)(long, long, long, long, long, long, long, long, long, long, long, long);
struct symbol {
    const char *name;
    any linked;
};

#ifdef LINK
#define X(name) extern int name##_linked(long, ...) __asm__(#name);
#include SYMBOLS
#undef X
#define X(name) {#name, (any)name##_linked},
#else
#define X(name) {#name, NULL},
#endif
static const struct symbol symbols[] = {
#include SYMBOLS
};

int main(int argc, char **argv) {
    if (argc != 2) return 2;
    const char *route = argv[1];
    int linked = !strcmp(route, "link");
    void *driver = linked ? NULL : dlopen("libcuda.so.1", RTLD_NOW | RTLD_GLOBAL);
    if (!linked && !driver) return puts(dlerror()), 1;
    void *handle = !strcmp(route, "default") ? RTLD_DEFAULT : !strcmp(route, "next") ? RTLD_NEXT : driver;
    CUresult (*init)(unsigned) = (CUresult(*)(unsigned))dlsym(linked ? RTLD_DEFAULT : driver, "cuInit");
    if (init(0)) return puts("cuInit failed"), 1;
    for (unsigned i = 0; i < sizeof symbols / sizeof *symbols; i++) {
        const char *name = symbols[i].name;
        any function = symbols[i].linked;
        if (!strcmp(route, "dlvsym")) function = (any)dlvsym(driver, name, "libcuda.so.1");
        else if (!linked) function = (any)dlsym(handle, name);
        printf("%s %s\n", name, function ? "called" : "not reached");
        fflush(stdout);
        if (function) function(0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0);
    }
    return 0;
}
