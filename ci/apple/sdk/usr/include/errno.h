/* ISO C's, as far as zstd's sources need it. */
#pragma once
int *__error(void);
#define errno (*__error())
