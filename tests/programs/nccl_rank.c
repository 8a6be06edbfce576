/* Ranks that are processes: nccl_rank RANKS starts so many of itself, which know their rank from their arguments only.
 * The last rank ends by SIGSEGV, rank 1 with exit code 7. */
#include "nccl_work.h"
#include <signal.h>
#include <sys/wait.h>
#include <unistd.h>

static int rank_main(int rank, int ranks, const char *hex) {
    ncclUniqueId id;
    for (size_t i = 0; i < sizeof id; i++) {
        unsigned byte;
        EXPECT(sscanf(hex + 2 * i, "%2x", &byte) == 1);
        id.internal[i] = (char)byte;
    }
    ncclComm_t comm;
    int64_t mine = 1, sum = 0;
    CHECK(ncclCommInitRank(&comm, ranks, id, rank));
    for (int step = 0; step < 4; step++) CHECK(ncclAllReduce(&mine, &sum, 1, INT64, SUM, comm, NULL));
    EXPECT(sum == ranks);
    CHECK(ncclCommDestroy(comm));
    if (rank == ranks - 1) raise(SIGSEGV);
    return rank == 1 ? 7 : 0;
}

int main(int argc, char **argv) {
    if (argc == 4) return rank_main(atoi(argv[1]), atoi(argv[2]), argv[3]);
    int ranks = atoi(argv[1]);
    ncclUniqueId id;
    CHECK(ncclGetUniqueId(&id));
    char hex[2 * sizeof id + 1], number[16];
    for (size_t i = 0; i < sizeof id; i++) sprintf(hex + 2 * i, "%02x", (unsigned char)id.internal[i]);
    for (int rank = 0; rank < ranks; rank++) {
        sprintf(number, "%d", rank);
        if (fork() == 0) {
            execl("/proc/self/exe", argv[0], number, argv[1], hex, (char *)NULL);
            _exit(127);
        }
    }
    int bad = 0;
    for (int status; wait(&status) > 0;) bad += status != 0;
    printf("%d ranks, %d ended badly\n", ranks, bad);
}
