/* What a program may do that a tracer does not expect, for the simulated Metal.
 *
 * usage: metal_odd released       lets go of everything before its handlers are called
 *        metal_odd jump           each commit but the last is left by longjmp
 *        metal_odd throw          the same by an exception
 *        metal_odd throw4         the same with Metal 4, and three commits after that
 *        metal_odd gone           the last to hold a command buffer is a handler, which runs before commit returns
 *        metal_odd allocations    tells what it takes of malloc to commit, to a queue that was seen made and to one that was not
 *        metal_odd asks           tells how often a command buffer is asked for something while it is committed
 *        metal_odd before|after   another one puts its own commit into the class, before the first command buffer or after
 *        metal_odd above|removed  another one puts its own into the classes above the concrete ones, after the first command buffer
 *                                 or before it and takes it out again; prints how often its own was called
 *        metal_odd unseen         a queue of a class that no message returned
 *        metal_odd waited         the same, beside one of a usual class; its command buffers are waited for
 *        metal_odd private        the same, of a device that no function of Metal's gave to the program
 *        metal_odd alien          the same, whose command buffers have a commit and a wait that call none below
 *        metal_odd classes        queues of five classes
 *        metal_odd wrapper        a queue of a class that lacks what queues have
 *        metal_odd signature      a queue whose commandBuffer has another signature than Metal's
 *        metal_odd twice          commits a command buffer twice, and once more when it has completed
 *        metal_odd late           adds a handler after the commit
 *        metal_odd vanish         the device goes away while a command buffer runs
 *        metal_odd nothing        no device: messages to nil
 *        metal_odd never          a command buffer that is never committed, and an end in the middle of another's run */
#include <setjmp.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "metal.h"
#include "truth.h"

static id<MTLDevice> device;
static id<MTLCommandQueue> queue;
static volatile int handled;

static void handle(struct block *block, id given, uint64_t unused) {
    id<MTLCommandBuffer> work = given;
    if ([work status] >= MTLStatusCompleted && [work GPUEndTime] >= [work GPUStartTime]) __atomic_fetch_add(&handled, 1, __ATOMIC_RELAXED);
}

static const struct block_descriptor DESCRIPTOR = {0, sizeof(struct block)};

static id<MTLCommandBuffer> encode(const char *name) {
    id<MTLLibrary> library = [device newDefaultLibrary];
    id<MTLFunction> function = [library newFunctionWithName:[NSString stringWithUTF8String:name]];
    id<MTLComputePipelineState> pipeline = [device newComputePipelineStateWithFunction:function error:NULL];
    id<MTLCommandBuffer> work = [queue commandBuffer];
    id<MTLComputeCommandEncoder> kernels = [work computeCommandEncoder];
    [kernels setComputePipelineState:pipeline];
    [kernels dispatchThreadgroups:(MTLSize){1, 1, 1} threadsPerThreadgroup:(MTLSize){1, 1, 1}];
    [kernels endEncoding];
    [library release];
    [function release];
    [pipeline release];
    /* On the stack, as a closure is: whoever keeps it copies it. */
    struct block handler = {NULL, 0, 0, handle, &DESCRIPTOR};
    [work addCompletedHandler:(id)(void *)&handler];
    return work;
}

static void await_handlers(int count) {
    while (handled < count) usleep(1000);
}

static void released(void) {
    for (int i = 0; i < 20; i++) {
        void *pool = objc_autoreleasePoolPush();
        [encode("short_500us") commit];
        objc_autoreleasePoolPop(pool);
    }
    [queue release];
    queue = nil;
    await_handlers(20);
}

static jmp_buf out;
static int jumps;

static void leave(void) {
    if (jumps-- > 0) longjmp(out, 1);
}

static void jump(void) {
    fake_at_commit = leave;
    jumps = 50;
    id<MTLCommandBuffer> work = encode("short_500us");
    while (setjmp(out))
        ;
    [work commit];
    [work waitUntilCompleted];
    fake_at_commit = NULL;
    id<MTLCommandBuffer> next = encode("short_500us");
    [next commit];
    [next waitUntilCompleted];
}

static void throw_it(void) {
    if (jumps-- > 0) @throw [[NSObject new] autorelease];
}

