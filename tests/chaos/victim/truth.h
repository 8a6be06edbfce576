/* What the victim did, in a file that it shares with whoever kills it: a slot a thread, counts before and after each call.
 *
 * `src/truth.rs` reads it: numbers and sizes must be the same there. A slot has one writer; a signal handler in the same
 * thread may add in between, hence the atomic additions. */
#ifndef CHAOS_TRUTH_H
#define CHAOS_TRUTH_H

#include <errno.h>
#include <fcntl.h>
#include <stdint.h>
#include <stdio.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/syscall.h>
#include <unistd.h>

enum { LAUNCH, SYNC, TRANSFER, ALLOC, FREE, HOST_ALLOC, HOST_FREE, CLASSES = 8 };
enum { SLOTS = 4000, SLOT_BYTES = 256, HEAD_BYTES = 4096 };

struct slot {
    int32_t pid, tid;
    uint32_t image, over;
    uint64_t begun[CLASSES], done[CLASSES];
    /* Calls of a signal handler, which may stand inside another call. */
    uint64_t extra[CLASSES];
    char rest[SLOT_BYTES - 16 - 24 * CLASSES];
};

struct truth {
    uint64_t next, images, sum, wrong, children, finished;
    int64_t root;
    char first_wrong[200];
    char rest[HEAD_BYTES - 7 * 8 - 200];
    struct slot slots[SLOTS];
};

_Static_assert(sizeof(struct slot) == SLOT_BYTES, "truth.rs has this size");
_Static_assert(sizeof(struct truth) == HEAD_BYTES + SLOTS * SLOT_BYTES, "truth.rs has this size");

static struct truth *truth;
static uint32_t image;
/* The driver is one that waits, for locks and for what it simulates: errno may tell of that. */
static int driver_waits;
static inline int tells_of_waits(int number) { return number == EAGAIN || number == EINTR || number == ETIMEDOUT; }
static __thread struct slot *slot;

#define ADD(place, n) __atomic_fetch_add(&(place), (n), __ATOMIC_RELAXED)

/* A result that is not as it should be: counted, and the first one is kept. */
static void wrong(const char *what, long number) {
    if (ADD(truth->wrong, 1)) return;
    int kept = errno;
    snprintf(truth->first_wrong, sizeof truth->first_wrong, "%s: %ld", what, number);
    errno = kept;
}

/* Adds to what all processes together must come to, in whatever order they do. */
static void sum(uint64_t value) {
    value = (value ^ value >> 30) * 0xbf58476d1ce4e5b9ull;
    value = (value ^ value >> 27) * 0x94d049bb133111ebull;
    ADD(truth->sum, value ^ value >> 31);
}

/* A slot for the calling thread. */
static void take_slot(void) {
    uint64_t number = ADD(truth->next, 1);
    if (number >= SLOTS) _exit(90);
    slot = &truth->slots[number];
    slot->image = image;
    slot->tid = (int32_t)syscall(SYS_gettid);
    /* The last one, since a slot with a pid is one that is read. */
    __atomic_store_n(&slot->pid, (int32_t)syscall(SYS_getpid), __ATOMIC_RELEASE);
}

static void open_truth(const char *file) {
    int fd = open(file, O_RDWR | O_CLOEXEC);
    if (fd < 0) _exit(91);
    truth = mmap(NULL, sizeof *truth, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
    close(fd);
    if (truth == MAP_FAILED) _exit(92);
    image = (uint32_t)ADD(truth->images, 1);
    take_slot();
}

/* Makes a call of a class: counted before and after, and errno must be what it was. */
#define CALL(class, expression)                                                                                        \
    ({                                                                                                                 \
        struct slot *of = slot;                                                                                        \
        ADD(of->begun[class], 1);                                                                                      \
        errno = 4242;                                                                                                  \
        __typeof__(expression) came = (expression);                                                                    \
        if (errno != 4242 && !(driver_waits && class < HOST_ALLOC && tells_of_waits(errno)))                           \
            wrong("errno after " #expression, errno);                                                                  \
        ADD(of->done[class], 1);                                                                                       \
        came;                                                                                                          \
    })

/* The same of a call that must return this. */
#define MUST(class, wanted, expression)                                                                                \
    do {                                                                                                               \
        long result = CALL(class, expression);                                                                         \
        if (result != (wanted)) wrong(#expression, result);                                                            \
    } while (0)

#endif
