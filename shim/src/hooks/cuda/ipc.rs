//! Memory, pools and events that are shared with other processes.

use core::ffi::c_void;

use cudarc::driver::sys::{
    CUdeviceptr, CUevent, CUipcEventHandle, CUipcMemHandle, CUmemGenericAllocationHandle, CUmemPoolPtrExportData,
    CUmemoryPool,
};

use super::{handle, out};
use crate::gpu_time::peer_comes;
use crate::hooks::hooks;

hooks! {
    base: super::IPC;

    Api: [cuIpcCloseMemHandle](address: CUdeviceptr) => |_| [address, 0, 0, 0];
    Api: [cuIpcGetEventHandle](info: *mut CUipcEventHandle, event: CUevent) => |_| [handle(event), 0, 0, 0];
    Api: [cuIpcGetMemHandle](info: *mut CUipcMemHandle, address: CUdeviceptr) => |_| [address, 0, 0, 0];
    Api: [cuIpcOpenEventHandle](event: *mut CUevent, value: CUipcEventHandle), first peer_comes()
        => |result| [out(result, event), 0, 0, 0];
    Api: [cuIpcOpenMemHandle, cuIpcOpenMemHandle_v2](address: *mut CUdeviceptr, value: CUipcMemHandle, flags: u32),
        first peer_comes() => |result| [out(result, address), 0, 0, 0];
    Api: [cuMemExportToShareableHandle](
        shared: *mut c_void, memory: CUmemGenericAllocationHandle, kind: u32, flags: u64)
        => |_| [memory, 0, 0, 0];
    Api: [cuMemGetHandleForAddressRange](*mut c_void, CUdeviceptr, usize, u32, u64);
    Api: [cuMemImportFromShareableHandle](
        memory: *mut CUmemGenericAllocationHandle, shared: *mut c_void, kind: u32), first peer_comes()
        => |result| [out(result, memory), 0, 0, 0];
    Api: [cuMemPoolExportPointer](info: *mut CUmemPoolPtrExportData, address: CUdeviceptr) => |_| [address, 0, 0, 0];
    Api: [cuMemPoolExportToShareableHandle](shared: *mut c_void, pool: CUmemoryPool, kind: u32, flags: u64)
        => |_| [handle(pool), 0, 0, 0];
    Api: [cuMemPoolImportFromShareableHandle](pool: *mut CUmemoryPool, shared: *mut c_void, kind: u32, flags: u64),
        first peer_comes() => |result| [out(result, pool), 0, 0, 0];
    Api: [cuMemPoolImportPointer](address: *mut CUdeviceptr, pool: CUmemoryPool, info: *mut CUmemPoolPtrExportData)
        => |result| [out(result, address), 0, 0, 0];
}
