//! Stacks that are taken although the budget leaves stacks out: so few that nobody notices, and as many as it takes to know what one
//! costs by now. The first ones of a program, which touch every library's tables, cost a hundred times what later ones do.

use core::sync::atomic::{AtomicU64, Ordering};

use gputrace_abi::shed::Shed;

use super::rate;
use crate::thread::State;

/// One is taken when the one before lies so long ago.
const APART_US: u64 = 100_000;
/// When that was, in ticks.
static TAKEN: AtomicU64 = AtomicU64::new(0);

/// Whether the stack that is due now is left out for the budget, and counted as such.
pub(super) fn is_left_out(state: &State) -> bool {
    let header = state.header();
    if !Shed::of(header.shed.load(Ordering::Relaxed)).stacks {
        return false;
    }
    let (last, now) = (TAKEN.load(Ordering::Relaxed), state.now());
    let is_due = now.wrapping_sub(last) >= rate::ticks(APART_US);
    // Of threads that come at the same moment one takes its stack.
    if is_due && TAKEN.compare_exchange(last, now, Ordering::Relaxed, Ordering::Relaxed).is_ok() {
        return false;
    }
    header.stacks_shed.fetch_add(1, Ordering::Relaxed);
    true
}
