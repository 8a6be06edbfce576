//! When records are on in windows: one in each period, as long as the budget allows ([`gputrace_abi::windows`]). The first one
//! opens at once, before anything is launched: CUPTI's first use is dear.
//!
//! How long a window may be follows from what a record costs and how many come. The collector measures that cost, and says
//! what of the budget the hooks leave ([`gputrace_abi::layout::Header::windows_ppm`]).

use core::sync::atomic::{AtomicU32, AtomicU64, Ordering};

use gputrace_abi::gpu::reason;
use gputrace_abi::shed::Shed;
use gputrace_abi::windows::Terms;

use super::IS_AUTO;
use crate::names::hash;
use crate::{session, sys};

const SECOND: u64 = 1_000_000_000;
/// Host time that a record costs the launching thread and the GPU, until it is measured: what it did on a slow host
/// (docs/benchmarks.md).
const FIRST_COST_NS: u64 = 2500;
/// A rate that is not known yet. One that proves higher shortens the window while it is open.
const FIRST_RATE: u64 = 10_000;

/// Records that are worth a window.
const ENOUGH: u64 = 1000;

static PERIOD_NS: AtomicU64 = AtomicU64::new(10 * SECOND);
/// The budget in millionths of the wall time.
pub(super) static BUDGET_PPM: AtomicU32 = AtomicU32::new(10_000);
/// What the ranks of a job have in common.
static JOB: AtomicU64 = AtomicU64::new(0);

/// Reads the budget (millionths of the wall time), the period (ms) and the job's name. For the constructor.
pub(super) fn configure() {
    if let Some(ppm) = sys::variable(b"GPUTRACE_BUDGET").and_then(session::number) {
        BUDGET_PPM.store(ppm.min(u64::from(u32::MAX)) as u32, Ordering::Relaxed);
    }
    if let Some(ms) = sys::variable(b"GPUTRACE_GPU_PERIOD").and_then(session::number) {
        PERIOD_NS.store(ms.clamp(10, 3_600_000) * 1_000_000, Ordering::Relaxed);
    }
    JOB.store(hash(sys::variable(b"GPUTRACE_JOB").unwrap_or(b"")), Ordering::Relaxed);
}

/// What of the budget timed launches may cost, in millionths of the wall time.
pub(super) fn events_ppm() -> u64 {
    let told = session::present().map_or(0, |view| view.header().windows_ppm.load(Ordering::Relaxed));
    u64::from(told).checked_sub(1).unwrap_or(BUDGET_PPM.load(Ordering::Relaxed).into())
}

/// Whether windows are left out, because the hooks alone need what is their least.
pub(super) fn are_shed() -> bool {
    session::present().is_some_and(|view| Shed::of(view.header().shed.load(Ordering::Relaxed)).gpu_times)
}

/// What windows may cost.
fn ppm() -> u64 {
    if are_shed() { 0 } else { events_ppm() }
}

/// Whether the collector knows that all work has been told of the windows that closed until then, in ticks.
pub(super) fn are_told(at: u64) -> bool {
    session::present().is_some_and(|view| view.header().told_window.load(Ordering::Relaxed) >= at)
}

/// What the schedule goes by now. `is_known`: how much work comes.
fn terms(detaches: bool, is_known: bool) -> Terms {
    let told = session::present().map_or(0, |view| view.header().record_ns.load(Ordering::Relaxed));
    Terms {
        period_ns: PERIOD_NS.load(Ordering::Relaxed),
        ppm: ppm(),
        cost_ns: u64::from(told).checked_sub(1).unwrap_or(FIRST_COST_NS),
        detaches,
        // Who asks for windows wants what the budget buys; and before the first launches there is nothing to be short for.
        rare: is_known && IS_AUTO.load(Ordering::Relaxed),
        job: JOB.load(Ordering::Relaxed),
    }
}

/// The schedule of a process. Times are ns of CLOCK_MONOTONIC.
pub(super) struct Plan {
    /// One window for the whole run.
    is_full: bool,
    /// When the window opens, or did.
    opens_ns: u64,
    is_open: bool,
    /// How long the last window was.
    open_ns: u64,
    /// Records since it opened: most come after it is closed.
    records: u64,
    /// Records a second in the windows before.
    rate: u64,
    /// A window has shown it.
    is_rated: bool,
}

