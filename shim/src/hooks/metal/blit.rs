//! Messages to encoders of copies and sets.

use super::{Range, Size, messages};
use crate::interpose::objc::Id;

messages! {
    /// Encodes copies and sets.
    BLIT: "MTLBlitCommandEncoder", from super::compute::END,
        needs ["fillBuffer:range:value:", "endEncoding"];

    Transfer COPY_ASYNC copy "copyFromBuffer:sourceOffset:toBuffer:destinationOffset:size:" "v@:@Q@QQ"
        (from: Id, at: usize, to: Id, place: usize, bytes: usize) -> ()
        => |this, ()| [to as u64, this as u64, from as u64, bytes as u64];
    Transfer COPY_ASYNC copyToTexture "copyFromBuffer:sourceOffset:sourceBytesPerRow:sourceBytesPerImage:sourceSize:\
        toTexture:destinationSlice:destinationLevel:destinationOrigin:" "v@:@QQQ{MTLSize=QQQ}@QQ{MTLOrigin=QQQ}"
        (from: Id, at: usize, row: usize, image: usize, size: Size, to: Id, slice: usize, level: usize, place: Size) -> ()
        => |this, ()| [to as u64, this as u64, from as u64, image_bytes(size, row, image)];
    Transfer COPY_ASYNC copyFromTexture "copyFromTexture:sourceSlice:sourceLevel:sourceOrigin:sourceSize:toBuffer:\
        destinationOffset:destinationBytesPerRow:destinationBytesPerImage:"
        "v@:@QQ{MTLOrigin=QQQ}{MTLSize=QQQ}@QQQ"
        (from: Id, slice: usize, level: usize, at: Size, size: Size, to: Id, place: usize, row: usize, image: usize) -> ()
        => |this, ()| [to as u64, this as u64, from as u64, image_bytes(size, row, image)];
    Transfer SET_ASYNC fill "fillBuffer:range:value:" "v@:@{_NSRange=QQ}C" (buffer: Id, range: Range, value: u8) -> ()
        => |this, ()| [buffer as u64, this as u64, u64::from(value), range.length as u64];
    Encode END_ENCODER end "endEncoding" "v@:" () -> () => |this, ()| [this as u64, 0, 0, 0];
}

/// Bytes in a buffer that a part of a texture takes; a flat one may leave its bytes per image open.
fn image_bytes(size: Size, row: usize, image: usize) -> u64 {
    let image = if image == 0 { row.saturating_mul(size.height) } else { image };
    image.saturating_mul(size.depth) as u64
}
