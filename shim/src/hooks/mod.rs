//! The lists: one line per hooked function, one file per theme. Everything else derives from them.
//!
//! A line names its function (and the variants that share its signature), its arguments with the driver's own types,
//! and what goes into the event's four payload words ([`gputrace_abi::Class`] says what they mean). The macro makes
//! the exported symbol, the wrapper, the row for dlsym and cuGetProcAddress and the row of the segment's hook table.

use core::ffi::CStr;
use core::sync::atomic::{AtomicBool, AtomicUsize, Ordering};

use gputrace_abi::Class;
use gputrace_abi::event::memory_flags;
use gputrace_abi::layout::View;

use crate::interpose::procaddr;
use crate::sys;

pub(crate) mod alloc;
pub(crate) mod cuda;
pub(crate) mod nccl;
pub(crate) mod nvtx;

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
    /// Our function.
    pub(crate) wrapper: *const (),
}

// SAFETY: the only pointer is the address of a function.
unsafe impl Sync for Hook {}

/// The function that each hook calls on, by number; 0 while it is not known. Eight to a cache line: a call reads one
/// word of it, everything else about its hook is known when it is compiled.
static ORIGINALS: [AtomicUsize; 512] = [const { AtomicUsize::new(0) }; 512];

const _: () = assert!((cuda::END as usize) < 512);

/// The original of the hook with this number.
#[inline(always)]
pub(crate) fn original(number: u16) -> &'static AtomicUsize {
    ORIGINALS.get(usize::from(number)).unwrap_or(&NONE)
}

static NONE: AtomicUsize = AtomicUsize::new(0);

impl Hook {
    pub(crate) const fn new(name: &'static CStr, class: Class, detail: u8, wrapper: *const ()) -> Hook {
        let per_thread = find(name, b"_ptsz") || find(name, b"_ptds");
        let flags = if matches!(class, Class::Transfer) { memory_kinds(name) } else { 0 };
        Hook { name, class, detail, per_thread, flags, wrapper }
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

/// A list of hooked driver functions. See the module's documentation; `base` is the number of the first.
macro_rules! hooks {
    (
        base: $base:expr;
        $( $class:ident $detail:ident : [$($name:ident),+ $(,)?] $arguments:tt => $payload:expr; )*
    ) => {
        #[allow(non_camel_case_types, clippy::enum_variant_names)]
        #[derive(Clone, Copy)]
        enum Index { $($($name,)+)* }

        /// The hooks of this file.
        pub(crate) const LIST: [$crate::hooks::Hook; COUNT as usize] = [
            $($($crate::hooks::Hook::new(
                match core::ffi::CStr::from_bytes_with_nul(concat!(stringify!($name), "\0").as_bytes()) {
                    Ok(name) => name,
                    Err(_) => c"",
                },
                gputrace_abi::Class::$class,
                gputrace_abi::event::detail::$detail,
                $name as *const (),
            ),)+)*
        ];

        /// How many there are.
        pub(crate) const COUNT: u16 = [$($(stringify!($name),)+)*].len() as u16;

        $($($crate::hooks::hooks!(@one $base, $name, $arguments, $payload);)+)*
    };
    (@one $base:expr, $name:ident, ($($argument:ident : $type:ty),* $(,)?), $payload:expr) => {
        /// The hook of the driver's function of this name.
        #[unsafe(no_mangle)]
        pub unsafe extern "C" fn $name($($argument: $type),*) -> u32 {
            const NUMBER: u16 = $base + Index::$name as u16;
            #[allow(clippy::indexing_slicing)] // a constant index inside the list
            const HOOK: $crate::hooks::Hook = LIST[Index::$name as usize];
            $crate::record::call(
                HOOK,
                NUMBER,
                |address| {
                    // SAFETY: the address is that of the driver's function of this name, whose signature this is.
                    let f: unsafe extern "C" fn($($type),*) -> u32 = unsafe { core::mem::transmute(address) };
                    // SAFETY: the program's own arguments, passed on.
                    unsafe { f($($argument),*) }
                },
                $payload,
            )
        }
    };
}
pub(crate) use hooks;

/// Every list of driver functions with the number of its first hook.
fn driver_lists() -> [(&'static [Hook], u16); 7] {
    static LAUNCH: [Hook; cuda::launch::COUNT as usize] = cuda::launch::LIST;
    static SYNC: [Hook; cuda::sync::COUNT as usize] = cuda::sync::LIST;
    static COPY: [Hook; cuda::copy::COUNT as usize] = cuda::copy::LIST;
    static MEMORY: [Hook; cuda::memory::COUNT as usize] = cuda::memory::LIST;
    static MODULE: [Hook; cuda::module::COUNT as usize] = cuda::module::LIST;
    static OTHER: [Hook; cuda::other::COUNT as usize] = cuda::other::LIST;
    static PROC_ADDRESS: [Hook; 2] = procaddr::LIST;
    [
        (&LAUNCH, cuda::LAUNCH),
        (&SYNC, cuda::SYNC),
        (&COPY, cuda::COPY),
        (&MEMORY, cuda::MEMORY),
        (&MODULE, cuda::MODULE),
        (&OTHER, cuda::OTHER),
        (&PROC_ADDRESS, cuda::PROC_ADDRESS),
    ]
}

/// The hook with this number. Numbers of allocation functions come after the driver's.
pub(crate) fn by_number(number: u16) -> Option<&'static Hook> {
    driver_lists().into_iter().find_map(|(list, base)| list.get(usize::from(number.checked_sub(base)?)))
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

/// The driver hook with this name, for dlsym and dlvsym.
pub(crate) fn driver_hook(name: &CStr) -> Option<(&'static Hook, u16)> {
    driver_lists().into_iter().find_map(|(list, base)| {
        let at = list.iter().position(|hook| hook.name == name)?;
        Some((list.get(at)?, base + at as u16))
    })
}

/// Visits every driver hook with its number.
pub(crate) fn for_each_driver_hook(mut visit: impl FnMut(&'static Hook, u16)) {
    for (list, base) in driver_lists() {
        for (n, hook) in list.iter().enumerate() {
            visit(hook, base + n as u16);
        }
    }
}

/// Writes the segment's hook table; returns the number of rows.
pub(crate) fn describe(view: &View) -> u32 {
    for_each_driver_hook(|hook, number| {
        if let Some(row) = view.hook(usize::from(number)) {
            row.write(hook.name.to_str().unwrap_or(""), hook.class, hook.detail);
        }
    });
    for (number, function) in (alloc::FIRST..).zip(&alloc::LIST) {
        if let Some(row) = view.hook(usize::from(number)) {
            row.write(function.name, function.class, function.detail);
        }
    }
    for (n, callback) in nvtx::EVENTS.iter().enumerate() {
        if let Some(row) = view.hook(usize::from(nvtx::BASE) + n) {
            row.write(callback.name, Class::Range, callback.detail);
        }
    }
    for (number, function) in (nccl::FIRST..).zip(&nccl::LIST) {
        if let Some(row) = view.hook(usize::from(number)) {
            row.write(function.hook.name.to_str().unwrap_or(""), function.hook.class, function.hook.detail);
        }
    }
    u32::from(nccl::FIRST) + nccl::COUNT as u32
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
