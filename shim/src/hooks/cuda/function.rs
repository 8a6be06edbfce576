//! Functions and kernels: what they need, how many fit, the parameters of CUDA 3. They are asked before many launches.

use core::ffi::{c_char, c_void};

use cudarc::driver::sys::{
    CUfunction, CUfunctionLoadingState, CUkernel, CUlaunchConfig, CUlibrary, CUmodule, CUtexref,
};

use crate::hooks::hooks;

hooks! {
    base: super::FUNCTION;

    Count: [cuFuncGetAttribute](*mut i32, u32, CUfunction);
    Count: [cuFuncGetModule](*mut CUmodule, CUfunction);
    Count: [cuFuncGetName](*mut *const c_char, CUfunction);
    Count: [cuFuncGetParamCount](CUfunction, *mut usize);
    Count: [cuFuncGetParamInfo](CUfunction, usize, *mut usize, *mut usize);
    Count: [cuFuncIsLoaded](*mut CUfunctionLoadingState, CUfunction);
    Count: [cuFuncSetAttribute](CUfunction, u32, i32);
    Count: [cuFuncSetBlockShape](CUfunction, i32, i32, i32);
    Count: [cuFuncSetCacheConfig](CUfunction, u32);
    Count: [cuFuncSetSharedMemConfig](CUfunction, u32);
    Count: [cuFuncSetSharedSize](CUfunction, u32);
    Count: [cuKernelGetAttribute](*mut i32, u32, CUkernel, i32);
    Count: [cuKernelGetLibrary](*mut CUlibrary, CUkernel);
    Count: [cuKernelGetName](*mut *const c_char, CUkernel);
    Count: [cuKernelGetParamCount](CUkernel, *mut usize);
    Count: [cuKernelGetParamInfo](CUkernel, usize, *mut usize, *mut usize);
    Count: [cuKernelSetAttribute](u32, i32, CUkernel, i32);
    Count: [cuKernelSetCacheConfig](CUkernel, u32, i32);
    Count: [cuOccupancyAvailableDynamicSMemPerBlock](*mut usize, CUfunction, i32, i32);
    Count: [cuOccupancyMaxActiveBlocksPerMultiprocessor](*mut i32, CUfunction, i32, usize);
    Count: [cuOccupancyMaxActiveBlocksPerMultiprocessorWithFlags](*mut i32, CUfunction, i32, usize, u32);
    Count: [cuOccupancyMaxActiveClusters](*mut i32, CUfunction, *const CUlaunchConfig);
    Count: [cuOccupancyMaxPotentialBlockSize](*mut i32, *mut i32, CUfunction, *mut c_void, usize, i32);
    Count: [cuOccupancyMaxPotentialBlockSizeWithFlags](*mut i32, *mut i32, CUfunction, *mut c_void, usize, i32, u32);
    Count: [cuOccupancyMaxPotentialClusterSize](*mut i32, CUfunction, *const CUlaunchConfig);
    Count: [cuParamSetSize](CUfunction, u32);
    Count: [cuParamSetTexRef](CUfunction, i32, CUtexref);
    Count: [cuParamSetf](CUfunction, i32, f32);
    Count: [cuParamSeti](CUfunction, i32, u32);
    Count: [cuParamSetv](CUfunction, i32, *mut c_void, u32);
}
