/* Calls of the program that the loader of macOS would lead elsewhere: those that a tuple of __interpose replaces.
 *
 * A program is linked with --wrap=NAME for each name here, so that its own calls come to __wrap_NAME, which jumps to
 * where the slot says: the system's function, until a tuple comes. Calls that libraries of the system make, this one
 * among them, stay as they are, as those inside of macOS's shared cache do, unless it is built with PATCHED: dyld patches some there. */
#include <errno.h>
#include <objc/runtime.h>
#include <spawn.h>
#include <stdlib.h>
#include <unistd.h>

#include "macho.h"

#if defined(__x86_64__)
#define JUMP(name) "jmp *slot_" name "(%rip)\n"
#elif defined(__aarch64__)
#define JUMP(name) "adrp x16, slot_" name "\nldr x16, [x16, :lo12:slot_" name "]\nbr x16\n"
#endif

/* All functions that tuples may replace. */
#define EACH(F)                                                                                                        \
    F(MTLCopyAllDevices)                                                                                               \
    F(MTLCopyAllDevicesWithObserver)                                                                                   \
    F(MTLCreateSystemDefaultDevice)                                                                                    \
    F(_Exit)                                                                                                           \
    F(_exit)                                                                                                           \
    F(aligned_alloc)                                                                                                   \
    F(calloc)                                                                                                          \
    F(class_addMethod)                                                                                                 \
    F(class_replaceMethod)                                                                                             \
    F(execve)                                                                                                          \
    F(exit)                                                                                                            \
    F(free)                                                                                                            \
    F(malloc)                                                                                                          \
    F(posix_memalign)                                                                                                  \
    F(posix_spawn)                                                                                                     \
    F(posix_spawnp)                                                                                                    \
    F(realloc)                                                                                                         \
    F(reallocf)                                                                                                        \
    F(valloc)

void *MTLCopyAllDevices(void);
void *MTLCopyAllDevicesWithObserver(void *observer, void *handler);
void *MTLCreateSystemDefaultDevice(void);
void *valloc(size_t bytes);
void *reallocf(void *block, size_t bytes);

#define SLOT(name)                                                                                                     \
    __attribute__((visibility("hidden"), used)) void *slot_##name = (void *)name;                                      \
    __asm__(".text\n.p2align 4\n.globl __wrap_" #name "\n.type __wrap_" #name ", %function\n__wrap_" #name ":\n" JUMP( \
        #name));
EACH(SLOT)

#define ROW(name) {"_" #name, &slot_##name},
static const struct {
    const char *symbol;
    void **slot;
} SLOTS[] = {EACH(ROW)};

void system_allocates(void) {
#ifdef PATCHED
    extern void *__wrap_malloc(size_t bytes), *__wrap_realloc(void *block, size_t bytes), __wrap_free(void *block);
    int before = errno;
    __wrap_free(__wrap_realloc(__wrap_malloc(24), 48));
    errno = before;
#endif
}

void interpose(void *system, void *ours) {
    for (size_t i = 0; i < sizeof SLOTS / sizeof *SLOTS; i++) {
        if (import_of(NULL, SLOTS[i].symbol, 0) == system) {
            *SLOTS[i].slot = ours;
            return;
        }
    }
    macho_fail("a tuple replaces a function that no program of ours calls through the loader");
}
