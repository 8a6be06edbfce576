//! Pairs of events: for each context a bounded pool of them, made once, and given back before their context ends.
//!
//! A pool is made by our thread when the first launch in its context asks for one, and is gone before the call that ends its
//! context goes through: an event of a context that was destroyed must never be touched. Whoever touches events of a pool is
//! counted as its user meanwhile; who closes the pool waits until there is none.

use core::sync::atomic::{AtomicU32, AtomicU64, Ordering};

use super::driver;
use crate::sys;

/// Pairs of a context.
pub(super) const PAIRS: usize = 512;
/// Contexts whose launches are timed.
const POOLS: usize = 16;
/// Pairs that are looked at for a free one: they are used in turn, and become free in about that order.
const LOOKS: u32 = 8;
/// Who closes a pool waits so long for launches that use it: one that was left by siglongjmp never goes.
const PATIENCE_NS: u64 = 100_000_000;
/// And for our thread, which makes no call that waits, but may have been stopped in the midst of one.
const OWN_PATIENCE_NS: u64 = 10_000_000_000;
const LOOK_NS: u64 = 20_000;

/// Of no context.
const FREE: u32 = 0;
/// A launch asked for it.
const WANTED: u32 = 1;
/// Our thread makes its events.
const MAKING: u32 = 2;
const READY: u32 = 3;
/// Its context is about to end.
const CLOSING: u32 = 4;
/// It is never used again: somebody may still touch it, or the driver refuses.
const GONE: u32 = 5;

/// A pair that nobody uses.
const UNUSED: u32 = 0;
/// Its launch is being made.
const TAKEN: u32 = 1;
/// Both events stand in a stream.
const RECORDED: u32 = 2;

/// Two events, and the launch between them.
pub(super) struct Pair {
    state: AtomicU32,
    pub(super) events: [AtomicU64; 2],
    /// First word of its [`gputrace_abi::sample::Sample`].
    pub(super) about: AtomicU64,
    /// Ticks: before the first event was recorded, when the launch began and ended, when the second event was recorded.
    pub(super) ticks: [AtomicU64; 4],
}

/// The pairs of a context.
pub(super) struct Pool {
    state: AtomicU32,
    pub(super) context: AtomicU64,
    /// Ordinal of its device.
    pub(super) device: AtomicU32,
    users: AtomicU32,
    /// 1: our thread is a user too.
    ours: AtomicU32,
    next: AtomicU32,
    pairs: [Pair; PAIRS],
    /// A stream of ours, and events in it which the pairs' times are compared with.
    pub(super) stream: AtomicU64,
    pub(super) bases: [AtomicU64; 2],
    /// Device memory of ours, by whose setting it is known what a pair takes, and the word of our stream's
    /// [`super::gate::Gate`]. They are given back with the rest: to free memory waits for the device.
    pub(super) memory: AtomicU64,
    pub(super) gate: AtomicU64,
}

static ALL: [Pool; POOLS] = [const { Pool::new() }; POOLS];

impl Pair {
    const fn new() -> Pair {
        Pair {
            state: AtomicU32::new(UNUSED),
            events: [const { AtomicU64::new(0) }; 2],
            about: AtomicU64::new(0),
            ticks: [const { AtomicU64::new(0) }; 4],
        }
    }

    /// Nobody uses it any more.
    pub(super) fn give_back(&self) {
        // SYNC POINT: pair. Release, with the Acquire of who takes it.
        self.state.store(UNUSED, Ordering::Release);
    }

    /// Both events are recorded: our thread may ask for their times.
    pub(super) fn recorded(&self) {
        // SYNC POINT: recorded. Release, with our thread's Acquire: what it is about is written.
        self.state.store(RECORDED, Ordering::Release);
    }

    /// Whether they are.
    pub(super) fn is_recorded(&self) -> bool {
        // SYNC POINT: recorded. Acquire, with the Release of who recorded them.
        self.state.load(Ordering::Acquire) == RECORDED
    }

