/* Uses NCCL: nccl_client ROUTE. Linked, or (-DBY_LOOKUP) by looking each function up.
 *
 * Prints how often each function was called, as the stand-in for NCCL counts itself. */
#define _GNU_SOURCE
#include "nccl_work.h"
#include <dlfcn.h>

#ifdef BY_LOOKUP
static void look_up(const char *route) {
    int mode = RTLD_NOW | (strcmp(route, "dlopen") == 0 || strcmp(route, "dlvsym") == 0 ? RTLD_LOCAL : RTLD_GLOBAL);
    void *library = dlopen("libnccl.so.2", mode);
    if (!library) {
        printf("%s\n", dlerror());
        exit(1);
    }
    void *handle = library;
    if (strcmp(route, "default") == 0) handle = RTLD_DEFAULT;
    if (strcmp(route, "next") == 0) handle = RTLD_NEXT;
    if (strcmp(route, "self") == 0) handle = dlopen(NULL, RTLD_NOW);
#define X(name, arguments) \
    if (!(name = dlsym(handle, #name))) { printf("no " #name ": %s\n", dlerror()); exit(1); }
    NCCL_FUNCTIONS(X)
#undef X
}
#else
static void look_up(const char *route) { (void)route; }
#endif

int main(int argc, char **argv) {
    const char *route = argc > 1 ? argv[1] : "link";
    look_up(route);
    work();
    int version = 0;
    CHECK(ncclGetVersion(&version));
    printf("route=%s ok\n", route);
    uint64_t (*calls)(const char *) = dlsym(dlopen("libnccl.so.2", RTLD_NOW | RTLD_NOLOAD), "fakeNcclCalls");
#define X(name, arguments) printf("%s %d\n", #name, (int)calls(#name));
    NCCL_FUNCTIONS(X)
#undef X
}
