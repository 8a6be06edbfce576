/* What a thread of the victim does: operations drawn one after the other, each of which checks its own result. */
#ifndef CHAOS_WORK_H
#define CHAOS_WORK_H

#include <poll.h>
#include <pthread.h>
#include <setjmp.h>
#include <stdatomic.h>
#include <time.h>

#include "driver.h"

enum { BUFFER = 16384, BLOCKS = 32, SHARED = 256 };

/* A block says what it is; its last byte says it again. */
struct block {
    uint32_t bytes;
    unsigned char mark;
};

struct life {
    uint64_t state;
    unsigned launched;
    size_t stack_bytes;
    CUstream stream;
    CUdeviceptr memory;
    unsigned char *host;
    struct block *blocks[BLOCKS];
};

static struct block *_Atomic shared[SHARED];
static pthread_mutex_t contended = PTHREAD_MUTEX_INITIALIZER;

static void rest(long us) {
    struct timespec time = {us / 1000000, us % 1000000 * 1000};
    while (nanosleep(&time, &time)) {}
}

static void launches(struct life *life, unsigned times) {
    for (unsigned i = 0; i < times; i++) launch(function, ++life->launched, life->stream);
}

static void copies(struct life *life) {
    size_t bytes = 1 + below(&life->state, 2000), at = below(&life->state, BUFFER - 2000);
    unsigned char fill = (unsigned char)draw(&life->state), *host = life->host;
    unsigned way = (unsigned)below(&life->state, 3);
    memset(host, fill, bytes);
    if (way == 0) {
        MUST(TRANSFER, 0, cu.cuMemcpyHtoD_v2(life->memory + at, host, bytes));
        memset(host, 0, bytes);
        MUST(TRANSFER, 0, cu.cuMemcpyDtoH_v2(host, life->memory + at, bytes));
    } else {
        if (way == 1) MUST(TRANSFER, 0, cu.cuMemcpyHtoDAsync_v2(life->memory + at, host, bytes, life->stream));
        else MUST(TRANSFER, 0, cu.cuMemsetD8Async(life->memory + at, fill, bytes, life->stream));
        MUST(SYNC, 0, cu.cuStreamSynchronize(life->stream));
        memset(host, 0, bytes);
        MUST(TRANSFER, 0, cu.cuMemcpyDtoHAsync_v2(host, life->memory + at, bytes, life->stream));
        MUST(SYNC, 0, cu.cuStreamSynchronize(life->stream));
    }
    if (host[0] != fill || host[bytes - 1] != fill) wrong("copied bytes", host[0]);
    sum(host[0] * 65537u + host[bytes - 1] + bytes);
}

static void waits(struct life *life, int captures) {
    CUevent event;
    switch (below(&life->state, captures ? 3 : 4)) {
    case 0: MUST(SYNC, 0, cu.cuStreamSynchronize(life->stream)); break;
    case 1: {
        int result = CALL(SYNC, cu.cuStreamQuery(life->stream));
        if (result && result != CUDA_ERROR_NOT_READY) wrong("cuStreamQuery", result);
        break;
    }
    case 2:
        cu.cuEventCreate(&event, 0);
        cu.cuEventRecord(event, life->stream);
        MUST(SYNC, 0, cu.cuEventSynchronize(event));
        cu.cuEventDestroy_v2(event);
        break;
    default: MUST(SYNC, 0, cu.cuCtxSynchronize());
    }
}

/* Launches into a graph, and the graph a few times. */
static void graph(struct life *life) {
    CUgraph made;
    CUgraphExec exec;
    int mode = below(&life->state, 2) ? CU_STREAM_CAPTURE_MODE_THREAD_LOCAL : CU_STREAM_CAPTURE_MODE_RELAXED;
    int result = cu.cuStreamBeginCapture_v2(life->stream, mode);
    if (result) return wrong("cuStreamBeginCapture_v2", result);
    launches(life, 1 + (unsigned)below(&life->state, 8));
    result = cu.cuStreamEndCapture(life->stream, &made);
    if (result) return wrong("cuStreamEndCapture", result);
    result = cu.cuGraphInstantiateWithFlags(&exec, made, 0);
    if (result) return wrong("cuGraphInstantiateWithFlags", result);
    for (uint64_t n = below(&life->state, 5); n > 0; n--) MUST(LAUNCH, 0, cu.cuGraphLaunch(exec, life->stream));
    MUST(SYNC, 0, cu.cuStreamSynchronize(life->stream));
    cu.cuGraphExecDestroy(exec);
    cu.cuGraphDestroy(made);
}

