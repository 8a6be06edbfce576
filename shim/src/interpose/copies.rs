//! The copies of NCCL in a process, and which one a call belongs to.
//!
//! A process may hold several: libnccl.so.2 of a wheel, another one of the system, one linked into a library of its own.
//! A communicator of one is nothing to another, so a call must go to the copy that its caller was linked to. It comes
//! to us in one of two ways. Where the program looked the function up, it got the entry of that copy (each function has
//! [`COPIES`] entries besides its export), and the entry's number says which. Where it was linked, it reached our export,
//! and its return address says who called: the answer for a call site is remembered until a library is closed.
//!
//! A call site need not be in the library that was linked: a function that ends in a call may be compiled to a jump, and
//! then we see its caller. So a communicator that is known speaks first: it belongs to the copy that made it.

use core::ffi::{CStr, c_char};
use core::sync::atomic::{AtomicU32, AtomicU64, AtomicUsize, Ordering};

use gputrace_abi::layout::route;

use super::driver;
use super::scope::{self, Definition};
use crate::hooks::nccl;

/// Copies that have entries of their own.
pub(crate) const COPIES: usize = 4;
/// A copy that found no place: its calls pass, but answers to dlsym are its own functions.
pub(crate) const NO_COPY: u8 = u8::MAX;

/// One copy.
struct Copy {
    /// Where it is loaded + 1; 0: the place is free.
    base: AtomicUsize,
    /// Its path, which the loader keeps as long as it is loaded.
    path: AtomicUsize,
    /// Its functions, in the order of the list; 0 while not known.
    originals: [AtomicUsize; nccl::COUNT],
}

static ALL: [Copy; COPIES] = [const {
    Copy {
        base: AtomicUsize::new(0),
        path: AtomicUsize::new(0),
        originals: [const { AtomicUsize::new(0) }; nccl::COUNT],
    }
}; COPIES];

/// Call sites: return address, and above its 48 bits the copy + 1.
static SITES: [AtomicU64; 1024] = [const { AtomicU64::new(0) }; 1024];
const ADDRESS_BITS: u32 = 48;
/// Places that a call site may have.
const PROBES: usize = 8;
/// Counts the libraries that were closed: an answer found before the last one is not remembered.
static CLOSED: AtomicU32 = AtomicU32::new(0);

/// Where a call goes.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Target {
    /// The original; 0: there is none.
    pub(crate) address: usize,
    /// Its copy, or [`NO_COPY`].
    pub(crate) copy: u8,
}

const NOWHERE: Target = Target { address: 0, copy: NO_COPY };

/// Where a call of the function number `function` goes. `caller` is what its entry noted: the number of a copy, or the
/// address to which the call returns. `owner` is the copy of the communicator that it is about.
#[inline]
pub(crate) fn target(function: usize, caller: usize, owner: Option<u8>) -> Target {
    let copy = match owner {
        _ if caller < COPIES => caller as u8,
        Some(owner) => owner,
        None => match site(caller) {
            Some(copy) => copy,
            None => return by_caller(function, caller),
        },
    };
    match original(copy, function) {
        0 => by_caller(function, caller),
        address => Target { address, copy },
    }
}

fn original(copy: u8, function: usize) -> usize {
    let Some(copy) = ALL.get(usize::from(copy)) else { return 0 };
    let Some(place) = copy.originals.get(function) else { return 0 };
    match place.load(Ordering::Acquire) {
        0 => learn(copy, function, place),
        address => address,
    }
}

#[cold]
fn learn(copy: &Copy, function: usize, place: &AtomicUsize) -> usize {
    let Some(base) = copy.base.load(Ordering::Acquire).checked_sub(1) else { return 0 };
    let found = scope::in_library_at(base, nccl::name(function));
    place.store(found, Ordering::Release);
    found
}

fn place_of(site: usize, probe: usize) -> Option<&'static AtomicU64> {
    SITES.get(((site >> 2) ^ (site >> 12)).wrapping_add(probe) & (SITES.len() - 1))
}

