/* ISO C's, as far as zstd's sources need it: for the progress that they print in a debug build. */
#pragma once
typedef unsigned long clock_t;
#define CLOCKS_PER_SEC 1000000
clock_t clock(void);
