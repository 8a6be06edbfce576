//! libc's own `dl_iterate_phdr`, which walks the loaded libraries under the loader's lock.
//!
//! A plain call of it finds the function of that name that comes first in search order. In a program built with
//! ThreadSanitizer or MemorySanitizer that is the sanitizer's wrapper, and our first look-up, in the program's first
//! malloc, comes before the sanitizer knows the original: it jumped to address 0. So libc's is looked up in libc, which
//! the loader's public list of libraries names.

use core::ffi::{c_int, c_void};
use core::ptr;
use core::sync::atomic::{AtomicUsize, Ordering};

use super::library::Library;

type Callback = unsafe extern "C" fn(*mut libc::dl_phdr_info, usize, *mut c_void) -> c_int;
pub(super) type Iterate = unsafe extern "C" fn(Option<Callback>, *mut c_void) -> c_int;

/// `struct r_debug` of link.h, as far as it is used.
#[repr(C)]
struct Debug {
    version: c_int,
    first: *const Link,
}

/// `struct link_map` of link.h.
#[repr(C)]
struct Link {
    base: usize,
    name: *const core::ffi::c_char,
    dynamic: usize,
    next: *const Link,
}

unsafe extern "C" {
    /// What the loader tells debuggers: the list of loaded libraries.
    static _r_debug: Debug;
}

/// None: there is no libc, which cannot be.
pub(super) fn function() -> Option<Iterate> {
    static ADDRESS: AtomicUsize = AtomicUsize::new(0);
    let address = match ADDRESS.load(Ordering::Relaxed) {
        0 => {
            let found = find();
            ADDRESS.store(found, Ordering::Relaxed);
            found
        }
        known => known,
    };
    // SAFETY: 0 becomes None; all else is the address of libc's dl_iterate_phdr, whose signature this is.
    unsafe { core::mem::transmute::<usize, Option<Iterate>>(address) }
}

/// Walks the list without its lock. That is safe as far as libc, which the process began with: libraries that come
/// later are put behind it, and those that the process began with are never unloaded.
#[cold]
fn find() -> usize {
    // SAFETY: the loader filled the structure before it relocated us.
    let mut link = unsafe { ptr::read_volatile(&raw const _r_debug.first) };
    // SAFETY: null ends the list; the entries up to libc's are never freed.
    while let Some(entry) = unsafe { link.as_ref() } {
        // SAFETY: the library of such an entry stays loaded.
        unsafe {
            if let Some(library) = Library::at(entry.base, entry.dynamic)
                && library.soname() == Some(b"libc.so.6")
            {
                return library.find(c"dl_iterate_phdr", false);
            }
        }
        link = entry.next;
    }
    0
}
