/* Which function of the driver each look-up gives, by the name that the loader has for its address.
 *
 * usage: variants FILE      a file with one exported name of the driver per line
 * Prints `dlsym NAME FUNCTION` for each, and `NAME VERSION FLAGS FUNCTION` for cuGetProcAddress_v2 of each name without its
 * suffixes, at many versions and with flags 0, 1 and 2. A tracer's own function has the name of the one that it stands
 * for, so that the output must be the same with and without one. */
#define _GNU_SOURCE
#include <dlfcn.h>
#include <stdio.h>
#include <string.h>

#include "cuda.h"

static const char *name_of(void *function) {
    Dl_info info;
    if (!function) return "nothing";
    return dladdr(function, &info) && info.dli_sname && info.dli_saddr == function ? info.dli_sname : "unknown";
}

int main(int argc, char **argv) {
    static const int versions[] = {2000,  3020,  4000,  5000,  5050,  6000,  6050,  7000,  8000,  9000,  9020,  10000, 10010,
                                   10020, 11000, 11010, 11030, 11040, 11060, 11070, 12000, 12020, 12030, 12040, 12080, 13000};
    if (argc != 2) return 2;
    FILE *list = fopen(argv[1], "r");
    void *driver = dlopen("libcuda.so.1", RTLD_NOW);
    if (!list || !driver) return puts("nothing to look at"), 1;
    CUresult (*get)(const char *, void **, int, uint64_t, int *) =
        (CUresult(*)(const char *, void **, int, uint64_t, int *))dlsym(driver, "cuGetProcAddress_v2");
    char name[256];
    while (fscanf(list, "%255s", name) == 1) {
        printf("dlsym %s %s\n", name, name_of(dlsym(driver, name)));
        for (char *suffix; (suffix = strrchr(name, '_')) && (suffix[1] == 'v' || suffix[1] == 'p');) *suffix = 0;
        for (unsigned i = 0; i < sizeof versions / sizeof *versions; i++)
            for (uint64_t flags = 0; flags < 3; flags++) {
                void *found = NULL;
                int status = -1;
                int result = get(name, &found, versions[i], flags, &status);
                printf("%s %d %lu %s %d %d\n", name, versions[i], flags, name_of(found), result, status);
            }
    }
    return 0;
}
