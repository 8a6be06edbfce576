/* What encoders of copies have, and Metal 4's of kernels too: methods, for the file of the encoders. */
- (void)copyFromBuffer:(id)source
          sourceOffset:(NSUInteger)from
              toBuffer:(id)destination
     destinationOffset:(NSUInteger)to
                  size:(NSUInteger)size {
    encode_copy(self, source, from, destination, to, size);
}
- (void)fillBuffer:(id)buffer range:(NSRange)range value:(uint8_t)value {
    encode_fill(self, buffer, range, value);
}
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
