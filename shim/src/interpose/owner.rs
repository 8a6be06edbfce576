//! Whose code it is: the library that a function lies in.

use core::ffi::CStr;

/// The library around an address: where it begins, and its file's name.
fn library(code: *const ()) -> Option<(usize, *const core::ffi::c_char)> {
    let mut found = libc::Dl_info {
        dli_fname: core::ptr::null(),
        dli_fbase: core::ptr::null_mut(),
        dli_sname: core::ptr::null(),
        dli_saddr: core::ptr::null_mut(),
    };
    // SAFETY: an address of code, and a place for what is found.
    (unsafe { libc::dladdr(code.cast(), &mut found) } != 0).then_some((found.dli_fbase as usize, found.dli_fname))
}

/// Whether it is macOS' own.
pub(crate) fn is_the_systems(code: *const ()) -> bool {
    library(code).is_some_and(|(_, name)| {
        // SAFETY: null or a C string of the loader's.
        !name.is_null() && unsafe { CStr::from_ptr(name) }.to_bytes().starts_with(b"/System/")
    })
}

/// Whether both lie in one library, or in none that is known.
pub(crate) fn are_of_one(a: *const (), b: *const ()) -> bool {
    library(a).map(|(base, _)| base) == library(b).map(|(base, _)| base)
}