/* What a caller keeps in registers is as it was when the exception is caught. */
static void throwing(void) {
    fake_at_commit = throw_it;
    jumps = 50;
    register unsigned long a = 1, b = 2, c = 3, d = 4, e = 5;
    id<MTLCommandBuffer> work = encode("short_500us");
    for (int left = 0; !left;) {
        __asm__ volatile("" : "+r"(a), "+r"(b), "+r"(c), "+r"(d), "+r"(e));
        @try {
            [work commit];
            left = 1;
        } @catch (NSObject *thrown) {
            a += 1, b += 2, c += 3, d += 4, e += 5;
        }
    }
    [work waitUntilCompleted];
    fake_at_commit = NULL;
    printf("%lu %lu %lu %lu %lu\n", a, b, c, d, e);
}

/* Of 300 commits each is left; then three are made. */
static void throwing4(void) {
    id<MTL4CommandQueue> queue4 = [device newMTL4CommandQueue];
    id<MTLSharedEvent> event = [device newSharedEvent];
    id<MTL4CommandBuffer> buffer = [device newCommandBuffer];
    [buffer beginCommandBufferWithAllocator:[device newCommandAllocator]];
    [buffer endCommandBuffer];
    fake_at_commit = throw_it;
    jumps = 300;
    int caught = 0;
    for (int commits = 0; commits < 3;) {
        @try {
            [queue4 commit:&buffer count:1];
            [queue4 signalEvent:event value:++commits];
            [event waitUntilSignaledValue:commits timeoutMS:UINT64_MAX];
        } @catch (NSObject *thrown) {
            caught++;
        }
    }
    printf("caught %d\n", caught);
}

static void release_given(struct block *block, id given, uint64_t unused) {
    [given release];
}

static void await_end(void) {
    while (fake_command_buffers) usleep(100);
}

static void gone(void) {
    struct block handler = {NULL, BLOCK_IS_GLOBAL, 0, release_given, &DESCRIPTOR};
    fake_after_commit = await_end;
    for (int i = 0; i < 20; i++) {
        void *inner = objc_autoreleasePoolPush();
        id<MTLCommandBuffer> work = [encode("short_100us") retain];
        [work setLabel:[NSString stringWithUTF8String:"short"]];
        [work addCompletedHandler:(id)(void *)&handler];
        objc_autoreleasePoolPop(inner);
        [work commit];
    }
}

/* Calls of malloc's family, of all threads and libraries. */
static unsigned long allocations;

void *__libc_malloc(size_t bytes);
void *__libc_calloc(size_t count, size_t bytes);
void *__libc_realloc(void *block, size_t bytes);

void *malloc(size_t bytes) {
    __atomic_fetch_add(&allocations, 1, __ATOMIC_RELAXED);
    return __libc_malloc(bytes);
}

void *calloc(size_t count, size_t bytes) {
    __atomic_fetch_add(&allocations, 1, __ATOMIC_RELAXED);
    return __libc_calloc(count, bytes);
}

void *realloc(void *block, size_t bytes) {
    __atomic_fetch_add(&allocations, 1, __ATOMIC_RELAXED);
    return __libc_realloc(block, bytes);
}

/* From before the commit until after the program's handler (who waits for a command buffer has its class met). The first commit of
   a queue starts its thread, and what that does after the handler of the first is over when it calls that of the second. */
static void count_allocations(const char *who) {
    unsigned long count = 0;
    for (int i = 0; i < 102; i++) {
        void *inner = objc_autoreleasePoolPush();
        id<MTLCommandBuffer> work = encode("nothing");
        unsigned long before = allocations;
        int until = handled + 1;
        [work commit];
        await_handlers(until);
        if (i > 1) count += allocations - before;
        objc_autoreleasePoolPop(inner);
    }
    if (truth_is_wanted()) truth("{\"kind\":\"allocations\",\"who\":\"%s\",\"count\":%lu}", who, count);
}

static void count_all_allocations(void) {
    count_allocations("seen");
    queue = fake_alien_queue(device);
    count_allocations("unseen");
}

/* The GPU waits meanwhile: what a handler asks is another matter. */
static void asks(void) {
    id<MTLSharedEvent> gate = [device newSharedEvent];
    for (int i = 1; i <= 3; i++) {
        id<MTLCommandBuffer> work = encode("nothing");
        [work encodeWaitForEvent:gate value:i];
        int before = fake_questions;
        [work commit];
        printf("asked %d\n", fake_questions - before);
        [gate setSignaledValue:i];
        await_handlers(i);
    }
}

static void (*original_commit)(id, SEL);
static int seen;

static void their_commit(id self, SEL selector) {
    seen++;
    original_commit(self, selector);
}

static void swizzle(id work) {
    SEL selector = sel_registerName("commit");
    Method method = class_getInstanceMethod(object_getClass(work), selector);
    original_commit = (void (*)(id, SEL))(void *)method_setImplementation(method, (IMP)(void *)their_commit);
}

