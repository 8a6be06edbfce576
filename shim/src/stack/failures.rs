//! Which calls that failed get a stack, however short they were: the first of each result, and of the others as many as nobody
//! notices. Programs ask for what is not there, and catch the error, a thousand times a second.

use core::sync::atomic::{AtomicU64, Ordering};

use gputrace_abi::Class;

use super::known::{Known, last_since, mix};
use super::rate;

/// CUDA_ERROR_NOT_READY, the answer to a query.
const NOT_READY: u32 = 600;
/// ncclInProgress: the call goes on in the background.
const IN_PROGRESS: u32 = 7;
/// Beside the first of its result a failed call gets a stack when the one before lies so long ago.
const APART_US: u64 = 10_000;

/// Results that had a stack in this segment.
static RESULTS: Known<64> = Known::new();
/// When the last stack of a failed call was taken, in ticks.
static TAKEN: AtomicU64 = AtomicU64::new(0);

/// Whether a result is a failure.
#[inline(always)]
pub(super) fn is_failure(class: Class, result: u32) -> bool {
    result != 0 && result != if matches!(class, Class::Collective) { IN_PROGRESS } else { NOT_READY }
}

/// Why a failed call that ended now gets a stack; none: it gets none.
pub(super) fn wanted(class: Class, result: u32, now: u64) -> Option<Wanted> {
    let hash = mix(mix(u64::from(result) + 1, u64::from(matches!(class, Class::Collective))), 0);
    let since = last_since();
    if !RESULTS.has(hash, since) {
        RESULTS.insert(hash, since);
        TAKEN.store(now, Ordering::Relaxed);
        return Some(Wanted::First);
    }
    let last = TAKEN.load(Ordering::Relaxed);
    let is_due = now.wrapping_sub(last) >= rate::ticks(APART_US);
    // Of threads that fail at the same moment one gets it.
    let mine = || TAKEN.compare_exchange(last, now, Ordering::Relaxed, Ordering::Relaxed).is_ok();
    (is_due && mine()).then_some(Wanted::Again)
}

/// Which of its result a failed call is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Wanted {
    /// The first: whatever the budget says.
    First,
    /// A later one.
    Again,
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_first_of_each_result_is_wanted_and_answers_are_no_failures() {
        assert!(!is_failure(Class::Sync, 0) && !is_failure(Class::Sync, 600) && !is_failure(Class::Collective, 7));
        assert!(is_failure(Class::Sync, 7) && is_failure(Class::Collective, 600) && is_failure(Class::Alloc, 2));
        assert_eq!(wanted(Class::Alloc, 4002, 5), Some(Wanted::First));
        assert_eq!(wanted(Class::Collective, 4002, 5), Some(Wanted::First));
        assert_eq!(wanted(Class::Alloc, 4002, 6), None);
        let later = 6 + rate::ticks(2 * APART_US);
        assert_eq!(wanted(Class::Alloc, 4002, later), Some(Wanted::Again));
        assert_eq!(wanted(Class::Alloc, 4003, later), Some(Wanted::First));
        assert_eq!(wanted(Class::Alloc, 4003, later + 1), None);
    }
}
