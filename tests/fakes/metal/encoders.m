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

/* What encoders of copies have, and Metal 4's of kernels too. */
#define COPIES                                                                                                         \
    -(void)copyFromBuffer : (id)source sourceOffset : (NSUInteger)from toBuffer : (id)destination destinationOffset    \
        : (NSUInteger)to size : (NSUInteger)size {                                                                     \
        encode_copy(self, source, from, destination, to, size);                                                        \
    }                                                                                                                  \
    -(void)fillBuffer : (id)buffer range : (NSRange)range value : (uint8_t)value {                                     \
        encode_fill(self, buffer, range, value);                                                                       \
    }

@implementation _MTLSimBlitEncoder
COPIES
- (void)copyFromBuffer:(id)source
           sourceOffset:(NSUInteger)offset
      sourceBytesPerRow:(NSUInteger)row
    sourceBytesPerImage:(NSUInteger)image
             sourceSize:(MTLSize)size
              toTexture:(id)texture
       destinationSlice:(NSUInteger)slice
       destinationLevel:(NSUInteger)level
      destinationOrigin:(MTLOrigin)origin {
    encode_copy(self, source, offset, texture, 0, row * size.height * size.depth);
}
- (void)copyFromTexture:(id)source
                 sourceSlice:(NSUInteger)slice
                 sourceLevel:(NSUInteger)level
                sourceOrigin:(MTLOrigin)origin
                  sourceSize:(MTLSize)size
                    toBuffer:(id)buffer
           destinationOffset:(NSUInteger)offset
      destinationBytesPerRow:(NSUInteger)row
    destinationBytesPerImage:(NSUInteger)image {
    encode_copy(self, source, 0, buffer, offset, row * size.height * size.depth);
}
- (void)copyFromTexture:(id)source
            sourceSlice:(NSUInteger)slice
            sourceLevel:(NSUInteger)level
           sourceOrigin:(MTLOrigin)origin
             sourceSize:(MTLSize)size
              toTexture:(id)destination
       destinationSlice:(NSUInteger)to_slice
       destinationLevel:(NSUInteger)to_level
      destinationOrigin:(MTLOrigin)to {
    encode_copy(self, source, 0, destination, 0, 4 * size.width * size.height * size.depth);
}
- (void)copyFromTexture:(id)source
            sourceSlice:(NSUInteger)slice
            sourceLevel:(NSUInteger)level
              toTexture:(id)destination
       destinationSlice:(NSUInteger)to_slice
       destinationLevel:(NSUInteger)to_level
             sliceCount:(NSUInteger)slices
             levelCount:(NSUInteger)levels {
    encode_copy(self, source, 0, destination, 0, 4096);
}
- (void)copyFromTexture:(id)source toTexture:(id)destination {
    encode_copy(self, source, 0, destination, 0, ((_MTLSimResource *)source)->bytes);
}
- (void)synchronizeResource:(id)resource {
}
@end

INHERITS(AGXSimBlitContext, _MTLSimBlitEncoder)
INHERITS(BronzeSimBlit, _MTLSimBlitEncoder)

@interface _MTL4SimComputeEncoder : _MTLSimComputeEncoder
@end

@implementation _MTL4SimComputeEncoder
COPIES
@end

@interface _MTLSimRenderEncoder : _MTLSimEncoder
@end

@implementation _MTLSimRenderEncoder
- (void)drawPrimitives:(NSUInteger)type vertexStart:(NSUInteger)start vertexCount:(NSUInteger)count {
}
@end

INHERITS(AGXSimRenderContext, _MTLSimRenderEncoder)
INHERITS(BronzeSimRender, _MTLSimRenderEncoder)
