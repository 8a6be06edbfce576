/* Another injection: it prints each call that it gets, in one line, and hands out handles and numbers of its own.
 * With -DPART it takes part of the functions only. */
#include <stdio.h>

#include "nvtx.h"

struct handle { int kind; char name[64]; };

static struct handle *made(int kind, const char *name) {
    struct handle *handle = calloc(1, sizeof *handle);
    handle->kind = kind;
    snprintf(handle->name, sizeof handle->name, "%s", name);
    return handle;
}

static const char *name_of(void *handle) { return handle ? ((struct handle *)handle)->name : "default"; }

static const char *text_of(const struct nvtx_attributes *said) {
    return said->message_type == NVTX_REGISTERED ? name_of(said->message.registered) : said->message.narrow;
}

static int level;
static uint64_t last = 1000;

static int push(const char *name) { return printf("tool: push %s\n", name), level++; }
static int pop(void) { return printf("tool: pop\n"), --level; }
static uint64_t start(const char *name) { return printf("tool: start %s\n", name), ++last; }
static void end(uint64_t number) { printf("tool: end %lu\n", (unsigned long)number); }
static void mark(const char *name) { printf("tool: mark %s\n", name); }
static int push_in(void *domain, const struct nvtx_attributes *said) {
    return printf("tool: push %s in %s\n", text_of(said), name_of(domain)), level++;
}
static int pop_in(void *domain) { return printf("tool: pop in %s\n", name_of(domain)), --level; }
#ifndef PART
static void *create(const char *name) { return printf("tool: domain %s\n", name), made(1, name); }
static void *string(void *domain, const char *text) { return printf("tool: string %s\n", text), made(2, text); }
#endif
static void *resource(void *domain, void *attributes) { return made(3, "resource"); }

__attribute__((visibility("default"))) int InitializeInjectionNvtx2(nvtx_get_table tables) {
    const struct nvtx_callback_tables *callbacks = tables(NVTX_CALLBACKS);
    nvtx_function **core, **core2;
    unsigned size;
    if (getenv("TOOL_DECLINES") || !callbacks->get(NVTX_CORE, &core, &size) || !callbacks->get(NVTX_CORE2, &core2, &size))
        return 0;
    *core[RangePushA] = (nvtx_function)push, *core[RangePop] = (nvtx_function)pop;
    *core[RangeStartA] = (nvtx_function)start, *core[RangeEnd] = (nvtx_function)end;
    *core[MarkA] = (nvtx_function)mark;
    *core2[DomainRangePushEx] = (nvtx_function)push_in, *core2[DomainRangePop] = (nvtx_function)pop_in;
#ifndef PART
    *core2[DomainCreateA] = (nvtx_function)create, *core2[DomainRegisterStringA] = (nvtx_function)string;
#endif
    *core2[DomainResourceCreate] = (nvtx_function)resource;
    return 1;
}
