//! The interface of CUDA 3.1 and older, which drivers still export: addresses and sizes have 32 bits.
//!
//! Payloads are those of the later functions, in `copy` and `memory`.

use core::ffi::{c_char, c_void};

use cudarc::driver::sys::{CUarray, CUgraphicsResource, CUmemorytype, CUmodule, CUstream, CUtexref};

use super::shapes::end;
use super::{handle, out};
use crate::hooks::hooks;

hooks! {
    base: super::CUDA3;

    Alloc ARRAY: [cuArray3DCreate](array: *mut CUarray, shape: *const c_void)
        => |result| [out(result, array), 0, 0, 0];
    Count: [cuArray3DGetDescriptor](*mut c_void, CUarray);
    Alloc ARRAY: [cuArrayCreate](array: *mut CUarray, shape: *const c_void)
        => |result| [out(result, array), 0, 0, 0];
    Count: [cuArrayGetDescriptor](*mut c_void, CUarray);
    Count: [cuDeviceTotalMem](*mut u32, i32);
    Api: [cuGLMapBufferObject](*mut u32, *mut u32, u32);
    Api: [cuGLMapBufferObjectAsync](place: *mut u32, place2: *mut u32, flags: u32, stream: CUstream)
        => |_| [0, handle(stream), 0, 0];
    Count: [cuGraphicsResourceGetMappedPointer](*mut u32, *mut u32, CUgraphicsResource);
    Alloc DEVICE: [cuMemAlloc](address: *mut u32, bytes: u32)
        => |result| [out(result, address), 0, 0, u64::from(bytes)];
    Alloc PINNED: [cuMemAllocHost](address: *mut *mut c_void, bytes: u32)
        => |result| [out(result, address), 0, 0, u64::from(bytes)];
    Alloc DEVICE: [cuMemAllocPitch](address: *mut u32, pitch: *mut u32, width: u32, height: u32, element: u32)
        => |result| [out(result, address), 0, 0, out(result, pitch).wrapping_mul(u64::from(height))];
    Free DEVICE: [cuMemFree](address: u32) => |_| [u64::from(address), 0, 0, 0];
    Count: [cuMemGetAddressRange](*mut u32, *mut u32, u32);
    Api: [cuMemGetInfo](*mut u32, *mut u32);
    Count: [cuMemHostGetDevicePointer](*mut u32, *mut c_void, u32);
    Transfer COPY: [cuMemcpy2D](copy: *const Plane) => |_| Plane::payload(copy, 0);
    Transfer COPY_ASYNC: [cuMemcpy2DAsync](copy: *const Plane, stream: CUstream)
        => |_| Plane::payload(copy, handle(stream));
    Transfer COPY: [cuMemcpy2DUnaligned](copy: *const Plane) => |_| Plane::payload(copy, 0);
    Transfer COPY: [cuMemcpy3D](copy: *const Volume) => |_| Volume::payload(copy, 0);
    Transfer COPY_ASYNC: [cuMemcpy3DAsync](copy: *const Volume, stream: CUstream)
        => |_| Volume::payload(copy, handle(stream));
    Transfer COPY: [cuMemcpyAtoA](to: CUarray, to_offset: u32, from: CUarray, from_offset: u32, bytes: u32)
        => |_| [handle(to), 0, handle(from), u64::from(bytes)];
    Transfer COPY: [cuMemcpyAtoD](to: u32, array: CUarray, offset: u32, bytes: u32)
        => |_| [u64::from(to), 0, handle(array), u64::from(bytes)];
    Transfer COPY: [cuMemcpyAtoH](host: *mut c_void, array: CUarray, offset: u32, bytes: u32)
        => |_| [handle(host), 0, handle(array), u64::from(bytes)];
    Transfer COPY_ASYNC: [cuMemcpyAtoHAsync](
        host: *mut c_void, array: CUarray, offset: u32, bytes: u32, stream: CUstream)
        => |_| [handle(host), handle(stream), handle(array), u64::from(bytes)];
    Transfer COPY: [cuMemcpyDtoA](array: CUarray, offset: u32, from: u32, bytes: u32)
        => |_| [handle(array), 0, u64::from(from), u64::from(bytes)];
    Transfer COPY: [cuMemcpyDtoD](to: u32, from: u32, bytes: u32)
        => |_| [u64::from(to), 0, u64::from(from), u64::from(bytes)];
    Transfer COPY_ASYNC: [cuMemcpyDtoDAsync](to: u32, from: u32, bytes: u32, stream: CUstream)
        => |_| [u64::from(to), handle(stream), u64::from(from), u64::from(bytes)];
    Transfer COPY: [cuMemcpyDtoH](host: *mut c_void, from: u32, bytes: u32)
        => |_| [handle(host), 0, u64::from(from), u64::from(bytes)];
    Transfer COPY_ASYNC: [cuMemcpyDtoHAsync](host: *mut c_void, from: u32, bytes: u32, stream: CUstream)
        => |_| [handle(host), handle(stream), u64::from(from), u64::from(bytes)];
    Transfer COPY: [cuMemcpyHtoA](array: CUarray, offset: u32, host: *const c_void, bytes: u32)
        => |_| [handle(array), 0, handle(host.cast_mut()), u64::from(bytes)];
    Transfer COPY_ASYNC: [cuMemcpyHtoAAsync](
        array: CUarray, offset: u32, host: *const c_void, bytes: u32, stream: CUstream)
        => |_| [handle(array), handle(stream), handle(host.cast_mut()), u64::from(bytes)];
    Transfer COPY: [cuMemcpyHtoD](to: u32, host: *const c_void, bytes: u32)
        => |_| [u64::from(to), 0, handle(host.cast_mut()), u64::from(bytes)];
    Transfer COPY_ASYNC: [cuMemcpyHtoDAsync](to: u32, host: *const c_void, bytes: u32, stream: CUstream)
        => |_| [u64::from(to), handle(stream), handle(host.cast_mut()), u64::from(bytes)];
    Transfer SET: [cuMemsetD16](to: u32, value: u16, count: u32)
        => |_| [u64::from(to), 0, u64::from(value), u64::from(count) * 2];
    Transfer SET: [cuMemsetD2D16](to: u32, pitch: u32, value: u16, width: u32, height: u32)
        => |_| [u64::from(to), 0, u64::from(value), u64::from(width) * u64::from(height) * 2];
    Transfer SET: [cuMemsetD2D32](to: u32, pitch: u32, value: u32, width: u32, height: u32)
        => |_| [u64::from(to), 0, u64::from(value), (u64::from(width) * u64::from(height)).wrapping_mul(4)];
    Transfer SET: [cuMemsetD2D8](to: u32, pitch: u32, value: u8, width: u32, height: u32)
        => |_| [u64::from(to), 0, u64::from(value), u64::from(width) * u64::from(height)];
    Transfer SET: [cuMemsetD32](to: u32, value: u32, count: u32)
        => |_| [u64::from(to), 0, u64::from(value), u64::from(count) * 4];
    Transfer SET: [cuMemsetD8](to: u32, value: u8, count: u32)
        => |_| [u64::from(to), 0, u64::from(value), u64::from(count)];
    Module: [cuModuleGetGlobal](address: *mut u32, bytes: *mut u32, module: CUmodule, name: *const c_char)
        => |result| [out(result, address), 0, handle(module), 0];
    Count: [cuTexRefGetAddress](*mut u32, CUtexref);
    Count: [cuTexRefSetAddress](*mut u32, CUtexref, u32, u32);
    Count: [cuTexRefSetAddress2D](CUtexref, *const c_void, u32, u32);
}