    pub(super) fn event(&self, nth: usize) -> u64 {
        self.events.get(nth).map_or(0, |event| event.load(Ordering::Relaxed))
    }

    pub(super) fn tick(&self, nth: usize, value: u64) {
        if let Some(place) = self.ticks.get(nth) {
            place.store(value, Ordering::Relaxed);
        }
    }
}

impl Pool {
    const fn new() -> Pool {
        Pool {
            state: AtomicU32::new(FREE),
            context: AtomicU64::new(0),
            device: AtomicU32::new(0),
            users: AtomicU32::new(0),
            ours: AtomicU32::new(0),
            next: AtomicU32::new(0),
            pairs: [const { Pair::new() }; PAIRS],
            stream: AtomicU64::new(0),
            bases: [const { AtomicU64::new(0) }; 2],
            memory: AtomicU64::new(0),
            gate: AtomicU64::new(0),
        }
    }

    /// The pool of a context, which is asked for where there is none. None: there is no place for another one.
    pub(super) fn of(context: u64) -> Option<(usize, &'static Pool)> {
        let known = ALL.iter().enumerate().find(|(_, pool)| pool.context.load(Ordering::Acquire) == context);
        if known.is_some() {
            return known;
        }
        let claim = |pool: &Pool| {
            pool.state.load(Ordering::Relaxed) == FREE
                && pool.context.compare_exchange(0, context, Ordering::AcqRel, Ordering::Relaxed).is_ok()
        };
        let claimed = ALL.iter().enumerate().find(|(_, pool)| claim(pool))?;
        let _ = claimed.1.state.compare_exchange(FREE, WANTED, Ordering::AcqRel, Ordering::Relaxed);
        super::ring();
        Some(claimed)
    }

    /// The pool at a place, and a pair of it.
    pub(super) fn at(place: usize) -> Option<(&'static Pool, &'static Pair)> {
        let pool = ALL.get(place / PAIRS)?;
        Some((pool, pool.pairs.get(place % PAIRS)?))
    }

