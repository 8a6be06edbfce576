//! Virtual addresses and physical memory apart from each other, and multicast objects. Mapping is in `memory`.

use core::ffi::c_void;

use cudarc::driver::sys::{
    CUdeviceptr, CUmemAccessDesc, CUmemAllocationProp, CUmemGenericAllocationHandle, CUmemLocation,
    CUmulticastObjectProp,
};

use super::out;
use crate::hooks::hooks;

hooks! {
    base: super::VIRTUAL_MEMORY;

    Api: [cuMemAddressFree](address: CUdeviceptr, bytes: usize) => |_| [address, 0, 0, bytes as u64];
    Api: [cuMemAddressReserve](
        address: *mut CUdeviceptr, bytes: usize, alignment: usize, wanted: CUdeviceptr, flags: u64)
        => |result| [out(result, address), 0, 0, bytes as u64];
    Count: [cuMemGetAccess](*mut u64, *const CUmemLocation, CUdeviceptr);
    Count: [cuMemGetAllocationGranularity](*mut usize, *const CUmemAllocationProp, u32);
    Count: [cuMemGetAllocationPropertiesFromHandle](*mut CUmemAllocationProp, CUmemGenericAllocationHandle);
    Api: [cuMemRetainAllocationHandle](memory: *mut CUmemGenericAllocationHandle, data: *mut c_void)
        => |result| [out(result, memory), 0, 0, 0];
    Api: [cuMemSetAccess](address: CUdeviceptr, bytes: usize, access: *const CUmemAccessDesc, count: usize)
        => |_| [address, 0, 0, bytes as u64];
    Api: [cuMulticastAddDevice](memory: CUmemGenericAllocationHandle, device: i32) => |_| [memory, 0, 0, 0];
    Api: [cuMulticastBindAddr](
        memory: CUmemGenericAllocationHandle, offset: usize, address: CUdeviceptr, bytes: usize, flags: u64)
        => |_| [memory, 0, address, bytes as u64];
    Api: [cuMulticastBindAddr_v2](
        memory: CUmemGenericAllocationHandle, device: i32, offset: usize, address: CUdeviceptr, bytes: usize,
        flags: u64)
        => |_| [memory, 0, address, bytes as u64];
    Api: [cuMulticastBindMem](
        memory: CUmemGenericAllocationHandle, offset: usize, bound: CUmemGenericAllocationHandle, from: usize,
        bytes: usize, flags: u64)
        => |_| [memory, 0, bound, bytes as u64];
    Api: [cuMulticastBindMem_v2](
        memory: CUmemGenericAllocationHandle, device: i32, offset: usize, bound: CUmemGenericAllocationHandle,
        from: usize, bytes: usize, flags: u64)
        => |_| [memory, 0, bound, bytes as u64];
    Api: [cuMulticastCreate](memory: *mut CUmemGenericAllocationHandle, info: *const CUmulticastObjectProp)
        => |result| [out(result, memory), 0, 0, 0];
    Count: [cuMulticastGetGranularity](*mut usize, *const CUmulticastObjectProp, u32);
    Api: [cuMulticastUnbind](memory: CUmemGenericAllocationHandle, device: i32, offset: usize, bytes: usize)
        => |_| [memory, 0, 0, bytes as u64];
}
