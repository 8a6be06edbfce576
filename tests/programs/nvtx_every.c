/* Calls every function of NVTX that makes or names something, and prints what programs see of it.
 *
 * usage: nvtx_every [kill | fork | pause | odd] */
#define _GNU_SOURCE
#include <pthread.h>
#include <signal.h>
#include <stdio.h>
#include <string.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

#include "nvtx.h"

static uint64_t started;

static void *other_thread(void *data) {
    NVTX_VOID(core, NameOsThreadA, (uint32_t, const char *), (uint32_t)syscall(SYS_gettid), "ender");
    nvtx_end(started);
    return data;
}

static void everything(void) {
    pthread_t thread;
    typedef const struct nvtx_attributes *said;
    /* Before they are used, as their names are those that are known when a row is written. */
    NVTX_VOID(core, NameCategoryA, (uint32_t, const char *), 3, "three");
    NVTX_VOID(core, NameCategoryW, (uint32_t, const wchar_t *), 4, L"vier");
    struct nvtx_attributes a = NVTX_ATTRIBUTES(.category = 3, .color_type = 1, .color = 0xff112233, NVTX_NAMED("ex mark"));
    NVTX_VOID(core, MarkEx, (said), &a);
    nvtx_mark("mark");
    NVTX_VOID(core, MarkW, (const wchar_t *), L"m\u00e4rk \U0001F680");
    a.message.narrow = "ex range";
    uint64_t number = NVTX(core, RangeStartEx, uint64_t, 0, (said), &a);
    started = nvtx_start("across threads");
    uint64_t wide = NVTX(core, RangeStartW, uint64_t, 0, (const wchar_t *), L"wide range");
    nvtx_end(wide);
    nvtx_end(number);
    pthread_create(&thread, NULL, other_thread, NULL);
    pthread_join(thread, NULL);

    a.message_type = NVTX_WIDE, a.message.wide = L"ex push", a.payload_type = NVTX_F32, a.payload.f32 = 0.5f;
    int levels = NVTX(core, RangePushEx, int, -2, (said), &a);
    levels += nvtx_push("push");
    levels += NVTX(core, RangePushW, int, -2, (const wchar_t *), L"wide push");
    levels += nvtx_pop() + nvtx_pop() + nvtx_pop();

    nvtx_domain domain = nvtx_create("domain");
    nvtx_domain other = NVTX(core2, DomainCreateW, nvtx_domain, NULL, (const wchar_t *), L"other domain");
    nvtx_string text = nvtx_register(domain, "registered");
    nvtx_string wide_text =
        NVTX(core2, DomainRegisterStringW, nvtx_string, NULL, (nvtx_domain, const wchar_t *), domain, L"registriert");
    NVTX_VOID(core2, DomainNameCategoryA, (nvtx_domain, uint32_t, const char *), domain, 3, "domain's three");
    NVTX_VOID(core2, DomainNameCategoryW, (nvtx_domain, uint32_t, const wchar_t *), domain, 4, L"domain's four");
    struct nvtx_attributes b = NVTX_ATTRIBUTES(
        .category = 3, .payload_type = NVTX_I64, .payload.i64 = -7, .message_type = NVTX_REGISTERED, .message.registered = text);
    levels += nvtx_push_in(domain, &b);
    b.message.registered = wide_text, b.category = 4, b.payload_type = NVTX_U32, b.payload.u32 = 4000000000u;
    levels += nvtx_push_in(other, &b);
    b.payload_type = NVTX_F64, b.payload.f64 = 1.25;
    NVTX_VOID(core2, DomainMarkEx, (nvtx_domain, said), domain, &b);
    b.payload_type = NVTX_I32, b.payload.i32 = -9;
    number = NVTX(core2, DomainRangeStartEx, uint64_t, 0, (nvtx_domain, said), domain, &b);
    levels += nvtx_pop_in(domain) + nvtx_pop_in(other);
    NVTX_VOID(core2, DomainRangeEnd, (nvtx_domain, uint64_t), domain, number);
    NVTX_VOID(core2, DomainDestroy, (nvtx_domain), other);

    /* Odd arguments: no text, no attributes, attributes of no size, a payload of an extension. */
    levels += nvtx_push(NULL) + nvtx_pop();
    struct nvtx_attributes none = {.version = 3};
    NVTX_VOID(core, MarkEx, (said), NULL);
    NVTX_VOID(core, MarkEx, (said), &none);
    struct nvtx_attributes extended = NVTX_ATTRIBUTES(.payload_type = (int32_t)0xDFBD0009, .payload.u64 = 1, NVTX_NAMED(""));
    NVTX_VOID(core, MarkEx, (said), &extended);
    printf("levels %d, resources %p\n", levels, (void *)nvtx_core2[DomainResourceCreate]);
}

static void with_control(const char *name) {
    int (*control)(void) = (int (*)(void))dlsym(RTLD_DEFAULT, name);
    if (control) control();
}

int main(int argc, char **argv) {
    nvtx_initialise();
    const char *how = argc > 1 ? argv[1] : "";
    if (!strcmp(how, "kill")) {
        nvtx_push("outer");
        nvtx_start("open");
        for (int i = 0; i < 5000; i++) nvtx_push("inner"), nvtx_pop();
        raise(SIGKILL);
    } else if (!strcmp(how, "fork")) {
        nvtx_domain domain = nvtx_create("before");
        struct nvtx_attributes said = NVTX_ATTRIBUTES(.message_type = NVTX_REGISTERED);
        said.message.registered = nvtx_register(domain, "handed down");
        nvtx_push("parent");
        if (fork() == 0) {
            nvtx_push_in(domain, &said), nvtx_pop_in(domain);
            nvtx_push("parent"), nvtx_pop();
            _exit(0);
        }
        wait(NULL);
        nvtx_pop();
    } else if (!strcmp(how, "pause")) {
        nvtx_push("before");
        with_control("gputrace_pause");
        nvtx_pop(), nvtx_push("unseen");
        nvtx_domain domain = nvtx_create("made in a pause");
        with_control("gputrace_resume");
        struct nvtx_attributes said = NVTX_ATTRIBUTES(NVTX_NAMED("after"));
        nvtx_push_in(domain, &said), nvtx_pop_in(domain);
        nvtx_pop();
    } else if (!strcmp(how, "odd")) {
        /* Of three pops only the first has a push, and nothing has this number. */
        nvtx_push("only"), nvtx_pop(), nvtx_pop(), nvtx_pop();
        nvtx_end(77);
    } else {
        everything();
    }
    return 0;
}
