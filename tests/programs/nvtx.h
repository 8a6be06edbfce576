/* A copy of NVTX as a library has it that includes its header: tables of function pointers, which the first call lets
 * the library of NVTX_INJECTION64_PATH fill. Written from the public interface; each file that includes this is a copy
 * of its own. */
#ifndef GPUTRACE_TESTS_NVTX_H
#define GPUTRACE_TESTS_NVTX_H

#include <dlfcn.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <wchar.h>

typedef struct nvtx_domain *nvtx_domain;
typedef struct nvtx_string *nvtx_string;

struct nvtx_attributes {
    uint16_t version, size;
    uint32_t category;
    int32_t color_type;
    uint32_t color;
    int32_t payload_type, reserved;
    union { uint64_t u64; int64_t i64; double f64; uint32_t u32; int32_t i32; float f32; } payload;
    int32_t message_type;
    union { const char *narrow; const wchar_t *wide; nvtx_string registered; } message;
};

enum { NVTX_CALLBACKS = 1, NVTX_VERSION_INFO = 3 };
enum { NVTX_CORE = 1, NVTX_CUDA = 2, NVTX_CORE2 = 5 };
enum { NVTX_NARROW = 1, NVTX_WIDE = 2, NVTX_REGISTERED = 3 };
enum { NVTX_U64 = 1, NVTX_I64, NVTX_F64, NVTX_U32, NVTX_I32, NVTX_F32 };
enum { NVTX_SLOTS = 16 };

/* Slots of the two modules, by number. */
enum {
    MarkEx = 1, MarkA, MarkW, RangeStartEx, RangeStartA, RangeStartW, RangeEnd, RangePushEx, RangePushA, RangePushW,
    RangePop, NameCategoryA, NameCategoryW, NameOsThreadA, NameOsThreadW
};
enum {
    DomainMarkEx = 1, DomainRangeStartEx, DomainRangeEnd, DomainRangePushEx, DomainRangePop, DomainResourceCreate,
    DomainResourceDestroy, DomainNameCategoryA, DomainNameCategoryW, DomainRegisterStringA, DomainRegisterStringW,
    DomainCreateA, DomainCreateW, DomainDestroy, Initialize
};

typedef void (*nvtx_function)(void);
typedef const void *(*nvtx_get_table)(uint32_t);

struct nvtx_callback_tables {
    size_t size;
    int (*get)(int module, nvtx_function ***table, unsigned *size);
};
struct nvtx_version_info {
    size_t size;
    uint32_t version, reserved;
    void (*set_injection_version)(uint32_t);
};

static nvtx_function nvtx_core[NVTX_SLOTS], nvtx_core2[NVTX_SLOTS];
static uint32_t nvtx_injection_version;

static void nvtx_uninitialised(void) { abort(); }

static int nvtx_get_functions(int module, nvtx_function ***table, unsigned *size) {
    static nvtx_function *core[NVTX_SLOTS + 1], *core2[NVTX_SLOTS + 1];
    for (int i = 1; i < NVTX_SLOTS; i++) core[i] = &nvtx_core[i], core2[i] = &nvtx_core2[i];
    if (module != NVTX_CORE && module != NVTX_CORE2) return 0;
    if (table) *table = module == NVTX_CORE ? core : core2;
    if (size) *size = NVTX_SLOTS;
    return 1;
}

static void nvtx_set_injection_version(uint32_t version) { nvtx_injection_version = version; }

static const void *nvtx_tables(uint32_t id) {
    static const struct nvtx_callback_tables callbacks = {sizeof callbacks, nvtx_get_functions};
    static const struct nvtx_version_info version = {sizeof version, 3, 0, nvtx_set_injection_version};
    return id == NVTX_CALLBACKS ? (const void *)&callbacks : id == NVTX_VERSION_INFO ? (const void *)&version : NULL;
}

/* What the first call of each function does. 1: an injection wants the calls. */
static inline int nvtx_initialise(void) {
    for (int i = 1; i < NVTX_SLOTS; i++) nvtx_core[i] = nvtx_core2[i] = nvtx_uninitialised;
    const char *path = getenv("NVTX_INJECTION64_PATH");
    void *library = path ? dlopen(path, RTLD_LAZY) : NULL;
    int (*start)(nvtx_get_table) = library ? (int (*)(nvtx_get_table))dlsym(library, "InitializeInjectionNvtx2") : NULL;
    int wanted = start && start(nvtx_tables);
    if (library && !wanted) dlclose(library);
    for (int i = 1; i < NVTX_SLOTS; i++) {
        if (!wanted || nvtx_core[i] == nvtx_uninitialised) nvtx_core[i] = NULL;
        if (!wanted || nvtx_core2[i] == nvtx_uninitialised) nvtx_core2[i] = NULL;
    }
    return wanted;
}

/* Calls a function where there is one: NVTX(core, RangePushA, int, -2, (const char *), name). */
#define NVTX(module, slot, result, none, types, ...) \
    (nvtx_##module[slot] ? ((result (*) types)nvtx_##module[slot])(__VA_ARGS__) : none)
#define NVTX_VOID(module, slot, types, ...) \
    (nvtx_##module[slot] ? ((void (*) types)nvtx_##module[slot])(__VA_ARGS__) : (void)0)

static inline int nvtx_push(const char *name) { return NVTX(core, RangePushA, int, -2, (const char *), name); }
static inline int nvtx_pop(void) { return NVTX(core, RangePop, int, -2, (void), ); }
static inline uint64_t nvtx_start(const char *name) { return NVTX(core, RangeStartA, uint64_t, 0, (const char *), name); }
static inline void nvtx_end(uint64_t number) { NVTX_VOID(core, RangeEnd, (uint64_t), number); }
static inline void nvtx_mark(const char *name) { NVTX_VOID(core, MarkA, (const char *), name); }
static inline nvtx_domain nvtx_create(const char *name) {
    return NVTX(core2, DomainCreateA, nvtx_domain, NULL, (const char *), name);
}
static inline nvtx_string nvtx_register(nvtx_domain domain, const char *text) {
    return NVTX(core2, DomainRegisterStringA, nvtx_string, NULL, (nvtx_domain, const char *), domain, text);
}
static inline int nvtx_push_in(nvtx_domain domain, const struct nvtx_attributes *said) {
    return NVTX(core2, DomainRangePushEx, int, -2, (nvtx_domain, const struct nvtx_attributes *), domain, said);
}
static inline int nvtx_pop_in(nvtx_domain domain) {
    return NVTX(core2, DomainRangePop, int, -2, (nvtx_domain), domain);
}

#define NVTX_ATTRIBUTES(...) (struct nvtx_attributes){.version = 3, .size = sizeof(struct nvtx_attributes), __VA_ARGS__}
#define NVTX_NAMED(text) .message_type = NVTX_NARROW, .message.narrow = text

#endif
