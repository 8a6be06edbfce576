//! Where the driver's own functions are, and which hook belongs to an address.
//!
//! The driver is one library copy. Its functions are found once, by the copy's own symbol table, and kept with their
//! hooks; every pointer that a program gets from dlsym or cuGetProcAddress is looked up *by address*. An unknown
//! address passes through and is reported.

use core::ffi::CStr;
use core::sync::atomic::{AtomicBool, AtomicU32, AtomicU64, Ordering};

use gputrace_abi::layout::note;

use super::{elf, inline, lookup};
use crate::hooks::{self, Hook};
use crate::{calibrate, session, wait};

pub(super) const DRIVER: &CStr = c"libcuda.so.1";

/// 1: every hook's original was looked for in the driver.
static BOUND: AtomicU32 = AtomicU32::new(0);

/// Hooks by the address of their original and of their wrapper: open addressing, number + 1 above the 48 address bits.
static ADDRESSES: [AtomicU64; 4096] = [const { AtomicU64::new(0) }; 4096];
const ADDRESS_BITS: u32 = 48;

/// Whether the process has reached the driver.
pub(crate) fn is_known() -> bool {
    BOUND.load(Ordering::Relaxed) != 0
}

/// The driver may have been opened: whether it is here is looked at when the process ends.
static OPENED: AtomicBool = AtomicBool::new(false);

/// Notes that the driver may be loaded from now on.
pub(crate) fn may_be_here() {
    OPENED.store(true, Ordering::Relaxed);
}

/// The same for what the program was started with. For the constructor.
pub(crate) fn look_at_start() {
    OPENED.store(elf::library(DRIVER).is_some(), Ordering::Relaxed);
}

/// The process ends: a driver that is here though no hook was reached was called in some other way, if it was.
extern "C" fn look_at_end() {
    if OPENED.load(Ordering::Relaxed)
        && BOUND.load(Ordering::Relaxed) == 0
        && inline::driver().is_none()
        && let Some(view) = session::present()
        && elf::library(DRIVER).is_some()
    {
        view.header().notes.fetch_or(note::DRIVER_HERE, Ordering::Relaxed);
    }
}

#[used]
#[unsafe(link_section = ".fini_array")]
static AT_END: extern "C" fn() = look_at_end;

/// The original of a hook; 0 where there is no driver in this process.
pub(crate) fn original(number: u16) -> usize {
    if BOUND.load(Ordering::Acquire) == 0 {
        bind(None);
    }
    hooks::original(number).load(Ordering::Relaxed)
}

/// A hook that was called by its exported symbol before anybody looked the driver up.
#[cold]
#[inline(never)]
pub(crate) fn late(number: u16) -> usize {
    original(number)
}

/// What to answer for the driver's function at `real`, which was looked up by its name in the library of `handle`.
pub(super) fn wrapper_for(real: usize, hook: &'static Hook, number: u16, handle: usize, route: u32) -> usize {
    if BOUND.load(Ordering::Acquire) == 0 {
        bind(Some(handle));
    }
    match hook_at(real) {
        Some((found, number)) => {
            note_route(number, route);
            found.wrapper as usize
        }
        // Another library's function of that name: a second copy of the driver, or a wrapper of somebody else.
        None => {
            if hooks::original(number).load(Ordering::Relaxed) == 0 {
                adopt(hook, number, real);
                note_route(number, route);
                return hook.wrapper as usize;
            }
            if let Some(view) = session::present() {
                view.header().notes.fetch_or(note::SECOND_DRIVER, Ordering::Relaxed);
            }
            real
        }
    }
}

/// The hook whose original or wrapper stands at this address.
pub(super) fn hook_at(address: usize) -> Option<(&'static Hook, u16)> {
    for probe in 0..ADDRESSES.len() {
        let entry = ADDRESSES.get(slot(address, probe))?.load(Ordering::Acquire);
        if entry == 0 {
            return None;
        }
        if entry & ((1 << ADDRESS_BITS) - 1) == address as u64 {
            let number = (entry >> ADDRESS_BITS) as u16 - 1;
            return hooks::by_number(number).map(|hook| (hook, number));
        }
    }
    None
}

fn slot(address: usize, probe: usize) -> usize {
    (address >> 4).wrapping_add(probe) & (ADDRESSES.len() - 1)
}

/// Whether the loaded driver has a function of this name.
pub(super) fn has(name: &CStr) -> bool {
    // SAFETY: the caller is looking something up in it, and the driver is pinned once one of its functions was.
    elf::library(DRIVER).is_some_and(|library| unsafe { library.find(name, false) } != 0)
}

