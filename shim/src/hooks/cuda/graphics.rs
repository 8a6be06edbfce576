//! Resources that are shared with OpenGL, EGL and VDPAU.

use core::ffi::c_void;

use cudarc::driver::sys::{CUarray, CUcontext, CUdeviceptr, CUgraphicsResource, CUmipmappedArray, CUstream};

use super::context::switched;
use super::{handle, out};
use crate::hooks::hooks;

hooks! {
    base: super::GRAPHICS;

    Api: [cuEGLStreamConsumerAcquireFrame](*mut *mut c_void, *mut CUgraphicsResource, *mut CUstream, u32);
    Api: [cuEGLStreamConsumerConnect](*mut *mut c_void, *mut c_void);
    Api: [cuEGLStreamConsumerConnectWithFlags](*mut *mut c_void, *mut c_void, u32);
    Api: [cuEGLStreamConsumerDisconnect](*mut *mut c_void);
    Api: [cuEGLStreamConsumerReleaseFrame](*mut *mut c_void, CUgraphicsResource, *mut CUstream);
    Api: [cuEGLStreamProducerConnect](*mut *mut c_void, *mut c_void, i32, i32);
    Api: [cuEGLStreamProducerDisconnect](*mut *mut c_void);
    Api: [cuEGLStreamProducerPresentFrame](*mut *mut c_void, EglFrame, *mut CUstream);
    Api: [cuEGLStreamProducerReturnFrame](*mut *mut c_void, *mut EglFrame, *mut CUstream);
    Api: [cuGLCtxCreate, cuGLCtxCreate_v2](context: *mut CUcontext, flags: u32, device: i32),
        after |result| switched(out(result, context), device as u64);
    Count: [cuGLGetDevices, cuGLGetDevices_v2](*mut u32, *mut i32, u32, u32);
    Api: [cuGLInit]();
    Api: [cuGLMapBufferObjectAsync_v2, cuGLMapBufferObjectAsync_v2_ptsz](
        address: *mut CUdeviceptr, place: *mut usize, flags: u32, stream: CUstream)
        => |result| [out(result, address), handle(stream), 0, 0];
    Api: [cuGLMapBufferObject_v2, cuGLMapBufferObject_v2_ptds](*mut CUdeviceptr, *mut usize, u32);
    Api: [cuGLRegisterBufferObject](u32);
    Count: [cuGLSetBufferObjectMapFlags](u32, u32);
    Api: [cuGLUnmapBufferObject](u32);
    Api: [cuGLUnmapBufferObjectAsync](flags: u32, stream: CUstream) => |_| [0, handle(stream), 0, 0];
    Api: [cuGLUnregisterBufferObject](u32);
    Api: [cuGraphicsEGLRegisterImage](*mut CUgraphicsResource, *mut c_void, u32);
    Api: [cuGraphicsGLRegisterBuffer](*mut CUgraphicsResource, u32, u32);
    Api: [cuGraphicsGLRegisterImage](*mut CUgraphicsResource, u32, u32, u32);
    Api: [cuGraphicsMapResources, cuGraphicsMapResources_ptsz](
        count: u32, resources: *mut CUgraphicsResource, stream: CUstream)
        => |_| [0, handle(stream), 0, u64::from(count)];
    Count: [cuGraphicsResourceGetMappedEglFrame](*mut EglFrame, CUgraphicsResource, u32, u32);
    Count: [cuGraphicsResourceGetMappedMipmappedArray](*mut CUmipmappedArray, CUgraphicsResource);
    Count: [cuGraphicsResourceGetMappedPointer_v2](*mut CUdeviceptr, *mut usize, CUgraphicsResource);
    Count: [cuGraphicsResourceSetMapFlags, cuGraphicsResourceSetMapFlags_v2](CUgraphicsResource, u32);
    Count: [cuGraphicsSubResourceGetMappedArray](*mut CUarray, CUgraphicsResource, u32, u32);
    Api: [cuGraphicsUnmapResources, cuGraphicsUnmapResources_ptsz](
        count: u32, resources: *mut CUgraphicsResource, stream: CUstream)
        => |_| [0, handle(stream), 0, u64::from(count)];
    Api: [cuGraphicsUnregisterResource](CUgraphicsResource);
    Api: [cuGraphicsVDPAURegisterOutputSurface](*mut CUgraphicsResource, u32, u32);
    Api: [cuGraphicsVDPAURegisterVideoSurface](*mut CUgraphicsResource, u32, u32);
    Api: [cuVDPAUCtxCreate, cuVDPAUCtxCreate_v2](
        context: *mut CUcontext, flags: u32, device: i32, vdpau_device: u32, get_proc_address: *mut c_void),
        after |result| switched(out(result, context), device as u64);
    Count: [cuVDPAUGetDevice](*mut i32, u32, *mut c_void);
}

/// A frame of an EGL stream (CUeglFrame), which the driver also takes by value.
#[repr(C)]
#[derive(Clone, Copy)]
pub(crate) struct EglFrame {
    planes: [*mut c_void; 3],
    shape: [u32; 9],
}

const _: () = assert!(size_of::<EglFrame>() == 64);
