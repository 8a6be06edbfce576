//! The injection that was set before ours: it is loaded by us, fills each client's tables first, and our callbacks
//! call its own.
//!
//! Handles of domains and registered strings are then the previous injection's, whose callbacks get them back; a table
//! leads from them to our keys. Where it makes none, the program gets none, as if we were not there.

use core::ffi::{c_char, c_int, c_void};
use core::sync::atomic::{AtomicU8, AtomicU32, AtomicU64, AtomicUsize, Ordering};

use super::{GetExportTable, SLOTS, Slot};
use crate::interpose::lookup;
use crate::sys;

/// Path of its library, ended by a 0: written once by the constructor.
static PATH: [AtomicU8; 4096] = [const { AtomicU8::new(0) }; 4096];

/// 1: a client was attached to it, so that handles are its own.
static ATTACHED: AtomicU32 = AtomicU32::new(0);

/// Its callback for each slot, the same for every client; 0 for none.
static CALLBACKS: [AtomicUsize; 2 * SLOTS] = [const { AtomicUsize::new(NOT_ASKED) }; 2 * SLOTS];
const NOT_ASKED: usize = usize::MAX;

/// Its handles and our keys.
static HANDLES: [(AtomicU64, AtomicU64); 4096] = [const { (AtomicU64::new(0), AtomicU64::new(0)) }; 4096];

/// Reads from the environment which library it is. For the constructor.
pub(crate) fn remember() {
    let path = sys::variable(b"GPUTRACE_NVTX_NEXT").unwrap_or(b"");
    if path.len() < PATH.len() {
        for (place, byte) in PATH.iter().zip(path) {
            place.store(*byte, Ordering::Relaxed);
        }
    }
}

/// Lets it fill a client's tables; false when there is none, or it does not want them.
pub(super) fn attach(tables: GetExportTable) -> bool {
    let initialize = entry(c"InitializeInjectionNvtx2");
    if initialize == 0 {
        return false;
    }
    // SAFETY: NVTX's own name for a function of this signature.
    let initialize: unsafe extern "C" fn(GetExportTable) -> c_int = unsafe { core::mem::transmute(initialize) };
    // SAFETY: the client's own function, as NVTX would pass it.
    let attached = unsafe { initialize(tables) } != 0;
    if attached {
        ATTACHED.store(1, Ordering::Release);
    }
    attached
}

/// Lets it take an extension of a client; 0 when there is none, or it does not want it.
///
/// # Safety
/// NVTX's own contract for the argument.
pub(super) unsafe fn attach_extension(module: *mut c_void) -> c_int {
    let initialize = entry(c"InitializeInjectionNvtxExtension");
    if initialize == 0 {
        return 0;
    }
    // SAFETY: NVTX's own name for a function of this signature.
    let initialize: unsafe extern "C" fn(*mut c_void) -> c_int = unsafe { core::mem::transmute(initialize) };
    // SAFETY: the caller's promise.
    unsafe { initialize(module) }
}

/// Address of a function of its library, which is loaded as NVTX would have loaded it; 0 where there is none, or where
/// it is another copy of this library.
fn entry(name: &core::ffi::CStr) -> usize {
    if PATH.first().is_none_or(|first| first.load(Ordering::Relaxed) == 0) {
        return 0;
    }
    // SAFETY: the path was written by the constructor, the last byte is 0, and atomic bytes are laid out as bytes.
    let library = unsafe { lookup::open(PATH.as_ptr().cast::<c_char>()) };
    if library == 0 || lookup::real_dlsym(library, c"gputrace_recording") != 0 {
        return 0;
    }
    lookup::real_dlsym(library, name)
}

/// Whether its callback for a slot is this one (0 for none): the first client decides.
pub(super) fn knows(slot: Slot, callback: usize) -> bool {
    let Some(place) = CALLBACKS.get(slot.place()) else { return false };
    match place.compare_exchange(NOT_ASKED, callback, Ordering::AcqRel, Ordering::Acquire) {
        Ok(_) => true,
        Err(known) => known == callback,
    }
}

/// Its callback for a slot; 0 for none. Called by our callbacks only, which are installed after it is known.
#[inline(always)]
pub(super) fn callback(slot: Slot) -> usize {
    CALLBACKS.get(slot.place()).map_or(0, |place| place.load(Ordering::Relaxed))
}

/// Whether handles are its own.
pub(super) fn is_attached() -> bool {
    ATTACHED.load(Ordering::Acquire) != 0
}

/// The handle that the program gets for a domain or string that has this key.
pub(super) fn handle_for(key: u64, its_own: usize) -> usize {
    if !is_attached() {
        return key as usize;
    }
    let its_own = its_own as u64;
    let ours = |(handle, _): &(&AtomicU64, &AtomicU64)| {
        its_own != 0
            && handle
                .compare_exchange(0, its_own, Ordering::Relaxed, Ordering::Relaxed)
                .map_or_else(|taken| taken == its_own, |_| true)
    };
    if let Some((_, known)) = (0..16).filter_map(|probe| place(its_own, probe)).find(ours) {
        known.store(key, Ordering::Release);
    }
    its_own as usize
}

/// The key of a domain or string that the program has a handle of; 0 for none.
#[inline(always)]
pub(super) fn key_of(handle: usize) -> u64 {
    let handle = handle as u64;
    if handle == 0 || !is_attached() { handle } else { find(handle) }
}

#[cold]
#[inline(never)]
fn find(handle: u64) -> u64 {
    let found = (0..16).filter_map(|probe| place(handle, probe)).find(|(h, _)| h.load(Ordering::Relaxed) == handle);
    found.map_or(0, |(_, key)| key.load(Ordering::Acquire))
}

fn place(handle: u64, probe: u64) -> Option<(&'static AtomicU64, &'static AtomicU64)> {
    let hash = handle.wrapping_mul(0x9e37_79b9_7f4a_7c15) >> 52;
    HANDLES.get((hash.wrapping_add(probe) & 4095) as usize).map(|(handle, key)| (handle, key))
}
