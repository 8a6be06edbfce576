//! What our thread has CUPTI do: records go on and off, what is complete is given out and read, and CUPTI is taken off.

use core::ptr;
use core::sync::atomic::{AtomicBool, Ordering};

use gputrace_abi::activity::Activity;
use gputrace_abi::event::text_kind;
use gputrace_abi::gpu::{Work, state};

use super::clock::Clock;
use super::engine::Engine;
use super::library::Cupti;
use super::{IS_ON, activity, aside, buffers, detach, flusher, locked, records, stamp};
use crate::{session, sys};

/// Flushes that may fail one after the other.
const PATIENCE: u32 = 3;

/// CUPTI keeps one clock for the process, and somebody else may have given it theirs.
pub(super) static CLOCK_IS_OURS: AtomicBool = AtomicBool::new(false);
/// CUPTI's buffers are ours.
pub(super) static CALLBACKS_ARE_OURS: AtomicBool = AtomicBool::new(false);
/// They were ours at some time.
pub(super) static WAS_USED: AtomicBool = AtomicBool::new(false);

impl Engine {
    pub(super) fn turn_on(&mut self, why: u64) {
        let (cupti, clock) = (self.cupti, &mut self.clock);
        let refused = locked(None, || {
            if aside::is_wanted(sys::clock_ns(sys::MONOTONIC)) {
                return None;
            }
            let result = register(&cupti, clock);
            if result != 0 {
                return Some((result, &b"cuptiActivityRegisterCallbacks"[..]));
            }
            // SAFETY: the functions are never unloaded; kinds are CUPTI's numbers.
            unsafe {
                for (nth, kind) in records::KINDS.into_iter().enumerate() {
                    let result = (cupti.enable)(kind);
                    // Kernels come first; without the others there is still something to see.
                    if result != 0 && nth == 0 {
                        return Some((result, b"cuptiActivityEnable"));
                    }
                }
            }
            activity::switch_on(&cupti);
            IS_ON.store(true, Ordering::Relaxed);
            // Somebody came meanwhile, and could not wait for us.
            if aside::is_wanted(sys::clock_ns(sys::MONOTONIC)) {
                switch_off(&cupti);
            }
            None
        });
        match refused.flatten() {
            Some((result, function)) => {
                self.is_off_for_good = true;
                self.teller.tell(text_kind::GPU_TIME, result.into(), state::REFUSED, function);
            }
            None if IS_ON.load(Ordering::Relaxed) => {
                activity::tell_refusals(&self.teller);
                self.teller.tell(text_kind::GPU_TIME, why, state::ON, b"");
                self.settled = session::now();
                self.compare_clocks();
            }
            None => {}
        }
    }

    /// Where CUPTI keeps its own clock while records are on. At their beginning and end, and before any are read.
    fn compare_clocks(&mut self) {
        let is_theirs = !CLOCK_IS_OURS.load(Ordering::Relaxed) && IS_ON.load(Ordering::Relaxed);
        if is_theirs && let Some(error_ns) = self.clock.compare(&self.cupti) {
            self.teller.tell(text_kind::GPU_TIME, error_ns, state::CLOCK, b"");
        }
    }

    /// Puts CUPTI on the process, and no records.
    pub(super) fn put_on(&mut self) {
        let (cupti, clock) = (self.cupti, &mut self.clock);
        locked(None, || {
            let is_theirs = aside::is_wanted(sys::clock_ns(sys::MONOTONIC));
            (!is_theirs && !detach::IS_THERE.load(Ordering::Relaxed)).then(|| register(&cupti, clock))
        });
    }

    pub(super) fn turn_off(&mut self, why: u64) {
        self.compare_clocks();
        let at = session::now();
        self.closed = at;
        locked(None, || switch_off(&self.cupti));
        self.teller.tell_at(text_kind::GPU_TIME, why, state::OFF, b"", at);
    }

