/* Blocks, as far as a system that keeps and calls them needs it. */
#ifndef BLOCKS_H
#define BLOCKS_H

#include <stdlib.h>
#include <string.h>

#include "metal.h"

enum { BLOCK_IS_OURS = 1 << 24 };

/* A global block stays where it is. One of a stack is copied; ours capture nothing that would need more than that. */
static inline struct block *block_copy(void *given) {
    struct block *block = given;
    if (block->flags & BLOCK_IS_GLOBAL)
        return block;
    struct block *copy = malloc(block->descriptor->size);
    memcpy(copy, block, block->descriptor->size);
    copy->flags |= BLOCK_IS_OURS;
    return copy;
}

static inline void block_release(struct block *block) {
    if (block->flags & BLOCK_IS_OURS)
        free(block);
}

/* Who is to be called, in this order, once. */
struct handlers {
    struct block **blocks;
    int count;
};

static inline void add_handler(struct handlers *handlers, void *block) {
    handlers->blocks = realloc(handlers->blocks, (handlers->count + 1) * sizeof *handlers->blocks);
    handlers->blocks[handlers->count++] = block_copy(block);
}

static inline void call_handlers(struct handlers *handlers, id argument) {
    for (int i = 0; i < handlers->count; i++) {
        handlers->blocks[i]->invoke(handlers->blocks[i], argument, 0);
        block_release(handlers->blocks[i]);
    }
    free(handlers->blocks);
    *handlers = (struct handlers){0};
}

#endif
