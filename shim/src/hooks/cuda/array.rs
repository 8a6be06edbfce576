//! Arrays, texture and surface objects, tensor maps: made, described, given back. What takes memory is in `memory`.

use core::ffi::c_void;

use cudarc::driver::sys::{
    CUDA_ARRAY_DESCRIPTOR, CUDA_ARRAY_MEMORY_REQUIREMENTS, CUDA_ARRAY_SPARSE_PROPERTIES, CUDA_ARRAY3D_DESCRIPTOR,
    CUDA_RESOURCE_DESC, CUDA_RESOURCE_VIEW_DESC, CUDA_TEXTURE_DESC, CUarray, CUarrayMapInfo, CUmipmappedArray,
    CUstream, CUtensorMap,
};

use super::handle;
use crate::hooks::hooks;

hooks! {
    base: super::ARRAY;

    Count: [cuArray3DGetDescriptor_v2](*mut CUDA_ARRAY3D_DESCRIPTOR, CUarray);
    Count: [cuArrayGetDescriptor_v2](*mut CUDA_ARRAY_DESCRIPTOR, CUarray);
    Count: [cuArrayGetMemoryRequirements](*mut CUDA_ARRAY_MEMORY_REQUIREMENTS, CUarray, i32);
    Count: [cuArrayGetPlane](*mut CUarray, CUarray, u32);
    Count: [cuArrayGetSparseProperties](*mut CUDA_ARRAY_SPARSE_PROPERTIES, CUarray);
    Api: [cuMemMapArrayAsync, cuMemMapArrayAsync_ptsz](info: *mut CUarrayMapInfo, flags: u32, stream: CUstream)
        => |_| [0, handle(stream), 0, 0];
    Count: [cuMipmappedArrayGetLevel](*mut CUarray, CUmipmappedArray, u32);
    Count: [cuMipmappedArrayGetMemoryRequirements](*mut CUDA_ARRAY_MEMORY_REQUIREMENTS, CUmipmappedArray, i32);
    Count: [cuMipmappedArrayGetSparseProperties](*mut CUDA_ARRAY_SPARSE_PROPERTIES, CUmipmappedArray);
    Api: [cuSurfObjectCreate](*mut u64, *const CUDA_RESOURCE_DESC);
    Api: [cuSurfObjectDestroy](u64);
    Count: [cuSurfObjectGetResourceDesc](*mut CUDA_RESOURCE_DESC, u64);
    Count: [cuTensorMapEncodeIm2col](
        *mut CUtensorMap, u32, u32, *mut c_void, *const u64, *const u64, *const i32, *const i32, u32, u32,
        *const u32, u32, u32, u32, u32);
    Count: [cuTensorMapEncodeIm2colWide](
        *mut CUtensorMap, u32, u32, *mut c_void, *const u64, *const u64, i32, i32, u32, u32, *const u32, u32,
        u32, u32, u32, u32);
    Count: [cuTensorMapEncodeTiled](
        *mut CUtensorMap, u32, u32, *mut c_void, *const u64, *const u64, *const u32, *const u32, u32, u32, u32,
        u32);
    Count: [cuTensorMapReplaceAddress](*mut CUtensorMap, *mut c_void);
    Count: [cuTensorMapSetAllocationClass](*mut CUtensorMap, u32, *mut u32);
    Api: [cuTexObjectCreate](
        *mut u64, *const CUDA_RESOURCE_DESC, *const CUDA_TEXTURE_DESC, *const CUDA_RESOURCE_VIEW_DESC);
    Api: [cuTexObjectDestroy](u64);
    Count: [cuTexObjectGetResourceDesc](*mut CUDA_RESOURCE_DESC, u64);
    Count: [cuTexObjectGetResourceViewDesc](*mut CUDA_RESOURCE_VIEW_DESC, u64);
    Count: [cuTexObjectGetTextureDesc](*mut CUDA_TEXTURE_DESC, u64);
}
