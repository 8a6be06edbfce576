//! Frida's interceptor. It moves what dobby-hook does not on aarch64.
//!
//! Its devkit (a header and a static library) comes from its project's release page; the linker must find the library.
//! With `DOCS_RS=1` and libclang its bindings are made from a header of their own, so that this file is type-checked
//! without it.

use std::ffi::c_void;

use frida_gum::interceptor::Interceptor;
use frida_gum::{Gum as Runtime, NativePointer};

use super::Engine;

/// The engine.
pub(crate) struct Gum(Interceptor);

impl Gum {
    pub(crate) fn new() -> Gum {
        Gum(Interceptor::obtain(&Runtime::obtain()))
    }
}

impl Engine for Gum {
    unsafe fn replace(&mut self, function: usize, replacement: usize) -> Option<usize> {
        let pointer = |address: usize| NativePointer(address as *mut c_void);
        let original = self.0.replace_fast(pointer(function), pointer(replacement)).ok()?;
        Some(original.0 as usize)
    }
}
