/* What every test program does with NCCL: each rank is a thread, all operations once, with right sums. */
#pragma once
#include "nccl.h"
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define CHECK(call) do { int r_ = (call); if (r_) { printf("%s: %d\n", #call, r_); exit(1); } } while (0)
#define EXPECT(condition) do { if (!(condition)) { printf("not so: %s (line %d)\n", #condition, __LINE__); exit(1); } } while (0)

enum { RANKS = 3, COUNT = 5 };

struct rank {
    ncclUniqueId id;
    int rank;
};

static inline void collectives(ncclComm_t comm, int rank, Stream stream) {
    float mine[COUNT * RANKS], all[COUNT * RANKS];
    for (int i = 0; i < COUNT * RANKS; i++) mine[i] = rank + 1;
    CHECK(ncclAllReduce(mine, all, COUNT, FLOAT32, SUM, comm, stream));
    EXPECT(all[COUNT - 1] == 6);
    CHECK(ncclBroadcast(mine, all, COUNT + 1, FLOAT32, 1, comm, stream));
    EXPECT(all[COUNT] == 2);
    CHECK(ncclBcast(all, COUNT + 2, FLOAT32, 2, comm, stream));
    CHECK(ncclReduce(mine, all, COUNT + 3, FLOAT32, MAX, 0, comm, stream));
    EXPECT(rank != 0 || all[0] == 3);
    CHECK(ncclAllGather(mine, all, COUNT, FLOAT32, comm, stream));
    EXPECT(all[0] == 1 && all[COUNT * 2] == 3);
    CHECK(ncclReduceScatter(mine, all, COUNT, FLOAT32, AVG, comm, stream));
    EXPECT(all[0] == 2);
    CHECK(ncclAlltoAll(mine, all, COUNT, FLOAT32, comm, stream));
    EXPECT(all[0] == 1 && all[COUNT] == 2);
    CHECK(ncclGather(mine, all, COUNT, FLOAT32, 2, comm, stream));
    CHECK(ncclScatter(mine, all, COUNT, FLOAT32, 2, comm, stream));
    EXPECT(all[0] == 3);
}

static inline void point_to_point(ncclComm_t comm, int rank, Stream stream) {
    int64_t mine = rank, from = -1;
    CHECK(ncclGroupStart());
    CHECK(ncclSend(&mine, 1, INT64, (rank + 1) % RANKS, comm, stream));
    CHECK(ncclRecv(&from, 1, INT64, (rank + RANKS - 1) % RANKS, comm, stream));
    CHECK(ncclGroupEnd());
    EXPECT(from == (rank + RANKS - 1) % RANKS);
}

static inline void splits(ncclComm_t comm, int rank) {
    int64_t mine = rank, sum = 0;
    ncclComm_t half, two, again;
    // Ranks 0 and 2 in the order of their keys, rank 1 alone.
    CHECK(ncclCommSplit(comm, rank % 2, -rank, &half, NULL));
    CHECK(ncclAllReduce(&mine, &sum, 1, INT64, SUM, half, NULL));
    EXPECT(sum == (rank % 2 ? 1 : 2));
    // Rank 1 is left out of the next one, which is made when its group ends.
    CHECK(ncclGroupStart());
    CHECK(ncclCommSplit(comm, rank == 1 ? -1 : 7, rank, &two, NULL));
    CHECK(ncclGroupEnd());
    EXPECT((two == NULL) == (rank == 1));
    if (two) CHECK(ncclAllReduce(&mine, &sum, 1, INT64, SUM, two, NULL));
    if (rank != 2) {
        int excluded = 2;
        CHECK(ncclCommShrink(comm, &excluded, 1, &again, NULL, 0));
        CHECK(ncclAllReduce(&mine, &sum, 1, INT64, SUM, again, NULL));
        EXPECT(sum == 1);
        CHECK(ncclCommDestroy(again));
    }
    if (two) CHECK(ncclCommAbort(two));
    CHECK(ncclCommDestroy(half));
}

// All ranks in one thread, as a program with one process for several GPUs does it.
static inline void grouped(void) {
    ncclUniqueId id;
    ncclComm_t comms[RANKS], all[RANKS];
    int64_t mine = 2, sums[RANKS];
    CHECK(ncclGetUniqueId(&id));
    CHECK(ncclGroupStart());
    CHECK(ncclCommInitRank(&comms[0], RANKS, id, 0));
    CHECK(ncclCommInitRankConfig(&comms[1], RANKS, id, 1, NULL));
    CHECK(ncclCommInitRankScalable(&comms[2], RANKS, 2, 1, &id, NULL));
    CHECK(ncclGroupEnd());
    CHECK(ncclCommInitAll(all, RANKS, (int[]){2, 1, 0}));
    for (ncclComm_t *c = comms; c; c = c == comms ? all : NULL) {
        CHECK(ncclGroupStart());
        CHECK(ncclGroupStart());
        for (int i = 0; i < RANKS; i++) CHECK(ncclAllReduce(&mine, &sums[i], 1, INT64, PROD, c[i], NULL));
        CHECK(ncclGroupEnd());
        CHECK(ncclGroupEnd());
        EXPECT(sums[0] == 8 && sums[2] == 8);
        for (int i = 0; i < RANKS; i++) CHECK(ncclCommDestroy(c[i]));
    }
    CHECK(ncclGroupStart());
    CHECK(ncclGroupSimulateEnd(NULL));
}

static inline void *one_rank(void *argument) {
    struct rank *self = argument;
    ncclComm_t comm;
    CHECK(ncclCommInitRank(&comm, RANKS, self->id, self->rank));
    collectives(comm, self->rank, (Stream)0x77);
    point_to_point(comm, self->rank, (Stream)0x77);
    splits(comm, self->rank);
    void *memory, *registration;
    CHECK(ncclMemAlloc(&memory, 4096));
    CHECK(ncclCommRegister(comm, memory, 4096, &registration));
    CHECK(ncclCommDeregister(comm, registration));
    CHECK(ncclMemFree(memory));
    CHECK(ncclCommFinalize(comm));
    CHECK(ncclCommDestroy(comm));
    return NULL;
}

static inline void work(void) {
    struct rank ranks[RANKS];
    pthread_t threads[RANKS];
    CHECK(ncclGetUniqueId(&ranks[0].id));
    for (int i = 0; i < RANKS; i++) {
        ranks[i] = (struct rank){ranks[0].id, i};
        EXPECT(pthread_create(&threads[i], NULL, one_rank, &ranks[i]) == 0);
    }
    for (int i = 0; i < RANKS; i++) pthread_join(threads[i], NULL);
    grouped();
}
