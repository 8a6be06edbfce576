//! Copies between host and device: what is copied, in which direction, and whether the call waits for it.
//!
//! As with the vendor's driver: a synchronous copy that has a host side waits; one within the device does not. An
//! asynchronous copy waits when its host side is pageable, unless it is a small copy to the device, which is staged.

use crate::codes::*;
use crate::memory::Place;
use crate::observe;
use crate::state::{Driver, driver, put};
use crate::stream::wait_for;
use crate::table::{Default, R, driver as functions};
use crate::work::{Copy, Direction, Shape, Work};
use std::sync::Arc;

/// The largest copy from pageable memory to the device that is staged, so that the call returns at once.
const STAGED_BYTES: u64 = 64 << 10;

/// CUDA_MEMCPY2D_v2.
#[repr(C)]
pub(crate) struct Copy2D {
    src_x: usize,
    src_y: usize,
    src_type: u32,
    src_host: u64,
    src_device: u64,
    src_array: u64,
    src_pitch: usize,
    dst_x: usize,
    dst_y: usize,
    dst_type: u32,
    dst_host: u64,
    dst_device: u64,
    dst_array: u64,
    dst_pitch: usize,
    width: usize,
    height: usize,
}

/// One side of CUDA_MEMCPY3D_v2 and CUDA_MEMCPY3D_PEER; the reserved word of the first is the context of the second.
#[repr(C)]
#[derive(Clone)]
pub(crate) struct Side3D {
    x: usize,
    y: usize,
    z: usize,
    lod: usize,
    memory_type: u32,
    host: u64,
    device: u64,
    array: u64,
    context: u64,
    pitch: usize,
    height: usize,
}

#[repr(C)]
#[derive(Clone)]
pub(crate) struct Copy3D {
    src: Side3D,
    dst: Side3D,
    width: usize,
    height: usize,
    depth: usize,
}

/// CUmemcpy3DOperand: of a pointer or, with type 2, of an array.
#[repr(C)]
pub(crate) struct Operand {
    kind: u32,
    base: u64,
    row_length: usize,
    layer_height: usize,
    more: u64,
}

/// CUDA_MEMCPY3D_BATCH_OP.
#[repr(C)]
pub(crate) struct BatchOp {
    src: Operand,
    dst: Operand,
    width: usize,
    height: usize,
    depth: usize,
    order: u32,
    flags: u32,
}

/// One side of a copy: its first byte, the distance of its rows and of its slices.
struct Side {
    at: u64,
    pitch: usize,
    slice: usize,
}

const HOST: u32 = 1;
const DEVICE: u32 = 2;
const ARRAY: u32 = 3;
const UNIFIED: u32 = 4;

impl Driver {
    fn array_side(&self, array: u64, x: usize, y: usize, z: usize) -> R<Side> {
        let array = self.arrays.get(array).ok_or(INVALID_HANDLE)?;
        let (pitch, slice) = (array.pitch, array.pitch * array.height.max(1));
        Ok(Side { at: offset(array.base, slice, z, pitch, y, x), pitch, slice })
    }

    /// A byte offset in an array.
    fn array_address(&self, array: u64, offset: usize) -> R<u64> {
        Ok(self.arrays.get(array).ok_or(INVALID_HANDLE)?.base.wrapping_add(offset as u64))
    }

    pub(crate) fn shape_3d(&self, p: &Copy3D) -> R<Shape> {
        let side = |s: &Side3D| {
            let pitch = if s.pitch == 0 { p.width } else { s.pitch };
            let slice = pitch.saturating_mul(if s.height == 0 { p.height } else { s.height });
            let base = match s.memory_type {
                HOST => s.host,
                DEVICE | UNIFIED => s.device,
                ARRAY => return self.array_side(s.array, s.x, s.y, s.z),
                _ => return Err(INVALID_VALUE),
            };
            Ok(Side { at: offset(base, slice, s.z, pitch, s.y, s.x), pitch, slice })
        };
        let (src, dst) = (side(&p.src)?, side(&p.dst)?);
        Ok(shape(src, dst, p.width, p.height, p.depth))
    }

