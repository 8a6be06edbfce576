//! Memory pools. What is taken from them is in `memory`.

use core::ffi::c_void;

use cudarc::driver::sys::{CUmemAccess_flags, CUmemAccessDesc, CUmemLocation, CUmemPoolProps, CUmemoryPool};

use super::{handle, out};
use crate::hooks::hooks;

hooks! {
    base: super::POOL;

    Count: [cuMemGetDefaultMemPool](*mut CUmemoryPool, *mut CUmemLocation, u32);
    Count: [cuMemGetMemPool](*mut CUmemoryPool, *mut CUmemLocation, u32);
    Api: [cuMemPoolCreate](pool: *mut CUmemoryPool, info: *const CUmemPoolProps)
        => |result| [out(result, pool), 0, 0, 0];
    Api: [cuMemPoolDestroy](pool: CUmemoryPool) => |_| [handle(pool), 0, 0, 0];
    Count: [cuMemPoolGetAccess](*mut CUmemAccess_flags, CUmemoryPool, *mut CUmemLocation);
    Count: [cuMemPoolGetAttribute](CUmemoryPool, u32, *mut c_void);
    Api: [cuMemPoolSetAccess](CUmemoryPool, *const CUmemAccessDesc, usize);
    Api: [cuMemPoolSetAttribute](CUmemoryPool, u32, *mut c_void);
    Api: [cuMemPoolTrimTo](pool: CUmemoryPool, bytes: usize) => |_| [handle(pool), 0, 0, bytes as u64];
    Api: [cuMemSetMemPool](*mut CUmemLocation, u32, CUmemoryPool);
}
