/* Opens a library so that an interposer's symbols are not what it sees, and runs its job:
 *
 * usage: past_symbols deepbind|dlmopen LIBRARY (cuda_routes.c as a library that is linked to the driver) */
#define _GNU_SOURCE
#include <dlfcn.h>
#include <stdio.h>
#include <string.h>

int main(int argc, char **argv) {
    if (argc != 3) return 2;
    int deep = !strcmp(argv[1], "deepbind");
    void *library = deep ? dlopen(argv[2], RTLD_NOW | RTLD_LOCAL | RTLD_DEEPBIND) : dlmopen(LM_ID_NEWLM, argv[2], RTLD_NOW);
    if (!library) return puts(dlerror()), 1;
    int (*job)(int, char **) = (int (*)(int, char **))dlsym(library, "job");
    if (!job) return puts(dlerror()), 1;
    return job(2, (char *[]){"job", "link", NULL});
}
