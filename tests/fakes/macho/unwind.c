/* Tells this system's unwinder of a dylib's functions, so that exceptions may pass through them: from the compact
 * descriptions in __unwind_info (<mach-o/compact_unwind_encoding.h>) it makes the tables that the unwinder reads.
 *
 * Functions with a frame pointer only, as all are that call others; an exception through another one ends the process,
 * which a test would see. */
#include <stdlib.h>
#include <string.h>

#include "macho.h"

void __register_frame(void *entries);

#if defined(__x86_64__)
enum { MODE = 0x0f000000, FRAME = 0x01000000 };
enum { FRAME_POINTER = 6, RETURN_ADDRESS = 16 };
#elif defined(__aarch64__)
enum { MODE = 0x0f000000, FRAME = 0x04000000 };
enum { FRAME_POINTER = 29, RETURN_ADDRESS = 30 };
#endif
enum { REGULAR = 2, COMPRESSED = 3 };

struct header {
    uint32_t version, common, common_count, personalities, personality_count, index, index_count;
};

struct index_entry {
    uint32_t function, page, lsda;
};

struct page {
    uint32_t kind;
    uint16_t entries, count, encodings, encoding_count;
};

/* The tables as they grow: <length><what they belong to><start><bytes><instructions>. */
struct table {
    uint8_t *start, *at;
};

static void put(struct table *table, const void *bytes, size_t count) {
    memcpy(table->at, bytes, count);
    table->at += count;
}

static void put_byte(struct table *table, unsigned byte) {
    *table->at++ = byte;
}

static void put_word(struct table *table, uint32_t word) {
    put(table, &word, sizeof word);
}

static uint8_t *begin(struct table *table) {
    put_word(table, 0);
    return table->at;
}

static void end(struct table *table, uint8_t *body) {
    while ((table->at - body) % 8 != 4)
        put_byte(table, 0);
    uint32_t bytes = table->at - body;
    memcpy(body - 4, &bytes, sizeof bytes);
}

/* DW_CFA_offset: a register lies so many words below the caller's stack pointer. */
static void saved(struct table *table, unsigned reg, unsigned words) {
    put_byte(table, 0x80 | reg);
    put_byte(table, words);
}

/* What is the same for all: the caller's stack pointer, frame pointer and return address. */
static void put_common(struct table *table) {
    uint8_t *body = begin(table);
    put_word(table, 0);
    put(table, "\1\0\1\x78", 4); /* version, no augmentation, code in bytes, data in words of -8 */
    put_byte(table, RETURN_ADDRESS);
    put(table, (uint8_t[]){0x0c, FRAME_POINTER, 16}, 3); /* DW_CFA_def_cfa */
    saved(table, FRAME_POINTER, 2);
    saved(table, RETURN_ADDRESS, 1);
    end(table, body);
}

#if defined(__x86_64__)
static void put_saved(struct table *table, uint32_t encoding) {
    static const uint8_t NUMBERS[] = {0, 3, 12, 13, 14, 15};
    unsigned words = (encoding >> 16 & 0xff) + 2;
    for (int i = 0; i < 5; i++, words--) {
        unsigned reg = encoding >> 3 * i & 7;
        if (reg && reg < sizeof NUMBERS)
            saved(table, NUMBERS[reg], words);
    }
}
#elif defined(__aarch64__)
static void put_saved(struct table *table, uint32_t encoding) {
    unsigned words = 3;
    for (int pair = 0; pair < 5; pair++)
        if (encoding & 1 << pair) {
            saved(table, 19 + 2 * pair, words++);
            saved(table, 20 + 2 * pair, words++);
        }
    for (int pair = 0; pair < 4; pair++)
        if (encoding & 0x100 << pair)
            for (int one = 0; one < 2; one++) {
                /* DW_CFA_offset_extended: d8 is number 72 */
                put(table, (uint8_t[]){0x05, 72 + 2 * pair + one, words++}, 3);
            }
}
#endif

static void put_function(struct table *table, const uint8_t *start, uint64_t bytes, uint32_t encoding) {
    if ((encoding & MODE) != FRAME)
        return;
    uint8_t *body = begin(table);
    put_word(table, body - table->start);
    put(table, &start, sizeof start);
    put(table, &bytes, sizeof bytes);
    put_saved(table, encoding);
    end(table, body);
}

/* Start (from the image's) and encoding of an entry of a page. */
static uint32_t entry_of(const uint8_t *info, const struct index_entry *index, int nth, uint32_t *encoding) {
    const struct header *header = (const void *)info;
    const struct page *page = (const void *)(info + index->page);
    const uint32_t *words = (const void *)((const uint8_t *)page + page->entries);
    if (page->kind == REGULAR) {
        *encoding = words[2 * nth + 1];
        return words[2 * nth];
    }
    if (page->kind != COMPRESSED)
        macho_fail("__unwind_info has a page of kind %u", page->kind);
    uint32_t which = words[nth] >> 24;
    const uint32_t *common = (const void *)(info + header->common);
    const uint32_t *own = (const void *)((const uint8_t *)page + page->encodings);
    *encoding = which < header->common_count ? common[which] : own[which - header->common_count];
    return index->function + (words[nth] & 0xffffff);
}

void register_unwinding(const struct image *image) {
    enum { MOST_BYTES_EACH = 80 };
    const uint8_t *info = NULL;
    for (int i = 0; i < image->section_count; i++)
        if (!strncmp(image->sections[i]->sectname, "__unwind_info", 16))
            info = image->base + image->sections[i]->addr;
    if (!info)
        return;
    const struct header *header = (const void *)info;
    const struct index_entry *index = (const void *)(info + header->index);
    size_t functions = 0;
    for (uint32_t i = 0; i + 1 < header->index_count; i++)
        functions += ((const struct page *)(info + index[i].page))->count;
    struct table table = {.start = calloc(functions + 2, MOST_BYTES_EACH)};
    table.at = table.start;
    put_common(&table);
    for (uint32_t i = 0; i + 1 < header->index_count; i++) {
        const struct page *page = (const void *)(info + index[i].page);
        for (int nth = 0; nth < page->count; nth++) {
            uint32_t encoding, unused;
            uint32_t start = entry_of(info, &index[i], nth, &encoding);
            uint32_t next = nth + 1 < page->count ? entry_of(info, &index[i], nth + 1, &unused) : index[i + 1].function;
            put_function(&table, image->base + start, next - start, encoding);
        }
    }
    /* A length of 0 ends them, which calloc has put there. */
    __register_frame(table.start);
}
