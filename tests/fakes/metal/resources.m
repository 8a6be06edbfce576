/* Buffers, textures and heaps. */
#include <stdlib.h>
#include <string.h>

#include "classes.h"
#include "truth.h"

id resource_new(const char *class_name, id device, NSUInteger bytes, NSUInteger options, char *theirs) {
    _MTLSimResource *made = [objc_getClass(class_name) new];
    made->device = [device retain];
    made->bytes = bytes;
    made->mode = options >> 4 & 0xf;
    made->is_theirs = theirs != NULL;
    made->memory = theirs ? theirs : calloc(1, bytes ? bytes : 1);
    truth("{\"kind\":\"alloc\",\"object\":%lu,\"bytes\":%lu,\"mode\":%lu,\"class\":\"%s\"}", (unsigned long)made, bytes,
          made->mode, class_name);
    return made;
}

@implementation _MTLSimResource
- (void)dealloc {
    truth("{\"kind\":\"free\",\"object\":%lu,\"bytes\":%lu}", (unsigned long)self, bytes);
    if (!is_theirs)
        free(memory);
    else if (deallocator)
        deallocator->invoke(deallocator, (id)(void *)memory, bytes);
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
- (NSUInteger)storageMode {
    return mode;
}
- (NSUInteger)allocatedSize {
    return (bytes + 16383) / 16384 * 16384;
}
@end

@implementation _MTLSimBuffer
- (NSUInteger)length {
    return bytes;
}
- (void *)contents {
    return memory;
}
@end

@interface _MTLSimHeap : _MTLSimResource {
    NSUInteger used;
}
@end

@implementation _MTLSimHeap
- (NSUInteger)size {
    return bytes;
}
- (NSUInteger)usedSize {
    return used;
}
- (id)newBufferWithLength:(NSUInteger)length options:(NSUInteger)options {
    used += length;
    return resource_new(((_MTLSimDevice *)device)->family->buffer, device, length, options, NULL);
}
@end

@interface _MTLSimTexture : _MTLSimResource
@end
/* 32 x 32 pixels of four bytes (RGBA8Unorm), and levels of which nobody looks at the pixels. */
enum { SIDE = 32, PIXEL = 4 };

@implementation _MTLSimTexture
- (NSUInteger)pixelFormat {
    return 70;
}
- (NSUInteger)width {
    return SIDE;
}
- (NSUInteger)height {
    return SIDE;
}
- (NSUInteger)depth {
    return 1;
}
- (char *)at:(MTLOrigin)origin row:(NSUInteger)row {
    return memory + ((origin.y + row) * SIDE + origin.x) * PIXEL;
}
- (void)replaceRegion:(MTLRegion)region mipmapLevel:(NSUInteger)level withBytes:(const void *)from bytesPerRow:(NSUInteger)stride {
    for (NSUInteger row = 0; row < region.size.height; row++)
        memcpy([self at:region.origin row:row], (const char *)from + row * stride, region.size.width * PIXEL);
}
- (void)replaceRegion:(MTLRegion)region
          mipmapLevel:(NSUInteger)level
                slice:(NSUInteger)slice
            withBytes:(const void *)from
          bytesPerRow:(NSUInteger)row
        bytesPerImage:(NSUInteger)image {
    [self replaceRegion:region mipmapLevel:level withBytes:from bytesPerRow:row];
}
- (void)getBytes:(void *)to bytesPerRow:(NSUInteger)stride fromRegion:(MTLRegion)region mipmapLevel:(NSUInteger)level {
    for (NSUInteger row = 0; row < region.size.height; row++)
        memcpy((char *)to + row * stride, [self at:region.origin row:row], region.size.width * PIXEL);
}
- (void)getBytes:(void *)to
      bytesPerRow:(NSUInteger)row
    bytesPerImage:(NSUInteger)image
       fromRegion:(MTLRegion)region
      mipmapLevel:(NSUInteger)level
            slice:(NSUInteger)slice {
    [self getBytes:to bytesPerRow:row fromRegion:region mipmapLevel:level];
}
@end

INHERITS(AGXSimBuffer, _MTLSimBuffer)
INHERITS(BronzeSimBuffer, _MTLSimBuffer)
INHERITS(AGXSimHeap, _MTLSimHeap)
INHERITS(BronzeSimHeap, _MTLSimHeap)
INHERITS(AGXSimTexture, _MTLSimTexture)
INHERITS(BronzeSimTexture, _MTLSimTexture)
