//! Devices and the driver itself: questions, and a few settings.

use core::ffi::{c_char, c_void};

use cudarc::driver::sys::{CUatomicOperation, CUdevprop, CUmemoryPool, CUuuid};

use crate::hooks::hooks;

hooks! {
    base: super::DEVICE;

    Count: [cuDeviceCanAccessPeer](*mut i32, i32, i32);
    Count: [cuDeviceComputeCapability](*mut i32, *mut i32, i32);
    Count: [cuDeviceGet](*mut i32, i32);
    Count: [cuDeviceGetAttribute](*mut i32, u32, i32);
    Count: [cuDeviceGetByPCIBusId](*mut i32, *const c_char);
    Count: [cuDeviceGetCliqueCount](*mut usize, i32);
    Count: [cuDeviceGetCliqueInfo](*mut c_void, *mut usize, i32);
    Count: [cuDeviceGetCount](*mut i32);
    Count: [cuDeviceGetDefaultMemPool](*mut CUmemoryPool, i32);
    Count: [cuDeviceGetExecAffinitySupport](*mut i32, u32, i32);
    Count: [cuDeviceGetFabricClusterUuid](*mut CUuuid, i32);
    Count: [cuDeviceGetGraphMemAttribute](i32, u32, *mut c_void);
    Count: [cuDeviceGetHostAtomicCapabilities](*mut u32, *const CUatomicOperation, u32, i32);
    Count: [cuDeviceGetLuid](*mut c_char, *mut u32, i32);
    Count: [cuDeviceGetMemPool](*mut CUmemoryPool, i32);
    Count: [cuDeviceGetName](*mut c_char, i32, i32);
    Count: [cuDeviceGetNvSciSyncAttributes](*mut c_void, i32, i32);
    Count: [cuDeviceGetP2PAtomicCapabilities](*mut u32, *const CUatomicOperation, u32, i32, i32);
    Count: [cuDeviceGetP2PAttribute](*mut i32, u32, i32, i32);
    Count: [cuDeviceGetPCIBusId](*mut c_char, i32, i32);
    Count: [cuDeviceGetProperties](*mut CUdevprop, i32);
    Count: [cuDeviceGetTexture1DLinearMaxWidth](*mut usize, u32, u32, i32);
    Count: [cuDeviceGetUuid, cuDeviceGetUuid_v2](*mut CUuuid, i32);
    Api: [cuDeviceGraphMemTrim](i32);
    Api: [cuDeviceSetGraphMemAttribute](i32, u32, *mut c_void);
    Api: [cuDeviceSetMemPool](i32, CUmemoryPool);
    Count: [cuDeviceTotalMem_v2](*mut usize, i32);
    Count: [cuDriverGetVersion](*mut i32);
    Count: [cuGetErrorName](u32, *mut *const c_char);
    Count: [cuGetErrorString](u32, *mut *const c_char);
}