static void device_memory(struct life *life) {
    CUdeviceptr block;
    void *pinned;
    size_t bytes = 1 + below(&life->state, 1 << 20);
    switch (below(&life->state, 3)) {
    case 0:
        MUST(ALLOC, 0, cu.cuMemAlloc_v2(&block, bytes));
        MUST(FREE, 0, cu.cuMemFree_v2(block));
        break;
    case 1:
        MUST(ALLOC, 0, cu.cuMemAllocAsync(&block, bytes, life->stream));
        MUST(FREE, 0, cu.cuMemFreeAsync(block, life->stream));
        break;
    default:
        MUST(ALLOC, 0, cu.cuMemAllocHost_v2(&pinned, 64 + bytes % 4096));
        MUST(FREE, 0, cu.cuMemFreeHost(pinned));
    }
    /* More than there is: refused, and a call as any other. */
    if (below(&life->state, 16) == 0) MUST(ALLOC, CUDA_ERROR_OUT_OF_MEMORY, cu.cuMemAlloc_v2(&block, 1ull << 50));
}

static void mark(struct block *block, uint32_t bytes, unsigned char with) {
    block->bytes = bytes;
    block->mark = with;
    ((unsigned char *)block)[bytes - 1] = with;
}

static void give_back(struct block *block) {
    if (!block) return;
    if (block->bytes < sizeof *block || ((unsigned char *)block)[block->bytes - 1] != block->mark)
        wrong("a block's content", block->bytes);
    block->bytes = 0;
    CALL(HOST_FREE, (free(block), 0));
}

static struct block *allocate(struct life *life) {
    /* Few are large: these are mapped, and freed by an unmap. */
    uint64_t kind = below(&life->state, 64);
    size_t bytes = sizeof(struct block) + 1 + below(&life->state, kind == 0 ? 400000 : kind < 8 ? 20000 : 300);
    void *made = NULL;
    switch (below(&life->state, 4)) {
    case 0: made = CALL(HOST_ALLOC, calloc(1, bytes)); break;
    case 1: CALL(HOST_ALLOC, posix_memalign(&made, 64, bytes)); break;
    case 2:
        made = CALL(HOST_ALLOC, malloc(bytes / 2 + 1));
        if (made) made = CALL(HOST_ALLOC, realloc(made, bytes));
        break;
    default: made = CALL(HOST_ALLOC, malloc(bytes));
    }
    if (!made) return wrong("malloc", (long)bytes), NULL;
    mark(made, (uint32_t)bytes, (unsigned char)draw(&life->state));
    return made;
}

static void own_blocks(struct life *life) {
    uint64_t place = below(&life->state, BLOCKS);
    give_back(life->blocks[place]);
    life->blocks[place] = allocate(life);
}

/* Blocks that any thread may free. */
static void shared_blocks(struct life *life) {
    uint64_t place = below(&life->state, SHARED);
    give_back(atomic_exchange(&shared[place], allocate(life)));
}

static void libraries(struct life *life) {
    static const char *const names[] = {"libm.so.6", "libutil.so.1", "libresolv.so.2", "libnothing-of-that-name.so"};
    uint64_t which = below(&life->state, 4);
    void *library = dlopen(names[which], below(&life->state, 2) ? RTLD_NOW : RTLD_LAZY | RTLD_LOCAL);
    if (!library != (which == 3)) wrong("dlopen", (long)which);
    if (!library) {
        if (!dlerror()) wrong("dlerror", 0);
        return;
    }
    if (which == 0 && !dlsym(library, "cos")) wrong("dlsym", 0);
    if (dlsym(library, "no_such_symbol_at_all")) wrong("dlsym finds", (long)which);
    dlclose(library);
}

