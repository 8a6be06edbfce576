//! Whether what a library says about its functions is in memory: a stack is taken inside of somebody's malloc or launch, and does not
//! wait for a disk.
//!
//! Of the tables of a large library nobody has read a page before the first stack does. Where the file lies on a network, or in an image
//! that is fetched as it is read, each page took up to 35 ms, and a stack through PyTorch's libraries 0.4 s. So the kernel is asked about
//! a page before it is read for the first time (mincore); what is not there is asked for (MADV_WILLNEED, which waits for nothing), and
//! the stack ends there this time, marked as cut. Who records every allocation, or asks for its stacks by name, wants whole ones, and
//! waits. Of files that the process may neither write nor call its own the kernel says that all is there: they are
//! read as they come.

use core::sync::atomic::{AtomicBool, AtomicU64, AtomicUsize, Ordering};

use crate::sys;

const PAGE: usize = 4096;
/// As much as the kernel reads ahead at once, as a rule: more than that of one piece of advice it leaves out.
const AHEAD: usize = 128 << 10;
/// What is asked for around a page that is not there: the next stacks need what lies beside it.
const AROUND: usize = 512 << 10;

/// Pages that were there, by their number: they are not asked about again. One that has gone since is waited for.
static THERE: [AtomicUsize; 1024] = [const { AtomicUsize::new(0) }; 1024];
/// How often something was not there.
static MISSES: AtomicU64 = AtomicU64::new(0);

/// What is not there is waited for.
static WAITS: AtomicBool = AtomicBool::new(false);

/// Has what is not there waited for. For the constructor.
pub(in crate::stack) fn wait() {
    WAITS.store(true, Ordering::Relaxed);
}

/// How often something was not there: a walk during which the number changes may have ended early.
pub(in crate::stack) fn misses() -> u64 {
    MISSES.load(Ordering::Relaxed)
}

/// Whether all of these bytes of a library are in memory; if not they are on their way.
pub(super) fn is(at: usize, bytes: usize) -> bool {
    let last = at.saturating_add(bytes.max(1) - 1) / PAGE;
    WAITS.load(Ordering::Relaxed) || (at / PAGE..=last).all(is_page)
}

#[inline(always)]
fn is_page(page: usize) -> bool {
    let place = THERE.get(page % THERE.len());
    if place.is_some_and(|place| place.load(Ordering::Relaxed) == page) {
        return true;
    }
    if !sys::is_in_memory(page * PAGE) {
        MISSES.fetch_add(1, Ordering::Relaxed);
        let begin = page * PAGE / AROUND * AROUND;
        (begin..begin + AROUND).step_by(AHEAD).for_each(|at| sys::will_need(at, AHEAD));
        return false;
    }
    if let Some(place) = place {
        place.store(page, Ordering::Relaxed);
    }
    true
}