fn site(caller: usize) -> Option<u8> {
    for probe in 0..PROBES {
        let known = place_of(caller, probe)?.load(Ordering::Relaxed);
        if known & ((1 << ADDRESS_BITS) - 1) == caller as u64 {
            return ((known >> ADDRESS_BITS) as u8).checked_sub(1);
        }
        if known == 0 {
            return None;
        }
    }
    None
}

#[cold]
#[inline(never)]
fn by_caller(function: usize, caller: usize) -> Target {
    let closed = CLOSED.load(Ordering::Acquire);
    // The entry of a copy that is gone: nothing is left to call.
    let found = if caller < COPIES { None } else { scope::definition(nccl::name(function), caller) };
    let Some(found) = found else { return NOWHERE };
    driver::note_route(nccl::FIRST + function as u16, route::EXPORT);
    let copy = copy_of(&found, function).unwrap_or(NO_COPY);
    if copy != NO_COPY {
        let entry = caller as u64 | u64::from(copy + 1) << ADDRESS_BITS;
        let free = (0..PROBES).find_map(|probe| {
            let place = place_of(caller, probe)?;
            place.compare_exchange(0, entry, Ordering::Relaxed, Ordering::Relaxed).is_ok().then_some(place)
        });
        if let Some(place) = free
            && CLOSED.load(Ordering::Acquire) != closed
        {
            place.store(0, Ordering::Relaxed);
        }
    }
    Target { address: found.address, copy }
}

/// The copy in which this definition stands, entered if it is new. None: all places are taken.
pub(crate) fn copy_of(found: &Definition, function: usize) -> Option<u8> {
    let base = found.base.wrapping_add(1);
    for _ in 0..2 {
        for (number, copy) in ALL.iter().enumerate() {
            let free = copy.base.load(Ordering::Acquire) == 0
                && copy.base.compare_exchange(0, base, Ordering::AcqRel, Ordering::Relaxed).is_ok();
            if !free && copy.base.load(Ordering::Acquire) != base {
                continue;
            }
            let place = copy.originals.get(function)?;
            match place.load(Ordering::Acquire) {
                known if known == found.address => {}
                0 => place.store(found.address, Ordering::Release),
                // Another library stands where the copy was.
                _ => {
                    copy.originals.iter().for_each(|place| place.store(0, Ordering::Release));
                    place.store(found.address, Ordering::Release);
                }
            }
            copy.path.store(found.path as usize, Ordering::Release);
            return Some(number as u8);
        }
        forget_copies_that_are_gone();
    }
    None
}

fn forget_copies_that_are_gone() {
    for copy in &ALL {
        let base = copy.base.load(Ordering::Acquire);
        let there = base.checked_sub(1).is_some_and(|base| scope::in_library_at(base, nccl::name(0)) != 0);
        if !there {
            copy.originals.iter().for_each(|place| place.store(0, Ordering::Release));
            let _ = copy.base.compare_exchange(base, 0, Ordering::AcqRel, Ordering::Relaxed);
        }
    }
}

/// A library is about to be closed: its addresses may come back as others. What was found is looked for again.
pub(crate) fn library_closes() {
    CLOSED.fetch_add(1, Ordering::AcqRel);
    for copy in ALL.iter().filter(|copy| copy.base.load(Ordering::Relaxed) != 0) {
        copy.originals.iter().for_each(|place| place.store(0, Ordering::Release));
    }
    for site in &SITES {
        if site.load(Ordering::Relaxed) != 0 {
            site.store(0, Ordering::Relaxed);
        }
    }
}

/// A function of a copy that no hook is for; 0 when it has none of that name.
pub(crate) fn other_function(copy: u8, name: &CStr) -> usize {
    let base = ALL.get(usize::from(copy)).map_or(0, |copy| copy.base.load(Ordering::Acquire));
    base.checked_sub(1).map_or(0, |base| scope::in_library_at(base, name))
}

/// Path of a copy; null when it is not known.
pub(crate) fn path(copy: u8) -> *const c_char {
    ALL.get(usize::from(copy)).map_or(0, |copy| copy.path.load(Ordering::Acquire)) as *const c_char
}
