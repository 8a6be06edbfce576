//! How many ticks of the segment's clock a time has.
//!
//! The rate of the processor's counter is nowhere to be read, so it is taken from two moments on both clocks: when the
//! segment was made, and now. Until they lie far enough apart a low rate is assumed, so that thresholds are too short
//! rather than too long: whoever meets one asks again.

use core::sync::atomic::{AtomicU64, Ordering};

use gputrace_abi::clock::ClockPair;

use crate::{session, sys};

/// Ticks in 1,024 us; 0 while not known.
static RATE: AtomicU64 = AtomicU64::new(0);
/// No counter in use is slower: the TSC, and on aarch64 a counter of 10 MHz or more.
const LOWEST: u64 = if cfg!(target_arch = "aarch64") { 10 << 10 } else { 500 << 10 };
/// Two moments so far apart give the rate to 0.1 %.
const APART_NS: u64 = 200_000;

/// Ticks in so many microseconds.
pub(crate) fn ticks(us: u64) -> u64 {
    let rate = match RATE.load(Ordering::Relaxed) {
        0 => measure(),
        known => known,
    };
    us.saturating_mul(rate) >> 10
}

fn measure() -> u64 {
    if !session::uses_counter() {
        return 1000 << 10; // nanoseconds
    }
    let Some(view) = session::present() else { return LOWEST };
    let ClockPair { ticks, monotonic_ns, .. } = view.started();
    let (now, now_ns) = (session::now(), sys::clock_ns(sys::MONOTONIC));
    let apart_ns = now_ns.saturating_sub(monotonic_ns);
    if apart_ns < APART_NS {
        return LOWEST;
    }
    let rate = (u128::from(now.wrapping_sub(ticks)) * 1_024_000 / u128::from(apart_ns)) as u64;
    RATE.store(rate.max(1), Ordering::Relaxed);
    rate
}
