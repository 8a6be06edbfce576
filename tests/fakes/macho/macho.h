/* Mach-O on Linux: what the loader's files share. Formats: Apple's <mach-o/loader.h>, <mach-o/fat.h>. */
#ifndef MACHO_H
#define MACHO_H

#include <stddef.h>
#include <stdint.h>

#if defined(__x86_64__)
#define OWN_CPU 0x01000007
#elif defined(__aarch64__)
#define OWN_CPU 0x0100000c
#endif

enum { FAT_MAGIC = 0xcafebabe, MH_MAGIC_64 = 0xfeedfacf, MH_DYLIB = 6 };
enum {
    LC_LOAD_DYLIB = 0xc,
    LC_SEGMENT_64 = 0x19,
    LC_DYLD_INFO_ONLY = 0x80000022,
    LC_LOAD_WEAK_DYLIB = 0x80000018,
    LC_DYLD_CHAINED_FIXUPS = 0x80000034,
};
/* Kinds of sections: the low byte of their flags. */
enum { S_MOD_INIT_FUNC_POINTERS = 0x9, S_INTERPOSING = 0xd, S_THREAD_LOCAL_REGULAR = 0x11, S_THREAD_LOCAL_INIT = 0x15, S_INIT_FUNC_OFFSETS = 0x16 };
/* Flags of a segment: nothing writes to it any more when everything is bound. */
enum { SG_READ_ONLY = 0x10 };

struct mach_header_64 {
    uint32_t magic, cputype, cpusubtype, filetype, ncmds, sizeofcmds, flags, reserved;
};

struct load_command {
    uint32_t cmd, cmdsize;
};

struct segment_command_64 {
    uint32_t cmd, cmdsize;
    char segname[16];
    uint64_t vmaddr, vmsize, fileoff, filesize;
    uint32_t maxprot, initprot, nsects, flags;
};

struct section_64 {
    char sectname[16], segname[16];
    uint64_t addr, size;
    uint32_t offset, align, reloff, nreloc, flags, reserved1, reserved2, reserved3;
};

struct dyld_info_command {
    uint32_t cmd, cmdsize;
    uint32_t rebase_off, rebase_size, bind_off, bind_size, weak_bind_off, weak_bind_size;
    uint32_t lazy_bind_off, lazy_bind_size, export_off, export_size;
};

struct dylib_command {
    uint32_t cmd, cmdsize, name, timestamp, current_version, compatibility_version;
};

enum { MOST_SEGMENTS = 16, MOST_LIBRARIES = 8, MOST_SECTIONS = 64 };

/* A dylib in memory. */
struct image {
    const char *path;
    const uint8_t *file; /* of this processor's slice */
    size_t file_bytes;
    uint8_t *base;
    const struct segment_command_64 *segments[MOST_SEGMENTS];
    int segment_count;
    const struct section_64 *sections[MOST_SECTIONS];
    int section_count;
    const struct dyld_info_command *fixups;
    const char *libraries[MOST_LIBRARIES]; /* ordinal 1 first */
    int library_count;
};

/* image.c */
void map_image(struct image *image, const char *path);
void protect_image(const struct image *image);
/* fixups.c */
void fix_up(const struct image *image);
/* unwind.c */
void register_unwinding(const struct image *image);
/* imports.c: where a symbol of a library is; a trap that names it for one that nobody has looked at. */
void *import_of(const char *library, const char *symbol, int weak);
/* interpose.c */
void interpose(void *system, void *ours);
/* What a function of the system does that allocates: with PATCHED the block comes from where the slots lead. */
void system_allocates(void);
/* start.c: what Mach-O programs are told about themselves. */
extern int own_argc;
extern char **own_argv;

#ifdef PATCHED
/* What the system's own libraries, this one among them, call is led elsewhere, too, as where dyld patches its shared cache: the linker
 * makes __wrap_NAME of it. Not what the loader's own files mean: the functions themselves. */
void *__real_calloc(size_t count, size_t bytes), *__real_malloc(size_t bytes), *__real_realloc(void *block, size_t bytes);
void *__real_valloc(size_t bytes), __real_free(void *block);
int __real_posix_memalign(void **block, size_t alignment, size_t bytes);
#define calloc __real_calloc
#define free __real_free
#define malloc __real_malloc
#define posix_memalign __real_posix_memalign
#define realloc __real_realloc
#define valloc __real_valloc
#endif

/* Says what is wrong, and ends the process as the loader of macOS does. */
_Noreturn void macho_fail(const char *format, ...) __attribute__((format(printf, 1, 2)));

#endif