    fn shape_2d(&self, p: &Copy2D) -> R<Shape> {
        let side = |kind, host, device, array, x, y, pitch: usize| {
            let base = match kind {
                HOST => host,
                DEVICE | UNIFIED => device,
                ARRAY => return self.array_side(array, x, y, 0),
                _ => return Err(INVALID_VALUE),
            };
            let pitch = if pitch == 0 { p.width } else { pitch };
            Ok(Side { at: offset(base, 0, 0, pitch, y, x), pitch, slice: 0 })
        };
        let src = side(p.src_type, p.src_host, p.src_device, p.src_array, p.src_x, p.src_y, p.src_pitch)?;
        let dst = side(p.dst_type, p.dst_host, p.dst_device, p.dst_array, p.dst_x, p.dst_y, p.dst_pitch)?;
        Ok(shape(src, dst, p.width, p.height, 1))
    }

    fn shape_batch(&self, p: &BatchOp) -> R<Shape> {
        let side = |o: &Operand, width: usize, height: usize| match o.kind {
            1 => {
                let pitch = if o.row_length == 0 { width } else { o.row_length };
                let rows = if o.layer_height == 0 { height } else { o.layer_height };
                Ok(Side { at: o.base, pitch, slice: pitch.saturating_mul(rows) })
            }
            2 => self.array_side(o.base, o.row_length, o.layer_height, o.more as usize),
            _ => Err(INVALID_VALUE),
        };
        Ok(shape(side(&p.src, p.width, p.height)?, side(&p.dst, p.width, p.height)?, p.width, p.height, p.depth))
    }

    /// The copy with its direction, checked against what is known of its addresses.
    pub(crate) fn copy(&self, shape: Shape) -> R<Copy> {
        if shape.dst == 0 || shape.src == 0 || shape.dst_pitch < shape.width || shape.src_pitch < shape.width {
            return Err(INVALID_VALUE);
        }
        let last = |pitch: usize, slice: usize| {
            let rows = (shape.height - 1).checked_mul(pitch)?.checked_add(shape.width)?;
            Some((shape.depth - 1).checked_mul(slice)?.checked_add(rows)? as u64)
        };
        let (src, dst) = (self.memory.place(shape.src), self.memory.place(shape.dst));
        let held = |at, place, pitch, slice| match last(pitch, slice) {
            Some(bytes) => place == Place::Pageable || self.memory.holds(at, bytes),
            None => false,
        };
        if !held(shape.src, src, shape.src_pitch, shape.src_slice)
            || !held(shape.dst, dst, shape.dst_pitch, shape.dst_slice)
        {
            return Err(INVALID_VALUE);
        }
        let on_device = |place| matches!(place, Place::Device | Place::Managed);
        let direction = match (on_device(src), on_device(dst)) {
            (true, true) => Direction::DeviceToDevice,
            (true, false) => Direction::DeviceToHost,
            (false, true) => Direction::HostToDevice,
            (false, false) => Direction::HostToHost,
        };
        Ok(Copy { shape, direction, visible: dst != Place::Device, staged: None })
    }
}

/// The address of a byte; a client's nonsense wraps around and is refused later, by its address.
fn offset(base: u64, slice: usize, z: usize, pitch: usize, y: usize, x: usize) -> u64 {
    let bytes = slice.wrapping_mul(z).wrapping_add(pitch.wrapping_mul(y)).wrapping_add(x);
    base.wrapping_add(bytes as u64)
}

fn shape(src: Side, dst: Side, width: usize, height: usize, depth: usize) -> Shape {
    Shape {
        dst: dst.at,
        src: src.at,
        width,
        height,
        depth,
        dst_pitch: dst.pitch,
        src_pitch: src.pitch,
        dst_slice: dst.slice,
        src_slice: src.slice,
    }
}

/// Which side of a linear copy the caller promised to be on the device.
#[derive(Clone, Copy, PartialEq)]
enum Sure {
    Neither,
    Source,
    Target,
    Both,
}

/// A call that is one copy.
unsafe fn transfer(raw: u64, default: Default, sync: bool, sure: Sure, make: impl Fn(&Driver) -> R<Shape>) -> R {
    observe::begin(observe::class::COPY);
    unsafe { one(raw, default, sync, sure, make) }
}

