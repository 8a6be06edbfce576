/* The root class, strings, arrays and the pool: what <Foundation/Foundation.h> is to a program of Metal's. */
#include <stdlib.h>
#include <string.h>

#include "metal.h"

#ifdef PATCHED
void __real_free(void *block);
#define free_really __real_free
#else
#define free_really free
#endif

/* GCC's runtime builds a class's table of methods anew when one is put into it, and gives the old one back under the eyes of threads
   that still look there: freed, one program in 300 with eight of them crashed; kept (objc_thread_add), the first word of each part becomes
   a link, and one in thousands called init in place of autorelease, or another message in place of dealloc, and stood still. So
   nothing that the runtime gives back is touched. */
void objc_free(void *block) {
}

@implementation NSObject
+ (id)alloc {
    NSObject *made = class_createInstance(self, 0);
    made->references = 1;
    return made;
}
+ (id)new {
    return [[self alloc] init];
}
+ (Class)class {
    return self;
}
- (id)init {
    return self;
}
- (id)retain {
    __atomic_fetch_add(&references, 1, __ATOMIC_RELAXED);
    return self;
}
- (void)release {
    if (__atomic_fetch_sub(&references, 1, __ATOMIC_ACQ_REL) == 1)
        [self dealloc];
}
- (void)dealloc {
    free_really(self);
}
- (Class)class {
    return object_getClass(self);
}
- (NSUInteger)retainCount {
    return __atomic_load_n(&references, __ATOMIC_RELAXED);
}

/* What is to be released, by thread; a pool is a place in that list. */
static __thread struct {
    id *objects;
    size_t count, room;
} pending;

- (id)autorelease {
    if (pending.count == pending.room) {
        pending.room = pending.room ? 2 * pending.room : 64;
        pending.objects = realloc(pending.objects, pending.room * sizeof(id));
    }
    pending.objects[pending.count++] = self;
    return self;
}
@end

void *objc_autoreleasePoolPush(void) {
    return (void *)(pending.count + 1);
}

void objc_autoreleasePoolPop(void *pool) {
    size_t least = (size_t)pool - 1;
    while (pending.count > least)
        [pending.objects[--pending.count] release];
    if (least == 0) {
        free(pending.objects);
        pending.objects = NULL;
        pending.room = 0;
    }
}

@implementation NSString
+ (NSString *)stringWithUTF8String:(const char *)text {
    NSString *made = [self new];
    made->text = strdup(text);
    return [made autorelease];
}
- (const char *)UTF8String {
    return text;
}
- (NSUInteger)length {
    return strlen(text);
}
- (void)dealloc {
    free(text);
    [super dealloc];
}
@end

@implementation NSArray
- (NSUInteger)count {
    return count;
}
- (id)objectAtIndex:(NSUInteger)index {
    if (index >= count)
        abort();
    return objects[index];
}
- (void)addObject:(id)object {
    if (count == sizeof objects / sizeof *objects)
        abort();
    objects[count++] = [object retain];
}
- (void)dealloc {
    for (NSUInteger i = 0; i < count; i++)
        [objects[i] release];
    [super dealloc];
}
@end

@implementation MTLCommandQueueDescriptor
- (NSUInteger)maxCommandBufferCount {
    return most;
}
- (void)setMaxCommandBufferCount:(NSUInteger)count {
    most = count;
}
@end

@implementation MTLHeapDescriptor
- (NSUInteger)size {
    return bytes;
}
- (void)setSize:(NSUInteger)size {
    bytes = size;
}
- (NSUInteger)storageMode {
    return mode;
}
- (void)setStorageMode:(NSUInteger)wanted {
    mode = wanted;
}
@end
