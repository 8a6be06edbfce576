/* What the test programs use of NCCL, declared by ourselves. With BY_LOOKUP every function is a pointer that look_up()
 * fills; without, programs are linked. */
#pragma once
#include <stddef.h>
#include <stdint.h>

typedef struct ncclComm *ncclComm_t;
typedef struct { char internal[128]; } ncclUniqueId;
typedef void *Stream;
enum { INT32 = 2, INT64 = 4, FLOAT32 = 7, FLOAT64 = 8 };
enum { SUM = 0, PROD = 1, MAX = 2, MIN = 3, AVG = 4 };

#define NCCL_FUNCTIONS(X) \
    X(ncclAllGather, (const void *, void *, size_t, int, ncclComm_t, Stream)) \
    X(ncclAllReduce, (const void *, void *, size_t, int, int, ncclComm_t, Stream)) \
    X(ncclAlltoAll, (const void *, void *, size_t, int, ncclComm_t, Stream)) \
    X(ncclBcast, (void *, size_t, int, int, ncclComm_t, Stream)) \
    X(ncclBroadcast, (const void *, void *, size_t, int, int, ncclComm_t, Stream)) \
    X(ncclCommAbort, (ncclComm_t)) \
    X(ncclCommDeregister, (ncclComm_t, void *)) \
    X(ncclCommDestroy, (ncclComm_t)) \
    X(ncclCommFinalize, (ncclComm_t)) \
    X(ncclCommInitAll, (ncclComm_t *, int, const int *)) \
    X(ncclCommInitRank, (ncclComm_t *, int, ncclUniqueId, int)) \
    X(ncclCommInitRankConfig, (ncclComm_t *, int, ncclUniqueId, int, void *)) \
    X(ncclCommInitRankScalable, (ncclComm_t *, int, int, int, ncclUniqueId *, void *)) \
    X(ncclCommRegister, (ncclComm_t, void *, size_t, void **)) \
    X(ncclCommShrink, (ncclComm_t, int *, int, ncclComm_t *, void *, int)) \
    X(ncclCommSplit, (ncclComm_t, int, int, ncclComm_t *, void *)) \
    X(ncclGather, (const void *, void *, size_t, int, int, ncclComm_t, Stream)) \
    X(ncclGetUniqueId, (ncclUniqueId *)) \
    X(ncclGetVersion, (int *)) \
    X(ncclGroupEnd, (void)) \
    X(ncclGroupSimulateEnd, (void *)) \
    X(ncclGroupStart, (void)) \
    X(ncclMemAlloc, (void **, size_t)) \
    X(ncclMemFree, (void *)) \
    X(ncclRecv, (void *, size_t, int, int, ncclComm_t, Stream)) \
    X(ncclReduce, (const void *, void *, size_t, int, int, int, ncclComm_t, Stream)) \
    X(ncclReduceScatter, (const void *, void *, size_t, int, int, ncclComm_t, Stream)) \
    X(ncclScatter, (const void *, void *, size_t, int, int, ncclComm_t, Stream)) \
    X(ncclSend, (const void *, size_t, int, int, ncclComm_t, Stream))

#ifdef BY_LOOKUP
#define X(name, arguments) static int (*name) arguments;
#else
#define X(name, arguments) int name arguments;
#endif
NCCL_FUNCTIONS(X)
#undef X
