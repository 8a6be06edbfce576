/* The classes behind the protocols, and how the files of the simulation make each other's objects.
 *
 * A family is what a vendor's driver brings: its device makes queues, buffers and encoders of its own classes, which
 * inherit most of what they do. AGXSim stands over three floors that each have a commit of their own. */
#ifndef CLASSES_H
#define CLASSES_H

#include "blocks.h"
#include "metal.h"
#include "timeline.h"

struct family {
    const char *name;
    const char *queue, *command_buffer, *compute, *blit, *render, *buffer, *heap, *texture;
};

extern const struct family AGX_SIM, BRONZE_SIM;

@interface _MTLSimDevice : NSObject {
  @public
    const struct family *family;
    NSUInteger number;
    volatile int vanished;
}
@end

@interface _MTLSimCommandQueue : NSObject {
  @public
    _MTLSimDevice *device;
    NSString *label;
    struct timeline *timeline;
}
+ (id)queueOf:(_MTLSimDevice *)device most:(NSUInteger)most;
/* A queue without a room of its own for uncompleted command buffers. */
- (id)initFor:(_MTLSimDevice *)device most:(NSUInteger)most;
- (id)newCommandBuffer:(const char *)class_name;
@end

@interface _MTLCommandBuffer : NSObject {
  @public
    _MTLSimCommandQueue *queue;
    NSString *label;
    struct work work;
    /* MTLStatus..., and one more when the handlers have returned. */
    volatile int status, over;
    uint64_t number;
    struct handlers scheduled, completed;
}
- (void)submit;
- (void)awaitEnd;
@end

/* Encoders hold their command buffer (or that of Metal 4) and add to its work. */
@interface _MTLSimEncoder : NSObject {
  @public
    id command_buffer;
    struct work *work;
    id pipeline;
    int ended;
}
@end

@interface _MTLSimResource : NSObject {
  @public
    id device;
    NSString *label;
    NSUInteger bytes, mode;
    char *memory;
    struct block *deallocator;
    int is_theirs;
}
@end

@interface _MTLSimBuffer : _MTLSimResource
@end

id encoder_new(const char *class_name, id command_buffer, struct work *work);
id resource_new(const char *class_name, id device, NSUInteger bytes, NSUInteger options, char *theirs);
id command_buffer4_new(id device);
id library_new(void);
/* A pipeline of a function, and how long its dispatches take. */
id pipeline_new(id function, NSString *label);
const char *pipeline_name(id pipeline);
uint64_t pipeline_ns(id pipeline);
/* The names of a label; "" without. */
const char *text_of(NSString *label);

/* A class of a family that does all as the one it stands on. */
#define INHERITS(name, base)                                                                                           \
    @interface name : base                                                                                             \
    @end                                                                                                               \
    @implementation name                                                                                               \
    @end

#endif
