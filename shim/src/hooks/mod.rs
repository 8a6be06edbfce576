//! The lists: one line per hooked function, one file per theme. Everything else derives from them.
//!
//! A line names its function (and the variants that share its signature), its arguments with the driver's own types,
//! and what goes into the event's four payload words ([`gputrace_abi::Class`] says what they mean). The macro
//! ([`line`]) makes the exported symbol, the wrapper, the row for dlsym and cuGetProcAddress and the row of the
//! segment's hook table. A function that only questions something, or sets a word, is *counted*: two reads of the clock
//! would take longer than it does.

use core::ffi::CStr;
use core::sync::atomic::{AtomicBool, AtomicUsize, Ordering};

use gputrace_abi::Class;
use gputrace_abi::event::memory_flags;
use gputrace_abi::layout::{HOOKS_MAX, View, hook_flag};

use crate::interpose::inline;
use crate::sys;

pub(crate) mod alloc;
pub(crate) mod cuda;
mod line;
pub(crate) mod nccl;
pub(crate) mod nvtx;
pub(crate) mod os;
mod table;

pub(crate) use line::hooks;
pub(crate) use table::{by_name, by_number, driver};

/// One hooked function.
#[derive(Clone, Copy)]
pub(crate) struct Hook {
    /// The exported name.
    pub(crate) name: &'static CStr,
    /// What it is about.
    pub(crate) class: Class,
    /// One of [`gputrace_abi::event::detail`].
    pub(crate) detail: u8,
    /// Stream 0 means the thread's own stream.
    pub(crate) per_thread: bool,
    /// Flags of each of its events: the kinds of memory of a copy.
    pub(crate) flags: u16,
    /// Its calls are counted and leave no events.
    pub(crate) counted: bool,
    /// Our function.
    pub(crate) wrapper: *const (),
}

// SAFETY: the only pointer is the address of a function.
unsafe impl Sync for Hook {}

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

impl Hook {
    pub(crate) const fn new(name: &'static CStr, class: Class, detail: u8, counted: bool, wrapper: *const ()) -> Hook {
        let per_thread = find(name, b"_ptsz") || find(name, b"_ptds");
        let flags = if matches!(class, Class::Transfer) { memory_kinds(name) } else { 0 };
        Hook { name, class, detail, per_thread, flags, counted, wrapper }
    }
}

/// The kinds of memory that a copy's or set's name states.
#[allow(clippy::indexing_slicing)] // evaluated at compile time only
const fn memory_kinds(name: &CStr) -> u16 {
    use gputrace_abi::event::MemoryKind::{Array, Device, Host, Unknown};
    let kinds = [(b'H', Host), (b'D', Device), (b'A', Array)];
    let (mut i, mut j) = (0, 0);
    while i < 9 {
        let ((from, source), (to, destination)) = (kinds[i / 3], kinds[j]);
        if find(name, &[from, b't', b'o', to]) {
            return memory_flags(source, destination);
        }
        i += 1;
        j = i % 3;
    }
    if find(name, b"Memset") {
        return memory_flags(Unknown, Device);
    }
    if find(name, b"MemcpyPeer") { memory_flags(Device, Device) } else { 0 }
}

/// Whether the part stands in the name.
#[allow(clippy::indexing_slicing)] // evaluated at compile time only
const fn find(name: &CStr, part: &[u8]) -> bool {
    let name = name.to_bytes();
    let mut at = 0;
    while at + part.len() <= name.len() {
        let mut i = 0;
        while i < part.len() && name[at + i] == part[i] {
            i += 1;
        }
        if i == part.len() {
            return true;
        }
        at += 1;
    }
    false
}

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
