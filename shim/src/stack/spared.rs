//! Stacks that are taken although the budget leaves stacks out: so few that nobody notices, and as many as it takes to know what one
//! costs by now. The first ones of a program, which touch every library's tables, cost a hundred times what later ones do. Dear ones
//! are taken more rarely, so that they never take more than a tenth of the budget: no other detail goes for what is not left out.

use core::sync::atomic::{AtomicU64, Ordering};

use gputrace_abi::layout::Header;
use gputrace_abi::shed::Shed;

use super::rate;
use crate::thread::State;

/// One is taken when the one before lies so long ago at least.
const APART_US: u64 = 100_000;
/// They take no more than this part of the budget.
const PART: u64 = 10;
/// When that was, in ticks (0: none was since stacks are left out), and what all stacks had taken before it.
static TAKEN: AtomicU64 = AtomicU64::new(0);
static BEFORE: AtomicU64 = AtomicU64::new(0);

/// Whether the stack that is due now is left out for the budget, and counted as such.
pub(super) fn is_left_out(state: &State) -> bool {
    let header = state.header();
    let last = TAKEN.load(Ordering::Relaxed);
    if !Shed::of(header.shed.load(Ordering::Relaxed)).stacks {
        if last != 0 {
            TAKEN.store(0, Ordering::Relaxed);
        }
        return false;
    }
    let now = state.now();
    // What those took that were not left out says nothing of the next one.
    let is_due = last == 0 || now.wrapping_sub(last) >= rate::ticks(APART_US).max(rest(header));
    // Of threads that come at the same moment one takes its stack.
    if is_due && TAKEN.compare_exchange(last, now, Ordering::Relaxed, Ordering::Relaxed).is_ok() {
        BEFORE.store(header.stack_ticks.load(Ordering::Relaxed), Ordering::Relaxed);
        return false;
    }
    header.stacks_shed.fetch_add(1, Ordering::Relaxed);
    true
}

/// How long none is taken after the last one for what that took, in ticks.
fn rest(header: &Header) -> u64 {
    let took = header.stack_ticks.load(Ordering::Relaxed).saturating_sub(BEFORE.load(Ordering::Relaxed));
    pause(took, header.shed_ppm.load(Ordering::Relaxed).into())
}

/// For what took so long, under a budget of so many millionths.
fn pause(took: u64, ppm: u64) -> u64 {
    took.saturating_mul(PART * 1_000_000).checked_div(ppm).unwrap_or(0)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_stacks_take_that_are_not_left_out_is_a_tenth_of_the_budget_at_most() {
        for (took, ppm) in [(1_000, 10_000), (5_000_000, 10_000), (86_000, 500), (7, 1_000_000)] {
            assert_eq!(pause(took, ppm) as f64 * ppm as f64 / 1e6 / PART as f64, took as f64);
        }
        assert_eq!(pause(1_000, 0), 0, "nobody gave a budget");
        assert_eq!(pause(u64::MAX, 1), u64::MAX);
    }
}
