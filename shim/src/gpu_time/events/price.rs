//! What a pair of events takes by itself: that is no time of the launch between them.
//!
//! Two events with nothing between them take less than the same two around a kernel: the GPU has to begin and to end what stands
//! between. What that takes is read off a set of 64 KiB, a kernel of the driver's own that lasts about as long on every device (a
//! set of a few bytes is none on some), and off pairs that stand in the queue when the GPU comes to them: else it would be the
//! host's time. On an H200 that is 2.8 us, for kernels of 0.6, 5 and 20 us alike (docs/benchmarks.md).
//!
//! A launch that comes to an idle GPU does not wait for the first event, which was passed long before. It has what the GPU
//! takes to begin and to end it, but not what its host adds to an event: on one of 1.3 us an event nothing, on one of 2.5 us 1.2.

use core::sync::atomic::Ordering;

use gputrace_abi::sample;

use super::drain::{TRIES, passes, sees_out_captures};
use super::driver;
use super::gate::Gate;
use super::pool::Pool;
use super::sets;
use crate::capture;

/// Events that are used for it.
const EVENTS: usize = 64;
/// It is tried so often where GPU or host are too busy.
const MEASURES: u32 = 10;
/// The same where it was measured, and nothing stood in the queue: launches go untimed until it is over.
const QUEUES: u32 = 3;
/// Words that are set, and how long that takes by CUPTI's records: 0.99 us on an H200.
const WORDS: usize = 16 << 10;
const SET_NS: f64 = 990.0;
/// What a GPU needs to begin and to end something between two events is no more than this: else the set was kept waiting.
const MOST_NS: f64 = 2500.0;
/// What it needed on two hosts with an H200, 1.3 and 1.5 us: where no set may be given, for somebody records.
const USUAL_NS: f64 = sample::USUAL_NS as f64;
/// What a pair around nothing takes on a host that adds nothing to it.
const EVENT_NS: f64 = 1280.0;

/// What pairs take.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub(super) struct Price {
    /// Around a launch that stood in the queue.
    pub(super) queued_ns: f64,
    /// Around one that came to an idle GPU.
    pub(super) idle_ns: f64,
    /// What the GPU needs was not measured.
    pub(super) is_assumed: bool,
}

impl Price {
    /// From the least time of pairs around nothing, and the usual one of those around a set.
    fn of(empty_ns: f64, around_ns: Option<f64>) -> Price {
        let queued_ns = around_ns.map_or(empty_ns, |ns| (ns - SET_NS).max(empty_ns).min(empty_ns + MOST_NS));
        Price { queued_ns, idle_ns: (queued_ns - (empty_ns - EVENT_NS).max(0.0)).max(0.0), is_assumed: false }
    }

    /// As is usual on an H200, over this time of pairs around nothing.
    fn usual(empty_ns: f64) -> Price {
        Price { is_assumed: true, ..Price::of(empty_ns, Some(empty_ns + USUAL_NS + SET_NS)) }
    }
}

/// What a pair takes in this pool's context. None: the driver refuses, or there is no need of the pool any more.
pub(super) fn of_pair(pool: &Pool, stream: u64) -> Option<Price> {
    let empty_ns = match queued_or_least(|| (0..MEASURES).find_map(|_| measure(pool, stream, || true)), least) {
        Some(ns) => Some(ns).filter(|ns| ns.is_finite())?.max(0.0),
        // The GPU, or the host, has no time for it: what is usual is near enough, and nothing would be timed for the rest of the run.
        None if pool.goes_on() => return Some(Price::usual(EVENT_NS)),
        None => return None,
    };
    let around = sets::give(|| around_sets(pool, stream));
    Some(around.map_or_else(|| Price::usual(empty_ns), |around_ns| Price::of(empty_ns, around_ns)))
}

/// The usual time of a pair around a set. None: there are no sets.
fn around_sets(pool: &Pool, stream: u64) -> Option<f64> {
    let mut memory = 0;
    if !sees_out_captures(pool) || driver::allocate(&mut memory, WORDS * size_of::<u32>()) != driver::SUCCESS {
        return None;
    }
    pool.memory.store(memory, Ordering::Relaxed);
    queued_or_least(|| measure(pool, stream, || driver::set(memory, 0, WORDS, stream) == driver::SUCCESS), middle)
}