/// Copies, and waits for it as its kind demands.
unsafe fn one(raw: u64, default: Default, sync: bool, sure: Sure, make: impl Fn(&Driver) -> R<Shape>) -> R {
    let mut d = driver()?;
    let stream = d.stream(raw, default)?;
    let shape = make(&d)?;
    if shape.bytes() == 0 {
        return Ok(());
    }
    for (at, promised) in [(shape.src, Sure::Source), (shape.dst, Sure::Target)] {
        if (sure == promised || sure == Sure::Both) && d.memory.place(at) == Place::Pageable {
            return Err(INVALID_VALUE);
        }
    }
    let mut copy = d.copy(shape)?;
    let captured = d.streams.get(stream).is_some_and(|s| s.capture.is_some());
    if sync {
        let s = d.streams.get(stream).ok_or(INVALID_HANDLE)?;
        let (context, legacy) = (s.context, s.raw == Some(0));
        if legacy {
            d.refuse_captured_blocking(context)?;
        }
        d.refuse_on_captured(stream)?;
        d.refuse_in_capture()?;
    }
    let pageable = |at| d.memory.place(at) == Place::Pageable;
    let staged = copy.direction == Direction::HostToDevice
        && shape.height * shape.depth == 1
        && shape.bytes() <= STAGED_BYTES
        && pageable(shape.src);
    let waits = match (sync, copy.direction) {
        (_, Direction::DeviceToDevice) => false,
        (true, _) => true,
        (false, _) => !staged && (pageable(shape.src) || pageable(shape.dst)),
    };
    if staged && !waits && !captured {
        let bytes = unsafe { std::slice::from_raw_parts(shape.src as *const u8, shape.width) };
        copy.staged = Some(Arc::from(bytes));
    }
    let issued = d.submit(stream, Work::Copy(copy))?;
    if waits { wait_for(d, issued) } else { Ok(()) }
}

unsafe fn linear(raw: u64, default: Default, sync: bool, sure: Sure, dst: u64, src: u64, bytes: usize) -> R {
    unsafe { transfer(raw, default, sync, sure, |_| Ok(Shape::linear(dst, src, bytes))) }
}

unsafe fn from_array(raw: u64, default: Default, sync: bool, dst: u64, array: u64, at: usize, bytes: usize) -> R {
    let make = |d: &Driver| Ok(Shape::linear(dst, d.array_address(array, at)?, bytes));
    unsafe { transfer(raw, default, sync, Sure::Source, make) }
}

unsafe fn to_array(raw: u64, default: Default, sync: bool, array: u64, at: usize, src: u64, bytes: usize) -> R {
    let make = |d: &Driver| Ok(Shape::linear(d.array_address(array, at)?, src, bytes));
    unsafe { transfer(raw, default, sync, Sure::Target, make) }
}

unsafe fn copy_2d(raw: u64, default: Default, sync: bool, params: *const Copy2D) -> R {
    let params = unsafe { params.as_ref() }.ok_or(INVALID_VALUE)?;
    unsafe { transfer(raw, default, sync, Sure::Neither, |d| d.shape_2d(params)) }
}

unsafe fn copy_3d(raw: u64, default: Default, sync: bool, params: *const Copy3D) -> R {
    let params = unsafe { params.as_ref() }.ok_or(INVALID_VALUE)?;
    unsafe { transfer(raw, default, sync, Sure::Neither, |d| d.shape_3d(params)) }
}

unsafe fn batch(
    default: Default,
    dsts: *const u64,
    srcs: *const u64,
    sizes: *const usize,
    count: usize,
    raw: u64,
) -> R {
    if dsts.is_null() || srcs.is_null() || sizes.is_null() || count == 0 {
        return Err(INVALID_VALUE);
    }
    observe::begin(observe::class::COPY);
    (0..count).try_for_each(|i| unsafe {
        let shape = Shape::linear(*dsts.add(i), *srcs.add(i), *sizes.add(i));
        one(raw, default, false, Sure::Neither, |_| Ok(shape))
    })
}

unsafe fn batch_3d(default: Default, ops: *const BatchOp, count: usize, raw: u64) -> R {
    if ops.is_null() || count == 0 {
        return Err(INVALID_VALUE);
    }
    observe::begin(observe::class::COPY);
    (0..count).try_for_each(|i| unsafe { one(raw, default, false, Sure::Neither, |d| d.shape_batch(&*ops.add(i))) })
}

