//! Payloads of copies that are described by a struct or by lists.

use cudarc::driver::sys::{
    CUDA_MEMCPY2D, CUDA_MEMCPY3D, CUDA_MEMCPY3D_PEER, CUdeviceptr, CUmemDecompressParams, CUmemorytype,
};

use super::handle;

/// One end of a described copy: host address, array handle or device address, by the memory type that it names.
pub(super) fn end(kind: CUmemorytype, host: u64, array: u64, device: u64) -> u64 {
    match kind {
        CUmemorytype::CU_MEMORYTYPE_HOST => host,
        CUmemorytype::CU_MEMORYTYPE_ARRAY => array,
        _ => device,
    }
}

macro_rules! ends {
    ($c:ident) => {
        (
            end($c.dstMemoryType, handle($c.dstHost), handle($c.dstArray), $c.dstDevice),
            end($c.srcMemoryType, $c.srcHost as usize as u64, handle($c.srcArray), $c.srcDevice),
        )
    };
}

/// A copy of a rectangle.
pub(super) fn plane(copy: *const CUDA_MEMCPY2D, stream: u64) -> [u64; 4] {
    // SAFETY: null, or the program's description, which the driver has just read.
    let Some(c) = (unsafe { copy.as_ref() }) else { return [0, stream, 0, 0] };
    let (to, from) = ends!(c);
    [to, stream, from, (c.WidthInBytes as u64).wrapping_mul(c.Height as u64)]
}

/// A copy of a box.
pub(super) fn volume(copy: *const CUDA_MEMCPY3D, stream: u64) -> [u64; 4] {
    // SAFETY: as above.
    let Some(c) = (unsafe { copy.as_ref() }) else { return [0, stream, 0, 0] };
    let (to, from) = ends!(c);
    [to, stream, from, (c.WidthInBytes as u64).wrapping_mul(c.Height as u64).wrapping_mul(c.Depth as u64)]
}

/// A copy of a box between contexts.
pub(super) fn peer_volume(copy: *const CUDA_MEMCPY3D_PEER, stream: u64) -> [u64; 4] {
    // SAFETY: as above.
    let Some(c) = (unsafe { copy.as_ref() }) else { return [0, stream, 0, 0] };
    let (to, from) = ends!(c);
    [to, stream, from, (c.WidthInBytes as u64).wrapping_mul(c.Height as u64).wrapping_mul(c.Depth as u64)]
}

/// Several copies in one call: the first one's ends and the bytes of all.
pub(super) fn batch(
    to: *const CUdeviceptr,
    from: *const CUdeviceptr,
    sizes: *const usize,
    count: usize,
    stream: u64,
) -> [u64; 4] {
    if to.is_null() || from.is_null() || sizes.is_null() || count == 0 {
        return [0, stream, 0, 0];
    }
    // SAFETY: lists of `count` elements that the driver has just read.
    let (first_to, first_from, sizes) = unsafe { (*to, *from, core::slice::from_raw_parts(sizes, count)) };
    [first_to, stream, first_from, sizes.iter().fold(0u64, |sum, n| sum.wrapping_add(*n as u64))]
}

/// Several blocks unpacked in one call: the first one's ends and the bytes that all are to give.
pub(super) fn decompressed(blocks: *const CUmemDecompressParams, count: usize, stream: u64) -> [u64; 4] {
    if blocks.is_null() || count == 0 {
        return [0, stream, 0, 0];
    }
    // SAFETY: a list of `count` elements that the driver has just read.
    let blocks = unsafe { core::slice::from_raw_parts(blocks, count) };
    let bytes = blocks.iter().fold(0u64, |sum, block| sum.wrapping_add(block.dstNumBytes as u64));
    let (to, from) = blocks.first().map_or((0, 0), |block| (handle(block.dst), block.src as usize as u64));
    [to, stream, from, bytes]
}