impl Plan {
    pub(super) const fn new(is_full: bool) -> Plan {
        Plan { is_full, opens_ns: 0, is_open: false, open_ns: 0, records: 0, rate: FIRST_RATE, is_rated: false }
    }

    /// Whether records are to be on now, and until when that holds. `detaches`: CUPTI can be taken off between windows.
    pub(super) fn step(&mut self, now: u64, detaches: bool) -> (bool, u64) {
        if self.is_full {
            return (true, u64::MAX);
        }
        let terms = terms(detaches, self.is_known());
        if self.is_open {
            self.open_ns = now.saturating_sub(self.opens_ns).max(1);
            // No less than what came already.
            let rate = self.rate.max(per_second(self.records, self.open_ns));
            let closes_ns = self.opens_ns.saturating_add(terms.length(rate).map_or(0, |(ns, _)| ns));
            if now < closes_ns {
                return (true, closes_ns);
            }
            self.close(now, &terms);
        } else if now >= self.opens_ns {
            // A window without a record says nothing of the next one.
            if self.records > 0 {
                (self.rate, self.is_rated) = (per_second(self.records, self.open_ns), true);
            }
            match terms.length(self.rate) {
                Some((ns, _)) => return (true, now + ns),
                // The hooks spend the whole budget.
                None => self.close(now, &terms),
            }
        }
        (false, self.opens_ns)
    }

    /// Whether it is known how much work comes: of the first window that brings any, once it has brought enough.
    fn is_known(&self) -> bool {
        self.is_rated || self.records >= ENOUGH
    }

    /// Whether a window was there, and none is.
    pub(super) fn is_over(&self) -> bool {
        !self.is_full && !self.is_open && self.open_ns > 0
    }

    /// Why records are on.
    pub(super) fn reason(&self) -> u64 {
        if self.is_full { reason::FULL } else { reason::WINDOW }
    }

    /// Records went on.
    pub(super) fn began(&mut self, now: u64) {
        (self.opens_ns, self.is_open, self.records) = (now, true, 0);
    }

    /// So many records came.
    pub(super) fn seen(&mut self, records: u64) {
        self.records += records;
    }

    /// Whether so many launches come until the next window that to keep CUPTI costs more than to take it off. The GPU was busy for so
    /// many millionths of the last one.
    pub(super) fn is_long_until_next(&self, now: u64, busy_ppm: u64) -> bool {
        // A window that came before the program's work began says nothing of it, nor does one in a pause.
        let is_told = self.is_known() && self.records > 0;
        let rate = if is_told { per_second(self.records, self.open_ns) } else { self.rate };
        !self.is_full && terms(true, self.is_known()).leaves(rate, self.opens_ns.saturating_sub(now), busy_ppm)
    }

    /// How long the last window was, ns.
    pub(super) fn open_ns(&self) -> u64 {
        self.open_ns
    }

    /// Somebody else uses CUPTI.
    pub(super) fn interrupt(&mut self, now: u64) {
        if self.is_open {
            self.close(now, &terms(true, self.is_known()));
        }
    }

    fn close(&mut self, now: u64, terms: &Terms) {
        self.is_open = false;
        let one_in = terms.length(self.rate).map_or(1, |(_, one_in)| one_in);
        self.opens_ns = now + terms.ahead(sys::clock_ns(libc::CLOCK_REALTIME), one_in);
    }
}

/// So many in so many ns, a second.
fn per_second(count: u64, ns: u64) -> u64 {
    (u128::from(count) * u128::from(SECOND) / u128::from(ns.max(1))) as u64
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn cupti_leaves_after_a_window_that_says_nothing_of_what_comes() {
        // Ten seconds until the next window, after one of half a second.
        let is_long = |records, rate: Option<u64>| {
            let (open_ns, opens_ns) = (SECOND / 2, 10 * SECOND);
            let rated = Plan { rate: rate.unwrap_or(FIRST_RATE), is_rated: rate.is_some(), ..Plan::new(false) };
            Plan { records, open_ns, opens_ns, ..rated }.is_long_until_next(0, 0)
        };
        assert!(is_long(72, None), "the program has not begun");
        assert!(is_long(0, Some(100_000)), "it paused");
        assert!(is_long(20_000, None) && is_long(20_000, Some(10)));
        assert!(!is_long(72, Some(200)) && !is_long(0, Some(200)), "few come, as before");
    }
}
