//! Copies and sets: messages to encoders of them, and to Metal 4's of kernels.

use super::{Range, Size, messages, textures};
use crate::interpose::objc::{Id, send};

messages! {
    /// Encodes copies and sets, among others.
    COPIES: "MTLBlitCommandEncoder", from super::blit::END,
        needs ["fillBuffer:range:value:", "endEncoding"];

    Transfer COPY_ASYNC copy "copyFromBuffer:sourceOffset:toBuffer:destinationOffset:size:" "v@:@Q@QQ"
        (from: Id, at: usize, to: Id, place: usize, bytes: usize) -> ()
        => |this, ()| [to as u64, this as u64, from as u64, bytes as u64];
    Transfer COPY_ASYNC copyToTexture "copyFromBuffer:sourceOffset:sourceBytesPerRow:sourceBytesPerImage:sourceSize:\
        toTexture:destinationSlice:destinationLevel:destinationOrigin:" "v@:@QQQ{MTLSize=QQQ}@QQ{MTLOrigin=QQQ}"
        (from: Id, at: usize, row: usize, image: usize, size: Size, to: Id, slice: usize, level: usize, place: Size) -> ()
        => |this, ()| [to as u64, this as u64, from as u64, textures::in_buffer(size, row, image)];
    Transfer COPY_ASYNC copyFromTexture "copyFromTexture:sourceSlice:sourceLevel:sourceOrigin:sourceSize:toBuffer:\
        destinationOffset:destinationBytesPerRow:destinationBytesPerImage:"
        "v@:@QQ{MTLOrigin=QQQ}{MTLSize=QQQ}@QQQ"
        (from: Id, slice: usize, level: usize, at: Size, size: Size, to: Id, place: usize, row: usize, image: usize) -> ()
        => |this, ()| [to as u64, this as u64, from as u64, textures::in_buffer(size, row, image)];
    Transfer COPY_ASYNC copyToTextureWithOptions "copyFromBuffer:sourceOffset:sourceBytesPerRow:sourceBytesPerImage:sourceSize:\
        toTexture:destinationSlice:destinationLevel:destinationOrigin:options:"
        "v@:@QQQ{MTLSize=QQQ}@QQ{MTLOrigin=QQQ}Q"
        (from: Id, at: usize, row: usize, image: usize, size: Size, to: Id, slice: usize, level: usize, place: Size, options: usize)
        -> () => |this, ()| [to as u64, this as u64, from as u64, textures::in_buffer(size, row, image)];
    Transfer COPY_ASYNC copyFromTextureWithOptions "copyFromTexture:sourceSlice:sourceLevel:sourceOrigin:sourceSize:toBuffer:\
        destinationOffset:destinationBytesPerRow:destinationBytesPerImage:options:"
        "v@:@QQ{MTLOrigin=QQQ}{MTLSize=QQQ}@QQQQ"
        (from: Id, slice: usize, level: usize, at: Size, size: Size, to: Id, place: usize, row: usize, image: usize,
        options: usize) -> () => |this, ()| [to as u64, this as u64, from as u64, textures::in_buffer(size, row, image)];
    Transfer COPY_ASYNC copyPart "copyFromTexture:sourceSlice:sourceLevel:sourceOrigin:sourceSize:toTexture:\
        destinationSlice:destinationLevel:destinationOrigin:"
        "v@:@QQ{MTLOrigin=QQQ}{MTLSize=QQQ}@QQ{MTLOrigin=QQQ}"
        (from: Id, slice: usize, level: usize, at: Size, size: Size, to: Id, slice_of: usize, level_of: usize, place: Size)
        -> () => |this, ()| [to as u64, this as u64, from as u64, textures::part(from, size).unwrap_or(0)];
    Transfer COPY_ASYNC copyLevels "copyFromTexture:sourceSlice:sourceLevel:toTexture:destinationSlice:destinationLevel:\
        sliceCount:levelCount:"
        "v@:@QQ@QQQQ"
        (from: Id, slice: usize, level: usize, to: Id, slice_of: usize, level_of: usize, slices: usize, levels: usize)
        -> () => |this, ()| [to as u64, this as u64, from as u64, textures::levels_of(from, level, levels, slices)];
    Transfer COPY_ASYNC copyTexture "copyFromTexture:toTexture:" "v@:@@" (from: Id, to: Id) -> ()
        => |this, ()| [to as u64, this as u64, from as u64, send!(from, "allocatedSize"; usize) as u64];
    Encode NONE synchronize "synchronizeResource:" "v@:@" (resource: Id) -> () => |this, ()| [this as u64, 0, 0, 0];
    Encode NONE mipmaps "generateMipmapsForTexture:" "v@:@" (texture: Id) -> () => |this, ()| [this as u64, 0, 0, 0];
    Transfer SET_ASYNC fill "fillBuffer:range:value:" "v@:@{_NSRange=QQ}C" (buffer: Id, range: Range, value: u8) -> ()
        => |this, ()| [buffer as u64, this as u64, u64::from(value), range.length as u64];
}
