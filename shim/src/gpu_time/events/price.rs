//! What a pair of events takes by itself: that is no time of the launch between them.
//!
//! Two events with nothing between them take less than the same two around a kernel: the GPU has to begin and to end what stands
//! between. What that takes is read off a set of four bytes, a kernel of the driver's own that lasts about as long on every
//! device.

use core::sync::atomic::Ordering;

use super::drain::{TRIES, passes, sees_out_captures};
use super::driver;
use super::pool::Pool;

/// Events that are used for it.
const EVENTS: usize = 64;
/// How long a set of four bytes takes by CUPTI's records: 0.70 to 0.74 us on an H200.
const SET_NS: f64 = 700.0;
/// What a GPU needs to begin and to end something between two events is no more than this: else the set was kept waiting.
const MOST_NS: f64 = 2500.0;

/// ns that a pair takes in this pool's context, where its own stream has nothing else to do. None: the driver refuses, or the GPU
/// is too busy.
pub(super) fn of_pair(pool: &Pool, stream: u64) -> Option<f64> {
    let empty_ns = measure(pool, stream, || true)?.into_iter().fold(f64::INFINITY, f64::min);
    let empty_ns = Some(empty_ns).filter(|ns| ns.is_finite())?.max(0.0);
    let mut word = 0;
    if !sees_out_captures(pool) || driver::allocate(&mut word, size_of::<u32>()) != driver::SUCCESS {
        return Some(empty_ns);
    }
    pool.word.store(word, Ordering::Relaxed);
    let Some(around) = measure(pool, stream, || driver::set(word, 0, 1, stream) == driver::SUCCESS) else {
        return Some(empty_ns);
    };
    Some((middle(&around) - SET_NS).max(empty_ns).min(empty_ns + MOST_NS))
}

/// The median. Nothing is sorted: that brings panics along.
fn middle(times: &[f64]) -> f64 {
    let smaller = |time: &f64| times.iter().filter(|other| *other < time).count();
    times.iter().filter(|time| smaller(time) <= times.len() / 2).fold(0.0, |most, time| most.max(*time))
}

/// Times of pairs around this work, ns.
fn measure(pool: &Pool, stream: u64, work: impl Fn() -> bool) -> Option<[f64; EVENTS / 2]> {
    let mut events = [0; EVENTS];
    let all = pool.pairs().iter().flat_map(|pair| &pair.events);
    events.iter_mut().zip(all).for_each(|(place, event)| *place = event.load(Ordering::Relaxed));
    for [from, to] in events.as_chunks().0 {
        let recorded = sees_out_captures(pool)
            && driver::record(*from, stream) == driver::SUCCESS
            && work()
            && driver::record(*to, stream) == driver::SUCCESS;
        if !recorded {
            return None;
        }
    }
    let last = *events.last()?;
    if !(0..TRIES).any(|_| sees_out_captures(pool) && passes(last)) {
        return None;
    }
    let mut times = [f64::INFINITY; EVENTS / 2];
    for (time, [from, to]) in times.iter_mut().zip(events.as_chunks().0) {
        *time = driver::ns_between(*from, *to).unwrap_or(f64::INFINITY);
    }
    Some(times)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_middle_of_times_is_found_in_any_order_and_among_equal_ones() {
        assert_eq!(middle(&[5.0, 1.0, 9.0, 3.0, 7.0]), 5.0);
        assert_eq!(middle(&[4.0, 4.0, 9.0, 4.0, f64::INFINITY]), 4.0);
        assert_eq!(middle(&[2.0, 8.0]), 8.0);
    }
}
