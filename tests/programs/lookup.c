/* A program, a plugin and a library that only the plugin's own RUNPATH (or RPATH) finds, and RTLD_NEXT from a plugin.
 * One source: -DPLUGIN and -DINNER make the libraries. The program prints what it got through the plugin. */
#define _GNU_SOURCE
#include <dlfcn.h>
#include <stdio.h>

#if defined INNER
const char *inner(void);
const char *inner(void) { return "inner"; }
const char *defined_twice(void);
const char *defined_twice(void) { return "inner's"; }

#elif defined PLUGIN
const char *plugin(void);
const char *plugin(void) {
    static char text[512];
    /* Found through the caller's RUNPATH: the loader looks at the return address of dlopen. */
    void *library = dlopen("libinner.so", RTLD_NOW | RTLD_GLOBAL);
    if (!library) return dlerror();
    const char *(*inner)(void) = (const char *(*)(void))dlsym(library, "inner");
    /* Defined here and, after it in this plugin's own scope only, in a library that the plugin needs. */
    const char *(*next)(void) = (const char *(*)(void))dlsym(RTLD_NEXT, "defined_twice");
    char *(*own)(const char *) = (char *(*)(const char *))dlsym(RTLD_DEFAULT, "plugin");
    snprintf(text, sizeof text, "%s, next %s, default %s", inner ? inner() : "nothing", next ? next() : "nothing",
             own ? "found" : "hidden");
    return text;
}
const char *defined_twice(void);
const char *defined_twice(void) { return "plugin's"; }

#else
int main(int argc, char **argv) {
    /* Not to be found from here. */
    printf("from the program: %s\n", dlopen("libinner.so", RTLD_NOW) ? "found" : dlerror());
    void *library = dlopen(argv[1], RTLD_NOW | RTLD_LOCAL);
    if (!library) return puts(dlerror()), 1;
    const char *(*plugin)(void) = (const char *(*)(void))dlsym(library, "plugin");
    if (!plugin) return puts(dlerror()), 1;
    printf("from the plugin: %s\n", plugin());
    printf("version: %s\n", dlvsym(RTLD_DEFAULT, "realpath", "GLIBC_2.3") ? "found" : dlerror());
    printf("wrong version: %s\n", dlvsym(RTLD_DEFAULT, "realpath", "GLIBC_9.9") ? "found" : "not found");
    return 0;
}
#endif
