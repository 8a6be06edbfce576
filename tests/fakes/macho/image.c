/* Maps a dylib: one processor's slice of the file, its segments at one distance from where they were linked. */
#include <fcntl.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include "macho.h"

/* Segments begin at multiples of this on arm64, and of less elsewhere. */
enum { PAGE = 0x4000 };

static uint32_t big_endian(const uint8_t *at) {
    return (uint32_t)at[0] << 24 | (uint32_t)at[1] << 16 | (uint32_t)at[2] << 8 | at[3];
}

static void read_file(struct image *image) {
    int file = open(image->path, O_RDONLY | O_CLOEXEC);
    struct stat facts;
    if (file < 0 || fstat(file, &facts) != 0)
        macho_fail("%s cannot be opened", image->path);
    void *bytes = mmap(NULL, facts.st_size, PROT_READ, MAP_PRIVATE, file, 0);
    if (bytes == MAP_FAILED)
        macho_fail("%s cannot be mapped", image->path);
    close(file);
    image->file = bytes;
    image->file_bytes = facts.st_size;
}

/* Of a file for several processors, the part for this one. */
static void choose_slice(struct image *image) {
    const uint8_t *file = image->file;
    if (big_endian(file) != FAT_MAGIC)
        return;
    for (uint32_t i = 0; i < big_endian(file + 4); i++) {
        const uint8_t *slice = file + 8 + 20 * i;
        if (big_endian(slice) == OWN_CPU) {
            image->file = file + big_endian(slice + 8);
            image->file_bytes = big_endian(slice + 12);
            return;
        }
    }
    macho_fail("%s has no part for this processor", image->path);
}

static void take_segment(struct image *image, const struct segment_command_64 *segment) {
    if (image->segment_count == MOST_SEGMENTS || image->section_count + segment->nsects > MOST_SECTIONS)
        macho_fail("%s has more segments or sections than this loader knows", image->path);
    image->segments[image->segment_count++] = segment;
    const struct section_64 *sections = (const void *)(segment + 1);
    for (uint32_t i = 0; i < segment->nsects; i++) {
        int kind = sections[i].flags & 0xff;
        /* The system allocates them at their first use: inside of our malloc. */
        if (kind >= S_THREAD_LOCAL_REGULAR && kind <= S_THREAD_LOCAL_INIT)
            macho_fail("%s has thread-local variables (%.16s)", image->path, sections[i].sectname);
        image->sections[image->section_count++] = &sections[i];
    }
}

static void read_commands(struct image *image) {
    const struct mach_header_64 *header = (const void *)image->file;
    if (header->magic != MH_MAGIC_64 || header->cputype != OWN_CPU || header->filetype != MH_DYLIB)
        macho_fail("%s is no dylib for this processor", image->path);
    const uint8_t *at = (const uint8_t *)(header + 1);
    for (uint32_t i = 0; i < header->ncmds; i++) {
        const struct load_command *command = (const void *)at;
        switch (command->cmd) {
        case LC_SEGMENT_64:
            take_segment(image, (const void *)at);
            break;
        case LC_DYLD_INFO_ONLY:
            image->fixups = (const void *)at;
            break;
        case LC_LOAD_DYLIB:
        case LC_LOAD_WEAK_DYLIB:
            if (image->library_count == MOST_LIBRARIES)
                macho_fail("%s needs more libraries than this loader knows", image->path);
            image->libraries[image->library_count++] = (const char *)at + ((const struct dylib_command *)at)->name;
            break;
        case LC_DYLD_CHAINED_FIXUPS:
            macho_fail("%s has chained fixups: it is not for macOS 11", image->path);
        }
        at += command->cmdsize;
    }
}

void map_image(struct image *image, const char *path) {
    *image = (struct image){.path = path};
    read_file(image);
    choose_slice(image);
    read_commands(image);
    uint64_t end = 0;
    for (int i = 0; i < image->segment_count; i++) {
        const struct segment_command_64 *segment = image->segments[i];
        end = segment->vmaddr + segment->vmsize > end ? segment->vmaddr + segment->vmsize : end;
    }
    uint8_t *room = mmap(NULL, end + PAGE, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    if (room == MAP_FAILED)
        macho_fail("no room for %s", path);
    image->base = (uint8_t *)(((uintptr_t)room + PAGE - 1) & ~(uintptr_t)(PAGE - 1));
    for (int i = 0; i < image->segment_count; i++) {
        const struct segment_command_64 *segment = image->segments[i];
        memcpy(image->base + segment->vmaddr, image->file + segment->fileoff, segment->filesize);
    }
}

void protect_image(const struct image *image) {
    for (int i = 0; i < image->segment_count; i++) {
        const struct segment_command_64 *segment = image->segments[i];
        /* The bits of both systems are the same. */
        int protection = segment->flags & SG_READ_ONLY ? PROT_READ : (int)segment->initprot;
        uint8_t *at = image->base + segment->vmaddr;
        if (mprotect(at, segment->vmsize, protection) != 0)
            macho_fail("%.16s of %s cannot be protected", segment->segname, image->path);
        __builtin___clear_cache((char *)at, (char *)at + segment->vmsize);
    }
}