functions! {
    fn cuMemcpy(dst: u64, src: u64, bytes: usize) = "cuMemcpy" 4000 + "cuMemcpy_ptds" 7000 |default| {
        linear(0, default, true, Sure::Neither, dst, src, bytes)
    }
    fn cuMemcpyAsync(dst: u64, src: u64, bytes: usize, stream: u64)
        = "cuMemcpyAsync" 4000 + "cuMemcpyAsync_ptsz" 7000 |default| {
        linear(stream, default, false, Sure::Neither, dst, src, bytes)
    }
    fn cuMemcpyPeer(dst: u64, _to: u64, src: u64, _from: u64, bytes: usize)
        = "cuMemcpyPeer" 4000 + "cuMemcpyPeer_ptds" 7000 |default| {
        linear(0, default, true, Sure::Both, dst, src, bytes)
    }
    fn cuMemcpyPeerAsync(dst: u64, _to: u64, src: u64, _from: u64, bytes: usize, stream: u64)
        = "cuMemcpyPeerAsync" 4000 + "cuMemcpyPeerAsync_ptsz" 7000 |default| {
        linear(stream, default, false, Sure::Both, dst, src, bytes)
    }
    fn cuMemcpyHtoD_v2(dst: u64, src: u64, bytes: usize)
        = "cuMemcpyHtoD" 3020 + "cuMemcpyHtoD_v2_ptds" 7000 |default| {
        linear(0, default, true, Sure::Target, dst, src, bytes)
    }
    fn cuMemcpyDtoH_v2(dst: u64, src: u64, bytes: usize)
        = "cuMemcpyDtoH" 3020 + "cuMemcpyDtoH_v2_ptds" 7000 |default| {
        linear(0, default, true, Sure::Source, dst, src, bytes)
    }
    fn cuMemcpyDtoD_v2(dst: u64, src: u64, bytes: usize)
        = "cuMemcpyDtoD" 3020 + "cuMemcpyDtoD_v2_ptds" 7000 |default| {
        linear(0, default, true, Sure::Both, dst, src, bytes)
    }
    fn cuMemcpyHtoDAsync_v2(dst: u64, src: u64, bytes: usize, stream: u64)
        = "cuMemcpyHtoDAsync" 3020 + "cuMemcpyHtoDAsync_v2_ptsz" 7000 |default| {
        linear(stream, default, false, Sure::Target, dst, src, bytes)
    }
    fn cuMemcpyDtoHAsync_v2(dst: u64, src: u64, bytes: usize, stream: u64)
        = "cuMemcpyDtoHAsync" 3020 + "cuMemcpyDtoHAsync_v2_ptsz" 7000 |default| {
        linear(stream, default, false, Sure::Source, dst, src, bytes)
    }
    fn cuMemcpyDtoDAsync_v2(dst: u64, src: u64, bytes: usize, stream: u64)
        = "cuMemcpyDtoDAsync" 3020 + "cuMemcpyDtoDAsync_v2_ptsz" 7000 |default| {
        linear(stream, default, false, Sure::Both, dst, src, bytes)
    }
    fn cuMemcpyDtoA_v2(array: u64, at: usize, src: u64, bytes: usize)
        = "cuMemcpyDtoA" 3020 + "cuMemcpyDtoA_v2_ptds" 7000 |default| { to_array(0, default, true, array, at, src, bytes) }
    fn cuMemcpyAtoD_v2(dst: u64, array: u64, at: usize, bytes: usize)
        = "cuMemcpyAtoD" 3020 + "cuMemcpyAtoD_v2_ptds" 7000 |default| {
        from_array(0, default, true, dst, array, at, bytes)
    }
    fn cuMemcpyHtoA_v2(array: u64, at: usize, src: u64, bytes: usize)
        = "cuMemcpyHtoA" 3020 + "cuMemcpyHtoA_v2_ptds" 7000 |default| { to_array(0, default, true, array, at, src, bytes) }
    fn cuMemcpyAtoH_v2(dst: u64, array: u64, at: usize, bytes: usize)
        = "cuMemcpyAtoH" 3020 + "cuMemcpyAtoH_v2_ptds" 7000 |default| {
        from_array(0, default, true, dst, array, at, bytes)
    }
    fn cuMemcpyAtoA_v2(to: u64, to_at: usize, from: u64, from_at: usize, bytes: usize)
        = "cuMemcpyAtoA" 3020 + "cuMemcpyAtoA_v2_ptds" 7000 |default| {
        transfer(0, default, true, Sure::Both, |d| {
            Ok(Shape::linear(d.array_address(to, to_at)?, d.array_address(from, from_at)?, bytes))
        })
    }
    fn cuMemcpyHtoAAsync_v2(array: u64, at: usize, src: u64, bytes: usize, stream: u64)
        = "cuMemcpyHtoAAsync" 3020 + "cuMemcpyHtoAAsync_v2_ptsz" 7000 |default| {
        to_array(stream, default, false, array, at, src, bytes)
    }
    fn cuMemcpyAtoHAsync_v2(dst: u64, array: u64, at: usize, bytes: usize, stream: u64)
        = "cuMemcpyAtoHAsync" 3020 + "cuMemcpyAtoHAsync_v2_ptsz" 7000 |default| {
        from_array(stream, default, false, dst, array, at, bytes)
    }
    fn cuMemcpy2D_v2(params: *const Copy2D) = "cuMemcpy2D" 3020 + "cuMemcpy2D_v2_ptds" 7000 |default| {
        copy_2d(0, default, true, params)
    }
    fn cuMemcpy2DUnaligned_v2(params: *const Copy2D)
        = "cuMemcpy2DUnaligned" 3020 + "cuMemcpy2DUnaligned_v2_ptds" 7000 |default| { copy_2d(0, default, true, params) }
    fn cuMemcpy2DAsync_v2(params: *const Copy2D, stream: u64)
        = "cuMemcpy2DAsync" 3020 + "cuMemcpy2DAsync_v2_ptsz" 7000 |default| { copy_2d(stream, default, false, params) }
    fn cuMemcpy3D_v2(params: *const Copy3D) = "cuMemcpy3D" 3020 + "cuMemcpy3D_v2_ptds" 7000 |default| {
        copy_3d(0, default, true, params)
    }
    fn cuMemcpy3DAsync_v2(params: *const Copy3D, stream: u64)
        = "cuMemcpy3DAsync" 3020 + "cuMemcpy3DAsync_v2_ptsz" 7000 |default| { copy_3d(stream, default, false, params) }
    fn cuMemcpy3DPeer(params: *const Copy3D) = "cuMemcpy3DPeer" 4000 + "cuMemcpy3DPeer_ptds" 7000 |default| {
        copy_3d(0, default, true, params)
    }
    fn cuMemcpy3DPeerAsync(params: *const Copy3D, stream: u64)
        = "cuMemcpy3DPeerAsync" 4000 + "cuMemcpy3DPeerAsync_ptsz" 7000 |default| {
        copy_3d(stream, default, false, params)
    }
    fn cuMemcpyBatchAsync(dsts: *const u64, srcs: *const u64, sizes: *const usize, count: usize, _attributes: u64,
        _indices: *const usize, _attribute_count: usize, failed: *mut usize, stream: u64)
        = "cuMemcpyBatchAsync" 12080 + "cuMemcpyBatchAsync_ptsz" 12080 |default| {
        put(failed, usize::MAX);
        batch(default, dsts, srcs, sizes, count, stream)
    }
    fn cuMemcpyBatchAsync_v2(dsts: *const u64, srcs: *const u64, sizes: *const usize, count: usize, _attributes: u64,
        _indices: *const usize, _attribute_count: usize, stream: u64)
        = "cuMemcpyBatchAsync" 13000 + "cuMemcpyBatchAsync_v2_ptsz" 13000 |default| {
        batch(default, dsts, srcs, sizes, count, stream)
    }
    fn cuMemcpy3DBatchAsync(count: usize, ops: *const BatchOp, failed: *mut usize, _flags: u64, stream: u64)
        = "cuMemcpy3DBatchAsync" 12080 + "cuMemcpy3DBatchAsync_ptsz" 12080 |default| {
        put(failed, usize::MAX);
        batch_3d(default, ops, count, stream)
    }
    fn cuMemcpy3DBatchAsync_v2(count: usize, ops: *const BatchOp, _flags: u64, stream: u64)
        = "cuMemcpy3DBatchAsync" 13000 + "cuMemcpy3DBatchAsync_v2_ptsz" 13000 |default| {
        batch_3d(default, ops, count, stream)
    }
    fn cuMemcpyWithAttributesAsync(dst: u64, src: u64, bytes: usize, _attributes: u64, stream: u64)
        = "cuMemcpyWithAttributesAsync" 13020 + "cuMemcpyWithAttributesAsync_ptsz" 13020 |default| {
        linear(stream, default, false, Sure::Neither, dst, src, bytes)
    }
    fn cuMemcpy3DWithAttributesAsync(op: *const BatchOp, _flags: u64, stream: u64)
        = "cuMemcpy3DWithAttributesAsync" 13020 + "cuMemcpy3DWithAttributesAsync_ptsz" 13020 |default| {
        batch_3d(default, op, 1, stream)
    }
}
