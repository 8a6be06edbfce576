//! A stand-in for CUPTI: `libcupti.so.13` beside the simulated driver, with activity records that tell what that did.
//!
//! It learns through the driver's `fakeCudaObserve` which calls give the device work and what the device then does
//! (`observer.rs`), makes records of it in the layout of the chosen version (`record.rs`, `layout.rs`) and hands them over
//! in the buffers of whoever registered last (`delivery.rs`). `config.rs` lists the environment variables that choose the
//! version, the clock and the faults; `truth.rs` tells what was called.
//!
//! What was seen of the vendor's library and holds here:
//! - Correlation ids count the calls that give the device work, from 1, one number for all threads, while any kind is
//!   enabled; captured and zero-byte calls count and have no record. After cuptiFinalize they begin anew.
//! - The driver serves one copy of the library: once one was used another gets error 39, cuptiFinalize or not.
//! - Graphs that were launched between the first enable and cuptiFinalize while nothing was enabled break with it: error 719
//!   from then on. (There those that run at that moment do too.)
//! - Once waits (SYNCHRONIZATION) were enabled, calls that wait and records of events are counted among the others, until
//!   cuptiFinalize.
//! - Overhead tells of buffers that were asked for and of flushes; a full queue has details that the client frees. Managed memory
//!   (UNIFIED_MEMORY_COUNTER) is told of once it was configured; of faults of the processor the end means nothing.
//! - Callbacks are the process's: the second registration replaces the first, gets what was not yet delivered, and the
//!   first gets nothing more, not even the buffer that it had given. What is enabled is the process's too.
//! - A buffer is asked for in a call of the program's that needs one, and completed in a thread of the library's when it is
//!   full, and in the thread that flushes.
//! - A record is made when its call was made while its kind was enabled, and is delivered once the operation has ended.
//!
//! Deliberately absent: API records, external correlation, counters, and what the callbacks of a subscriber would be
//! called for; a kind that makes no records here can be enabled and makes none.
#![allow(
    clippy::undocumented_unsafe_blocks,
    reason = "nearly every function gets C pointers; that they are right is what CUPTI's interface asks of its caller"
)]

mod activity;
mod beside;
mod callbacks;
mod clock;
mod config;
mod delivery;
mod layout;
#[path = "../../cuda/src/observed.rs"]
mod observed;
mod observer;
mod record;
mod truth;

/// CUptiResult.
mod codes {
    pub(crate) const SUCCESS: u32 = 0;
    pub(crate) const INVALID_PARAMETER: u32 = 1;
    pub(crate) const INVALID_OPERATION: u32 = 7;
    pub(crate) const MAX_LIMIT_REACHED: u32 = 12;
    pub(crate) const NOT_INITIALIZED: u32 = 15;
    pub(crate) const INVALID_KIND: u32 = 21;
    pub(crate) const NOT_SUPPORTED: u32 = 24;
    pub(crate) const MULTIPLE_SUBSCRIBERS_NOT_SUPPORTED: u32 = 39;
}

/// CUpti_ActivityKind.
mod kinds {
    pub(crate) const MEMCPY: u32 = 1;
    pub(crate) const MEMSET: u32 = 2;
    pub(crate) const KERNEL: u32 = 3;
    pub(crate) const CONCURRENT_KERNEL: u32 = 10;
    pub(crate) const OVERHEAD: u32 = 17;
    /// Between two devices.
    pub(crate) const MEMCPY2: u32 = 22;
    pub(crate) const UNIFIED_MEMORY_COUNTER: u32 = 25;
    pub(crate) const SYNCHRONIZATION: u32 = 38;
    pub(crate) const GRAPH_TRACE: u32 = 51;
    pub(crate) const LAST: u32 = 54;
}

/// The C functions of the interface: each call is told to `truth.rs`, and fails when FAKE_CUPTI_FAIL says so.
/// `fn NAME(args) [what the truth says of it] { body }`: the body returns a CUptiResult.
macro_rules! functions {
    ($(fn $name:ident($($arg:ident : $ty:ty),* $(,)?) [$told:expr] $body:block)*) => {$(
        #[allow(non_snake_case, clippy::missing_safety_doc)]
        #[unsafe(no_mangle)]
        unsafe extern "C" fn $name($($arg: $ty),*) -> u32 {
            let call = $crate::truth::call(stringify!($name), $told as u64);
            let result = match $crate::config::failure(stringify!($name)) {
                Some(result) => result,
                #[allow(unused_unsafe, clippy::redundant_closure_call)]
                None => (|| unsafe { $body })(),
            };
            call.ended(result);
            result
        }
    )*};
}

pub(crate) use functions;
