//! Device, pinned, managed and virtual memory. Payload: address or handle, stream, pool or mapping, bytes.

use core::ffi::c_void;

use cudarc::driver::sys::{
    CUDA_ARRAY_DESCRIPTOR, CUDA_ARRAY3D_DESCRIPTOR, CUarray, CUdeviceptr, CUmemAllocationProp,
    CUmemGenericAllocationHandle, CUmemoryPool, CUmipmappedArray, CUstream,
};

use super::{handle, out};
use crate::hooks::hooks;

hooks! {
    base: super::MEMORY;

    Alloc ARRAY: [cuArray3DCreate_v2](array: *mut CUarray, shape: *const CUDA_ARRAY3D_DESCRIPTOR)
        => |result| [out(result, array), 0, 0, 0];
    Alloc ARRAY: [cuArrayCreate_v2](array: *mut CUarray, shape: *const CUDA_ARRAY_DESCRIPTOR)
        => |result| [out(result, array), 0, 0, 0];
    Free ARRAY: [cuArrayDestroy](array: CUarray) => |_| [handle(array), 0, 0, 0];
    Alloc POOL: [cuMemAllocAsync, cuMemAllocAsync_ptsz](address: *mut CUdeviceptr, bytes: usize, stream: CUstream)
        => |result| [out(result, address), handle(stream), 0, bytes as u64];
    Alloc POOL: [cuMemAllocFromPoolAsync, cuMemAllocFromPoolAsync_ptsz](
        address: *mut CUdeviceptr, bytes: usize, pool: CUmemoryPool, stream: CUstream)
        => |result| [out(result, address), handle(stream), handle(pool), bytes as u64];
    Alloc PINNED: [cuMemAllocHost_v2](address: *mut *mut c_void, bytes: usize)
        => |result| [out(result, address), 0, 0, bytes as u64];
    Alloc MANAGED: [cuMemAllocManaged](address: *mut CUdeviceptr, bytes: usize, flags: u32)
        => |result| [out(result, address), 0, 0, bytes as u64];
    Alloc DEVICE: [cuMemAllocPitch_v2](
        address: *mut CUdeviceptr, pitch: *mut usize, width: usize, height: usize, element: u32)
        => |result| [out(result, address), 0, 0, out(result, pitch).wrapping_mul(height as u64)];
    Alloc DEVICE: [cuMemAlloc_v2](address: *mut CUdeviceptr, bytes: usize)
        => |result| [out(result, address), 0, 0, bytes as u64];
    Alloc PHYSICAL: [cuMemCreate](
        memory: *mut CUmemGenericAllocationHandle, bytes: usize, properties: *const CUmemAllocationProp, flags: u64)
        => |result| [out(result, memory), 0, 0, bytes as u64];
    Free POOL: [cuMemFreeAsync, cuMemFreeAsync_ptsz](address: CUdeviceptr, stream: CUstream)
        => |_| [address, handle(stream), 0, 0];
    Free PINNED: [cuMemFreeHost](address: *mut c_void) => |_| [handle(address), 0, 0, 0];
    Free DEVICE: [cuMemFree_v2](address: CUdeviceptr) => |_| [address, 0, 0, 0];
    Alloc PINNED: [cuMemHostAlloc](address: *mut *mut c_void, bytes: usize, flags: u32)
        => |result| [out(result, address), 0, 0, bytes as u64];
    Alloc REGISTERED: [cuMemHostRegister, cuMemHostRegister_v2](address: *mut c_void, bytes: usize, flags: u32)
        => |_| [handle(address), 0, 0, bytes as u64];
    Free REGISTERED: [cuMemHostUnregister](address: *mut c_void) => |_| [handle(address), 0, 0, 0];
    Alloc MAPPING: [cuMemMap](
        address: CUdeviceptr, bytes: usize, offset: usize, memory: CUmemGenericAllocationHandle, flags: u64)
        => |_| [address, 0, memory, bytes as u64];
    Free PHYSICAL: [cuMemRelease](memory: CUmemGenericAllocationHandle) => |_| [memory, 0, 0, 0];
    Free MAPPING: [cuMemUnmap](address: CUdeviceptr, bytes: usize) => |_| [address, 0, 0, bytes as u64];
    Alloc ARRAY: [cuMipmappedArrayCreate](
        array: *mut CUmipmappedArray, shape: *const CUDA_ARRAY3D_DESCRIPTOR, levels: u32)
        => |result| [out(result, array), 0, 0, 0];
    Free ARRAY: [cuMipmappedArrayDestroy](array: CUmipmappedArray) => |_| [handle(array), 0, 0, 0];
}
