/* Allocates at the ends of random paths through its own functions, and writes down each path; for tests/host_memory/trees.rs.
 *
 * usage: call_trees BLOCKS THREADS SEED DEEPEST
 * Prints a line for each block: its size, which no other has, and who called whom to allocate it, outermost first: a
 * letter for each call site, of which each function has two, and one for where it allocates, of which it has two more.
 * Functions 0 to 3 are the program's, 4 to 7 those of a library (-DLIBRARY), which may be compiled otherwise. Half of
 * them have frames of a fixed size, half of another size each time. */
#define _GNU_SOURCE
#include <alloca.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

#define FIRST_BYTES 10000
#define KEPT __attribute__((noinline, noclone, used, visibility("default")))

struct walk;
typedef void (*node)(struct walk *);

struct walk {
    const node *nodes;
    unsigned random;
    int depth, deepest, target, left, bytes;
    char *path, *text;
    size_t written;
};

static inline unsigned next(struct walk *w) {
    w->random = w->random * 1664525 + 1013904223;
    return w->random >> 8;
}

/* Mostly somewhere near, so that much of the stack stays; sometimes anywhere; sometimes where it is. */
static inline void aim(struct walk *w) {
    unsigned how = next(w) % 16;
    int target = how == 0 ? (int)(next(w) % w->deepest) : how < 4 ? w->depth : w->depth + (int)(next(w) % 13) - 7;
    w->target = target < 1 ? 1 : target > w->deepest ? w->deepest : target;
}

/* Writes down where the block of the returned size is allocated. */
static inline size_t told(struct walk *w, char site) {
    w->path[w->depth - 1] = site;
    w->written += sprintf(w->text + w->written, "%d %.*s\n", w->bytes, w->depth, w->path);
    w->left--;
    return w->bytes++;
}

#define NODE(name, number, ROOM)                                                                                      \
    KEPT void name(struct walk *w) {                                                                                  \
        ROOM;                                                                                                         \
        room[0] = 1, (void)room[0];                                                                                   \
        w->depth++;                                                                                                   \
        while (w->left > 0 && w->depth <= w->target) {                                                                \
            if (w->depth < w->target) {                                                                               \
                node child = w->nodes[next(w) % 8];                                                                   \
                if (next(w) % 4) {                                                                                    \
                    w->path[w->depth - 1] = 'a' + 2 * number;                                                         \
                    child(w);                                                                                         \
                    __asm__ volatile("# one way" ::: "memory");                                                       \
                } else {                                                                                              \
                    w->path[w->depth - 1] = 'b' + 2 * number;                                                         \
                    child(w);                                                                                         \
                    __asm__ volatile("# another way" ::: "memory");                                                   \
                }                                                                                                     \
                continue;                                                                                             \
            }                                                                                                         \
            void *volatile block;                                                                                     \
            if (next(w) % 2) {                                                                                        \
                block = malloc(told(w, 'A' + 2 * number));                                                            \
                __asm__ volatile("# one place" ::: "memory");                                                         \
            } else {                                                                                                  \
                block = malloc(told(w, 'B' + 2 * number));                                                            \
                __asm__ volatile("# another place" ::: "memory");                                                     \
            }                                                                                                         \
            free(block);                                                                                              \
            aim(w);                                                                                                   \
        }                                                                                                             \
        w->depth--;                                                                                                   \
    }

#define FIXED(bytes) volatile char room[bytes]
#define VARIES volatile char *room = alloca(16 + 16 * (next(w) % 9))

#ifdef LIBRARY

NODE(node_4, 4, FIXED(8))
NODE(node_5, 5, FIXED(200))
NODE(node_6, 6, VARIES)
NODE(node_7, 7, VARIES)

#else

void node_4(struct walk *), node_5(struct walk *), node_6(struct walk *), node_7(struct walk *);

NODE(node_0, 0, FIXED(8))
NODE(node_1, 1, FIXED(40))
NODE(node_2, 2, VARIES)
NODE(node_3, 3, VARIES)

static const node nodes[8] = {node_0, node_1, node_2, node_3, node_4, node_5, node_6, node_7};

/* All threads are there before the first allocates, and until the last has. */
static pthread_barrier_t together;

static void *work(void *data) {
    struct walk *w = data;
    pthread_barrier_wait(&together);
    while (w->left > 0) {
        aim(w);
        nodes[next(w) % 8](w);
    }
    pthread_barrier_wait(&together);
    return NULL;
}

int main(int argc, char **argv) {
    if (argc < 5) return 2;
    int blocks = atoi(argv[1]), threads = atoi(argv[2]), deepest = atoi(argv[4]);
    struct walk *walks = calloc(threads, sizeof *walks);
    pthread_t *ids = calloc(threads, sizeof *ids);
    pthread_barrier_init(&together, NULL, threads);
    pthread_attr_t small;
    pthread_attr_init(&small);
    pthread_attr_setstacksize(&small, (128 << 10) + deepest * 1024);
    for (int i = 0; i < threads; i++) {
        struct walk *w = &walks[i];
        size_t room = (size_t)(blocks + 1) * (deepest + 16);
        char *text = mmap(NULL, room, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
        *w = (struct walk){.nodes = nodes, .random = atoi(argv[3]) + 7919u * i, .left = blocks, .deepest = deepest,
                           .path = text, .text = text + deepest + 16};
        w->bytes = FIRST_BYTES + i * blocks;
        if (pthread_create(&ids[i], &small, work, w)) return 1;
    }
    for (int i = 0; i < threads; i++) {
        pthread_join(ids[i], NULL);
        for (size_t done = 0; done < walks[i].written;) done += write(1, walks[i].text + done, walks[i].written - done);
    }
    return 0;
}

#endif
