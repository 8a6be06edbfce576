/* The encoders: compute, blit and render. */
#include <stdio.h>
#include <stdlib.h>

#include "classes.h"
#include "truth.h"

id encoder_new(const char *class_name, id command_buffer, struct work *work) {
    _MTLSimEncoder *made = [objc_getClass(class_name) new];
    made->command_buffer = [command_buffer retain];
    made->work = work;
    return made;
}

@implementation _MTLSimEncoder
- (void)dealloc {
    [pipeline release];
    [command_buffer release];
    [super dealloc];
}
- (id)device {
    return [command_buffer device];
}
- (void)setLabel:(NSString *)label {
}
- (void)endEncoding {
    if (ended++) {
        fprintf(stderr, "failed assertion `endEncoding has already been called'\n");
        abort();
    }
}
@end

@interface _MTLSimComputeEncoder : _MTLSimEncoder
- (void)dispatch:(const char *)form grid:(MTLSize)grid group:(MTLSize)group;
@end

@implementation _MTLSimComputeEncoder
- (void)dispatch:(const char *)form grid:(MTLSize)grid group:(MTLSize)group {
    work_add(work, (struct op){.kind = OP_DISPATCH, .value = pipeline_ns(pipeline)});
    truth("{\"kind\":\"dispatch\",\"object\":%lu,\"name\":\"%s\",\"form\":\"%s\",\"grid\":[%lu,%lu,%lu],"
          "\"group\":[%lu,%lu,%lu]}",
          (unsigned long)command_buffer, pipeline_name(pipeline), form, grid.width, grid.height, grid.depth, group.width,
          group.height, group.depth);
}
- (void)setComputePipelineState:(id)state {
    [state retain];
    [pipeline release];
    pipeline = state;
}
- (void)setBuffer:(id)buffer offset:(NSUInteger)offset atIndex:(NSUInteger)index {
}
- (void)dispatchThreads:(MTLSize)threads threadsPerThreadgroup:(MTLSize)group {
    [self dispatch:"threads" grid:threads group:group];
}
- (void)dispatchThreadgroups:(MTLSize)groups threadsPerThreadgroup:(MTLSize)group {
    [self dispatch:"groups" grid:groups group:group];
}
- (void)dispatchThreadgroupsWithIndirectBuffer:(id)buffer
                          indirectBufferOffset:(NSUInteger)offset
                         threadsPerThreadgroup:(MTLSize)group {
    [self dispatch:"indirect" grid:(MTLSize){0, 0, 0} group:group];
}
- (void)executeCommandsInBuffer:(id)commands withRange:(NSRange)range {
    for (NSUInteger i = 0; i < range.length; i++)
        [self dispatch:"commands" grid:(MTLSize){0, 0, 0} group:(MTLSize){0, 0, 0}];
}
- (void)executeCommandsInBuffer:(id)commands indirectBuffer:(id)buffer indirectBufferOffset:(NSUInteger)offset {
    [self dispatch:"commands" grid:(MTLSize){0, 0, 0} group:(MTLSize){0, 0, 0}];
}
@end

INHERITS(AGXSimComputeContext, _MTLSimComputeEncoder)
INHERITS(BronzeSimCompute, _MTLSimComputeEncoder)

@interface _MTLSimBlitEncoder : _MTLSimEncoder
@end

/* Programs keep their buffers until the copy is done. */
static void encode_copy(_MTLSimEncoder *by, id source, NSUInteger from, id destination, NSUInteger to, NSUInteger bytes) {
    char *start = ((_MTLSimResource *)source)->memory + from, *end = ((_MTLSimResource *)destination)->memory + to;
    work_add(by->work, (struct op){.kind = OP_COPY, .source = start, .destination = end, .bytes = bytes});
    truth("{\"kind\":\"copy\",\"object\":%lu,\"bytes\":%lu,\"source\":%lu,\"destination\":%lu}",
          (unsigned long)by->command_buffer, bytes, (unsigned long)source, (unsigned long)destination);
}

static void encode_fill(_MTLSimEncoder *by, id buffer, NSRange range, uint8_t value) {
    char *start = ((_MTLSimResource *)buffer)->memory + range.location;
    work_add(by->work, (struct op){.kind = OP_FILL, .value = value, .destination = start, .bytes = range.length});
    truth("{\"kind\":\"copy\",\"object\":%lu,\"bytes\":%lu,\"source\":%u,\"destination\":%lu}",
          (unsigned long)by->command_buffer, range.length, value, (unsigned long)buffer);
}

@implementation _MTLSimBlitEncoder
#include "copies.h"
- (void)synchronizeResource:(id)resource {
}
@end

INHERITS(AGXSimBlitContext, _MTLSimBlitEncoder)
INHERITS(BronzeSimBlit, _MTLSimBlitEncoder)

@interface _MTL4SimComputeEncoder : _MTLSimComputeEncoder
@end

@implementation _MTL4SimComputeEncoder
#include "copies.h"
- (void)dispatchThreadgroupsWithIndirectBuffer:(uint64_t)address threadsPerThreadgroup:(MTLSize)group {
    [self dispatch:"indirect" grid:(MTLSize){0, 0, 0} group:group];
}
- (void)dispatchThreadsWithIndirectBuffer:(uint64_t)address {
    [self dispatch:"indirect" grid:(MTLSize){0, 0, 0} group:(MTLSize){0, 0, 0}];
}
- (void)executeCommandsInBuffer:(id)commands indirectBuffer:(uint64_t)address {
    [self dispatch:"commands" grid:(MTLSize){0, 0, 0} group:(MTLSize){0, 0, 0}];
}
@end

@interface _MTLSimRenderEncoder : _MTLSimEncoder
@end

@implementation _MTLSimRenderEncoder
- (void)drawPrimitives:(NSUInteger)type vertexStart:(NSUInteger)start vertexCount:(NSUInteger)count {
}
@end

INHERITS(AGXSimRenderContext, _MTLSimRenderEncoder)
INHERITS(BronzeSimRender, _MTLSimRenderEncoder)