    pub(super) fn all() -> impl Iterator<Item = &'static Pool> {
        ALL.iter()
    }

    pub(super) fn pairs(&self) -> &[Pair; PAIRS] {
        &self.pairs
    }

    /// Whether its pairs can be used. If so, the caller is a user until it says [`Self::leave`].
    pub(super) fn enter(&self) -> bool {
        self.users.fetch_add(1, Ordering::SeqCst);
        // SYNC POINT: pool. SeqCst on both sides: who closes it sees this user, or this user sees that it is closed.
        let ready = self.state.load(Ordering::SeqCst) == READY;
        if !ready {
            self.leave();
        }
        ready
    }

    pub(super) fn is_ready(&self) -> bool {
        self.state.load(Ordering::SeqCst) == READY
    }

    pub(super) fn leave(&self) {
        self.users.fetch_sub(1, Ordering::SeqCst);
    }

    /// A free pair and its place in the pool.
    pub(super) fn take(&self) -> Option<(usize, &Pair)> {
        (0..LOOKS).find_map(|_| {
            let place = self.next.fetch_add(1, Ordering::Relaxed) as usize % PAIRS;
            let pair = self.pairs.get(place)?;
            // SYNC POINT: pair. Acquire, with the Release of who gave it back.
            let taken = pair.state.compare_exchange(UNUSED, TAKEN, Ordering::Acquire, Ordering::Relaxed).is_ok();
            taken.then_some((place, pair))
        })
    }

    /// Does work of our thread's, as a user, if the pool is in this state and then in that one. None: it is not.
    fn ours<R>(&self, from: u32, to: u32, work: impl FnOnce() -> R) -> Option<R> {
        // SYNC POINT: pool. As in [`Self::enter`].
        self.ours.store(1, Ordering::SeqCst);
        let is = self.state.compare_exchange(from, to, Ordering::SeqCst, Ordering::SeqCst).is_ok();
        let done = is.then(work);
        self.ours.store(0, Ordering::SeqCst);
        done
    }

    /// Has our thread make its events, if a launch asked for them.
    pub(super) fn make<R>(&self, work: impl FnOnce() -> R) -> Option<R> {
        self.ours(WANTED, MAKING, work)
    }

    /// Has our thread use them.
    pub(super) fn serve<R>(&self, work: impl FnOnce() -> R) -> Option<R> {
        self.ours(READY, READY, work)
    }

    /// Whether its context is not about to end.
    pub(super) fn goes_on(&self) -> bool {
        self.state.load(Ordering::Relaxed) == MAKING
    }

    /// Its events are made, or cannot be.
    pub(super) fn made(&self, all: bool) {
        let state = if all { READY } else { GONE };
        let _ = self.state.compare_exchange(MAKING, state, Ordering::SeqCst, Ordering::Relaxed);
    }

    /// The driver refuses: its context is broken.
    pub(super) fn give_up(&self) {
        let _ = self.state.compare_exchange(READY, GONE, Ordering::SeqCst, Ordering::Relaxed);
    }

    /// The context is about to end: no event of it is touched from now on. How many launches lose their time.
    fn close(&self) -> u64 {
        let was = self.state.swap(CLOSING, Ordering::SeqCst);
        let waited = |users: &AtomicU32, patience_ns: u64| {
            let until = sys::clock_ns(sys::MONOTONIC) + patience_ns;
            loop {
                let free = users.load(Ordering::SeqCst) == 0;
                if free || sys::clock_ns(sys::MONOTONIC) >= until {
                    return free;
                }
                sys::nap(LOOK_NS);
            }
        };
        let left = waited(&self.ours, OWN_PATIENCE_NS) && waited(&self.users, PATIENCE_NS);
        let used = self.pairs.iter().filter(|pair| pair.state.load(Ordering::Acquire) != UNUSED).count();
        if left && was != GONE {
            self.destroy();
        }
        self.forget(left);
        used as u64
    }

    /// The context may live on where somebody else holds it: it gets back what it gave.
    fn destroy(&self) {
        let mode = driver::relax();
        let mut popped = 0;
        if driver::push(self.context.load(Ordering::Relaxed)) == driver::SUCCESS {
            let events = self.pairs.iter().flat_map(|pair| &pair.events).chain(&self.bases);
            events.map(|event| event.swap(0, Ordering::Relaxed)).filter(|event| *event != 0).for_each(|event| {
                driver::end_event(event);
            });
            match self.stream.swap(0, Ordering::Relaxed) {
                0 => {}
                stream => _ = driver::end_stream(stream),
            }
            match self.memory.swap(0, Ordering::Relaxed) {
                0 => {}
                memory => _ = driver::free(memory),
            }
            match self.gate.swap(0, Ordering::Relaxed) {
                0 => {}
                gate => _ = driver::host_free(gate),
            }
            driver::pop(&mut popped);
        }
        driver::unrelax(mode);
    }

    fn forget(&self, left: bool) {
        for pair in &self.pairs {
            pair.events.iter().for_each(|event| event.store(0, Ordering::Relaxed));
            pair.give_back();
        }
        let others = [&self.stream, &self.memory, &self.gate];
        self.bases.iter().chain(others).for_each(|handle| handle.store(0, Ordering::Relaxed));
        // The state first: who finds the place without a context finds it free.
        self.state.store(if left { FREE } else { GONE }, Ordering::SeqCst);
        self.context.store(0, Ordering::Release);
    }
}

/// Closes the pools of which this is true. How many launches lose their time.
pub(super) fn close(which: impl Fn(&Pool) -> bool) -> u64 {
    let used = |pool: &&Pool| pool.context.load(Ordering::Acquire) != 0 && which(pool);
    ALL.iter().filter(used).map(Pool::close).sum()
}
