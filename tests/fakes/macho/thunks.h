/* Functions of macOS that Linux has otherwise or not at all: those of system.c, objc.c and of the simulated Metal. */
#ifndef THUNKS_H
#define THUNKS_H

#include <objc/runtime.h>
#include <pthread.h>
#include <stdint.h>

#include "macho.h"

struct mac_rlimit {
    uint64_t current, most;
};

struct mac_statvfs {
    uint64_t bsize, frsize;
    uint32_t blocks, bfree, bavail, files, ffree, favail;
    uint64_t fsid, flag, namemax;
};

/* system.c */
int *mac__NSGetArgc(void);
char ***mac__NSGetArgv(void);
char ***mac__NSGetEnviron(void);
int mac__NSGetExecutablePath(char *buffer, uint32_t *bytes);
int *mac___error(void);
uint64_t mac_clock_gettime_nsec_np(int clock);
int mac_fcntl(int file, int request, ...);
int mac_fstatvfs(int file, struct mac_statvfs *facts);
int mac_getrlimit(int resource, struct mac_rlimit *limits);
int mac_kill(int pid, int signal);
void *mac_mmap(void *at, size_t bytes, int protection, int flags, int file, int64_t offset);
int mac_open(const char *path, int flags, ...);
void *mac_pthread_get_stackaddr_np(pthread_t thread);
size_t mac_pthread_get_stacksize_np(pthread_t thread);
void *mac_pthread_getspecific(unsigned long key);
int mac_pthread_key_create(unsigned long *key, void (*destructor)(void *));
int mac_pthread_setspecific(unsigned long key, const void *value);
int mac_pthread_threadid_np(pthread_t thread, uint64_t *number);
int mac_sysctl(int *name, unsigned count, void *value, size_t *bytes, void *replacement, size_t replacement_bytes);

/* objc.c and registers.S */
extern void *_NSConcreteGlobalBlock[32];
Class mac_objc_getClass(const char *name);
id mac_objc_msgSend(id receiver, SEL selector, ...);
Class mac_object_getClass(id object);

/* The simulated Metal. */
id MTLCopyAllDevices(void);
id MTLCopyAllDevicesWithObserver(id *observer, void *handler);
id MTLCreateSystemDefaultDevice(void);

#endif
