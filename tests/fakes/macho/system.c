/* libSystem's functions whose numbers, structures or results differ from this system's. A number that is not known
 * here is an error of the loader's: nobody has looked at what the dylib means by it. */
#define _GNU_SOURCE
#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/resource.h>
#include <sys/statvfs.h>
#include <sys/syscall.h>
#include <time.h>
#include <unistd.h>

#include "thunks.h"

extern char **environ;

int *mac__NSGetArgc(void) {
    return &own_argc;
}

char ***mac__NSGetArgv(void) {
    return &own_argv;
}

char ***mac__NSGetEnviron(void) {
    return &environ;
}

int mac__NSGetExecutablePath(char *buffer, uint32_t *bytes) {
    char path[PATH_MAX];
    ssize_t length = readlink("/proc/self/exe", path, sizeof path - 1);
    if (length < 0 || (uint32_t)length >= *bytes)
        return -1;
    memcpy(buffer, path, length);
    buffer[length] = 0;
    return 0;
}

/* The errors that the shim tells apart have the same numbers on both: EPERM, ESRCH, EACCES, ENFILE, EMFILE. */
int *mac___error(void) {
    return &errno;
}

/* One value for each of macOS's. */
struct pair {
    int mac, own;
};

static int own_bits(const char *what, int bits, const struct pair *pairs, size_t count) {
    int own = 0;
    for (size_t i = 0; i < count; i++)
        if (bits & pairs[i].mac) {
            own |= pairs[i].own;
            bits &= ~pairs[i].mac;
        }
    if (bits)
        macho_fail("%s: unknown bits %#x", what, bits);
    return own;
}

static int own_number(const char *what, int number, const struct pair *pairs, size_t count) {
    for (size_t i = 0; i < count; i++)
        if (pairs[i].mac == number)
            return pairs[i].own;
    macho_fail("%s: unknown number %d", what, number);
}

#define BITS(what, bits, pairs) own_bits(what, bits, pairs, sizeof pairs / sizeof *pairs)
#define NUMBER(what, number, pairs) own_number(what, number, pairs, sizeof pairs / sizeof *pairs)

uint64_t mac_clock_gettime_nsec_np(int clock) {
    /* CLOCK_UPTIME_RAW stands still while the machine sleeps, as Linux's CLOCK_MONOTONIC does. */
    static const struct pair CLOCKS[] = {{0, CLOCK_REALTIME}, {6, CLOCK_BOOTTIME}, {8, CLOCK_MONOTONIC}};
    struct timespec now;
    clock_gettime(NUMBER("clock_gettime_nsec_np", clock, CLOCKS), &now);
    return (uint64_t)now.tv_sec * 1000000000 + now.tv_nsec;
}

/* The two functions with a variable argument; registers.S fetches it from where macOS's arm64 puts it. */
int mac_open_fixed(const char *path, int flags, unsigned mode);
int mac_fcntl_fixed(int file, int request, void *argument);

int mac_open_fixed(const char *path, int flags, unsigned mode) {
    static const struct pair FLAGS[] = {
        {0x1, O_WRONLY},  {0x2, O_RDWR},  {0x200, O_CREAT},        {0x400, O_TRUNC},
        {0x800, O_EXCL},  {0x8, O_APPEND}, {0x1000000, O_CLOEXEC}, {0x100, O_NOFOLLOW},
    };
    system_allocates();
    return open(path, BITS("open", flags, FLAGS), mode);
}

int mac_fcntl_fixed(int file, int request, void *argument) {
    enum { F_PREALLOCATE_MAC = 42, F_PEOFPOSMODE = 3 };
    struct {
        uint32_t flags;
        int32_t mode;
        int64_t offset, length, allocated;
    } *room = argument;
    if (request != F_PREALLOCATE_MAC || room->mode != F_PEOFPOSMODE || room->offset != 0)
        macho_fail("fcntl: unknown request %d", request);
    /* It leaves the size as it is. */
    return fallocate(file, FALLOC_FL_KEEP_SIZE, lseek(file, 0, SEEK_END), room->length);
}