/// What these times come to where they stood in the queue. Where they did not, for there is no gate or it was opened too early, the host
/// may have kept the GPU waiting: they are measured again, and if that is so each time the least of all is nearest.
fn queued_or_least(
    measure: impl Fn() -> Option<([f64; EVENTS / 2], bool)>,
    of_queued: fn(&[f64]) -> f64,
) -> Option<f64> {
    let mut shortest: Option<f64> = None;
    for _ in 0..QUEUES {
        let Some((times, queued)) = measure() else { break };
        if queued {
            return Some(of_queued(&times));
        }
        shortest = Some(shortest.unwrap_or(f64::INFINITY).min(least(&times)));
    }
    shortest
}

fn least(times: &[f64]) -> f64 {
    times.iter().copied().fold(f64::INFINITY, f64::min)
}

/// The median. Nothing is sorted: that brings panics along.
fn middle(times: &[f64]) -> f64 {
    let smaller = |time: &f64| times.iter().filter(|other| *other < time).count();
    times.iter().filter(|time| smaller(time) <= times.len() / 2).fold(0.0, |most, time| most.max(*time))
}

/// Times of pairs around this work, ns, and whether they stood in the queue.
fn measure(pool: &Pool, stream: u64, work: impl Fn() -> bool) -> Option<([f64; EVENTS / 2], bool)> {
    let mut events = [0; EVENTS];
    let all = pool.pairs().iter().flat_map(|pair| &pair.events);
    events.iter_mut().zip(all).for_each(|(place, event)| *place = event.load(Ordering::Relaxed));
    // Given all at once: a capture that begins meanwhile is seen out with the gate open, and then it is done again.
    let given = (0..TRIES).find_map(|_| give(pool, stream, &events, &work));
    let (last, queued) = (*events.last()?, given?);
    if !(0..TRIES).any(|_| sees_out_captures(pool) && passes(last)) {
        return None;
    }
    let mut times = [f64::INFINITY; EVENTS / 2];
    for (time, [from, to]) in times.iter_mut().zip(events.as_chunks().0) {
        *time = driver::ns_between(*from, *to).unwrap_or(f64::INFINITY);
    }
    Some((times, queued))
}

/// Records pairs around this work, behind a gate if there is one, which is said. None: not all of them.
fn give(pool: &Pool, stream: u64, events: &[u64], work: impl Fn() -> bool) -> Option<bool> {
    if !sees_out_captures(pool) {
        return None;
    }
    let gate = Gate::close(pool, stream);
    let recorded = events.as_chunks().0.iter().all(|[from, to]| {
        !capture::any()
            && driver::record(*from, stream) == driver::SUCCESS
            && work()
            && driver::record(*to, stream) == driver::SUCCESS
    });
    let queued = gate.is_some_and(Gate::open);
    recorded.then_some(queued)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_host_that_is_slow_with_events_adds_to_queued_launches_alone() {
        // As two hosts with the same GPU had it.
        assert_eq!(Price::of(1280.0, Some(3776.0)), Price { queued_ns: 2786.0, idle_ns: 2786.0, is_assumed: false });
        assert_eq!(Price::of(2480.0, Some(4790.0)), Price { queued_ns: 3800.0, idle_ns: 2600.0, is_assumed: false });
        // No memory for a set; one that was kept waiting; one that took no time.
        assert_eq!(Price::of(1500.0, None), Price { queued_ns: 1500.0, idle_ns: 1280.0, is_assumed: false });
        assert_eq!(Price::of(1280.0, Some(90_000.0)).queued_ns, 3780.0);
        assert_eq!(Price::of(1280.0, Some(0.0)).queued_ns, 1280.0);
    }

    #[test]
    fn what_did_not_stand_in_the_queue_is_measured_again() {
        let tries = core::cell::Cell::new(0);
        let after = |queued_at: u32| {
            tries.set(0);
            let measure = || {
                tries.set(tries.get() + 1);
                let queued = tries.get() >= queued_at;
                Some(([if queued { 1300.0 } else { 800.0 + f64::from(tries.get()) }; EVENTS / 2], queued))
            };
            (queued_or_least(measure, middle), tries.get())
        };
        assert_eq!(after(1), (Some(1300.0), 1));
        assert_eq!(after(3), (Some(1300.0), 3));
        assert_eq!(after(u32::MAX), (Some(801.0), QUEUES));
        assert_eq!(queued_or_least(|| None, least), None);
    }

    #[test]
    fn the_middle_of_times_is_found_in_any_order_and_among_equal_ones() {
        assert_eq!(middle(&[5.0, 1.0, 9.0, 3.0, 7.0]), 5.0);
        assert_eq!(middle(&[4.0, 4.0, 9.0, 4.0, f64::INFINITY]), 4.0);
        assert_eq!(middle(&[2.0, 8.0]), 8.0);
    }
}
