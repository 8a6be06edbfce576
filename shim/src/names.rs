//! Kernel names: each function's name is written once per process, when a loader call returns its handle.
//!
//! What was written is remembered in a small table of handles. They are reused after their module is unloaded, so
//! every unload empties the table; the collector keeps the history by time. Launches look into the table only once a
//! name could not be written or handles came by a way that gives no names: it costs them a cache line.

use core::ffi::{CStr, c_char};
use core::hint::cold_path;
use core::sync::atomic::{AtomicU64, Ordering};

use gputrace_abi::event::{past, text_kind};
use gputrace_abi::text::{FNV, fnv};

use crate::hooks::cuda::DriverCalls;
use crate::thread::State;
use crate::{attach, capture, devices, session, tls};

static KNOWN: [AtomicU64; 4096] = [const { AtomicU64::new(0) }; 4096];
/// What of the driver was reported as not covered, by hash.
static REPORTED: [AtomicU64; 1024] = [const { AtomicU64::new(0) }; 1024];

#[inline(always)]
fn place(function: u64) -> &'static AtomicU64 {
    let hash = (function >> 4) ^ (function >> 16);
    // The mask keeps the index inside; `get` with a fallback costs nothing and cannot panic.
    KNOWN.get(hash as usize & 4095).unwrap_or(&NOWHERE)
}

static NOWHERE: AtomicU64 = AtomicU64::new(0);

/// A function is being launched: writes its name if that has not been done.
#[inline(always)]
pub(crate) fn launched(function: u64) {
    if capture::names_wanted() && place(function).load(Ordering::Relaxed) != function {
        cold_path();
        // While a capture is open no driver call of ours is made; the next launch outside asks.
        if !capture::any() {
            // The program's cuInit was before us.
            if attach::is_attached() {
                devices::tell();
            }
            learn(function, DriverCalls::function_name);
        }
    }
}

/// A graph that was instantiated launches this function (or CUkernel): writes its name if that has not been done. For who
/// leaves captures of other threads alone, as the reader of graphs does.
pub(crate) fn in_graph(function: u64, is_kernel: bool) {
    if place(function).load(Ordering::Relaxed) != function {
        learn(function, if is_kernel { DriverCalls::kernel_name } else { DriverCalls::function_name });
    }
}

#[cold]
#[inline(never)]
fn learn(function: u64, ask: fn(u64) -> Option<*const c_char>) {
    if function == 0 {
        return;
    }
    let Some(state) = tls::get().filter(|s| s.row().is_some()) else { return };
    let name = ask(function);
    let written = match name {
        // SAFETY: the driver returned a C string that lives as long as the function.
        Some(name) => write(state, function, unsafe { CStr::from_ptr(name) }),
        None => true, // a driver older than 12.3: nothing more can be known
    };
    if written {
        place(function).store(function, Ordering::Relaxed);
    }
}

/// A loader call returned this function or kernel for this name.
pub(crate) fn loaded(function: u64, name: *const c_char) {
    if name.is_null() || function == 0 || place(function).load(Ordering::Relaxed) == function {
        return;
    }
    // SAFETY: the program passed it as a C string to a driver function that succeeded.
    let name = unsafe { CStr::from_ptr(name) };
    keep(function, tls::get().filter(|s| s.row().is_some()).is_some_and(|state| write(state, function, name)));
}

/// A loader call returned this function for a kernel whose name is known.
pub(crate) fn same_as(function: u64, kernel: u64) {
    if function == 0 || place(function).load(Ordering::Relaxed) == function {
        return;
    }
    let alias = |state: &State| state.write_text(text_kind::ALIAS, function, kernel, &[], session::now());
    keep(function, tls::get().filter(|s| s.row().is_some()).is_some_and(alias));
}

/// Remembers a function whose name was written; where it was not, launches look for it.
fn keep(function: u64, written: bool) {
    if written {
        place(function).store(function, Ordering::Relaxed);
    } else {
        capture::want_names();
    }
}

/// A module, library or context went away: its handles may come back as other functions.
pub(crate) fn unloaded() {
    for known in &KNOWN {
        known.store(0, Ordering::Relaxed);
    }
}

/// What of the driver is not covered is told of again.
pub(crate) fn report_again() {
    REPORTED.iter().for_each(|known| known.store(0, Ordering::Relaxed));
}

fn write(state: &State, function: u64, name: &CStr) -> bool {
    state.write_name(text_kind::FUNCTION, function, name.to_bytes(), session::now())
}

/// The program fetched a driver symbol that no hook covers.
pub(crate) fn uncovered(symbol: &CStr, version: i32, flags: u64) {
    if is_new(hash(symbol.to_bytes()))
        && let Some(state) = crate::thread::state_slow()
    {
        let number = (version as u64) << 32 | flags & 0xffff_ffff;
        state.write_text(text_kind::UNCOVERED, 0, number, symbol.to_bytes(), session::now());
    }
}

/// The program asked for a table of private functions; `result` says whether it got it.
pub(crate) fn export_table(id: &[u8; 16], result: u32) {
    if is_new(hash(id))
        && let Some(state) = crate::thread::state_slow()
    {
        state.write_text(text_kind::EXPORT_TABLE, 0, u64::from(result), id, session::now());
    }
}

/// The program opens a library so that its own calls may go past our symbols; `how` is one of [`past`].
pub(crate) fn opened_past(library: &CStr, how: u64) {
    let name = library.to_bytes();
    let end = name.get(name.len().saturating_sub(past::NAME_BYTES)..).unwrap_or(name);
    if !end.is_empty()
        && is_new(hash(end).wrapping_add(how))
        && let Some(state) = crate::thread::state_slow()
    {
        state.write_text(text_kind::PAST, 0, how, end, session::now());
    }
}

/// Whether nothing with this hash was reported before. False when the table is full of others.
fn is_new(hash: u64) -> bool {
    let hash = hash | 1;
    for probe in 0..16u64 {
        let Some(place) = REPORTED.get((hash.wrapping_add(probe) & 1023) as usize) else { return false };
        match place.compare_exchange(0, hash, Ordering::Relaxed, Ordering::Relaxed) {
            Ok(_) => return true,
            Err(known) if known == hash => return false,
            Err(_) => {}
        }
    }
    false
}

/// The hash of a text.
pub(crate) const fn hash(bytes: &[u8]) -> u64 {
    fnv(FNV, bytes)
}
