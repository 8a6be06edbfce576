/* Waits in a function that it makes at run time, with a frame pointer, and names it in a map as compilers do for perf; for
 * tests/stacks.rs.
 *
 * usage: made_code NAME */
#include <stdint.h>
#include <stdio.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

#include "cuda.h"

int main(int argc, char **argv) {
    CUcontext context;
    if (argc != 2 || cuInit(0) || cuDevicePrimaryCtxRetain(&context, 0) || cuCtxSetCurrent(context)) return 1;
    unsigned char *code = mmap(NULL, 4096, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    if (code == MAP_FAILED) return 2;
    /* push rbp; mov rbp, rsp; mov rax, FUNCTION; xor edi, edi; call rax; pop rbp; ret */
    const unsigned char head[] = {0x55, 0x48, 0x89, 0xe5, 0x48, 0xb8}, tail[] = {0x31, 0xff, 0xff, 0xd0, 0x5d, 0xc3};
    void *function = (void *)cuStreamSynchronize;
    memcpy(code, head, sizeof head);
    memcpy(code + sizeof head, &function, sizeof function);
    memcpy(code + sizeof head + sizeof function, tail, sizeof tail);
    if (mprotect(code, 4096, PROT_READ | PROT_EXEC)) return 3;

    char path[64];
    snprintf(path, sizeof path, "/tmp/perf-%d.map", (int)getpid());
    FILE *map = fopen(path, "w");
    if (!map) return 4;
    fprintf(map, "%lx %zx %s\n", (unsigned long)(uintptr_t)code, sizeof head + sizeof function + sizeof tail, argv[1]);
    fclose(map);
    puts(path);
    ((void (*)(void))(uintptr_t)code)();
    return 0;
}
