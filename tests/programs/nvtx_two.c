/* What a program with another injection sees, in two libraries with a copy of NVTX each. With -DLIBRARY it is the
 * second one. Prints all that its calls return. */
#include <stdio.h>

#include "nvtx.h"

static void work(const char *who) {
    int wanted = nvtx_initialise();
    nvtx_domain domain = nvtx_create("pair");
    struct nvtx_attributes said = NVTX_ATTRIBUTES(.message_type = NVTX_REGISTERED);
    said.message.registered = nvtx_register(domain, "registered");
    if (!said.message.registered) said = NVTX_ATTRIBUTES(NVTX_NAMED("registered"));
    printf("%s: push %d", who, nvtx_push("plain"));
    printf(" push %d", nvtx_push_in(domain, &said));
    printf(" pop %d", nvtx_pop_in(domain));
    printf(" pop %d\n", nvtx_pop());
    uint64_t number = nvtx_start("numbered");
    /* Without an injection there is no number; ours says nothing of itself. */
    printf("%s: numbered %lu, domain %d\n", who, number > 1000 ? (unsigned long)number : 0, wanted && domain && number > 1000);
    nvtx_end(number);
    nvtx_mark(who);
}

#ifdef LIBRARY
void second(void) { work("second"); }
#else
int main(int argc, char **argv) {
    work("first");
    void *library = dlopen(argv[1], RTLD_NOW | RTLD_LOCAL);
    if (!library) return puts(dlerror()), 1;
    ((void (*)(void))dlsym(library, "second"))();
    return 0;
}
#endif
