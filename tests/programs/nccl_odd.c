/* What is unusual about NCCL in a process: nccl_odd CASE ARGUMENTS...
 *    absent           no NCCL: what looking it up gives
 *    reopen A B       library A is opened, used and closed, then B, which the loader may put in its place
 *    forward A        A's function calls on to libnccl.so.2's
 *    paused           a communicator that is made while recording is paused, and used when it goes on
 *    stuck            a rank that waits for one that never comes, when the process is killed */
#define _GNU_SOURCE
#include <dlfcn.h>
#include <pthread.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "nccl.h"

static void absent(void) {
    dlerror();
    void *found[] = {dlsym(RTLD_DEFAULT, "ncclAllReduce"), dlsym(RTLD_NEXT, "ncclAllReduce"),
        dlsym(dlopen(NULL, RTLD_NOW), "ncclAllReduce"), dlvsym(RTLD_DEFAULT, "ncclSend", "V1")};
    for (int i = 0; i < 4; i++) printf("%d", found[i] != NULL);
    printf(" %d\n", dlerror() != NULL);
}

static void use(const char *path) {
    void *library = dlopen(path, RTLD_NOW | RTLD_LOCAL), *memory = NULL, *again = NULL;
    if (!library) printf("%s\n", dlerror());
    int (*alloc)(void **, size_t) = dlsym(library, "ncclMemAlloc");
    int (*linked)(void **) = dlsym(library, "stand_in_alloc");
    int result = alloc(&memory, 64);
    printf("%d %d", result, linked(&again));
    printf(" %lx %lx\n", (unsigned long)memory, (unsigned long)again);
    dlclose(library);
}

static void forward(const char *path) {
    void *library = dlopen(path, RTLD_NOW | RTLD_LOCAL), *memory = NULL;
    int (*alloc)(void **) = dlsym(library, "stand_in_alloc");
    int result = alloc(&memory);
    printf("%d %d\n", result, memory != NULL);
}

static void paused(void) {
    void *library = dlopen("libnccl.so.2", RTLD_NOW);
    __typeof__(&ncclCommInitAll) init = dlsym(library, "ncclCommInitAll");
    __typeof__(&ncclAllReduce) reduce = dlsym(library, "ncclAllReduce");
    void (*pause)(void) = dlsym(RTLD_DEFAULT, "gputrace_pause");
    void (*resume)(void) = dlsym(RTLD_DEFAULT, "gputrace_resume");
    ncclComm_t comm;
    int64_t number = 1;
    if (pause) pause();
    init(&comm, 1, NULL);
    reduce(&number, &number, 1, INT64, SUM, comm, NULL);
    if (resume) resume();
    printf("%d\n", reduce(&number, &number, 1, INT64, SUM, comm, NULL));
}

static void *die(void *seconds) {
    (void)seconds;
    usleep(300000);
    raise(SIGKILL);
    return NULL;
}

static void stuck(void) {
    void *library = dlopen("libnccl.so.2", RTLD_NOW);
    __typeof__(&ncclCommInitRank) init = dlsym(library, "ncclCommInitRank");
    __typeof__(&ncclAllReduce) reduce = dlsym(library, "ncclAllReduce");
    __typeof__(&ncclGetUniqueId) get_id = dlsym(library, "ncclGetUniqueId");
    ncclUniqueId id;
    ncclComm_t comm;
    int64_t number = 1;
    get_id(&id);
    init(&comm, 2, id, 0);
    pthread_t thread;
    pthread_create(&thread, NULL, die, NULL);
    reduce(&number, &number, 1, INT64, SUM, comm, NULL);
}

int main(int argc, char **argv) {
    const char *what = argc > 1 ? argv[1] : "";
    if (strcmp(what, "absent") == 0) absent();
    if (strcmp(what, "reopen") == 0)
        for (int round = 0; round < 3; round++)
            for (int i = 2; i < argc; i++) use(argv[i]);
    if (strcmp(what, "forward") == 0) forward(argv[2]);
    if (strcmp(what, "paused") == 0) paused();
    if (strcmp(what, "stuck") == 0) stuck();
}
