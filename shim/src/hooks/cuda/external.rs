//! Memory and semaphores of other interfaces (Vulkan, Direct3D, NvSciBuf).

use cudarc::driver::sys::{
    CUDA_EXTERNAL_MEMORY_BUFFER_DESC, CUDA_EXTERNAL_MEMORY_HANDLE_DESC, CUDA_EXTERNAL_MEMORY_MIPMAPPED_ARRAY_DESC,
    CUDA_EXTERNAL_SEMAPHORE_HANDLE_DESC, CUDA_EXTERNAL_SEMAPHORE_SIGNAL_PARAMS, CUdeviceptr, CUexternalMemory,
    CUexternalSemaphore, CUmipmappedArray, CUstream,
};

use super::{handle, out};
use crate::hooks::hooks;

hooks! {
    base: super::EXTERNAL;

    Api: [cuDestroyExternalMemory](memory: CUexternalMemory) => |_| [handle(memory), 0, 0, 0];
    Api: [cuDestroyExternalSemaphore](semaphore: CUexternalSemaphore) => |_| [handle(semaphore), 0, 0, 0];
    Api: [cuExternalMemoryGetMappedBuffer](
        address: *mut CUdeviceptr, memory: CUexternalMemory, info: *const CUDA_EXTERNAL_MEMORY_BUFFER_DESC)
        => |result| [out(result, address), 0, 0, 0];
    Api: [cuExternalMemoryGetMappedMipmappedArray](
        array: *mut CUmipmappedArray, memory: CUexternalMemory,
        info: *const CUDA_EXTERNAL_MEMORY_MIPMAPPED_ARRAY_DESC)
        => |result| [out(result, array), 0, 0, 0];
    Api: [cuImportExternalMemory](memory: *mut CUexternalMemory, info: *const CUDA_EXTERNAL_MEMORY_HANDLE_DESC)
        => |result| [out(result, memory), 0, 0, 0];
    Api: [cuImportExternalSemaphore](
        semaphore: *mut CUexternalSemaphore, info: *const CUDA_EXTERNAL_SEMAPHORE_HANDLE_DESC)
        => |result| [out(result, semaphore), 0, 0, 0];
    Api: [cuSignalExternalSemaphoresAsync, cuSignalExternalSemaphoresAsync_ptsz](
        semaphores: *const CUexternalSemaphore, parameters: *const CUDA_EXTERNAL_SEMAPHORE_SIGNAL_PARAMS, count: u32,
        stream: CUstream)
        => |_| [0, handle(stream), 0, u64::from(count)];
}
