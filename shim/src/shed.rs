//! What may be left out of the recording to keep to `--budget`, which the collector decides ([`gputrace_abi::shed`]).

use core::sync::atomic::{AtomicU32, Ordering};

use gputrace_abi::layout::{Header, malloc_mode};
use gputrace_abi::shed::may;

use crate::{sampling, session, stack, sys};

/// What recording may cost, in millionths of the wall time; 0: nobody said. The constructor's.
static PPM: AtomicU32 = AtomicU32::new(0);

/// Reads what the launcher asked for. For the constructor.
pub(crate) fn configure() {
    if sys::variable(b"GPUTRACE_SHED") == Some(b"on") {
        let ppm = sys::variable(b"GPUTRACE_BUDGET").and_then(session::number).unwrap_or(0);
        PPM.store(ppm.min(1_000_000) as u32, Ordering::Relaxed);
    }
}

/// Writes into a segment's header what the budget is, and what could be left out for it.
/// `launches`: they may be; `gpu_times`: there are any that keep to a budget.
pub(crate) fn tell(header: &Header, launches: bool, gpu_times: bool) {
    let stacks = if stack::is_on() || stack::wants_allocations() { may::STACKS } else { 0 };
    header.shed_ppm.store(PPM.load(Ordering::Relaxed), Ordering::Relaxed);
    let malloc = if sampling::mode() == malloc_mode::SAMPLE { may::MALLOC } else { 0 };
    let launches = if launches { may::LAUNCHES } else { 0 };
    let gpu_times = if gpu_times { may::GPU_TIMES } else { 0 };
    header.may_shed.store(stacks | malloc | launches | gpu_times, Ordering::Relaxed);
}
