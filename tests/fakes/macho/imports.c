/* The symbols that a dylib of ours may import, by library: this system's own where arguments and results mean the same
 * on both, else the one of system.c or objc.c. One that is not here is bound to a trap, which says its name. */
#define _GNU_SOURCE
#include <dlfcn.h>
#include <pthread.h>
#include <signal.h>
#include <spawn.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>
#include <sys/mman.h>
#include <time.h>
#include <unistd.h>

#include "thunks.h"

#define SYSTEM "/usr/lib/libSystem.B.dylib"
#define OBJC "/usr/lib/libobjc.A.dylib"
#define METAL "/System/Library/Frameworks/Metal.framework/Versions/A/Metal"

void *valloc(size_t bytes);
void *reallocf(void *block, size_t bytes);

#define SAME(name) "_" #name, (void *)name
#define THUNK(name) "_" #name, (void *)mac_##name

static const struct {
    const char *library, *symbol;
    void *address;
} IMPORTS[] = {
    {SYSTEM, SAME(_Exit)},
    {SYSTEM, THUNK(_NSGetArgc)},
    {SYSTEM, THUNK(_NSGetArgv)},
    {SYSTEM, THUNK(_NSGetEnviron)},
    {SYSTEM, THUNK(_NSGetExecutablePath)},
    {SYSTEM, "___bzero", (void *)bzero},
    {SYSTEM, THUNK(__error)},
    {SYSTEM, SAME(_exit)},
    {SYSTEM, "__NSConcreteGlobalBlock", _NSConcreteGlobalBlock},
    {SYSTEM, SAME(access)},
    {SYSTEM, SAME(aligned_alloc)},
    {SYSTEM, SAME(bzero)},
    {SYSTEM, SAME(calloc)},
    {SYSTEM, THUNK(clock_gettime_nsec_np)},
    {SYSTEM, SAME(close)},
    {SYSTEM, "_close$NOCANCEL", (void *)close},
    {SYSTEM, SAME(dladdr)},
    {SYSTEM, SAME(execve)},
    {SYSTEM, SAME(exit)},
    {SYSTEM, THUNK(fcntl)},
    {SYSTEM, SAME(free)},
    {SYSTEM, THUNK(fstatvfs)},
    {SYSTEM, SAME(ftruncate)},
    {SYSTEM, SAME(getpid)},
    {SYSTEM, SAME(getppid)},
    {SYSTEM, THUNK(getrlimit)},
    {SYSTEM, THUNK(kill)},
    {SYSTEM, SAME(malloc)},
    {SYSTEM, SAME(memcmp)},
    {SYSTEM, SAME(memcpy)},
    {SYSTEM, SAME(memmove)},
    {SYSTEM, SAME(memset)},
    {SYSTEM, THUNK(mmap)},
    {SYSTEM, SAME(munmap)},
    {SYSTEM, SAME(nanosleep)},
    {SYSTEM, THUNK(open)},
    {SYSTEM, SAME(posix_memalign)},
    {SYSTEM, SAME(posix_spawn)},
    {SYSTEM, SAME(posix_spawnp)},
    {SYSTEM, SAME(pthread_atfork)},
    {SYSTEM, THUNK(pthread_get_stackaddr_np)},
    {SYSTEM, THUNK(pthread_get_stacksize_np)},
    {SYSTEM, THUNK(pthread_getspecific)},
    {SYSTEM, THUNK(pthread_key_create)},
    {SYSTEM, SAME(pthread_self)},
    {SYSTEM, THUNK(pthread_setspecific)},
    {SYSTEM, THUNK(pthread_threadid_np)},
    {SYSTEM, SAME(realloc)},
    {SYSTEM, SAME(reallocf)},
    {SYSTEM, SAME(strlen)},
    {SYSTEM, SAME(strnlen)},
    {SYSTEM, THUNK(sysctl)},
    {SYSTEM, SAME(unlink)},
    {SYSTEM, SAME(valloc)},
    {SYSTEM, SAME(write)},
    {OBJC, SAME(class_addMethod)},
    {OBJC, SAME(class_getInstanceMethod)},
    {OBJC, SAME(class_getName)},
    {OBJC, SAME(class_getSuperclass)},
    {OBJC, SAME(class_replaceMethod)},
    {OBJC, SAME(method_getImplementation)},
    {OBJC, SAME(method_getTypeEncoding)},
    {OBJC, SAME(method_setImplementation)},
    {OBJC, THUNK(objc_getClass)},
    {OBJC, THUNK(objc_msgSend)},
    {OBJC, THUNK(object_getClass)},
    {OBJC, SAME(sel_registerName)},
    {METAL, SAME(MTLCopyAllDevices)},
    {METAL, SAME(MTLCopyAllDevicesWithObserver)},
    {METAL, SAME(MTLCreateSystemDefaultDevice)},
};

_Noreturn static void trapped(const char *symbol) {
    macho_fail("%s was called, which no thunk stands for", symbol);
}

/* A function that calls trapped(symbol). */
static void *trap_for(const char *symbol) {
#if defined(__x86_64__)
    /* mov rdi, symbol; mov rax, trapped; jmp rax */
    uint8_t code[22] = {0x48, 0xbf, [10] = 0x48, 0xb8, [20] = 0xff, 0xe0};
    size_t symbol_at = 2, target_at = 12;
#elif defined(__aarch64__)
    /* ldr x0, symbol; ldr x16, trapped; br x16 */
    uint32_t code[8] = {0x58000080, 0x580000b0, 0xd61f0200};
    size_t symbol_at = 16, target_at = 24;
#endif
    void *target = (void *)trapped;
    uint8_t *page = mmap(NULL, sizeof code, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    if (page == MAP_FAILED)
        macho_fail("no room for a trap");
    memcpy(page, code, sizeof code);
    memcpy(page + symbol_at, &symbol, sizeof symbol);
    memcpy(page + target_at, &target, sizeof target);
    mprotect(page, sizeof code, PROT_READ | PROT_EXEC);
    __builtin___clear_cache((char *)page, (char *)page + sizeof code);
    return page;
}

void *import_of(const char *library, const char *symbol, int weak) {
    for (size_t i = 0; i < sizeof IMPORTS / sizeof *IMPORTS; i++)
        if ((!library || !strcmp(IMPORTS[i].library, library)) && !strcmp(IMPORTS[i].symbol, symbol))
            return IMPORTS[i].address;
    return weak ? NULL : trap_for(symbol);
}
