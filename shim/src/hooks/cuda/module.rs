//! Modules, libraries, kernels and functions: loaded, looked up, unloaded. Payload: handle, 0, second handle, number.
//!
//! These lines also keep the names of kernels ([`crate::names`]).

use core::ffi::{c_char, c_void};

use cudarc::driver::sys::{CUfunction, CUkernel, CUlibrary, CUlinkState, CUmodule};

use super::{handle, out};
use crate::hooks::hooks;
use crate::{capture, names};

type Options = *mut c_void;
type Values = *mut *mut c_void;

hooks! {
    base: super::MODULE;

    Module NONE: [cuFuncLoad](function: CUfunction) => |_| [handle(function), 0, 0, 0];
    Module NONE: [cuKernelGetFunction](function: *mut CUfunction, kernel: CUkernel)
        => |result| same(out(result, function), handle(kernel));
    Module NONE: [cuLibraryEnumerateKernels](kernels: *mut CUkernel, count: u32, library: CUlibrary)
        => |_| unnamed(handle(library), count);
    Module NONE: [cuLibraryGetKernel](kernel: *mut CUkernel, library: CUlibrary, name: *const c_char)
        => |result| found(out(result, kernel), handle(library), name);
    Module NONE: [cuLibraryLoadData](
        library: *mut CUlibrary, code: *const c_void, jit_options: Options, jit_values: Values, jit_count: u32,
        options: Options, values: Values, count: u32)
        => |result| [out(result, library), 0, 0, 0];
    Module NONE: [cuLibraryLoadFromFile](
        library: *mut CUlibrary, file: *const c_char, jit_options: Options, jit_values: Values, jit_count: u32,
        options: Options, values: Values, count: u32)
        => |result| [out(result, library), 0, 0, 0];
    Module NONE: [cuLibraryUnload](library: CUlibrary) => |_| gone(handle(library));
    Module NONE: [cuLinkComplete](state: CUlinkState, image: *mut *mut c_void, bytes: *mut usize)
        => |result| [handle(state), 0, 0, out(result, bytes)];
    Module NONE: [cuModuleEnumerateFunctions](functions: *mut CUfunction, count: u32, module: CUmodule)
        => |_| unnamed(handle(module), count);
    Module NONE: [cuModuleGetFunction](function: *mut CUfunction, module: CUmodule, name: *const c_char)
        => |result| found(out(result, function), handle(module), name);
    Module NONE: [cuModuleLoad](module: *mut CUmodule, file: *const c_char)
        => |result| [out(result, module), 0, 0, 0];
    Module NONE: [cuModuleLoadData](module: *mut CUmodule, image: *const c_void)
        => |result| [out(result, module), 0, 0, 0];
    Module NONE: [cuModuleLoadDataEx](
        module: *mut CUmodule, image: *const c_void, count: u32, options: Options, values: Values)
        => |result| [out(result, module), 0, 0, 0];
    Module NONE: [cuModuleLoadFatBinary](module: *mut CUmodule, image: *const c_void)
        => |result| [out(result, module), 0, 0, 0];
    Module NONE: [cuModuleUnload](module: CUmodule) => |_| gone(handle(module));
}

fn found(function: u64, container: u64, name: *const c_char) -> [u64; 4] {
    if function != 0 {
        names::loaded(function, name);
    }
    [function, 0, container, 0]
}

/// Handles that came without names: their launches ask the driver for them.
fn unnamed(container: u64, count: u32) -> [u64; 4] {
    capture::want_names();
    [container, 0, 0, u64::from(count)]
}

fn same(function: u64, kernel: u64) -> [u64; 4] {
    names::same_as(function, kernel);
    [function, 0, kernel, 0]
}

fn gone(container: u64) -> [u64; 4] {
    names::unloaded();
    [container, 0, 0, 0]
}
