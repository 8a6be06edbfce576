/* The plan that the victim is given: `,key=value,key=value,`; and numbers that follow from a seed. */
#ifndef CHAOS_PLAN_H
#define CHAOS_PLAN_H

#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static const char *plan;

/* The text after `key=`, or NULL. */
static const char *planned(const char *key) {
    char mark[32];
    snprintf(mark, sizeof mark, ",%s=", key);
    const char *at = strstr(plan, mark);
    return at ? at + strlen(mark) : NULL;
}

static long number(const char *key, long otherwise) {
    const char *at = planned(key);
    return at ? strtol(at, NULL, 0) : otherwise;
}

static int is(const char *key, const char *word) {
    const char *at = planned(key);
    size_t length = strlen(word);
    return at && !strncmp(at, word, length) && at[length] == ',';
}

/* splitmix64 */
static uint64_t draw(uint64_t *state) {
    uint64_t z = *state += 0x9e3779b97f4a7c15ull;
    z = (z ^ z >> 30) * 0xbf58476d1ce4e5b9ull;
    z = (z ^ z >> 27) * 0x94d049bb133111ebull;
    return z ^ z >> 31;
}

static uint64_t below(uint64_t *state, uint64_t bound) { return draw(state) % bound; }

#endif
