//! How a line of a function list becomes an exported function, its per-thread variant, its counter and its row in
//! the table that `cuGetProcAddress` answers from.
//!
//! The rows hold the address of the *exported* symbol. The default library is not linked `-Bsymbolic`, so the dynamic
//! loader fills those rows with the first definition in the process: an interposer's own hook comes back from
//! `cuGetProcAddress`, as it does from any C library linked that way. The variant in `tests/fakes/cuda-symbolic`
//! binds them to itself, as the vendor's driver does.

use std::cell::Cell;
use std::sync::atomic::{AtomicU32, AtomicU64, Ordering::Relaxed};

/// A CUresult that is not success.
pub(crate) type Code = u32;
pub(crate) type R<T = ()> = Result<T, Code>;

/// The counter of one exported function, and the call at which it is told to fail.
pub(crate) struct Calls {
    pub(crate) count: AtomicU64,
    pub(crate) fail_at: AtomicU64,
    pub(crate) fail_with: AtomicU32,
}

impl Calls {
    pub(crate) const fn new() -> Calls {
        Calls { count: AtomicU64::new(0), fail_at: AtomicU64::new(u64::MAX), fail_with: AtomicU32::new(0) }
    }
}

/// One exported symbol.
pub(crate) struct Entry {
    pub(crate) symbol: &'static str,
    /// The name that `cuGetProcAddress` knows it by.
    pub(crate) base: &'static str,
    /// The first CUDA version that had it.
    pub(crate) since: u32,
    /// Uses the per-thread default stream.
    pub(crate) per_thread: bool,
    pub(crate) address: Address,
    pub(crate) calls: &'static Calls,
}

/// The address of an exported function, kept as a pointer so that the loader relocates it.
pub(crate) struct Address(pub(crate) *const ());

// SAFETY: the address of code is the same for every thread.
unsafe impl Sync for Address {}

/// Which stream "0" means in the called variant.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(crate) enum Default {
    Legacy,
    PerThread,
}

thread_local! {
    /// The stack address of the thread's outermost driver call; 0 outside the driver. An address below the stack
    /// pointer was left behind by a siglongjmp or a cancellation and counts as none.
    static OUTER: Cell<usize> = const { Cell::new(0) };
}

/// Marks the calling thread as inside the driver.
pub(crate) struct Call(bool);

impl Call {
    /// Counts an outermost call; fails when this call was chosen to.
    #[inline]
    pub(crate) fn enter(calls: &'static Calls, symbol: &'static str) -> R<Call> {
        let here = 0u8;
        let here = &raw const here as usize;
        let outer = OUTER.get();
        if outer > here {
            return Ok(Call(false));
        }
        OUTER.set(here);
        let nth = calls.count.fetch_add(1, Relaxed) + 1;
        if nth == calls.fail_at.load(Relaxed) {
            OUTER.set(0);
            return Err(crate::config::injected(calls, symbol));
        }
        Ok(Call(true))
    }
}

impl Drop for Call {
    #[inline]
    fn drop(&mut self) {
        if self.0 {
            OUTER.set(0);
        }
    }
}

/// `fn NAME(args) = "base name" SINCE [+ "variant symbol" SINCE] |default| { body }`: the body returns `R`.
macro_rules! driver {
    ($(
        fn $name:ident $args:tt = $base:literal $since:literal $(+ $variant:literal $vsince:literal)? |$d:pat_param| $body:block
    )*) => {
        pub(crate) static TABLE: &[&[$crate::table::Entry]] = &[$({
            $crate::table::body!($args, $d, $body);
            &[
                $crate::table::exported!(unsafe(no_mangle), $name, stringify!($name), $base, $since, Legacy, $args),
                $($crate::table::exported!(unsafe(export_name = $variant), variant, $variant, $base, $vsince, PerThread, $args),)?
            ]
        }),*];
    };
}

/// The function that an exported symbol and its per-thread variant share.
macro_rules! body {
    (($($arg:ident : $ty:ty),* $(,)?), $d:pat_param, $body:block) => {
        #[allow(unused_unsafe, clippy::too_many_arguments)]
        #[inline]
        fn body($d: $crate::table::Default, $($arg: $ty),*) -> $crate::table::R {
            unsafe { $body }
        }
    };
}

/// One exported symbol and its row.
macro_rules! exported {
    ($export:meta, $name:ident, $symbol:expr, $base:literal, $since:literal, $d:ident,
     ($($arg:ident : $ty:ty),* $(,)?)) => {{
        static CALLS: $crate::table::Calls = $crate::table::Calls::new();
        #[allow(non_snake_case, clippy::too_many_arguments)]
        #[$export]
        extern "C" fn $name($($arg: $ty),*) -> u32 {
            match $crate::table::Call::enter(&CALLS, $symbol) {
                Ok(_call) => body($crate::table::Default::$d, $($arg),*).err().unwrap_or(0),
                Err(code) => code,
            }
        }
        $crate::table::Entry {
            symbol: $symbol,
            base: $base,
            since: $since,
            per_thread: matches!($crate::table::Default::$d, $crate::table::Default::PerThread),
            address: $crate::table::Address($name as *const ()),
            calls: &CALLS,
        }
    }};
}

pub(crate) use {body, driver, exported};

/// Every exported function.
pub(crate) fn entries() -> impl Iterator<Item = &'static Entry> {
    crate::LISTS.iter().copied().flatten().copied().flatten()
}
