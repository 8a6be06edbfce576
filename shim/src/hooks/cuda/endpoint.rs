//! Logical endpoints of a fabric, and writes of other devices made visible.

use core::ffi::c_void;

use cudarc::driver::sys::CUmemGenericAllocationHandle;

use crate::hooks::hooks;

hooks! {
    base: super::ENDPOINT;

    Api: [cuFlushGPUDirectRDMAWrites](u32, u32);
    Api: [cuLogicalEndpointAddDevice](u32, i32);
    Api: [cuLogicalEndpointBindAddr](u32, i32, u64, *mut c_void, u64, u64);
    Api: [cuLogicalEndpointBindMem](u32, i32, u64, CUmemGenericAllocationHandle, u64, u64, u64);
    Api: [cuLogicalEndpointCreate](u32, *const c_void);
    Api: [cuLogicalEndpointDestroy](u32);
    Api: [cuLogicalEndpointExport](*mut c_void, u32, u32);
    Count: [cuLogicalEndpointGetLimits](*mut u64, *mut u64, *const c_void);
    Api: [cuLogicalEndpointIdRelease](u32, u32);
    Api: [cuLogicalEndpointIdReserve](*mut u32, u32);
    Api: [cuLogicalEndpointImport](u32, *const c_void, u32);
    Count: [cuLogicalEndpointQuery](u32, u32, *mut i32);
    Api: [cuLogicalEndpointUnbind](u32, i32, u64, u64);
}
