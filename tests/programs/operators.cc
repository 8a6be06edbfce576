/* C++'s operators new and delete, each so often that they can be counted, with sizes that nobody else uses.
 *
 * usage: operators COUNT PLUGIN OWN [fails]
 *   sizes 60001 to 60008   the operators new COUNT times, deleted by each of the operators delete that fits
 *   size 70002             a string of 70001 characters COUNT times, which libstdc++ allocates
 *   size 80001             COUNT times in each of four threads at once
 *   size 90001             COUNT times by PLUGIN, a library made of this source with -DPLUGIN
 *   size 90003             20 times while PLUGIN is opened, by its second object
 *   size 33333             COUNT times by OWN, which has an operator of its own (-DPLUGIN -DOWN), and calls that
 *   fails                  COUNT times what no allocator has, in the ways in which C++ tells of it
 * With -DREPLACED the program has a plain new and delete of its own, which call malloc. */
#include <cstdio>
#include <cstdlib>
#include <dlfcn.h>
#include <malloc.h>
#include <new>
#include <pthread.h>
#include <string>

/* The compiler must not leave the pair out. Nothing that threads share: one would delete what another one has. */
static void *keep(void *block) {
    __asm__ volatile("" : "+r"(block) : : "memory");
    return block;
}

#ifdef OWN
static int calls;
void *operator new(std::size_t size) { return calls++, malloc(size); }
void operator delete(void *block) noexcept { free(block); }
void operator delete(void *block, std::size_t) noexcept { free(block); }

extern "C" int work(int count) {
    for (int i = 0; i < count; i++) ::operator delete(keep(::operator new(33333)));
    return calls;
}
#elif defined PLUGIN
struct Made {
    explicit Made(int count) {
        while (count--) ::operator delete(keep(::operator new(90003)));
    }
    ~Made() { keep(this); }
};
static Made first(0), second(20);

extern "C" int work(int count) {
    for (int i = 0; i < count; i++) ::operator delete(keep(::operator new(90001)));
    return count;
}
#else
#ifdef REPLACED
void *operator new(std::size_t size) {
    void *block = malloc(size);
    return block ? block : throw std::bad_alloc();
}
void operator delete(void *block) noexcept { free(block); }
void operator delete(void *block, std::size_t) noexcept { free(block); }
#endif
static int count;

static void *allocates(void *) {
    for (int i = 0; i < count; i++) ::operator delete(keep(::operator new(80001)));
    return nullptr;
}

struct Refused {};

[[noreturn]] static void refuse() { throw Refused(); }

/* What no allocator has. The compiler must not know. */
static volatile std::size_t huge = std::size_t(1) << 62;

static void fail() {
    int caught = 0, refused = 0, none = 0;
    for (int i = 0; i < count; i++) {
        try {
            keep(::operator new(huge));
        } catch (const std::bad_alloc &) {
            caught++;
        }
        try {
            keep(::operator new[](huge, std::align_val_t(64)));
        } catch (const std::bad_alloc &) {
            caught++;
        }
        none += !keep(::operator new(huge, std::nothrow));
    }
    /* tcmalloc has a block for that. */
    keep(pvalloc(std::size_t(-6)));
    std::set_new_handler(refuse);
    try {
        keep(::operator new(huge));
    } catch (const Refused &) {
        refused++;
    }
    std::set_new_handler(nullptr);
    std::printf("caught %d, refused %d, none %d\n", caught, refused, none);
}

static int opened(const char *file) {
    void *library = dlopen(file, RTLD_LAZY | RTLD_LOCAL);
    auto work = library ? reinterpret_cast<int (*)(int)>(dlsym(library, "work")) : nullptr;
    return work ? work(count) : -1;
}

int main(int argc, char **argv) {
    if (argc < 4) return 2;
    count = atoi(argv[1]);
    const auto aligned = std::align_val_t(64);
    for (int i = 0; i < count; i++) {
        bool odd = i % 2;
        void *a = keep(::operator new(60001)), *b = keep(::operator new[](60002));
        odd ? ::operator delete(a) : ::operator delete(a, std::size_t(60001));
        odd ? ::operator delete[](b) : ::operator delete[](b, std::size_t(60002));
        ::operator delete(keep(::operator new(60003, std::nothrow)), std::nothrow);
        ::operator delete[](keep(::operator new[](60004, std::nothrow)), std::nothrow);
        void *c = keep(::operator new(60005, aligned)), *d = keep(::operator new[](60006, aligned));
        odd ? ::operator delete(c, aligned) : ::operator delete(c, std::size_t(60005), aligned);
        odd ? ::operator delete[](d, aligned) : ::operator delete[](d, std::size_t(60006), aligned);
        ::operator delete(keep(::operator new(60007, aligned, std::nothrow)), aligned, std::nothrow);
        ::operator delete[](keep(::operator new[](60008, aligned, std::nothrow)), aligned, std::nothrow);
        std::string text(70001, 'x');
        keep(&text[i]);
    }
    pthread_t threads[4];
    for (auto &thread : threads) pthread_create(&thread, nullptr, allocates, nullptr);
    for (auto thread : threads) pthread_join(thread, nullptr);
    std::printf("plugin %d, own %d\n", opened(argv[2]), opened(argv[3]));
    if (argc > 4) fail();
}
#endif
