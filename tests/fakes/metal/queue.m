/* MTLCommandQueue: at most so many command buffers that were made and are not completed. */
#include "classes.h"
#include "truth.h"

@implementation _MTLSimCommandQueue
+ (id)queueOf:(_MTLSimDevice *)device most:(NSUInteger)most {
    return [[self alloc] initFor:device most:most];
}
- (id)initFor:(_MTLSimDevice *)of most:(NSUInteger)most {
    device = [of retain];
    timeline = timeline_new(most);
    return self;
}
- (void)dealloc {
    timeline_close(timeline);
    [label release];
    [device release];
    [super dealloc];
}
- (id)device {
    return device;
}
- (NSString *)label {
    return label;
}
- (void)setLabel:(NSString *)text {
    [text retain];
    [label release];
    label = text;
}
- (id)newCommandBuffer:(const char *)class_name {
    if (device->vanished)
        return nil;
    uint64_t begin = now_ns();
    timeline_take_room(timeline);
    _MTLCommandBuffer *made = [objc_getClass(class_name) new];
    made->queue = [self retain];
    truth("{\"kind\":\"wait\",\"what\":\"room\",\"object\":%lu,\"start_ns\":%lu,\"end_ns\":%lu}", (unsigned long)made, begin,
          now_ns());
    return made;
}
- (id)commandBuffer {
    return [[self newCommandBuffer:device->family->command_buffer] autorelease];
}
- (id)commandBufferWithUnretainedReferences {
    return [[self newCommandBuffer:device->family->command_buffer] autorelease];
}
- (id)commandBufferWithDescriptor:(id)descriptor {
    return [[self newCommandBuffer:device->family->command_buffer] autorelease];
}
@end

INHERITS(AGXSimCommandQueue, _MTLSimCommandQueue)
INHERITS(BronzeSimQueue, _MTLSimCommandQueue)

/* Queues that a library makes for itself: nobody sees them come. Their command buffers are their own as well. */
@interface OddSimQueue : _MTLSimCommandQueue
@end

@implementation OddSimQueue
- (id)commandBuffer {
    return [[self newCommandBuffer:"OddSimCommandBuffer"] autorelease];
}
@end

@interface AlienSimQueue : _MTLSimCommandQueue
@end

@implementation AlienSimQueue
- (id)commandBuffer {
    return [[self newCommandBuffer:"AlienSimCommandBuffer"] autorelease];
}
@end

id fake_odd_queue(id device) {
    return [objc_getClass("OddSimQueue") queueOf:device most:64];
}

id fake_alien_queue(id device) {
    return [objc_getClass("AlienSimQueue") queueOf:device most:64];
}
