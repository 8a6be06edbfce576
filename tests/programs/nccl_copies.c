/* Two copies of NCCL in one process: libnccl.so.2, looked up or linked, and the one inside libnccl_owner.so.
 *
 * nccl_copies OWNER: prints how often each copy was called, as it counts itself. */
#define _GNU_SOURCE
#include "nccl_work.h"
#include <dlfcn.h>

static void *need(void *library, const char *name) {
    void *found = dlsym(library, name);
    if (!found) {
        printf("%s\n", dlerror());
        exit(1);
    }
    return found;
}

int main(int argc, char **argv) {
#ifdef BY_LOOKUP
    void *own = dlopen("libnccl.so.2", RTLD_NOW | RTLD_LOCAL);
#define X(name, arguments) name = need(own, #name);
    NCCL_FUNCTIONS(X)
#undef X
#else
    void *own = dlopen("libnccl.so.2", RTLD_NOW | RTLD_NOLOAD);
#endif
    void *owner = dlopen(argv[1], RTLD_NOW | RTLD_LOCAL);
    if (argc != 2 || !own || !owner) {
        printf("%s\n", dlerror());
        return 1;
    }
    void (*owner_work)(void) = need(owner, "owner_work");
    void *(*make)(void) = need(owner, "owner_communicator");
    void (*destroy)(void *) = need(owner, "owner_destroy");
    int (*all_gather)(const void *, void *, size_t, void *) = need(owner, "owner_all_gather");
    for (int round = 0; round < 2; round++) {
        work();
        owner_work();
    }
    double mine = 3, sum = 0;
    void *comm = make();
    CHECK(all_gather(&mine, &sum, 1, comm));
    EXPECT(sum == 3);
    destroy(comm);
    uint64_t (*calls[2])(const char *) = {need(own, "fakeNcclCalls"), need(owner, "fakeNcclCalls")};
    const char *names[] = {"ncclAllReduce", "ncclCommInitRank", "ncclGroupEnd", "ncclSend"};
    for (int copy = 0; copy < 2; copy++)
        for (int i = 0; i < 4; i++)
            printf("%s %s %llu\n", copy ? "owner" : "own", names[i], (unsigned long long)calls[copy](names[i]));
}
