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

pub(crate) use library::Library;

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

    /// The same, without a look-up: 0 when none was made, or it found nothing.
    pub(crate) fn known(&self) -> usize {
        self.address.load(Ordering::Relaxed)
    }

    #[cold]
    #[inline(never)]
    fn look_up(&self) -> usize {
        let found = (self.find)(self.name);
        self.address.store(found, Ordering::Relaxed);
        found
    }
}

/// Address of the next definition of a function after ours in search order; 0 when there is none.
pub(crate) fn next_definition(name: &CStr) -> usize {
    let mut passed_us = false;
    search(name, false, |info| {
        passed_us |= is_us(info);
        passed_us
    })
}

/// Address of a function in the loaded library with this soname; 0 when there is none.
pub(crate) fn in_library(soname: &CStr, name: &CStr) -> usize {
    // SAFETY: it is looked up at once; whoever unloads the library cannot expect an answer.
    library(soname).map_or(0, |library| unsafe { library.find(name, false) })
}

/// Address of a definition of a function before ours in search order, in the program itself; 0 when there is none.
pub(crate) fn earlier_definition(name: &CStr) -> usize {
    let mut passed_us = false;
    search(name, false, |info| {
        passed_us |= is_us(info);
        !passed_us
    })
}

/// The first loaded library with this soname, but for ours.
pub(crate) fn library(soname: &CStr) -> Option<Library> {
    let mut found = None;
    visit(&mut |info| {
        // SAFETY: the library is loaded while the loader visits it.
        let named = |library: &Library| unsafe { library.soname() } == Some(soname.to_bytes());
        found = library_of(info).filter(|library| named(library) && !is_us(info));
        found.is_some()
    });
    found
}

/// The file of the loaded library that an address is in, ended by a zero byte; empty when it has none.
pub(crate) fn file_of(address: usize) -> [u8; 1024] {
    let mut file = [0; 1024];
    visit(&mut |info| {
        if !holds(info, address) {
            return false;
        }
        // SAFETY: null, or the loader's own C string, which is there while it visits the library.
        let name = unsafe { info.dlpi_name.as_ref().map_or(c"", |name| CStr::from_ptr(name)) }.to_bytes();
        if name.len() < file.len() {
            file.iter_mut().zip(name).for_each(|(place, byte)| *place = *byte);
        }
        true
    });
    file
}

/// Shows the files of the loaded libraries, in search order, until the answer is true.
pub(crate) fn each_file(look: &mut dyn FnMut(&[u8]) -> bool) {
    visit(&mut |info| {
        // SAFETY: null, or the loader's own C string, which is there while it visits the library.
        look(unsafe { info.dlpi_name.as_ref().map_or(c"", |name| CStr::from_ptr(name)) }.to_bytes())
    });
}

/// From where to where the loaded library lies that an address is in; (0, 0) when there is none.
pub(crate) fn range_of(address: usize) -> (usize, usize) {
    let mut range = (0, 0);
    visit(&mut |info| {
        if !holds(info, address) {
            return false;
        }
        let ends = segments(info).iter().filter(|segment| segment.p_type == libc::PT_LOAD).map(|segment| {
            let from = (info.dlpi_addr as usize).wrapping_add(segment.p_vaddr as usize);
            (from, from.wrapping_add(segment.p_memsz as usize))
        });
        range = ends.fold((usize::MAX, 0), |all, own| (all.0.min(own.0), all.1.max(own.1)));
        true
    });
    range
}

/// The next definition after ours in search order; any other one where nothing comes after us.
pub(crate) fn next_or_any(name: &CStr) -> usize {
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
    search(name, true, |_| true)
}