static void swizzled(int after) {
    /* GCC's runtime: a class to which nothing was sent yet has no table of methods. */
    id<MTLCommandBuffer> other = [fake_odd_queue(device) commandBuffer];
    [other status];
    if (!after) {
        Class class = objc_getClass("AGXSimCommandBuffer");
        id unused = [class alloc];
        [[unused init] status];
        swizzle(unused);
    }
    id<MTLCommandBuffer> first = encode("short_500us");
    if (after) swizzle(first);
    [first commit];
    for (int i = 0; i < 9; i++) [encode("short_500us") commit];
    await_handlers(10);
    printf("seen %d\n", seen);
}

static int above[4];
static void (*plain_enqueue)(id, SEL), (*plain_scheduled)(id, SEL);
static id (*plain_buffer)(id, SEL);
static void (*plain_dispatch)(id, SEL, MTLSize, MTLSize);

static void their_enqueue(id self, SEL selector) {
    above[0]++;
    plain_enqueue(self, selector);
}

static void their_scheduled(id self, SEL selector) {
    above[1]++;
    plain_scheduled(self, selector);
}

static id their_buffer(id self, SEL selector) {
    above[2]++;
    return plain_buffer(self, selector);
}

static void their_dispatch(id self, SEL selector, MTLSize grid, MTLSize group) {
    above[3]++;
    plain_dispatch(self, selector, grid, group);
}

static void *into(const char *class, const char *selector, const void *code) {
    Method method = class_getInstanceMethod(objc_getClass(class), sel_registerName(selector));
    return (void *)method_setImplementation(method, (IMP)(void *)code);
}

static void put_above(void) {
    plain_enqueue = into("_MTLCommandBuffer", "enqueue", their_enqueue);
    plain_scheduled = into("_MTLCommandBuffer", "waitUntilScheduled", their_scheduled);
    plain_buffer = into("_MTLSimCommandQueue", "commandBuffer", their_buffer);
    plain_dispatch =
        into("_MTLSimComputeEncoder", "dispatchThreadgroups:threadsPerThreadgroup:", their_dispatch);
}

static void take_out(void) {
    into("_MTLCommandBuffer", "enqueue", plain_enqueue);
    into("_MTLCommandBuffer", "waitUntilScheduled", plain_scheduled);
    into("_MTLSimCommandQueue", "commandBuffer", plain_buffer);
    into("_MTLSimComputeEncoder", "dispatchThreadgroups:threadsPerThreadgroup:", plain_dispatch);
}

static void hooked_above(int before) {
    if (before) {
        /* GCC's runtime: a class to which nothing was sent yet has no table of methods. */
        const char *classes[] = {"_MTLCommandBuffer", "_MTLSimCommandQueue", "_MTLSimComputeEncoder"};
        for (int i = 0; i < 3; i++) [(id)objc_getClass(classes[i]) alloc];
        put_above();
    }
    for (int i = 0; i < 4; i++) {
        if (i == 1 && before) take_out();
        if (i == 1 && !before) put_above();
        id<MTLCommandBuffer> work = encode("short_500us");
        [work enqueue];
        [work commit];
        [work waitUntilScheduled];
    }
    await_handlers(4);
    printf("above %d %d %d %d\n", above[0], above[1], above[2], above[3]);
}

static void unseen(void) {
    queue = fake_odd_queue(device);
    for (int i = 0; i < 3; i++) [encode("short_500us") commit];
    await_handlers(3);
}

static void private(void) {
    device = fake_private_device();
    unseen();
}

static void alien(void) {
    queue = fake_alien_queue(device);
    for (int i = 0; i < 3; i++) {
        id<MTLCommandBuffer> work = encode("short_500us");
        [work commit];
        [work waitUntilCompleted];
    }
}

static void (*original_wait)(id, SEL);

static void their_wait(id self, SEL selector) {
    seen++;
    original_wait(self, selector);
}

static void waited(void) {
    [encode("short_500us") commit];
    /* Another one's hook stands where ours looks for such classes. */
    Method method = class_getInstanceMethod(objc_getClass("_MTLCommandBuffer"), sel_registerName("waitUntilCompleted"));
    original_wait = (void (*)(id, SEL))(void *)method_setImplementation(method, (IMP)(void *)their_wait);
    queue = fake_odd_queue(device);
    for (int i = 0; i < 4; i++) {
        id<MTLCommandBuffer> work = encode("short_500us");
        [work commit];
        [work waitUntilCompleted];
    }
    await_handlers(5);
    printf("seen %d\n", seen);
}

