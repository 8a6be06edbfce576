/* Makes calls of libc fail in gputrace, as a full disk or a machine without descriptors does. Preloaded; does nothing elsewhere.
 *
 * FAIL_CALL: the function. FAIL_ERRNO: the error's number. FAIL_AFTER: so many calls of it succeed before. FAIL_TIMES: so many
 * fail then; 0: all. What goes to the first three descriptors never fails: somebody has to say what is wrong. Nor does the poll
 * by which Rust's runtime looks at these before main. */
#define _GNU_SOURCE
#include <dirent.h>
#include <dlfcn.h>
#include <errno.h>
#include <poll.h>
#include <stdarg.h>
#include <stdatomic.h>
#include <stdlib.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/mman.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/types.h>
#include <sys/uio.h>
#include <unistd.h>

static const char *call;
static int number;
static long after, times;
static atomic_long made;

__attribute__((constructor)) static void prepare(void) {
    const char *name = getenv("FAIL_CALL");
    if (!name || strcmp(program_invocation_short_name, "gputrace")) return;
    const char *text = getenv("FAIL_ERRNO");
    number = text ? atoi(text) : EIO;
    text = getenv("FAIL_AFTER");
    after = text ? atol(text) : 0;
    text = getenv("FAIL_TIMES");
    times = text ? atol(text) : 0;
    call = name;
}

static int fails(const char *name) {
    if (!call || strcmp(call, name)) return 0;
    long n = atomic_fetch_add(&made, 1);
    if (n < after || (times && n >= after + times)) return 0;
    errno = number;
    return 1;
}

/* A function: its type, what it returns when it fails, its name, its parameters, their names, and when it never fails. */
#define FAILING(type, failed, name, parameters, arguments, spared)               \
    type name parameters {                                                       \
        static type(*next) parameters;                                           \
        if (!next) next = (type(*) parameters)dlsym(RTLD_NEXT, #name);           \
        return !(spared) && fails(#name) ? (type)(failed) : next arguments;      \
    }

FAILING(int, -1, accept4, (int fd, struct sockaddr *a, socklen_t *n, int flags), (fd, a, n, flags), 0)
FAILING(int, -1, bind, (int fd, const struct sockaddr *a, socklen_t n), (fd, a, n), 0)
FAILING(int, -1, epoll_create1, (int flags), (flags), 0)
FAILING(int, -1, epoll_ctl, (int fd, int op, int of, struct epoll_event *e), (fd, op, of, e), 0)
FAILING(int, -1, eventfd, (unsigned n, int flags), (n, flags), 0)
FAILING(int, -1, fallocate, (int fd, int mode, off_t at, off_t bytes), (fd, mode, at, bytes), 0)
FAILING(int, -1, flock, (int fd, int op), (fd, op), 0)
FAILING(int, -1, ftruncate64, (int fd, off64_t bytes), (fd, bytes), 0)
FAILING(int, -1, listen, (int fd, int n), (fd, n), 0)
FAILING(int, -1, memfd_create, (const char *name, unsigned flags), (name, flags), 0)
FAILING(int, -1, mkdir, (const char *path, mode_t mode), (path, mode), 0)
FAILING(void *, MAP_FAILED, mmap, (void *at, size_t n, int p, int f, int fd, off_t o), (at, n, p, f, fd, o), fd < 0)
FAILING(DIR *, NULL, opendir, (const char *path), (path), 0)
FAILING(int, -1, poll, (struct pollfd *fds, nfds_t n, int wait), (fds, n, wait), n == 3 && fds->fd == 0)
FAILING(ssize_t, -1, pwrite64, (int fd, const void *b, size_t n, off64_t at), (fd, b, n, at), 0)
FAILING(ssize_t, -1, recvmsg, (int fd, struct msghdr *m, int flags), (fd, m, flags), 0)
FAILING(int, -1, rename, (const char *a, const char *b), (a, b), 0)
FAILING(ssize_t, -1, sendmsg, (int fd, const struct msghdr *m, int flags), (fd, m, flags), 0)
FAILING(int, -1, socket, (int domain, int type, int protocol), (domain, type, protocol), 0)
FAILING(int, -1, socketpair, (int domain, int type, int protocol, int fds[2]), (domain, type, protocol, fds), 0)
FAILING(int, -1, unlink, (const char *path), (path), 0)
FAILING(ssize_t, -1, write, (int fd, const void *b, size_t n), (fd, b, n), fd < 3)

int open64(const char *path, int flags, ...) {
    static int (*next)(const char *, int, ...);
    if (!next) next = (int (*)(const char *, int, ...))dlsym(RTLD_NEXT, "open64");
    va_list list;
    va_start(list, flags);
    int mode = va_arg(list, int);
    va_end(list);
    return fails("open64") ? -1 : next(path, flags, mode);
}