/// Shows every library after ours, in search order. What it is shown must not be kept.
pub(crate) fn each_after_us(mut see: impl FnMut(&Library)) {
    let mut passed_us = false;
    visit(&mut |info| {
        if is_us(info) {
            passed_us = true;
        } else if passed_us && let Some(library) = library_of(info) {
            see(&library);
        }
        false
    });
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

/// The first definition in the libraries that are looked at, in search order, but for ours.
fn search(name: &CStr, variables: bool, mut is_looked_at: impl FnMut(&libc::dl_phdr_info) -> bool) -> usize {
    let mut found = 0;
    visit(&mut |info| {
        if is_looked_at(info) && !is_us(info) {
            // SAFETY: the library is loaded while the loader visits it.
            found = library_of(info).map_or(0, |library| unsafe { library.find(name, variables) });
        }
        found != 0
    });
    found
}

type Look<'a> = dyn FnMut(&libc::dl_phdr_info) -> bool + 'a;

/// Shows the loaded libraries in search order until the answer is true.
fn visit(mut look: &mut Look<'_>) {
    for_each_library(callback, (&raw mut look).cast());
}

unsafe extern "C" fn callback(info: *mut libc::dl_phdr_info, _: usize, look: *mut c_void) -> c_int {
    // SAFETY: `visit` passed a pointer to its own pointer; the loader passes a valid info.
    let (info, look) = unsafe { (&*info, &mut *look.cast::<&mut Look<'_>>()) };
    c_int::from(look(info))
}

fn library_of(info: &libc::dl_phdr_info) -> Option<Library> {
    let dynamic = segments(info).iter().find(|s| s.p_type == libc::PT_DYNAMIC)?;
    let base = info.dlpi_addr as usize;
    // SAFETY: the loader is visiting the library.
    unsafe { Library::at(base, base.wrapping_add(dynamic.p_vaddr as usize)) }
}

/// Shows every library but ours, in the loader's order, until `see` says true. What it is shown must not be kept.
pub(super) fn find_library(mut see: impl FnMut(&Library, &libc::dl_phdr_info) -> bool) {
    visit(&mut |info| !is_us(info) && library_of(info).is_some_and(|library| see(&library, info)));
}

/// The program headers of a library.
pub(crate) fn segments(info: &libc::dl_phdr_info) -> &[libc::Elf64_Phdr] {
    if info.dlpi_phdr.is_null() {
        return &[];
    }
    // SAFETY: the loader gives the address and number of the program headers of a loaded library.
    unsafe { core::slice::from_raw_parts(info.dlpi_phdr, usize::from(info.dlpi_phnum)) }
}

/// Whether the loader makes this address of a library read-only when it is done with it.
pub(super) fn is_read_only_later(info: &libc::dl_phdr_info, address: usize) -> bool {
    is_in_segment(info, libc::PT_GNU_RELRO, address)
}

/// A number that changes whenever a library is opened or closed.
pub(crate) fn changes() -> u64 {
    let mut changes = 0;
    visit(&mut |info| {
        changes = info.dlpi_adds.wrapping_add(info.dlpi_subs);
        true
    });
    changes
}

/// Whether an address lies in this library.
pub(super) fn is_ours(address: usize) -> bool {
    let mut ours = false;
    visit(&mut |info| {
        ours = is_us(info) && holds(info, address);
        is_us(info)
    });
    ours
}

/// Whether this library exports a function of this name.
pub(super) fn exports(name: &CStr) -> bool {
    let mut found = 0;
    visit(&mut |info| {
        let us = is_us(info);
        if us {
            // SAFETY: the library is the one that this code is in.
            found = library_of(info).map_or(0, |library| unsafe { library.find(name, false) });
        }
        us
    });
    found != 0
}

/// Whether this library is the one that this code is in.
fn is_us(info: &libc::dl_phdr_info) -> bool {
    holds(info, callback as *const () as usize)
}

/// Whether the address lies in this library.
pub(super) fn holds(info: &libc::dl_phdr_info, address: usize) -> bool {
    is_in_segment(info, libc::PT_LOAD, address)
}

fn is_in_segment(info: &libc::dl_phdr_info, kind: u32, address: usize) -> bool {
    segments(info).iter().filter(|s| s.p_type == kind).any(|s| {
        let start = (info.dlpi_addr as usize).wrapping_add(s.p_vaddr as usize);
        (start..start.saturating_add(s.p_memsz as usize)).contains(&address)
    })
}
