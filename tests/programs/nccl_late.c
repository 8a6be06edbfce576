/* Two ranks, processes of their own: before the third collective rank 1 waits until somebody makes a file.
 *
 * usage: nccl_late FILE
 *
 * Prints `ok`. */
#include "nccl_work.h"
#include <sys/wait.h>
#include <unistd.h>

static int rank_main(ncclUniqueId id, int rank, const char *file) {
    ncclComm_t comm;
    int64_t mine = 1, sum = 0;
    CHECK(ncclCommInitRank(&comm, 2, id, rank));
    for (int step = 0; step < 4; step++) {
        while (step == 2 && rank == 1 && access(file, F_OK)) usleep(1000);
        CHECK(ncclAllReduce(&mine, &sum, 1, INT64, SUM, comm, NULL));
    }
    EXPECT(sum == 2);
    CHECK(ncclCommDestroy(comm));
    return 0;
}

int main(int argc, char **argv) {
    if (argc < 2) return 2;
    ncclUniqueId id;
    CHECK(ncclGetUniqueId(&id));
    pid_t other = fork();
    int result = rank_main(id, other == 0, argv[1]), status = 0;
    if (other == 0) _exit(result);
    waitpid(other, &status, 0);
    EXPECT(result == 0 && status == 0);
    puts("ok");
    return 0;
}