/// A copy of a rectangle, as CUDA 3.1 described it.
#[repr(C)]
pub(crate) struct Plane {
    from_x: u32,
    from_y: u32,
    from_kind: CUmemorytype,
    from_host: *mut c_void,
    from_device: u32,
    from_array: CUarray,
    from_pitch: u32,
    to_x: u32,
    to_y: u32,
    to_kind: CUmemorytype,
    to_host: *mut c_void,
    to_device: u32,
    to_array: CUarray,
    to_pitch: u32,
    width_bytes: u32,
    height: u32,
}

/// A copy of a box, as CUDA 3.1 described it.
#[repr(C)]
pub(crate) struct Volume {
    from: [u32; 4],
    from_kind: CUmemorytype,
    from_host: *mut c_void,
    from_device: u32,
    from_array: CUarray,
    from_reserved: *mut c_void,
    from_pitch: [u32; 2],
    to: [u32; 4],
    to_kind: CUmemorytype,
    to_host: *mut c_void,
    to_device: u32,
    to_array: CUarray,
    to_reserved: *mut c_void,
    to_pitch: [u32; 2],
    width_bytes: u32,
    height: u32,
    depth: u32,
}

macro_rules! described {
    ($copy:expr, $stream:expr, $($more:ident)?) => {{
        // SAFETY: null, or the program's description, which the driver has just read.
        let Some(c) = (unsafe { $copy.as_ref() }) else { return [0, $stream, 0, 0] };
        let to = end(c.to_kind, handle(c.to_host), handle(c.to_array), c.to_device.into());
        let from = end(c.from_kind, handle(c.from_host), handle(c.from_array), c.from_device.into());
        let bytes = u64::from(c.width_bytes) * u64::from(c.height);
        [to, $stream, from, bytes$(.wrapping_mul(u64::from(c.$more)))?]
    }};
}

impl Plane {
    fn payload(copy: *const Plane, stream: u64) -> [u64; 4] {
        described!(copy, stream,)
    }
}

impl Volume {
    fn payload(copy: *const Volume, stream: u64) -> [u64; 4] {
        described!(copy, stream, depth)
    }
}
