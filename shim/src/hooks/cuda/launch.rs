//! Work given to the GPU. Payload: function or graph, stream, grid, block and shared bytes.

use core::ffi::c_void;

use cudarc::driver::sys::{CUDA_LAUNCH_PARAMS, CUfunction, CUgraphExec, CUlaunchConfig, CUstream};
use gputrace_abi::event::{pack_block, pack_grid};

use super::handle;
use crate::hooks::hooks;
use crate::names;

type Params = *mut *mut c_void;

hooks! {
    base: super::LAUNCH;

    Launch GRAPH: [cuGraphLaunch, cuGraphLaunch_ptsz](graph: CUgraphExec, stream: CUstream) on handle(stream)
        => |_| [handle(graph), handle(stream), 0, 0];
    // The API of CUDA 3: the block's shape was set on the function beforehand.
    Launch KERNEL: [cuLaunch](function: CUfunction) => kernel(function, core::ptr::null_mut(), pack_grid(1, 1, 1), 0);
    Launch KERNEL: [cuLaunchCooperativeKernel, cuLaunchCooperativeKernel_ptsz](
        function: CUfunction, gx: u32, gy: u32, gz: u32, bx: u32, by: u32, bz: u32,
        shared: u32, stream: CUstream, params: Params)
        on handle(stream)
        => kernel(function, stream, pack_grid(gx, gy, gz), pack_block(bx, by, bz, shared));
    // A kernel for each of several devices in one call, gone in CUDA 13; the event holds the first.
    Launch KERNEL: [cuLaunchCooperativeKernelMultiDevice](list: *mut CUDA_LAUNCH_PARAMS, count: u32, flags: u32)
        => |_| first(list, count);
    // As cuLaunch.
    Launch KERNEL: [cuLaunchGrid](function: CUfunction, width: i32, height: i32)
        => kernel(function, core::ptr::null_mut(), pack_grid(width as u32, height as u32, 1), 0);
    Launch KERNEL: [cuLaunchGridAsync](function: CUfunction, width: i32, height: i32, stream: CUstream)
        => kernel(function, stream, pack_grid(width as u32, height as u32, 1), 0);
    Launch HOST_FUNCTION: [cuLaunchHostFunc, cuLaunchHostFunc_ptsz](stream: CUstream, function: *mut c_void, data: *mut c_void)
        => |_| [handle(function), handle(stream), 0, 0];
    Launch HOST_FUNCTION: [cuLaunchHostFunc_v2, cuLaunchHostFunc_v2_ptsz](
        stream: CUstream, function: *mut c_void, data: *mut c_void, mode: u32)
        => |_| [handle(function), handle(stream), 0, 0];
    Launch KERNEL: [cuLaunchKernel, cuLaunchKernel_ptsz](
        function: CUfunction, gx: u32, gy: u32, gz: u32, bx: u32, by: u32, bz: u32,
        shared: u32, stream: CUstream, params: Params, extra: Params)
        on handle(stream)
        => kernel(function, stream, pack_grid(gx, gy, gz), pack_block(bx, by, bz, shared));
    Launch KERNEL: [cuLaunchKernelEx, cuLaunchKernelEx_ptsz](
        config: *const CUlaunchConfig, function: CUfunction, params: Params, extra: Params)
        on stream_of(config)
        => |_| configured(config, function);
}

/// The payload is made before the call, so that four words live through it and not eight arguments.
#[inline(always)]
fn kernel(function: CUfunction, stream: CUstream, grid: u64, block: u64) -> impl FnOnce(u32) -> [u64; 4] {
    let payload = [handle(function), handle(stream), grid, block];
    move |_| launched(payload)
}

#[inline(always)]
fn launched(payload: [u64; 4]) -> [u64; 4] {
    let [function, ..] = payload;
    names::launched(function);
    payload
}

#[inline(always)]
fn configured(config: *const CUlaunchConfig, function: CUfunction) -> [u64; 4] {
    // SAFETY: null, or the program's launch configuration, which the driver has just read.
    let Some(c) = (unsafe { config.as_ref() }) else { return [handle(function), 0, 0, 0] };
    let block = pack_block(c.blockDimX, c.blockDimY, c.blockDimZ, c.sharedMemBytes);
    launched([handle(function), handle(c.hStream), pack_grid(c.gridDimX, c.gridDimY, c.gridDimZ), block])
}

fn stream_of(config: *const CUlaunchConfig) -> u64 {
    // SAFETY: null, or the program's launch configuration, which the driver is about to read.
    unsafe { config.as_ref() }.map_or(0, |config| handle(config.hStream))
}

fn first(list: *const CUDA_LAUNCH_PARAMS, count: u32) -> [u64; 4] {
    // SAFETY: null, or the program's list, which the driver has just read.
    let Some(p) = (unsafe { list.as_ref() }).filter(|_| count > 0) else { return [0; 4] };
    let block = pack_block(p.blockDimX, p.blockDimY, p.blockDimZ, p.sharedMemBytes);
    launched([handle(p.function), handle(p.hStream), pack_grid(p.gridDimX, p.gridDimY, p.gridDimZ), block])
}
