//! Which definition of a function a caller would have got without us.
//!
//! Several libraries of a process may define one function: two copies of NCCL, one of them linked into a library that
//! was opened RTLD_LOCAL, whose calls come to us because our export is found first. The loader would have given its
//! own copy to that library: it searches the global scope, then the caller's library and what that one needs.
//!
//! One definition in the whole process is the usual case and needs none of this. With several, the global scope is asked
//! by the real dlsym, and the rest found by walking the libraries' lists of what they need. Never on a hot path.

use core::ffi::{CStr, c_char};

use super::{elf, lookup};

/// A definition, and the library in which it stands.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Definition {
    /// The function.
    pub(crate) address: usize,
    /// Where its library is loaded.
    pub(crate) base: usize,
    /// The library's path; empty for the program.
    pub(crate) path: *const c_char,
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
    let global = lookup::real_dlsym(usize::MAX, name);
    known().find(|d| d.address == global).or_else(|| local(&all, caller)).or_else(|| known().next())
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
            found = Some(Definition { address, base: library.base, path: info.dlpi_name });
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
    let mut count = 0;
    elf::find_library(|library, info| {
        // SAFETY: the library is loaded while the loader visits it.
        let address = unsafe { library.find(name, false) };
        if address != 0 {
            if let Some(place) = all.get_mut(count) {
                *place = Some(Definition { address, base: library.base, path: info.dlpi_name });
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
