/* Allocates below a library whose unwinding tables lie on the disk and not in memory.
 *
 * usage: cold_tables LIBRARY
 * First line: `cold`, or `warm` where the pages could not be put out of memory. Then 60 allocations of 123,457 bytes through the library,
 * 20 ms apart, and `waited N`: how often the thread waited for a disk meanwhile.
 * With -DLIBRARY this is the library: 60,000 small functions with descriptions, and in their midst one that allocates. */
#define _GNU_SOURCE
#include <stdlib.h>

#ifdef LIBRARY
#define FILLER(name)                                                                                                   \
    __asm__(".text\n" name ":\n.rept 30000\n.cfi_startproc\npush %rbp\n.cfi_def_cfa_offset 16\n.cfi_offset 6, -16\n"   \
            "sub $24, %rsp\n.cfi_def_cfa_offset 40\nadd $24, %rsp\n.cfi_def_cfa_offset 16\npop %rbp\n"                 \
            ".cfi_def_cfa_offset 8\nret\n.cfi_endproc\n.endr\n")
FILLER("before");
__attribute__((noinline)) void *cold_allocate(void *(*allocate)(size_t)) {
    void *block = allocate(123457);
    __asm__ volatile("" : "+r"(block));
    return block;
}
FILLER("after");
#else
#include <dlfcn.h>
#include <fcntl.h>
#include <link.h>
#include <stdio.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/resource.h>
#include <time.h>
#include <unistd.h>

static const char *name;

/* Pages of the library's table of functions that are in memory, and all. */
static int look(struct dl_phdr_info *info, size_t size, void *found) {
    (void)size;
    if (strcmp(info->dlpi_name, name)) return 0;
    for (int n = 0; n < info->dlpi_phnum; n++) {
        if (info->dlpi_phdr[n].p_type != PT_GNU_EH_FRAME) continue;
        unsigned long begin = (info->dlpi_addr + info->dlpi_phdr[n].p_vaddr) & ~4095ul, pages = info->dlpi_phdr[n].p_memsz >> 12;
        unsigned char there[4096];
        if (pages > sizeof there || mincore((void *)begin, pages << 12, there)) return 1;
        for (unsigned long page = 0; page < pages; page++) ((long *)found)[0] += there[page] & 1;
        ((long *)found)[1] = (long)pages;
    }
    return 1;
}

int main(int argc, char **argv) {
    if (argc < 2) return 2;
    name = argv[1];
    int file = open(name, O_RDWR);
    if (file < 0 || fsync(file)) return perror(name), 3;
    void *library = dlopen(name, RTLD_NOW);
    if (!library) return puts(dlerror()), 3;
    void *(*allocate)(void *(*)(size_t)) = dlsym(library, "cold_allocate");
    void *(*volatile from)(size_t) = malloc;
    posix_fadvise(file, 0, 0, POSIX_FADV_DONTNEED);
    /* The code itself is not what this is about. */
    allocate(from);
    posix_fadvise(file, 0, 0, POSIX_FADV_DONTNEED);
    long found[2] = {0, 0};
    dl_iterate_phdr(look, found);
    puts(found[1] > 0 && found[0] * 2 < found[1] ? "cold" : "warm");
    fflush(stdout);
    struct rusage before, after;
    getrusage(RUSAGE_THREAD, &before);
    for (int n = 0; n < 60; n++) {
        free(allocate(from));
        nanosleep(&(struct timespec){0, 20000000}, NULL);
    }
    getrusage(RUSAGE_THREAD, &after);
    printf("waited %ld\n", after.ru_majflt - before.ru_majflt);
    return 0;
}
#endif
