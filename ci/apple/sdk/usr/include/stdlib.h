/* ISO C's, as far as zstd's sources need it. */
#pragma once
#include <stddef.h>
void *calloc(size_t, size_t);
void free(void *);
void *malloc(size_t);
void qsort(void *, size_t, size_t, int (*)(const void *, const void *));
void qsort_r(void *, size_t, size_t, void *, int (*)(void *, const void *, const void *));