/// Notes how the program came to a hook.
pub(crate) fn note_route(number: u16, route: u32) {
    if let Some(view) = session::present()
        && let Some(row) = view.hook(usize::from(number))
    {
        row.add_route(route);
    }
}

fn adopt(hook: &Hook, number: u16, real: usize) {
    hooks::original(number).store(inline::original(real), Ordering::Release);
    insert(real, number);
    insert(hook.wrapper as usize, number);
}

fn insert(address: usize, number: u16) {
    let entry = address as u64 | u64::from(number + 1) << ADDRESS_BITS;
    for probe in 0..ADDRESSES.len() {
        let Some(place) = ADDRESSES.get(slot(address, probe)) else { return };
        match place.compare_exchange(0, entry, Ordering::AcqRel, Ordering::Acquire) {
            Ok(_) => return,
            Err(known) if known == entry => return,
            Err(_) => {}
        }
    }
}

/// The driver was found, and no reference on it was taken yet.
static UNPINNED: AtomicBool = AtomicBool::new(false);

/// Takes the reference on the driver, if one is to be taken. The program is about to open or to close a library.
pub(super) fn pin() {
    if UNPINNED.swap(false, Ordering::AcqRel) {
        inline::pin();
    }
}

/// Finds the originals in the driver that was patched, and takes a reference on it: for a thread that may take the loader's lock.
pub(crate) fn bind_patched() {
    if BOUND.load(Ordering::Acquire) == 0 && inline::driver().is_some() {
        bind(None);
    }
    pin();
}

/// Finds all originals: in the driver that was patched, in the loaded one, behind other preloaded interposers, or in the library of `handle` (a copy
/// in another link namespace, which our search does not see).
///
/// No lock: threads that come at the same time do the same work and store the same values.
#[cold]
fn bind(handle: Option<usize>) {
    let patched = inline::driver().is_some();
    let loaded = || if patched { inline::driver() } else { elf::library(DRIVER) };
    let here = loaded();
    // Whoever calls the driver holds it. A reference of our own is taken when somebody opens or closes a library next, in
    // the loader's lock anyway: a first call may come while another thread holds that lock and waits for this one.
    UNPINNED.store(here.is_some(), Ordering::Release);
    let find = |name: &CStr| match (&here, handle) {
        // SAFETY: the library was found loaded, and whoever calls into it holds it.
        (Some(library), _) => unsafe { library.find(name, false) },
        (None, Some(handle)) => lookup::real_dlsym(handle, name),
        (None, None) => 0,
    };
    let init = find(c"cuInit");
    if init == 0 {
        return;
    }
    if here.is_none() {
        // Opened by a path of its own: it must not go away either, with its functions' addresses known.
        let file = elf::file_of(init);
        lookup::pin(CStr::from_bytes_until_nul(&file).unwrap_or(c""));
    }
    let others = here.is_some() && hooks::others_preloaded();
    // The newest version of a name comes last in the lists, and first here.
    for (hook, number) in hooks::driver().rev() {
        let wrapper = hook.wrapper as usize;
        let real = find(hook.name);
        if patched && real != 0 {
            inline::remember(number, real);
            // No chain: whoever stands between would call the function, which is the hook again.
            if inline::is_patched(real) {
                adopt(hook, number, real);
                continue;
            }
        }
        let chained = match others {
            true => match lookup::real_dlsym(usize::MAX, hook.name) {
                // An interposer that answers with its own function by name got ours, which comes first in search order.
                ours if ours == wrapper => elf::next_definition(hook.name),
                // One that answers an old name with its function of the newest version means that version only.
                theirs if hook_at(theirs).is_some() => 0,
                theirs => theirs,
            },
            false => 0,
        };
        let candidates = [chained, real];
        if let Some(real) = candidates.into_iter().find(|real| *real != 0 && *real != wrapper) {
            adopt(hook, number, real);
        }
    }
    hooks::cuda::DriverCalls::bind(|name| inline::original(find(name)));
    BOUND.store(1, Ordering::Release);
    if let Some(view) = session::present() {
        for (_, number) in hooks::driver().filter(|_| patched) {
            view.hook(usize::from(number)).into_iter().for_each(|row| inline::tell(row, number));
        }
        if inline::is_missing() {
            view.header().notes.fetch_or(note::NOT_INLINE, Ordering::Relaxed);
        }
    }
    calibrate::with_driver();
    wait::arm();
}