int mac_fstatvfs(int file, struct mac_statvfs *facts) {
    struct statvfs own;
    if (fstatvfs(file, &own) != 0)
        return -1;
    uint64_t available = own.f_bavail > UINT32_MAX ? UINT32_MAX : own.f_bavail;
    *facts = (struct mac_statvfs){.bsize = own.f_bsize, .frsize = own.f_frsize, .bavail = available};
    return 0;
}

int mac_getrlimit(int resource, struct mac_rlimit *limits) {
    static const struct pair RESOURCES[] = {{1, RLIMIT_FSIZE}, {5, RLIMIT_AS}};
    const uint64_t INFINITE = UINT64_MAX >> 1;
    struct rlimit own;
    if (getrlimit(NUMBER("getrlimit", resource, RESOURCES), &own) != 0)
        return -1;
    limits->current = own.rlim_cur == RLIM_INFINITY ? INFINITE : own.rlim_cur;
    limits->most = own.rlim_max == RLIM_INFINITY ? INFINITE : own.rlim_max;
    return 0;
}

int mac_kill(int pid, int signal) {
    if (signal != 0)
        macho_fail("kill: signal %d", signal);
    return kill(pid, 0);
}

void *mac_mmap(void *at, size_t bytes, int protection, int flags, int file, int64_t offset) {
    static const struct pair FLAGS[] = {
        {0x1, MAP_SHARED}, {0x2, MAP_PRIVATE}, {0x40, MAP_NORESERVE}, {0x1000, MAP_ANONYMOUS},
    };
    system_allocates();
    return mmap(at, bytes, protection, BITS("mmap", flags, FLAGS), file, offset);
}

/* macOS keeps the lowest keys for itself, and a key has 64 bits. */
enum { FIRST_KEY = 256 };

void *reallocf(void *block, size_t bytes) {
    void *larger = realloc(block, bytes);
    if (!larger && bytes) free(block);
    return larger;
}

int mac_pthread_key_create(unsigned long *key, void (*destructor)(void *)) {
    system_allocates();
    pthread_key_t own;
    int result = pthread_key_create(&own, destructor);
    if (result == 0)
        *key = (unsigned long)own + FIRST_KEY;
    return result;
}

void *mac_pthread_getspecific(unsigned long key) {
    return pthread_getspecific(key - FIRST_KEY);
}

int mac_pthread_setspecific(unsigned long key, const void *value) {
    /* A store on macOS, which allocates nothing. */
    return pthread_setspecific(key - FIRST_KEY, value);
}

int mac_pthread_threadid_np(pthread_t thread, uint64_t *number) {
    if (thread != 0)
        macho_fail("pthread_threadid_np: of another thread");
    *number = syscall(SYS_gettid);
    return 0;
}

/* This system reads a file for that, and allocates. */
static __thread struct {
    char *end;
    size_t bytes;
} own_stack;

static void find_stack(pthread_t thread) {
    if (!pthread_equal(thread, pthread_self()))
        macho_fail("the stack of another thread");
    if (own_stack.end)
        return;
    pthread_attr_t attributes;
    void *start;
    size_t bytes;
    int before = errno;
    if (pthread_getattr_np(thread, &attributes) != 0 || pthread_attr_getstack(&attributes, &start, &bytes) != 0)
        macho_fail("no stack");
    pthread_attr_destroy(&attributes);
    errno = before;
    own_stack.end = (char *)start + bytes;
    own_stack.bytes = bytes;
}

void *mac_pthread_get_stackaddr_np(pthread_t thread) {
    find_stack(thread);
    return own_stack.end;
}

size_t mac_pthread_get_stacksize_np(pthread_t thread) {
    find_stack(thread);
    return own_stack.bytes;
}

int mac_sysctl(int *name, unsigned count, void *value, size_t *bytes, void *replacement, size_t replacement_bytes) {
    enum { HARDWARE = 6, MEMORY = 24 };
    uint64_t memory = (uint64_t)sysconf(_SC_PHYS_PAGES) * (uint64_t)sysconf(_SC_PAGESIZE);
    if (count != 2 || name[0] != HARDWARE || name[1] != MEMORY || *bytes != sizeof memory || replacement || replacement_bytes)
        macho_fail("sysctl: unknown name, or a new value");
    memcpy(value, &memory, sizeof memory);
    return 0;
}