/* Deep down, on whatever stack, hooked calls are made; and some of these depths are left by longjmp. */
static __attribute__((noinline, noclone)) void deep(struct life *life, size_t room, jmp_buf *back) {
    volatile char frame[200];
    frame[0] = (char)room;
    if (room > sizeof frame + 400) {
        deep(life, room - sizeof frame - 100, back);
    } else {
        launches(life, 1);
        give_back(allocate(life));
        if (back) longjmp(*back, 1);
    }
    frame[1] = frame[0];
}

static void depth(struct life *life) {
    /* What is left below is what the driver itself needs. */
    size_t room = life->stack_bytes > 40000 ? life->stack_bytes - 36000 : 4000;
    if (room > 120000) room = 120000;
    jmp_buf here;
    if (below(&life->state, 2)) deep(life, room, NULL);
    else if (!setjmp(here)) deep(life, room, &here);
}

static void system_waits(struct life *life) {
    int ends[2];
    char byte = 'x';
    switch (below(&life->state, 4)) {
    case 0:
        pthread_mutex_lock(&contended);
        if (below(&life->state, 8) == 0) rest(50);
        pthread_mutex_unlock(&contended);
        break;
    case 1: rest(1 + (long)below(&life->state, 100)); break;
    case 2: poll(NULL, 0, (int)below(&life->state, 2)); break;
    default:
        if (pipe2(ends, O_CLOEXEC)) return wrong("pipe2", errno);
        if (write(ends[1], &byte, 1) != 1) wrong("write", errno);
        while (read(ends[0], &byte, 1) != 1) {
            if (errno != EINTR) return wrong("read", errno);
        }
        close(ends[0]);
        close(ends[1]);
    }
}

static void begin_work(struct life *life, int captures) {
    if (odd) return;
    unsigned flags = captures || below(&life->state, 2) ? CU_STREAM_NON_BLOCKING : 0;
    int result = cu.cuStreamCreate(&life->stream, flags);
    if (result) wrong("cuStreamCreate", result);
    MUST(ALLOC, 0, cu.cuMemAlloc_v2(&life->memory, BUFFER));
    life->host = CALL(HOST_ALLOC, malloc(2048));
}

static void end_work(struct life *life) {
    for (int i = 0; i < BLOCKS; i++) give_back(life->blocks[i]);
    if (odd) return;
    MUST(SYNC, 0, cu.cuStreamSynchronize(life->stream));
    MUST(FREE, 0, cu.cuMemFree_v2(life->memory));
    cu.cuStreamDestroy_v2(life->stream);
    CALL(HOST_FREE, (free(life->host), 0));
}

/* So many operations of these kinds, a letter each; the odd driver has launches and waits only. */
static void work(struct life *life, long operations, const char *kinds, void (*each)(long)) {
    size_t many = strcspn(kinds, ",");
    int captures = memchr(kinds, 'G', many) != NULL;
    long pause_us = number("pause", 0), pause_every = number("every", 50);
    begin_work(life, captures);
    for (long i = 0; i < operations; i++) {
        if (each) each(i);
        if (pause_us && i % pause_every == pause_every - 1) rest(pause_us);
        switch (kinds[below(&life->state, many)]) {
        case 'L': launches(life, 1 + (unsigned)below(&life->state, 20)); break;
        case 'l': launch(slow, ++life->launched, life->stream); break;
        case 'C': copies(life); break;
        case 'S': waits(life, captures); break;
        case 'G': graph(life); break;
        case 'M': device_memory(life); break;
        case 'H': own_blocks(life); break;
        case 'X': shared_blocks(life); break;
        case 'D': libraries(life); break;
        case 'R': depth(life); break;
        case 'W': system_waits(life); break;
        default: wrong("a kind of work", kinds[0]);
        }
    }
    sum(life->launched);
    end_work(life);
}

#endif
