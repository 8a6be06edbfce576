//! The device's clock, which is not the host's, and the clock that a client gives.
//!
//! Without a timestamp callback records have the device's times, and cuptiGetTimestamp reads that clock. With one they are
//! converted: how far the client's clock is from CLOCK_MONOTONIC is measured once, when it is registered.

use crate::config::config;
use std::sync::Mutex;

/// cuptiActivityRegisterTimestampCallback's function.
pub(crate) type Stamp = unsafe extern "C" fn() -> u64;

/// The client's clock, and what to add to CLOCK_MONOTONIC to get it.
static CLIENT: Mutex<Option<(Stamp, i64)>> = Mutex::new(None);

pub(crate) fn now() -> u64 {
    let mut time = libc::timespec { tv_sec: 0, tv_nsec: 0 };
    unsafe { libc::clock_gettime(libc::CLOCK_MONOTONIC, &mut time) };
    time.tv_sec as u64 * 1_000_000_000 + time.tv_nsec as u64
}

fn client() -> Option<(Stamp, i64)> {
    *CLIENT.lock().unwrap_or_else(|e| e.into_inner())
}

/// The time of a record of what happened at this time of CLOCK_MONOTONIC.
pub(crate) fn recorded(monotonic: u64) -> u64 {
    match client() {
        Some((_, offset)) => monotonic.wrapping_add_signed(offset),
        None => device(monotonic),
    }
}

/// The time of the device's clock.
fn device(monotonic: u64) -> u64 {
    let drift = monotonic as f64 * config().drift_ppm / 1e6;
    monotonic.wrapping_add_signed(config().offset_ns).wrapping_add_signed(drift as i64)
}

/// What cuptiGetTimestamp answers.
pub(crate) fn timestamp() -> u64 {
    match client() {
        Some((stamp, _)) => unsafe { stamp() },
        None => device(now()),
    }
}

/// Gives records another clock, or the device's own again.
pub(crate) fn register(stamp: Option<Stamp>) {
    let client = stamp.map(|stamp| (stamp, offset(stamp)));
    *CLIENT.lock().unwrap_or_else(|e| e.into_inner()) = client;
}

/// How far a clock is from CLOCK_MONOTONIC, by the quickest of many looks; 0 where it may be that very clock.
fn offset(stamp: Stamp) -> i64 {
    let look = || {
        let before = now();
        let at = unsafe { stamp() };
        let took = now() - before;
        let offset = at.wrapping_sub(before + took / 2) as i64;
        (took, if offset.unsigned_abs() <= took { 0 } else { offset })
    };
    (0..64).map(|_| look()).min().map_or(0, |(_, offset)| offset)
}

/// Keeps the calling thread busy for so long.
pub(crate) fn busy(ns: u64) {
    let end = now() + ns;
    while now() < end {
        std::hint::spin_loop();
    }
}
