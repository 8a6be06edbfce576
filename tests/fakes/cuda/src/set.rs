//! Filling memory: cuMemset* in all widths, and what is done to managed memory (prefetch, advice).

use crate::codes::*;
use crate::memory::Place;
use crate::observe;
use crate::state::driver;
use crate::stream::wait_for;
use crate::table::{Default, R, driver as functions};
use crate::work::{Set, Work};

/// Fills; a synchronous fill of pinned memory waits, one of device memory does not.
fn fill(raw: u64, default: Default, sync: bool, set: Set) -> R {
    observe::begin(observe::class::SET);
    let mut d = driver()?;
    let stream = d.stream(raw, default)?;
    let place = d.memory.place(set.dst);
    if place == Place::Pageable || !set.dst.is_multiple_of(set.element as u64) {
        return Err(INVALID_VALUE);
    }
    if set.bytes() == 0 {
        return Ok(());
    }
    let row = set.width.saturating_mul(set.element);
    let last = (set.height - 1).saturating_mul(set.pitch).saturating_add(row) as u64;
    if !d.memory.holds(set.dst, last) || (set.height > 1 && set.pitch < row) {
        return Err(INVALID_VALUE);
    }
    if sync {
        let s = d.streams.get(stream).ok_or(INVALID_HANDLE)?;
        let (context, legacy) = (s.context, s.raw == Some(0));
        if legacy {
            d.refuse_captured_blocking(context)?;
        }
        d.refuse_in_capture()?;
    }
    let issued = d.submit(stream, Work::Set(set))?;
    if sync && place == Place::Pinned { wait_for(d, issued) } else { Ok(()) }
}

fn row(raw: u64, default: Default, sync: bool, element: usize, dst: u64, value: u32, count: usize) -> R {
    fill(raw, default, sync, Set { dst, pitch: 0, width: count, height: 1, value, element })
}

/// Managed memory does not move here: the call takes its place in the stream and no time.
unsafe fn prefetch(raw: u64, default: Default, pointer: u64, bytes: usize) -> R {
    let mut d = driver()?;
    let stream = d.stream(raw, default)?;
    if bytes == 0 || d.memory.place(pointer) != Place::Managed || !d.memory.holds(pointer, bytes as u64) {
        return Err(INVALID_VALUE);
    }
    d.submit(stream, Work::Nothing).map(|_| ())
}

unsafe fn prefetch_all(raw: u64, default: Default, pointers: *const u64, sizes: *const usize, count: usize) -> R {
    if pointers.is_null() || sizes.is_null() || count == 0 {
        return Err(INVALID_VALUE);
    }
    (0..count).try_for_each(|i| unsafe { prefetch(raw, default, *pointers.add(i), *sizes.add(i)) })
}

fn advise(pointer: u64, bytes: usize, advice: u32) -> R {
    let d = driver()?;
    if bytes == 0 || !(1..=6).contains(&advice) || d.memory.place(pointer) != Place::Managed {
        return Err(INVALID_VALUE);
    }
    Ok(())
}

