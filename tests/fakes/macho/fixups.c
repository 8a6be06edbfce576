/* The programs for two small machines that a dylib of macOS 11 brings: where it holds its own addresses (rebase) and
 * those of others (bind). Lazy ones are bound at once, so nothing calls dyld_stub_binder. */
#include <string.h>

#include "macho.h"

enum { POINTER = 1 };
enum {
    REBASE_DONE = 0x00,
    REBASE_SET_TYPE = 0x10,
    REBASE_SET_SEGMENT_AND_OFFSET = 0x20,
    REBASE_ADD_ADDR = 0x30,
    REBASE_ADD_ADDR_SCALED = 0x40,
    REBASE_TIMES_SCALED = 0x50,
    REBASE_TIMES = 0x60,
    REBASE_ADD_ADDR_AFTER = 0x70,
    REBASE_TIMES_SKIPPING = 0x80,
};
enum {
    BIND_DONE = 0x00,
    BIND_SET_ORDINAL = 0x10,
    BIND_SET_ORDINAL_ULEB = 0x20,
    BIND_SET_SPECIAL = 0x30,
    BIND_SET_SYMBOL = 0x40,
    BIND_SET_TYPE = 0x50,
    BIND_SET_ADDEND = 0x60,
    BIND_SET_SEGMENT_AND_OFFSET = 0x70,
    BIND_ADD_ADDR = 0x80,
    BIND = 0x90,
    BIND_ADD_ADDR_AFTER = 0xa0,
    BIND_ADD_ADDR_SCALED = 0xb0,
    BIND_TIMES_SKIPPING = 0xc0,
};
/* A symbol that may be missing. */
enum { WEAK_IMPORT = 1 };

static uint64_t uleb(const uint8_t **at) {
    uint64_t value = 0;
    for (int shift = 0;; shift += 7) {
        uint8_t byte = *(*at)++;
        value |= (uint64_t)(byte & 0x7f) << shift;
        if (!(byte & 0x80))
            return value;
    }
}

static int64_t sleb(const uint8_t **at) {
    int64_t value = 0;
    for (int shift = 0;;) {
        uint8_t byte = *(*at)++;
        value |= (int64_t)(byte & 0x7f) << shift;
        shift += 7;
        if (!(byte & 0x80))
            return byte & 0x40 && shift < 64 ? value - ((int64_t)1 << shift) : value;
    }
}

static uint8_t *segment_start(const struct image *image, int index) {
    if (index >= image->segment_count)
        macho_fail("%s: a fixup of segment %d", image->path, index);
    return image->base + image->segments[index]->vmaddr;
}

/* Adds the distance from where the image was linked, which is address 0, to pointers that stand `step` bytes apart. */
static uint8_t *slide(const struct image *image, uint8_t *place, uint64_t times, uint64_t step) {
    for (uint64_t i = 0; i < times; i++, place += step)
        *(uint64_t *)place += (uint64_t)image->base;
    return place;
}

static void rebase(const struct image *image) {
    const uint8_t *at = image->file + image->fixups->rebase_off, *end = at + image->fixups->rebase_size;
    uint8_t *place = NULL;
    while (at < end) {
        int immediate = *at & 0xf;
        uint64_t times, more;
        switch (*at++ & 0xf0) {
        case REBASE_DONE:
            return;
        case REBASE_SET_TYPE:
            if (immediate != POINTER)
                macho_fail("%s: rebase of type %d", image->path, immediate);
            break;
        case REBASE_SET_SEGMENT_AND_OFFSET:
            place = segment_start(image, immediate) + uleb(&at);
            break;
        case REBASE_ADD_ADDR:
            place += uleb(&at);
            break;
        case REBASE_ADD_ADDR_SCALED:
            place += immediate * 8;
            break;
        case REBASE_TIMES_SCALED:
            place = slide(image, place, immediate, 8);
            break;
        case REBASE_TIMES:
            place = slide(image, place, uleb(&at), 8);
            break;
        case REBASE_ADD_ADDR_AFTER:
            place = slide(image, place, 1, 8) + uleb(&at);
            break;
        case REBASE_TIMES_SKIPPING:
            times = uleb(&at);
            more = uleb(&at);
            place = slide(image, place, times, 8 + more);
            break;
        default:
            macho_fail("%s: a rebase opcode %#x", image->path, at[-1]);
        }
    }
}

/* What the machine for binding has set so far. */
struct binding {
    const char *library, *symbol;
    int weak;
    int64_t addend;
    uint8_t *place;
};

static const char *library_of(const struct image *image, uint64_t ordinal) {
    if (ordinal == 0 || ordinal > (uint64_t)image->library_count)
        macho_fail("%s: a symbol of library %d", image->path, (int)ordinal);
    return image->libraries[ordinal - 1];
}

static void bind_here(struct binding *now, uint64_t step) {
    void *found = import_of(now->library, now->symbol, now->weak);
    *(uint64_t *)now->place = found ? (uint64_t)found + now->addend : 0;
    now->place += step;
}

/* Lazy bindings come one by one, each with its own end; the others' end is the last. */
static void bind(const struct image *image, uint32_t offset, uint32_t bytes, int lazy) {
    const uint8_t *at = image->file + offset, *end = at + bytes;
    struct binding now = {0};
    while (at < end) {
        int immediate = *at & 0xf;
        uint64_t times, more;
        switch (*at++ & 0xf0) {
        case BIND_DONE:
            if (!lazy)
                return;
            break;
        case BIND_SET_ORDINAL:
            now.library = library_of(image, immediate);
            break;
        case BIND_SET_ORDINAL_ULEB:
            now.library = library_of(image, uleb(&at));
            break;
        case BIND_SET_SYMBOL:
            now.weak = immediate & WEAK_IMPORT;
            now.symbol = (const char *)at;
            at += strlen(now.symbol) + 1;
            break;
        case BIND_SET_TYPE:
            if (immediate != POINTER)
                macho_fail("%s: binding of type %d", image->path, immediate);
            break;
        case BIND_SET_ADDEND:
            now.addend = sleb(&at);
            break;
        case BIND_SET_SEGMENT_AND_OFFSET:
            now.place = segment_start(image, immediate) + uleb(&at);
            break;
        case BIND_ADD_ADDR:
            now.place += uleb(&at);
            break;
        case BIND:
            bind_here(&now, 8);
            break;
        case BIND_ADD_ADDR_AFTER:
            bind_here(&now, 8);
            now.place += uleb(&at);
            break;
        case BIND_ADD_ADDR_SCALED:
            bind_here(&now, 8 + immediate * 8);
            break;
        case BIND_TIMES_SKIPPING:
            times = uleb(&at);
            more = uleb(&at);
            for (uint64_t i = 0; i < times; i++)
                bind_here(&now, 8 + more);
            break;
        default: /* BIND_SET_SPECIAL too: we look nothing up in all libraries */
            macho_fail("%s: a bind opcode %#x", image->path, at[-1]);
        }
    }
}

void fix_up(const struct image *image) {
    const struct dyld_info_command *info = image->fixups;
    if (!info)
        macho_fail("%s says nothing of its fixups", image->path);
    if (info->weak_bind_size)
        macho_fail("%s has symbols that any image may define", image->path);
    rebase(image);
    bind(image, info->bind_off, info->bind_size, 0);
    bind(image, info->lazy_bind_off, info->lazy_bind_size, 1);
}
