//! Looking symbols up in loaded libraries without the loader's own functions.
//!
//! `dlsym` is one of the things that we interpose; it takes locks, keeps an error text that the program may be about to
//! read, and cannot be called inside malloc. Walking the loaded libraries and each one's DT_GNU_HASH does none of that.
//! Only functions, and where asked for variables, of default version are found, in the order in which the loader keeps the libraries: the program,
//! preloaded libraries, then the rest.

mod iterate;
mod library;

use core::ffi::{CStr, c_int, c_void};
use core::sync::atomic::{AtomicUsize, Ordering};

pub(super) use library::Library;

/// A function of another library, looked up at its first use.
pub(crate) struct Function {
    name: &'static CStr,
    find: fn(&CStr) -> usize,
    address: AtomicUsize,
}

impl Function {
    /// The next definition after ours in search order; any other one where the program itself loaded this library, and
    /// nothing comes after it.
    pub(crate) const fn next(name: &'static CStr) -> Function {
        Function { name, find: next_or_any, address: AtomicUsize::new(0) }
    }

    /// The first definition outside of this library.
    pub(crate) const fn anywhere(name: &'static CStr) -> Function {
        Function { name, find: anywhere, address: AtomicUsize::new(0) }
    }

    /// libc's own, whoever defines the name before it.
    pub(crate) const fn of_libc(name: &'static CStr) -> Function {
        Function { name, find: in_libc, address: AtomicUsize::new(0) }
    }

    /// Its address; 0 when it is not there (yet).
    #[inline(always)]
    pub(crate) fn address(&self) -> usize {
        match self.address.load(Ordering::Relaxed) {
            0 => self.look_up(),
            known => known,
        }
    }

    #[cold]
    #[inline(never)]
    fn look_up(&self) -> usize {
        let found = (self.find)(self.name);
        self.address.store(found, Ordering::Relaxed);
        found
    }
}

/// What is searched for, and what was found.
struct Search<'a> {
    name: &'a CStr,
    /// Only in the library with this soname.
    soname: Option<&'a [u8]>,
    /// Only in libraries after this one.
    after_us: bool,
    /// Only in the program and in libraries before this one.
    before_us: bool,
    /// Variables too.
    variables: bool,
    passed_us: bool,
    found: usize,
}

/// Address of the next definition of a function after ours in search order; 0 when there is none.
pub(crate) fn next_definition(name: &CStr) -> usize {
    search(Search {
        name,
        soname: None,
        after_us: true,
        before_us: false,
        variables: false,
        passed_us: false,
        found: 0,
    })
}

/// Address of a function in the loaded library with this soname; 0 when there is none.
pub(crate) fn in_library(soname: &CStr, name: &CStr) -> usize {
    let soname = Some(soname.to_bytes());
    search(Search { name, soname, after_us: false, before_us: false, variables: false, passed_us: false, found: 0 })
}

/// Address of a definition of a function before ours in search order, in the program itself; 0 when there is none.
pub(crate) fn earlier_definition(name: &CStr) -> usize {
    search(Search {
        name,
        soname: None,
        after_us: false,
        before_us: true,
        variables: false,
        passed_us: false,
        found: 0,
    })
}

fn next_or_any(name: &CStr) -> usize {
    match next_definition(name) {
        0 => anywhere(name),
        found => found,
    }
}

fn in_libc(name: &CStr) -> usize {
    in_library(c"libc.so.6", name)
}

/// Address of the first definition of a function or variable outside of this library; 0 when there is none.
pub(crate) fn anywhere(name: &CStr) -> usize {
    search(Search {
        name,
        soname: None,
        after_us: false,
        before_us: false,
        variables: true,
        passed_us: false,
        found: 0,
    })
}

fn search(mut search: Search<'_>) -> usize {
    for_each_library(visit, (&raw mut search).cast());
    search.found
}

/// Calls back for each loaded library, in the loader's order, until the answer is not 0. `data` is passed on.
pub(crate) fn for_each_library(
    visit: unsafe extern "C" fn(*mut libc::dl_phdr_info, usize, *mut c_void) -> c_int,
    data: *mut c_void,
) {
    if let Some(iterate) = iterate::function() {
        // SAFETY: the callback gets valid infos and what it was made for, which outlives the call.
        unsafe { iterate(Some(visit), data) };
    }
}

unsafe extern "C" fn visit(info: *mut libc::dl_phdr_info, _: usize, search: *mut c_void) -> c_int {
    // SAFETY: `search` passed a pointer to a live Search; the loader passes a valid info.
    let (info, search) = unsafe { (&*info, &mut *search.cast::<Search<'_>>()) };
    if is_us(info) {
        search.passed_us = true;
        return search.before_us as c_int;
    }
    if search.after_us && !search.passed_us {
        return 0;
    }
    let Some(library) = library(info) else { return 0 };
    // SAFETY: the library is loaded while the loader visits it.
    unsafe {
        if search.soname.is_some_and(|wanted| library.soname() != Some(wanted)) {
            return 0;
        }
        search.found = library.find(search.name, search.variables);
    }
    (search.found != 0) as c_int
}

/// Shows every library but ours, in the loader's order, until `see` says true. What it is shown must not be kept.
pub(super) fn find_library<F: FnMut(&Library, &libc::dl_phdr_info) -> bool>(mut see: F) {
    unsafe extern "C" fn show<F>(info: *mut libc::dl_phdr_info, _: usize, see: *mut c_void) -> c_int
    where
        F: FnMut(&Library, &libc::dl_phdr_info) -> bool,
    {
        // SAFETY: `see` is the closure of the call below, of this type; the loader passes a valid info.
        let (info, see) = unsafe { (&*info, &mut *see.cast::<F>()) };
        (!is_us(info) && library(info).is_some_and(|library| see(&library, info))) as c_int
    }
    if let Some(iterate) = iterate::function() {
        // SAFETY: the callback is the one for this closure, which outlives the call.
        unsafe { iterate(Some(show::<F>), (&raw mut see).cast()) };
    }
}

fn library(info: &libc::dl_phdr_info) -> Option<Library> {
    let dynamic = segments(info).iter().find(|s| s.p_type == libc::PT_DYNAMIC)?;
    let base = info.dlpi_addr as usize;
    // SAFETY: the loader says that the library is there, and it stays while the loader visits it.
    unsafe { Library::at(base, base.wrapping_add(dynamic.p_vaddr as usize)) }
}

/// The program headers of a library.
pub(crate) fn segments(info: &libc::dl_phdr_info) -> &[libc::Elf64_Phdr] {
    if info.dlpi_phdr.is_null() {
        return &[];
    }
    // SAFETY: the loader gives the address and number of the program headers of a loaded library.
    unsafe { core::slice::from_raw_parts(info.dlpi_phdr, usize::from(info.dlpi_phnum)) }
}

/// Whether this library is the one that this code is in.
fn is_us(info: &libc::dl_phdr_info) -> bool {
    holds(info, visit as *const () as usize)
}

/// Whether the address lies in this library.
pub(super) fn holds(info: &libc::dl_phdr_info, address: usize) -> bool {
    segments(info).iter().filter(|s| s.p_type == libc::PT_LOAD).any(|s| {
        let start = (info.dlpi_addr as usize).wrapping_add(s.p_vaddr as usize);
        (start..start.saturating_add(s.p_memsz as usize)).contains(&address)
    })
}
