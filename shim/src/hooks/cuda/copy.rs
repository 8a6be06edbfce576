//! Copies and sets. Payload: destination, stream, source (or value), bytes.
//!
//! What kinds of memory the two ends are stands in the function's name, where it says so (`HtoD`), and is read from it.

use core::ffi::c_void;

use super::{Location, handle, shapes};
use crate::hooks::hooks;
use cudarc::driver::sys::{
    CUDA_MEMCPY2D, CUDA_MEMCPY3D, CUDA_MEMCPY3D_PEER, CUarray, CUcontext, CUdeviceptr, CUmemDecompressParams,
    CUmemLocation, CUstream,
};

hooks! {
    base: super::COPY;

    Transfer COPY_ASYNC: [cuFabricCpyBatchAsync, cuFabricCpyBatchAsync_ptsz](count: usize, operations: *mut c_void, flags: u64, stream: CUstream)
        => |_| [0, handle(stream), count as u64, 0];
    Transfer COPY_ASYNC: [cuMemBatchDecompressAsync, cuMemBatchDecompressAsync_ptsz](
        parameters: *mut CUmemDecompressParams, count: usize, flags: u32, failed: *mut usize, stream: CUstream)
        => |_| shapes::decompressed(parameters, count, handle(stream));
    Transfer COPY_ASYNC: [cuMemDiscardAndPrefetchBatchAsync, cuMemDiscardAndPrefetchBatchAsync_ptsz](
        addresses: *mut CUdeviceptr, sizes: *mut usize, count: usize, to: *mut CUmemLocation, indexes: *mut usize,
        to_count: usize, flags: u64, stream: CUstream)
        => |_| shapes::batch(addresses, addresses, sizes, count, handle(stream));
    Transfer COPY_ASYNC: [cuMemPrefetchAsync, cuMemPrefetchAsync_ptsz](
        address: CUdeviceptr, bytes: usize, device: i32, stream: CUstream)
        => |_| [address, handle(stream), address, bytes as u64];
    Transfer COPY_ASYNC: [cuMemPrefetchAsync_v2, cuMemPrefetchAsync_v2_ptsz](
        address: CUdeviceptr, bytes: usize, to: Location, flags: u32, stream: CUstream)
        => |_| [address, handle(stream), address, bytes as u64];
    Transfer COPY_ASYNC: [cuMemPrefetchBatchAsync, cuMemPrefetchBatchAsync_ptsz](
        addresses: *mut CUdeviceptr, sizes: *mut usize, count: usize, to: *mut CUmemLocation, indexes: *mut usize,
        to_count: usize, flags: u64, stream: CUstream)
        => |_| shapes::batch(addresses, addresses, sizes, count, handle(stream));
    Transfer COPY: [cuMemcpy, cuMemcpy_ptds](to: CUdeviceptr, from: CUdeviceptr, bytes: usize)
        => |_| [to, 0, from, bytes as u64];
    Transfer COPY_ASYNC: [cuMemcpy2DAsync_v2, cuMemcpy2DAsync_v2_ptsz](copy: *const CUDA_MEMCPY2D, stream: CUstream)
        => |_| shapes::plane(copy, handle(stream));
    Transfer COPY: [cuMemcpy2D_v2, cuMemcpy2D_v2_ptds, cuMemcpy2DUnaligned_v2, cuMemcpy2DUnaligned_v2_ptds](copy: *const CUDA_MEMCPY2D)
        => |_| shapes::plane(copy, 0);
    Transfer COPY_ASYNC: [cuMemcpy3DAsync_v2, cuMemcpy3DAsync_v2_ptsz](copy: *const CUDA_MEMCPY3D, stream: CUstream)
        => |_| shapes::volume(copy, handle(stream));
    Transfer COPY_ASYNC: [cuMemcpy3DBatchAsync, cuMemcpy3DBatchAsync_ptsz](count: usize, operations: *mut c_void, failed: *mut usize, flags: u64, stream: CUstream)
        => |_| [0, handle(stream), count as u64, 0];
    Transfer COPY_ASYNC: [cuMemcpy3DBatchAsync_v2, cuMemcpy3DBatchAsync_v2_ptsz](count: usize, operations: *mut c_void, flags: u64, stream: CUstream)
        => |_| [0, handle(stream), count as u64, 0];
    Transfer COPY: [cuMemcpy3DPeer, cuMemcpy3DPeer_ptds](copy: *const CUDA_MEMCPY3D_PEER)
        => |_| shapes::peer_volume(copy, 0);
    Transfer COPY_ASYNC: [cuMemcpy3DPeerAsync, cuMemcpy3DPeerAsync_ptsz](copy: *const CUDA_MEMCPY3D_PEER, stream: CUstream)
        => |_| shapes::peer_volume(copy, handle(stream));
    Transfer COPY_ASYNC: [cuMemcpy3DWithAttributesAsync, cuMemcpy3DWithAttributesAsync_ptsz](operation: *mut c_void, flags: u64, stream: CUstream)
        => |_| [0, handle(stream), 1, 0];
    Transfer COPY: [cuMemcpy3D_v2, cuMemcpy3D_v2_ptds](copy: *const CUDA_MEMCPY3D)
        => |_| shapes::volume(copy, 0);
    Transfer COPY_ASYNC: [cuMemcpyAsync, cuMemcpyAsync_ptsz](to: CUdeviceptr, from: CUdeviceptr, bytes: usize, stream: CUstream)
        => |_| [to, handle(stream), from, bytes as u64];
    Transfer COPY: [cuMemcpyAtoA_v2, cuMemcpyAtoA_v2_ptds](to: CUarray, to_offset: usize, from: CUarray, from_offset: usize, bytes: usize)
        => |_| [handle(to), 0, handle(from), bytes as u64];
    Transfer COPY: [cuMemcpyAtoD_v2, cuMemcpyAtoD_v2_ptds](to: CUdeviceptr, array: CUarray, offset: usize, bytes: usize)
        => |_| [to, 0, handle(array), bytes as u64];
    Transfer COPY_ASYNC: [cuMemcpyAtoHAsync_v2, cuMemcpyAtoHAsync_v2_ptsz](host: *mut c_void, array: CUarray, offset: usize, bytes: usize, stream: CUstream)
        => |_| [host as usize as u64, handle(stream), handle(array), bytes as u64];
    Transfer COPY: [cuMemcpyAtoH_v2, cuMemcpyAtoH_v2_ptds](host: *mut c_void, array: CUarray, offset: usize, bytes: usize)
        => |_| [host as usize as u64, 0, handle(array), bytes as u64];
    Transfer COPY_ASYNC: [cuMemcpyBatchAsync, cuMemcpyBatchAsync_ptsz](to: *mut CUdeviceptr, from: *mut CUdeviceptr, sizes: *mut usize, count: usize, attributes: *mut c_void,
        indexes: *mut usize, attribute_count: usize, failed: *mut usize, stream: CUstream)
        => |_| shapes::batch(to, from, sizes, count, handle(stream));
    Transfer COPY_ASYNC: [cuMemcpyBatchAsync_v2, cuMemcpyBatchAsync_v2_ptsz](to: *mut CUdeviceptr, from: *mut CUdeviceptr, sizes: *mut usize, count: usize, attributes: *mut c_void,
        indexes: *mut usize, attribute_count: usize, stream: CUstream)
        => |_| shapes::batch(to, from, sizes, count, handle(stream));
    Transfer COPY: [cuMemcpyDtoA_v2, cuMemcpyDtoA_v2_ptds](array: CUarray, offset: usize, from: CUdeviceptr, bytes: usize)
        => |_| [handle(array), 0, from, bytes as u64];
    Transfer COPY_ASYNC: [cuMemcpyDtoDAsync_v2, cuMemcpyDtoDAsync_v2_ptsz](to: CUdeviceptr, from: CUdeviceptr, bytes: usize, stream: CUstream)
        => |_| [to, handle(stream), from, bytes as u64];
    Transfer COPY: [cuMemcpyDtoD_v2, cuMemcpyDtoD_v2_ptds](to: CUdeviceptr, from: CUdeviceptr, bytes: usize)
        => |_| [to, 0, from, bytes as u64];
    Transfer COPY_ASYNC: [cuMemcpyDtoHAsync_v2, cuMemcpyDtoHAsync_v2_ptsz](host: *mut c_void, from: CUdeviceptr, bytes: usize, stream: CUstream)
        => |_| [host as usize as u64, handle(stream), from, bytes as u64];
    Transfer COPY: [cuMemcpyDtoH_v2, cuMemcpyDtoH_v2_ptds](host: *mut c_void, from: CUdeviceptr, bytes: usize)
        => |_| [host as usize as u64, 0, from, bytes as u64];
    Transfer COPY_ASYNC: [cuMemcpyHtoAAsync_v2, cuMemcpyHtoAAsync_v2_ptsz](array: CUarray, offset: usize, host: *const c_void, bytes: usize, stream: CUstream)
        => |_| [handle(array), handle(stream), host as usize as u64, bytes as u64];
    Transfer COPY: [cuMemcpyHtoA_v2, cuMemcpyHtoA_v2_ptds](array: CUarray, offset: usize, host: *const c_void, bytes: usize)
        => |_| [handle(array), 0, host as usize as u64, bytes as u64];
    Transfer COPY_ASYNC: [cuMemcpyHtoDAsync_v2, cuMemcpyHtoDAsync_v2_ptsz](to: CUdeviceptr, host: *const c_void, bytes: usize, stream: CUstream)
        => |_| [to, handle(stream), host as usize as u64, bytes as u64];
    Transfer COPY: [cuMemcpyHtoD_v2, cuMemcpyHtoD_v2_ptds](to: CUdeviceptr, host: *const c_void, bytes: usize)
        => |_| [to, 0, host as usize as u64, bytes as u64];
    Transfer COPY: [cuMemcpyPeer, cuMemcpyPeer_ptds](to: CUdeviceptr, to_context: CUcontext, from: CUdeviceptr, from_context: CUcontext, bytes: usize)
        => |_| [to, 0, from, bytes as u64];
    Transfer COPY_ASYNC: [cuMemcpyPeerAsync, cuMemcpyPeerAsync_ptsz](to: CUdeviceptr, to_context: CUcontext, from: CUdeviceptr, from_context: CUcontext, bytes: usize, stream: CUstream)
        => |_| [to, handle(stream), from, bytes as u64];
    Transfer COPY_ASYNC: [cuMemcpyWithAttributesAsync, cuMemcpyWithAttributesAsync_ptsz](to: CUdeviceptr, from: CUdeviceptr, bytes: usize, attributes: *mut c_void, stream: CUstream)
        => |_| [to, handle(stream), from, bytes as u64];
    Transfer SET_ASYNC: [cuMemsetD16Async, cuMemsetD16Async_ptsz](to: CUdeviceptr, value: u16, count: usize, stream: CUstream)
        => |_| [to, handle(stream), u64::from(value), count as u64 * 2];
    Transfer SET: [cuMemsetD16_v2, cuMemsetD16_v2_ptds](to: CUdeviceptr, value: u16, count: usize)
        => |_| [to, 0, u64::from(value), count as u64 * 2];
    Transfer SET_ASYNC: [cuMemsetD2D16Async, cuMemsetD2D16Async_ptsz](to: CUdeviceptr, pitch: usize, value: u16, width: usize, height: usize, stream: CUstream)
        => |_| [to, handle(stream), u64::from(value), (width as u64).wrapping_mul(height as u64) * 2];
    Transfer SET: [cuMemsetD2D16_v2, cuMemsetD2D16_v2_ptds](to: CUdeviceptr, pitch: usize, value: u16, width: usize, height: usize)
        => |_| [to, 0, u64::from(value), (width as u64).wrapping_mul(height as u64) * 2];
    Transfer SET_ASYNC: [cuMemsetD2D32Async, cuMemsetD2D32Async_ptsz](to: CUdeviceptr, pitch: usize, value: u32, width: usize, height: usize, stream: CUstream)
        => |_| [to, handle(stream), u64::from(value), (width as u64).wrapping_mul(height as u64) * 4];
    Transfer SET: [cuMemsetD2D32_v2, cuMemsetD2D32_v2_ptds](to: CUdeviceptr, pitch: usize, value: u32, width: usize, height: usize)
        => |_| [to, 0, u64::from(value), (width as u64).wrapping_mul(height as u64) * 4];
    Transfer SET_ASYNC: [cuMemsetD2D8Async, cuMemsetD2D8Async_ptsz](to: CUdeviceptr, pitch: usize, value: u8, width: usize, height: usize, stream: CUstream)
        => |_| [to, handle(stream), u64::from(value), (width as u64).wrapping_mul(height as u64)];
    Transfer SET: [cuMemsetD2D8_v2, cuMemsetD2D8_v2_ptds](to: CUdeviceptr, pitch: usize, value: u8, width: usize, height: usize)
        => |_| [to, 0, u64::from(value), (width as u64).wrapping_mul(height as u64)];
    Transfer SET_ASYNC: [cuMemsetD32Async, cuMemsetD32Async_ptsz](to: CUdeviceptr, value: u32, count: usize, stream: CUstream)
        => |_| [to, handle(stream), u64::from(value), count as u64 * 4];
    Transfer SET: [cuMemsetD32_v2, cuMemsetD32_v2_ptds](to: CUdeviceptr, value: u32, count: usize)
        => |_| [to, 0, u64::from(value), count as u64 * 4];
    Transfer SET_ASYNC: [cuMemsetD8Async, cuMemsetD8Async_ptsz](to: CUdeviceptr, value: u8, count: usize, stream: CUstream)
        => |_| [to, handle(stream), u64::from(value), count as u64];
    Transfer SET: [cuMemsetD8_v2, cuMemsetD8_v2_ptds](to: CUdeviceptr, value: u8, count: usize)
        => |_| [to, 0, u64::from(value), count as u64];
}
