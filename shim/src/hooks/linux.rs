//! The lists of Linux together: numbers, classes, originals, the segment's hook table.

use core::sync::atomic::{AtomicBool, AtomicUsize, Ordering};

use gputrace_abi::Class;
use gputrace_abi::layout::{HOOKS_MAX, View, hook_flag};

use super::{alloc, cuda, nccl, nvtx, os};
use crate::interpose::inline;
use crate::sys;

pub(crate) use super::line::hooks;
pub(crate) use super::table::{by_name, by_number, driver};

/// Number of the first allocation function.
pub(super) const FIRST_OF_ALLOC: u16 = cuda::END;

/// The function that each hook calls on, by number; 0 while it is not known. Eight to a cache line: a call reads one
/// word of it, everything else about its hook is known when it is compiled.
pub(crate) static ORIGINALS: [AtomicUsize; HOOKS_MAX] = [const { AtomicUsize::new(0) }; HOOKS_MAX];

const _: () = assert!(os::FIRST as usize + os::LIST.len() <= HOOKS_MAX);

/// The original of the hook with this number.
#[inline(always)]
pub(crate) fn original(number: u16) -> &'static AtomicUsize {
    ORIGINALS.get(usize::from(number)).unwrap_or(&NONE)
}

static NONE: AtomicUsize = AtomicUsize::new(0);

/// The class of a hook's events.
pub(crate) fn class_of(number: u16) -> Class {
    if let Some(function) = number.checked_sub(nccl::FIRST) {
        return nccl::LIST.get(usize::from(function)).map_or(Class::Api, |function| function.hook.class);
    }
    match number.checked_sub(alloc::FIRST) {
        Some(n) => alloc::LIST.get(usize::from(n)).map_or(Class::Api, |a| a.class),
        None => by_number(number).map_or(Class::Api, |hook| hook.class),
    }
}

/// Writes the segment's hook table; returns the number of rows. Numbers of allocation functions come after the driver's.
pub(crate) fn describe(view: &View) -> u32 {
    for (hook, number) in driver() {
        if let Some(row) = view.hook(usize::from(number)) {
            let flags = if hook.counted { hook_flag::COUNTED } else { 0 };
            row.write(hook.name.to_bytes(), hook.class, hook.detail, flags);
            inline::tell(row, number);
        }
    }
    for (number, function) in (alloc::FIRST..).zip(&alloc::LIST) {
        if let Some(row) = view.hook(usize::from(number)) {
            row.write(function.name.as_bytes(), function.class, function.detail, 0);
        }
    }
    for (n, callback) in nvtx::EVENTS.iter().enumerate() {
        if let Some(row) = view.hook(usize::from(nvtx::BASE) + n) {
            row.write(callback.name.as_bytes(), Class::Range, callback.detail, 0);
        }
    }
    for (number, function) in (nccl::FIRST..).zip(&nccl::LIST) {
        if let Some(row) = view.hook(usize::from(number)) {
            row.write(function.hook.name.to_bytes(), function.hook.class, function.hook.detail, 0);
        }
    }
    for (n, function) in os::LIST.iter().enumerate() {
        if let Some(row) = view.hook(usize::from(os::FIRST) + n) {
            row.write(function.name.to_bytes(), Class::OsWait, function.detail, 0);
        }
    }
    u32::from(os::FIRST) + os::LIST.len() as u32
}

static OTHERS_PRELOADED: AtomicBool = AtomicBool::new(false);

/// Whether other libraries are preloaded: they may export the same functions and are chained to.
pub(crate) fn others_preloaded() -> bool {
    OTHERS_PRELOADED.load(Ordering::Relaxed)
}

/// Reads the list of preloaded libraries. For the constructor.
pub(crate) fn remember_preloads() {
    let list = sys::variable(b"LD_PRELOAD").unwrap_or(b"");
    let several = list.iter().any(|b| *b == b':' || *b == b' ');
    OTHERS_PRELOADED.store(several || sys::exists(c"/etc/ld.so.preload"), Ordering::Relaxed);
}
