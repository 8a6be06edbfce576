//! Modules, libraries, kernels and functions: loaded, looked up, unloaded. Payload: handle, 0, second handle, number.
//!
//! These lines also keep the names of kernels ([`crate::names`]).

use core::ffi::{c_char, c_void};

use cudarc::driver::sys::{
    CUdeviceptr, CUfunction, CUkernel, CUlibrary, CUlinkState, CUmodule, CUmoduleLoadingMode, CUsurfref, CUtexref,
};

use super::{beginning, handle, out};
use crate::hooks::hooks;
use crate::{capture, names};

type Options = *mut c_void;
type Values = *mut *mut c_void;

hooks! {
    base: super::MODULE;

    Module: [cuFuncLoad](function: CUfunction) => |_| [handle(function), 0, 0, 0];
    Module: [cuKernelGetFunction](function: *mut CUfunction, kernel: CUkernel),
        after |result| same(out(result, function), handle(kernel));
    Module: [cuLibraryEnumerateKernels](kernels: *mut CUkernel, count: u32, library: CUlibrary),
        after |_| unnamed(handle(library), count);
    Module: [cuLibraryGetGlobal, cuLibraryGetManaged](
        address: *mut CUdeviceptr, bytes: *mut usize, library: CUlibrary, name: *const c_char)
        => |result| [out(result, address), 0, handle(library), 0];
    Module: [cuLibraryGetKernel](kernel: *mut CUkernel, library: CUlibrary, name: *const c_char),
        after |result| found(out(result, kernel), handle(library), name);
    Count: [cuLibraryGetKernelCount](*mut u32, CUlibrary);
    Module: [cuLibraryGetModule](module: *mut CUmodule, library: CUlibrary)
        => |result| [out(result, module), 0, handle(library), 0];
    Module: [cuLibraryGetUnifiedFunction](function: *mut *mut c_void, library: CUlibrary, name: *const c_char)
        => |result| [out(result, function), 0, handle(library), 0];
    Module IMAGE: [cuLibraryLoadData](
        library: *mut CUlibrary, code: *const c_void, jit_options: Options, jit_values: Values, jit_count: u32,
        options: Options, values: Values, count: u32)
        => |result| [out(result, library), 0, 0, beginning(result, code)];
    Module: [cuLibraryLoadFromFile](
        library: *mut CUlibrary, file: *const c_char, jit_options: Options, jit_values: Values, jit_count: u32,
        options: Options, values: Values, count: u32)
        => |result| [out(result, library), 0, 0, 0];
    Module: [cuLibraryUnload](library: CUlibrary), after |_| gone(handle(library));
    Module LINK: [cuLinkAddData, cuLinkAddData_v2](
        state: CUlinkState, kind: u32, data: *mut c_void, bytes: usize, name: *const c_char, count: u32,
        options: Options, values: Values)
        => |_| [handle(state), 0, 0, bytes as u64];
    Module LINK: [cuLinkAddFile, cuLinkAddFile_v2](
        state: CUlinkState, kind: u32, path: *const c_char, count: u32, options: Options, values: Values)
        => |_| [handle(state), 0, 0, 0];
    Module LINK: [cuLinkComplete](state: CUlinkState, image: *mut *mut c_void, bytes: *mut usize)
        => |result| [handle(state), 0, 0, out(result, bytes)];
    Module: [cuLinkCreate, cuLinkCreate_v2](count: u32, options: Options, values: Values, state: *mut CUlinkState)
        => |result| [out(result, state), 0, 0, 0];
    Module: [cuLinkDestroy](state: CUlinkState) => |_| [handle(state), 0, 0, 0];
    Module: [cuModuleEnumerateFunctions](functions: *mut CUfunction, count: u32, module: CUmodule),
        after |_| unnamed(handle(module), count);
    Module: [cuModuleGetFunction](function: *mut CUfunction, module: CUmodule, name: *const c_char),
        after |result| found(out(result, function), handle(module), name);
    Count: [cuModuleGetFunctionCount](*mut u32, CUmodule);
    Module: [cuModuleGetGlobal_v2](
        address: *mut CUdeviceptr, bytes: *mut usize, module: CUmodule, name: *const c_char)
        => |result| [out(result, address), 0, handle(module), 0];
    Count: [cuModuleGetLoadingMode](*mut CUmoduleLoadingMode);
    Module: [cuModuleGetSurfRef](reference: *mut CUsurfref, module: CUmodule, name: *const c_char)
        => |result| [out(result, reference), 0, handle(module), 0];
    Module: [cuModuleGetTexRef](reference: *mut CUtexref, module: CUmodule, name: *const c_char)
        => |result| [out(result, reference), 0, handle(module), 0];
    Module: [cuModuleLoad](module: *mut CUmodule, file: *const c_char)
        => |result| [out(result, module), 0, 0, 0];
    Module IMAGE: [cuModuleLoadData](module: *mut CUmodule, image: *const c_void)
        => |result| [out(result, module), 0, 0, beginning(result, image)];
    Module IMAGE: [cuModuleLoadDataEx](
        module: *mut CUmodule, image: *const c_void, count: u32, options: Options, values: Values)
        => |result| [out(result, module), 0, 0, beginning(result, image)];
    Module: [cuModuleLoadFatBinary](module: *mut CUmodule, image: *const c_void)
        => |result| [out(result, module), 0, 0, 0];
    Module: [cuModuleUnload](module: CUmodule), after |_| gone(handle(module));
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
