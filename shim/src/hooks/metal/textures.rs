//! Bytes of textures and of parts of them.

use gputrace_abi::metal::{HOST_IS_SOURCE, levels, pixels};

use super::Size;
use crate::interpose::objc::{Id, send};

/// A part of a texture.
#[repr(C)]
#[derive(Clone, Copy)]
pub(super) struct Region {
    origin: Size,
    size: Size,
}

/// So many pixels of a texture; none where its format is not known.
pub(super) fn part(texture: Id, size: Size) -> Option<u64> {
    let [width, height, depth] = [size.width, size.height, size.depth].map(|n| n as u64);
    pixels::bytes(send!(texture, "pixelFormat"; usize) as u64, width, height, depth)
}

/// Levels of a texture from this one on, each half as wide, high and deep as the one before it, in so many slices: for the collector to add
/// up ([`levels`]).
#[inline(always)]
pub(super) fn levels_of(texture: Id, first: usize, count: usize, slices: usize) -> u64 {
    levels::pack(
        [send!(texture, "width"; usize), send!(texture, "height"; usize), send!(texture, "depth"; usize)],
        send!(texture, "pixelFormat"; usize),
        [first, count, slices],
    )
}

/// Bytes in a buffer that a part of a texture takes; a flat one may leave its bytes per image open.
pub(super) fn in_buffer(size: Size, row: usize, image: usize) -> u64 {
    let image = if image == 0 { row.saturating_mul(size.height) } else { image };
    image.saturating_mul(size.depth) as u64
}

/// The host writes into a texture, or reads it: payload of the copy. Where the pixels' format is not known, its bytes are those of
/// the host's rows.
pub(super) fn by_host(texture: Id, host: usize, is_source: bool, region: Region, row: usize, image: usize) -> [u64; 4] {
    let bytes = part(texture, region.size).unwrap_or_else(|| in_buffer(region.size, row, image));
    match is_source {
        true => [texture as u64, HOST_IS_SOURCE, host as u64, bytes],
        false => [host as u64, HOST_IS_SOURCE + 1, texture as u64, bytes],
    }
}
