/* Plays the dynamic loader of macOS in a program of Linux: before main it loads what DYLD_INSERT_LIBRARIES names,
 * binds it to this system's functions, takes its tuples of __interpose and runs its initialisers. Without that
 * variable the program runs as it is. */
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "macho.h"

int own_argc;
char **own_argv;

_Noreturn void macho_fail(const char *format, ...) {
    va_list arguments;
    va_start(arguments, format);
    fputs("macho: ", stderr);
    vfprintf(stderr, format, arguments);
    fputs("\n", stderr);
    va_end(arguments);
    abort();
}

struct tuple {
    void *ours, *system;
};

typedef void initialiser(int, char **, char **, char **, void *);

static void take_tuples(const struct image *image) {
    for (int i = 0; i < image->section_count; i++) {
        const struct section_64 *section = image->sections[i];
        if ((section->flags & 0xff) != S_INTERPOSING)
            continue;
        const struct tuple *tuples = (const void *)(image->base + section->addr);
        for (size_t at = 0; at < section->size / sizeof *tuples; at++)
            interpose(tuples[at].system, tuples[at].ours);
    }
}

static void initialise(const struct image *image, char **environment) {
    char *apple[] = {NULL};
    for (int i = 0; i < image->section_count; i++) {
        const struct section_64 *section = image->sections[i];
        const void *at = image->base + section->addr;
        int kind = section->flags & 0xff;
        if (kind == S_MOD_INIT_FUNC_POINTERS)
            for (size_t n = 0; n < section->size / 8; n++)
                ((initialiser *const *)at)[n](own_argc, own_argv, environment, apple, NULL);
        if (kind == S_INIT_FUNC_OFFSETS)
            for (size_t n = 0; n < section->size / 4; n++)
                ((initialiser *)(image->base + ((const uint32_t *)at)[n]))(own_argc, own_argv, environment, apple, NULL);
    }
}

/* The libraries are never unmapped: so are inserted ones on macOS. */
__attribute__((constructor)) static void start(int argc, char **argv, char **environment) {
    own_argc = argc;
    own_argv = argv;
    const char *inserted = getenv("DYLD_INSERT_LIBRARIES");
    if (!inserted || !*inserted)
        return;
    char *paths = strdup(inserted), *rest = paths;
    for (char *path; (path = strsep(&rest, ":"));) {
        struct image image;
        map_image(&image, path);
        fix_up(&image);
        protect_image(&image);
        register_unwinding(&image);
        take_tuples(&image);
        system_allocates();
        initialise(&image, environment);
    }
    free(paths);
}
