//! Which definition of a function a caller would have got without us.
//!
//! Several libraries of a process may define one function: two copies of NCCL, one of them linked into a library that
//! was opened RTLD_LOCAL, whose calls come to us because our export is found first. The loader would have given its
//! own copy to that library: it searches the global scope, then the caller's library and what that one needs.
//!
//! One definition in the whole process is the usual case and needs none of this. With several, the libraries that the
//! process started with are the beginning of the global scope, in the loader's order; what was added to it is asked of
//! the real dlsym when a library is opened or closed, in the loader's lock anyway. A first call asks nothing: it may come
//! while another thread holds that lock and waits for this one. The rest is found by walking the libraries' lists of what
//! they need. Never on a hot path.

use core::ffi::{CStr, c_char};
use core::sync::atomic::{AtomicBool, AtomicUsize, Ordering};

use super::{elf, lookup};
use crate::hooks::nccl;

/// A definition, and the library in which it stands.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Definition {
    /// The function.
    pub(crate) address: usize,
    /// Where its library is loaded.
    pub(crate) base: usize,
    /// The library's path; empty for the program.
    pub(crate) path: *const c_char,
    /// How many libraries the loader has before this one.
    place: usize,
}

/// Libraries that the process started with, but for ours.
static AT_START: AtomicUsize = AtomicUsize::new(0);
/// A library was opened RTLD_GLOBAL: the global scope may have more than it started with.
static ADDED: AtomicBool = AtomicBool::new(false);
/// The library whose functions the global scope has, and the process did not start with, where it is loaded + 1; 0: none is
/// known.
static GLOBAL: AtomicUsize = AtomicUsize::new(0);

/// Counts the libraries that the process started with. For the constructor.
pub(crate) fn look_at_start() {
    let mut count = 0;
    elf::find_library(|_, _| {
        count += 1;
        false
    });
    AT_START.store(count, Ordering::Relaxed);
}

/// A library is about to be opened in this mode, or one to be closed: what was opened before is in the global scope now.
pub(super) fn look_at_global_scope(mode: i32) {
    if ADDED.load(Ordering::Relaxed) {
        let mut all = [None; MOST];
        let name = nccl::name(0);
        let known = definitions(name, &mut all) > 1;
        let real = if known { lookup::real_dlsym(usize::MAX, name) } else { 0 };
        let base = all.iter().flatten().find(|d| d.address == real).map_or(0, |d| d.base.wrapping_add(1));
        GLOBAL.store(base, Ordering::Relaxed);
    }
    if mode & libc::RTLD_GLOBAL != 0 {
        ADDED.store(true, Ordering::Relaxed);
    }
}

/// Definitions that are looked at; a process has one or two.
const MOST: usize = 16;
/// Libraries that a search through what others need may visit.
const VISITS: usize = 256;

/// The definition that a call from `caller` would have reached; none when only we define it.
pub(crate) fn definition(name: &CStr, caller: usize) -> Option<Definition> {
    let mut all = [None; MOST];
    let count = definitions(name, &mut all);
    let known = || all.iter().flatten().copied();
    if count <= 1 {
        return known().next();
    }
    let at_start = AT_START.load(Ordering::Relaxed);
    let global = GLOBAL.load(Ordering::Relaxed);
    let found = known().find(|d| d.place < at_start);
    let found = found.or_else(|| known().find(|d| d.base.wrapping_add(1) == global));
    found.or_else(|| local(&all, caller)).or_else(|| known().next())
}

/// The definition in the caller's own library or in what that one needs.
pub(crate) fn local_definition(name: &CStr, caller: usize) -> Option<Definition> {
    let mut all = [None; MOST];
    definitions(name, &mut all);
    local(&all, caller)
}

/// The definition at this address.
pub(crate) fn definition_at(address: usize) -> Option<Definition> {
    let mut found = None;
    elf::find_library(|library, info| {
        let here = elf::holds(info, address);
        if here {
            found = Some(Definition { address, base: library.base, path: info.dlpi_name, place: 0 });
        }
        here
    });
    found
}

/// The function of this name in the library that is loaded at `base`; 0 when it has none or is gone.
pub(crate) fn in_library_at(base: usize, name: &CStr) -> usize {
    let mut found = 0;
    elf::find_library(|library, _| {
        let here = library.base == base;
        if here {
            // SAFETY: the library is loaded while the loader visits it.
            found = unsafe { library.find(name, false) };
        }
        here
    });
    found
}

fn definitions(name: &CStr, all: &mut [Option<Definition>; MOST]) -> usize {
    let (mut count, mut passed) = (0, 0);
    elf::find_library(|library, info| {
        // SAFETY: the library is loaded while the loader visits it.
        let address = unsafe { library.find(name, false) };
        let place = passed;
        passed += 1;
        if address != 0 {
            if let Some(free) = all.get_mut(count) {
                *free = Some(Definition { address, base: library.base, path: info.dlpi_name, place });
            }
            count += 1;
        }
        false
    });
    count.min(MOST)
}

/// Breadth first through what the caller's library needs, as the loader orders a library's scope.
fn local(all: &[Option<Definition>; MOST], caller: usize) -> Option<Definition> {
    let mut queue = [0usize; VISITS];
    let mut filled = 0;
    elf::find_library(|library, info| {
        let here = elf::holds(info, caller);
        if here && let Some(place) = queue.first_mut() {
            *place = library.base;
            filled = 1;
        }
        here
    });
    let mut next = 0;
    while next < filled {
        let base = queue.get(next).copied()?;
        if let Some(found) = all.iter().flatten().find(|d| d.base == base) {
            return Some(*found);
        }
        filled = add_needed(base, &mut queue, filled);
        next += 1;
    }
    None
}

/// Appends the libraries that the one at `base` needs; returns how many the queue holds.
fn add_needed(base: usize, queue: &mut [usize; VISITS], mut filled: usize) -> usize {
    elf::find_library(|needing, _| {
        if needing.base != base {
            return false;
        }
        elf::find_library(|library, _| {
            // SAFETY: both libraries are loaded while the loader visits them.
            let needed = unsafe { needing.needs(library) };
            if needed
                && !queue.iter().take(filled).any(|known| *known == library.base)
                && let Some(place) = queue.get_mut(filled)
            {
                *place = library.base;
                filled += 1;
            }
            false
        });
        true
    });
    filled
}
