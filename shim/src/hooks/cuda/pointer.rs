//! Questions about memory, and advice about it.

use core::ffi::c_void;

use cudarc::driver::sys::{CUdeviceptr, CUmem_range_attribute, CUmemLocation, CUpointer_attribute, CUstream};

use super::{Location, handle, shapes};
use crate::hooks::hooks;

hooks! {
    base: super::POINTER;

    Api: [cuMemAdvise](address: CUdeviceptr, bytes: usize, advice: u32, device: i32)
        => |_| [address, 0, 0, bytes as u64];
    Api: [cuMemAdvise_v2](address: CUdeviceptr, bytes: usize, advice: u32, location: Location)
        => |_| [address, 0, 0, bytes as u64];
    Api: [cuMemDiscardBatchAsync, cuMemDiscardBatchAsync_ptsz](
        addresses: *mut CUdeviceptr, sizes: *mut usize, count: usize, flags: u64, stream: CUstream)
        => |_| shapes::batch(addresses, addresses, sizes, count, handle(stream));
    Count: [cuMemGetAddressRange_v2](*mut CUdeviceptr, *mut usize, CUdeviceptr);
    Api: [cuMemGetInfo_v2](*mut usize, *mut usize);
    Count: [cuMemGetLocationInfo](CUdeviceptr, usize, usize, usize, *mut CUmemLocation);
    Count: [cuMemHostGetDevicePointer_v2](*mut CUdeviceptr, *mut c_void, u32);
    Count: [cuMemHostGetFlags](*mut u32, *mut c_void);
    Count: [cuMemRangeGetAttribute](*mut c_void, usize, u32, CUdeviceptr, usize);
    Count: [cuMemRangeGetAttributes](
        *mut *mut c_void, *mut usize, *mut CUmem_range_attribute, usize, CUdeviceptr, usize);
    Count: [cuPointerGetAttribute](*mut c_void, u32, CUdeviceptr);
    Count: [cuPointerGetAttributes](u32, *mut CUpointer_attribute, *mut *mut c_void, CUdeviceptr);
    Count: [cuPointerSetAttribute](*const c_void, u32, CUdeviceptr);
}