functions! {
    fn cuMemsetD8_v2(dst: u64, value: u8, count: usize)
        = "cuMemsetD8" 3020 + "cuMemsetD8_v2_ptds" 7000 |default| { row(0, default, true, 1, dst, value.into(), count) }
    fn cuMemsetD16_v2(dst: u64, value: u16, count: usize)
        = "cuMemsetD16" 3020 + "cuMemsetD16_v2_ptds" 7000 |default| { row(0, default, true, 2, dst, value.into(), count) }
    fn cuMemsetD32_v2(dst: u64, value: u32, count: usize)
        = "cuMemsetD32" 3020 + "cuMemsetD32_v2_ptds" 7000 |default| { row(0, default, true, 4, dst, value, count) }
    fn cuMemsetD8Async(dst: u64, value: u8, count: usize, stream: u64)
        = "cuMemsetD8Async" 3020 + "cuMemsetD8Async_ptsz" 7000 |default| {
        row(stream, default, false, 1, dst, value.into(), count)
    }
    fn cuMemsetD16Async(dst: u64, value: u16, count: usize, stream: u64)
        = "cuMemsetD16Async" 3020 + "cuMemsetD16Async_ptsz" 7000 |default| {
        row(stream, default, false, 2, dst, value.into(), count)
    }
    fn cuMemsetD32Async(dst: u64, value: u32, count: usize, stream: u64)
        = "cuMemsetD32Async" 3020 + "cuMemsetD32Async_ptsz" 7000 |default| {
        row(stream, default, false, 4, dst, value, count)
    }
    fn cuMemsetD2D8_v2(dst: u64, pitch: usize, value: u8, width: usize, height: usize)
        = "cuMemsetD2D8" 3020 + "cuMemsetD2D8_v2_ptds" 7000 |default| {
        fill(0, default, true, Set { dst, pitch, width, height, value: value.into(), element: 1 })
    }
    fn cuMemsetD2D16_v2(dst: u64, pitch: usize, value: u16, width: usize, height: usize)
        = "cuMemsetD2D16" 3020 + "cuMemsetD2D16_v2_ptds" 7000 |default| {
        fill(0, default, true, Set { dst, pitch, width, height, value: value.into(), element: 2 })
    }
    fn cuMemsetD2D32_v2(dst: u64, pitch: usize, value: u32, width: usize, height: usize)
        = "cuMemsetD2D32" 3020 + "cuMemsetD2D32_v2_ptds" 7000 |default| {
        fill(0, default, true, Set { dst, pitch, width, height, value, element: 4 })
    }
    fn cuMemsetD2D8Async(dst: u64, pitch: usize, value: u8, width: usize, height: usize, stream: u64)
        = "cuMemsetD2D8Async" 3020 + "cuMemsetD2D8Async_ptsz" 7000 |default| {
        fill(stream, default, false, Set { dst, pitch, width, height, value: value.into(), element: 1 })
    }
    fn cuMemsetD2D16Async(dst: u64, pitch: usize, value: u16, width: usize, height: usize, stream: u64)
        = "cuMemsetD2D16Async" 3020 + "cuMemsetD2D16Async_ptsz" 7000 |default| {
        fill(stream, default, false, Set { dst, pitch, width, height, value: value.into(), element: 2 })
    }
    fn cuMemsetD2D32Async(dst: u64, pitch: usize, value: u32, width: usize, height: usize, stream: u64)
        = "cuMemsetD2D32Async" 3020 + "cuMemsetD2D32Async_ptsz" 7000 |default| {
        fill(stream, default, false, Set { dst, pitch, width, height, value, element: 4 })
    }
    fn cuMemPrefetchAsync(pointer: u64, bytes: usize, _device: i32, stream: u64)
        = "cuMemPrefetchAsync" 8000 + "cuMemPrefetchAsync_ptsz" 8000 |default| {
        prefetch(stream, default, pointer, bytes)
    }
    fn cuMemPrefetchAsync_v2(pointer: u64, bytes: usize, _location: u64, _flags: u32, stream: u64)
        = "cuMemPrefetchAsync" 12020 + "cuMemPrefetchAsync_v2_ptsz" 12020 |default| {
        prefetch(stream, default, pointer, bytes)
    }
    fn cuMemPrefetchBatchAsync(pointers: *const u64, sizes: *const usize, count: usize, _locations: u64,
        _indices: *const usize, _location_count: usize, _flags: u64, stream: u64)
        = "cuMemPrefetchBatchAsync" 13000 + "cuMemPrefetchBatchAsync_ptsz" 13000 |default| {
        prefetch_all(stream, default, pointers, sizes, count)
    }
    fn cuMemDiscardBatchAsync(pointers: *const u64, sizes: *const usize, count: usize, _flags: u64, stream: u64)
        = "cuMemDiscardBatchAsync" 13000 + "cuMemDiscardBatchAsync_ptsz" 13000 |default| {
        prefetch_all(stream, default, pointers, sizes, count)
    }
    fn cuMemDiscardAndPrefetchBatchAsync(pointers: *const u64, sizes: *const usize, count: usize, _locations: u64,
        _indices: *const usize, _location_count: usize, _flags: u64, stream: u64)
        = "cuMemDiscardAndPrefetchBatchAsync" 13000 + "cuMemDiscardAndPrefetchBatchAsync_ptsz" 13000 |default| {
        prefetch_all(stream, default, pointers, sizes, count)
    }
    fn cuMemAdvise(pointer: u64, bytes: usize, advice: u32, _device: i32) = "cuMemAdvise" 8000 |_| {
        advise(pointer, bytes, advice)
    }
    fn cuMemAdvise_v2(pointer: u64, bytes: usize, advice: u32, _location: u64) = "cuMemAdvise" 12020 |_| {
        advise(pointer, bytes, advice)
    }
}