/* A new class of queues. Its name, which is the class's from then on. */
static const char *new_queue_class(int nth) {
    static char names[8][32];
    snprintf(names[nth], sizeof names[nth], "NewSimQueue%d", nth);
    objc_registerClassPair(objc_allocateClassPair(objc_getClass("_MTLSimCommandQueue"), names[nth], 0));
    return names[nth];
}

static void classes(void) {
    for (int i = 0; i < 5; i++) {
        if (i > 0) {
            fake_queue_class = new_queue_class(i);
            queue = [device newCommandQueue];
        }
        [encode("short_500us") commit];
    }
    await_handlers(5);
}

static id other_signature(id self, SEL selector, int unknown) {
    return fake_odd_queue(device);
}

static void signature(void) {
    fake_queue_class = new_queue_class(0);
    class_addMethod(objc_getClass(fake_queue_class), sel_registerName("commandBufferWithDescriptor:"), (IMP)(void *)other_signature, "@@:i");
    queue = [device newCommandQueue];
    [encode("short_500us") commit];
    await_handlers(1);
}

/* It stands before a queue, and has of it what this program needs. */
@interface ThinQueue : NSObject
@end

static id behind;

@implementation ThinQueue
+ (id)queueOf:(id)device most:(NSUInteger)most {
    return [self new];
}
- (id)commandBuffer {
    return [behind commandBuffer];
}
@end

static void wrapper(void) {
    behind = fake_odd_queue(device);
    fake_queue_class = "ThinQueue";
    for (int i = 0; i < 3; i++) queue = [device newCommandQueue];
    [encode("short_500us") commit];
    await_handlers(1);
}

static void twice(void) {
    id<MTLCommandBuffer> work = encode("short_500us");
    [work commit];
    [work commit];
    await_handlers(1);
    [work commit];
}

static void late(void) {
    id<MTLCommandBuffer> work = encode("short_500us");
    [work commit];
    struct block handler = {NULL, 0, 0, handle, &DESCRIPTOR};
    [work addCompletedHandler:(id)(void *)&handler];
}

static void vanish(void) {
    id<MTLCommandBuffer> work = encode("long_20000us");
    [work commit];
    fake_vanish(device);
    [work waitUntilCompleted];
    printf("status %lu, %p %p %p\n", [work status], [device newCommandQueue], [queue commandBuffer],
           [device newBufferWithLength:4 options:0]);
    id<MTLCommandBuffer> none = [queue commandBuffer];
    [[none computeCommandEncoder] endEncoding];
    [none commit];
    [none waitUntilCompleted];
}

static void never(void) {
    encode("short_500us");
    [encode("long_20000us") commit];
    fflush(stdout);
    _exit(3);
}

int main(int argc, char **argv) {
    const char *what = argc > 1 ? argv[1] : "";
    void *pool = objc_autoreleasePoolPush();
    if (strcmp(what, "private")) device = MTLCreateSystemDefaultDevice();
    queue = [device newCommandQueue];
    if (!strcmp(what, "released")) released();
    else if (!strcmp(what, "jump")) jump();
    else if (!strcmp(what, "throw")) throwing();
    else if (!strcmp(what, "throw4")) throwing4();
    else if (!strcmp(what, "gone")) gone();
    else if (!strcmp(what, "allocations")) count_all_allocations();
    else if (!strcmp(what, "asks")) asks();
    else if (!strcmp(what, "before")) swizzled(0);
    else if (!strcmp(what, "after")) swizzled(1);
    else if (!strcmp(what, "above")) hooked_above(0);
    else if (!strcmp(what, "removed")) hooked_above(1);
    else if (!strcmp(what, "unseen")) unseen();
    else if (!strcmp(what, "waited")) waited();
    else if (!strcmp(what, "private")) private();
    else if (!strcmp(what, "alien")) alien();
    else if (!strcmp(what, "classes")) classes();
    else if (!strcmp(what, "wrapper")) wrapper();
    else if (!strcmp(what, "signature")) signature();
    else if (!strcmp(what, "twice")) twice();
    else if (!strcmp(what, "late")) late();
    else if (!strcmp(what, "vanish")) vanish();
    else if (!strcmp(what, "never")) never();
    else if (!strcmp(what, "nothing")) printf("%p %p\n", device, queue);
    else return 2;
    printf("handled %d\n", handled);
    objc_autoreleasePoolPop(pool);
    return 0;
}
