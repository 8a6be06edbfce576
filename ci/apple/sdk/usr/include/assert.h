/* What zstd's sources ask of the C library, by ISO C: enough to build them without Apple's headers. */
#pragma once
#define assert(condition) ((void)0)