    /// Has CUPTI give back what is complete; how many records that were.
    pub(super) fn flush(&mut self) -> u64 {
        self.flushed_ns = sys::clock_ns(sys::MONOTONIC);
        let mut told = 0;
        let flushed = locked(None, || {
            let ours = CALLBACKS_ARE_OURS.load(Ordering::Relaxed) && !aside::is_wanted(self.flushed_ns);
            ours.then(|| flusher::flush(|| told += self.read()))
        });
        told += self.read();
        match flushed.flatten() {
            Some(0) => {
                self.failed = 0;
                self.settled(session::now());
            }
            Some(result) => {
                self.failed += 1;
                self.teller.tell(text_kind::GPU_TIME, result.into(), state::REFUSED, b"cuptiActivityFlushAll");
                if self.failed == PATIENCE && !self.is_off_for_good {
                    self.fail();
                }
            }
            None => {}
        }
        told
    }

    /// All that was complete at this moment, in ticks, is told.
    pub(super) fn settled(&mut self, at: u64) {
        self.settled = at;
        let dropped = buffers::dropped() + self.teller.lost;
        self.teller.tell_at(text_kind::GPU_TIME, dropped, state::SETTLED, b"", at);
    }

    /// Writes the records of all buffers that came back; how many.
    pub(super) fn read(&mut self) -> u64 {
        self.read_some(buffers::MOST).0
    }

    /// Writes the records of the buffers that came back first, at most so many; how many records, and since when
    /// the buffer is there that is next, in ticks.
    pub(super) fn read_some(&mut self, most: usize) -> (u64, Option<u64>) {
        self.compare_clocks();
        let (cupti, clock, teller, mut count) = (self.cupti, &self.clock, &mut self.teller, 0);
        let busy = &mut self.busy;
        let ours = |time: u64| if time == 0 { 0 } else { clock.ours(time) };
        let next = buffers::read_full(most, |at, valid| {
            let mut record = ptr::null_mut();
            // SAFETY: a buffer that CUPTI filled, with as many bytes as it says; it writes the next record's address.
            while unsafe { (cupti.next)(at, valid, &raw mut record) } == 0 && !record.is_null() {
                // SAFETY: CUPTI returned it, and the buffer is not freed yet.
                if let Some((work, name)) = unsafe { records::read(record) } {
                    let work = Work { start: ours(work.start), end: ours(work.end), ..work };
                    busy.worked(work.device, work.start, work.end);
                    teller.add(work, name);
                    count += 1;
                // SAFETY: the same.
                } else if let Some(found) = unsafe { activity::read(record) } {
                    teller.add_activity(&Activity { start: ours(found.start), end: ours(found.end), ..found });
                }
            }
        });
        teller.write();
        self.plan.seen(count);
        (count, next)
    }

    /// Takes CUPTI off the process, until it is used again; whether it went.
    pub(super) fn detach(&mut self) -> bool {
        self.read();
        let cupti = self.cupti;
        let began_ns = sys::clock_ns(sys::MONOTONIC);
        let done = locked(None, || !aside::is_wanted(began_ns) && detach::take_off(&cupti));
        if done == Some(true) {
            let took_ns = sys::clock_ns(sys::MONOTONIC) - began_ns;
            self.teller.tell(text_kind::GPU_TIME, took_ns, state::DETACHED, b"");
        }
        done == Some(true)
    }
}

/// Gives CUPTI our clock and our buffers, which puts it on the process; its result. Under the lock.
fn register(cupti: &Cupti, clock: &mut Clock) -> u32 {
    if !CLOCK_IS_OURS.load(Ordering::Relaxed) {
        CLOCK_IS_OURS.store(cupti.tell_time(stamp), Ordering::Relaxed);
        *clock = Clock::new();
    }
    // SAFETY: the function is never unloaded, and ours take what CUPTI gives them.
    let result = unsafe { (cupti.register)(buffers::request, buffers::complete) };
    if result == 0 {
        let all = [&CALLBACKS_ARE_OURS, &WAS_USED, &detach::IS_THERE];
        all.into_iter().for_each(|is| is.store(true, Ordering::Relaxed));
    }
    result
}

/// Switches records off. Under the lock.
pub(super) fn switch_off(cupti: &Cupti) {
    if IS_ON.swap(false, Ordering::Relaxed) {
        for kind in records::KINDS {
            // SAFETY: a kind that was enabled.
            unsafe { (cupti.disable)(kind) };
        }
        activity::switch_off(cupti);
    }
}
