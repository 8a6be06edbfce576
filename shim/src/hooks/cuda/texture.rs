//! Texture and surface references, which CUDA 12 gave up: set once, asked seldom.

use cudarc::driver::sys::{
    CUDA_ARRAY_DESCRIPTOR, CUaddress_mode, CUarray, CUarray_format, CUdeviceptr, CUfilter_mode, CUmipmappedArray,
    CUsurfref, CUtexref,
};

use crate::hooks::hooks;

hooks! {
    base: super::TEXTURE;

    Count: [cuSurfRefGetArray](*mut CUarray, CUsurfref);
    Count: [cuSurfRefSetArray](CUsurfref, CUarray, u32);
    Count: [cuTexRefCreate](*mut CUtexref);
    Count: [cuTexRefDestroy](CUtexref);
    Count: [cuTexRefGetAddressMode](*mut CUaddress_mode, CUtexref, i32);
    Count: [cuTexRefGetAddress_v2](*mut CUdeviceptr, CUtexref);
    Count: [cuTexRefGetArray](*mut CUarray, CUtexref);
    Count: [cuTexRefGetBorderColor](*mut f32, CUtexref);
    Count: [cuTexRefGetFilterMode](*mut CUfilter_mode, CUtexref);
    Count: [cuTexRefGetFlags](*mut u32, CUtexref);
    Count: [cuTexRefGetFormat](*mut CUarray_format, *mut i32, CUtexref);
    Count: [cuTexRefGetMaxAnisotropy](*mut i32, CUtexref);
    Count: [cuTexRefGetMipmapFilterMode](*mut CUfilter_mode, CUtexref);
    Count: [cuTexRefGetMipmapLevelBias](*mut f32, CUtexref);
    Count: [cuTexRefGetMipmapLevelClamp](*mut f32, *mut f32, CUtexref);
    Count: [cuTexRefGetMipmappedArray](*mut CUmipmappedArray, CUtexref);
    Count: [cuTexRefSetAddress2D_v2, cuTexRefSetAddress2D_v3](
        CUtexref, *const CUDA_ARRAY_DESCRIPTOR, CUdeviceptr, usize);
    Count: [cuTexRefSetAddressMode](CUtexref, i32, u32);
    Count: [cuTexRefSetAddress_v2](*mut usize, CUtexref, CUdeviceptr, usize);
    Count: [cuTexRefSetArray](CUtexref, CUarray, u32);
    Count: [cuTexRefSetBorderColor](CUtexref, *mut f32);
    Count: [cuTexRefSetFilterMode](CUtexref, u32);
    Count: [cuTexRefSetFlags](CUtexref, u32);
    Count: [cuTexRefSetFormat](CUtexref, u32, i32);
    Count: [cuTexRefSetMaxAnisotropy](CUtexref, u32);
    Count: [cuTexRefSetMipmapFilterMode](CUtexref, u32);
    Count: [cuTexRefSetMipmapLevelBias](CUtexref, f32);
    Count: [cuTexRefSetMipmapLevelClamp](CUtexref, f32, f32);
    Count: [cuTexRefSetMipmappedArray](CUtexref, CUmipmappedArray, u32);
}
