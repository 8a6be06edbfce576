/* ISO C's, as far as zstd's sources need it: they print only what a debug build traces. */
#pragma once
#define fprintf(...) ((void)0)
#define fflush(stream) ((void)0)
