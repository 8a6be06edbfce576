//! Our thread: switches records on and off as it is time, has CUPTI give them out, and writes them into its ring.

use core::ptr;
use core::sync::atomic::{AtomicBool, Ordering};

use gputrace_abi::event::text_kind;
use gputrace_abi::gpu::{reason, state};

use super::library::{self, Cupti};
use super::path::Path;
use super::teller::Teller;
use super::windows::Plan;
use super::{
    BELL, BOUND, CUPTI, END, IS_ON, Mode, WANTED, aside, at_exit, buffers, cupti_is_usable, locked, mode, ready,
    records, stamp,
};
use crate::{ending, session, sys, thread};

/// How often CUPTI is asked for what is complete, while records are on and for some time after.
const FLUSH_EVERY_NS: u64 = 200_000_000;
/// How often buffers that came back by themselves are read.
const READ_EVERY_NS: u64 = 10_000_000;
/// Nothing is on: a look now and then, for who else uses CUPTI and what the collector says of the budget.
const LOOK_EVERY_NS: u64 = 100_000_000;
/// No shorter: the schedule is no matter of microseconds.
const SHORTEST_NAP_NS: u64 = 1_000_000;
/// A program may load CUPTI's library, or CUDA's others, after cuInit.
const SEARCHES: u32 = 60;
const SEARCH_EVERY_NS: u64 = 500_000_000;
/// Work that was given before records went off may run on: flushes until all of it is told, or so many.
const LATE_FLUSHES: u32 = 4;

/// CUPTI keeps one clock for the process, and somebody else may have given it theirs.
pub(super) static CLOCK_IS_OURS: AtomicBool = AtomicBool::new(false);
/// CUPTI's buffers are ours.
pub(super) static CALLBACKS_ARE_OURS: AtomicBool = AtomicBool::new(false);

/// Our thread's work.
pub(super) fn run() {
    let Some(state) = thread::state_slow() else { return };
    let mut teller = Teller::new(state);
    let Some(cupti) = find(&mut teller) else { return };
    let mut engine = Engine { cupti, teller, flushed_ns: 0, late: 0, refused: false, was_usable: true, read: 0 };
    engine.serve();
}

/// Finds the library, or says that there is none.
fn find(teller: &mut Teller) -> Option<Cupti> {
    let mut path = Path::new();
    for search in 0..SEARCHES {
        let version = session::present().map_or(0, |view| view.header().driver_version.load(Ordering::Relaxed));
        // SAFETY: written by the constructor only.
        let wanted = unsafe { &*WANTED.0.get() };
        if let Some(cupti) = library::find(wanted, version, &mut path) {
            let mut version = 0;
            // SAFETY: it writes one number.
            unsafe { (cupti.version)(&raw mut version) };
            teller.tell(text_kind::GPU_TIME, version.into(), state::LIBRARY, path.bytes());
            cupti_is_usable(true);
            // SAFETY: nobody reads it before the address is stored.
            unsafe {
                *BOUND.0.get() = Some(cupti);
                if let Some(bound) = (*BOUND.0.get()).as_ref() {
                    CUPTI.store(ptr::from_ref(bound).cast_mut(), Ordering::Release);
                }
            }
            return Some(cupti);
        }
        if search == 0 {
            teller.tell(text_kind::GPU_TIME, 0, state::NO_LIBRARY, wanted.bytes());
            cupti_is_usable(false);
            ready();
        }
        if !wanted.is_empty() || !pause(SEARCH_EVERY_NS) {
            break;
        }
    }
    None
}

/// Waits for the bell, at most so long. False: the process ends.
fn pause(ns: u64) -> bool {
    let heard = BELL.load(Ordering::Acquire);
    if END.load(Ordering::Acquire) != 0 {
        return false;
    }
    sys::wait(&BELL, heard, ns);
    END.load(Ordering::Acquire) == 0
}

struct Engine {
    cupti: Cupti,
    teller: Teller,
    flushed_ns: u64,
    /// Flushes that are still to be made after records went off.
    late: u32,
    /// CUPTI said no, and will again.
    refused: bool,
    was_usable: bool,
    /// Records that were read since somebody asked.
    read: u64,
}

impl Engine {
    fn serve(&mut self) {
        let mut plan = Plan::new(mode() == Mode::Full);
        let mut listening = false;
        loop {
            let now = sys::clock_ns(sys::MONOTONIC);
            self.look_aside();
            let is_usable = !self.refused && !aside::is_wanted(now);
            if is_usable != self.was_usable {
                self.was_usable = is_usable;
                cupti_is_usable(is_usable);
            }
            let changes_ns = if !is_usable {
                plan.interrupt(now);
                u64::MAX
            } else {
                self.follow(&mut plan, now)
            };
            let is_on = IS_ON.load(Ordering::Relaxed);
            if !listening && is_on {
                // After CUPTI registered its own functions: what was registered last is called first.
                ending::on_exit(at_exit);
                listening = true;
            }
            ready();
            // A flush holds launches up: after a window each comes twice as late as the one before.
            let every_ns = if is_on { FLUSH_EVERY_NS } else { FLUSH_EVERY_NS << (LATE_FLUSHES - self.late) };
            if (is_on || self.late > 0) && now.saturating_sub(self.flushed_ns) >= every_ns {
                self.flush();
            }
            self.read();
            plan.seen(core::mem::take(&mut self.read));
            let nap = if is_on || self.late > 0 { READ_EVERY_NS } else { LOOK_EVERY_NS };
            if !pause(changes_ns.saturating_sub(now).clamp(SHORTEST_NAP_NS, nap)) {
                break;
            }
        }
        self.end();
    }

    /// Switches records as the plan says; until when that holds.
    fn follow(&mut self, plan: &mut Plan, now: u64) -> u64 {
        let (on, until_ns) = plan.step(now);
        match (on, IS_ON.load(Ordering::Relaxed)) {
            (true, false) => {
                self.turn_on(plan.reason());
                plan.began(now);
            }
            (false, true) => {
                self.turn_off(reason::WINDOW);
                self.flush();
            }
            _ => {}
        }
        until_ns
    }

    fn end(&mut self) {
        self.look_aside();
        if IS_ON.load(Ordering::Relaxed) {
            self.turn_off(reason::END);
        }
        // Not what is theirs.
        if CALLBACKS_ARE_OURS.load(Ordering::Relaxed) {
            self.flush();
        }
        self.read();
    }

    fn turn_off(&mut self, why: u64) {
        let at = session::now();
        locked(None, || switch_off(&self.cupti));
        self.teller.tell_at(text_kind::GPU_TIME, why, state::OFF, b"", at);
        self.late = LATE_FLUSHES;
    }

    fn turn_on(&mut self, why: u64) {
        let cupti = self.cupti;
        let refused = locked(None, || {
            if aside::is_wanted(sys::clock_ns(sys::MONOTONIC)) {
                return None;
            }
            if !CLOCK_IS_OURS.load(Ordering::Relaxed) {
                CLOCK_IS_OURS.store(cupti.tell_time(stamp), Ordering::Relaxed);
            }
            // SAFETY: the functions are never unloaded, and take what CUPTI gives them; kinds are CUPTI's numbers.
            unsafe {
                match (cupti.register)(buffers::request, buffers::complete) {
                    0 => CALLBACKS_ARE_OURS.store(true, Ordering::Relaxed),
                    result => return Some((result, &b"cuptiActivityRegisterCallbacks"[..])),
                }
                for (nth, kind) in records::KINDS.into_iter().enumerate() {
                    let result = (cupti.enable)(kind);
                    // Kernels come first; without the others there is still something to see.
                    if result != 0 && nth == 0 {
                        return Some((result, b"cuptiActivityEnable"));
                    }
                }
            }
            IS_ON.store(true, Ordering::Relaxed);
            // Somebody came meanwhile, and could not wait for us.
            if aside::is_wanted(sys::clock_ns(sys::MONOTONIC)) {
                switch_off(&cupti);
            }
            None
        });
        match refused.flatten() {
            Some((result, function)) => {
                self.refused = true;
                self.teller.tell(text_kind::GPU_TIME, result.into(), state::REFUSED, function);
            }
            None if IS_ON.load(Ordering::Relaxed) => {
                self.teller.tell(text_kind::GPU_TIME, why, state::ON, b"");
            }
            None => {}
        }
    }

    /// Tells what [`aside`] did.
    fn look_aside(&mut self) {
        if let Some((at, name, was_on)) = aside::take_news() {
            if was_on {
                self.teller.tell_at(text_kind::GPU_TIME, reason::ASIDE, state::OFF, b"", at);
            }
            self.late = 0;
            self.teller.tell_at(text_kind::GPU_TIME, 0, state::ASIDE, name, at);
        }
        if aside::is_over(sys::clock_ns(sys::MONOTONIC)) {
            self.teller.tell(text_kind::GPU_TIME, 0, state::RESUMED, b"");
        }
    }

    /// Has CUPTI give back what is complete.
    fn flush(&mut self) {
        self.flushed_ns = sys::clock_ns(sys::MONOTONIC);
        let cupti = self.cupti;
        let flushed = locked(None, || {
            let ours = CALLBACKS_ARE_OURS.load(Ordering::Relaxed) && !aside::is_wanted(self.flushed_ns);
            // SAFETY: a flag: only what is complete.
            ours && unsafe { (cupti.flush)(0) } == 0
        });
        self.read();
        if flushed == Some(true) {
            let dropped = buffers::DROPPED.load(Ordering::Relaxed) + self.teller.lost;
            self.teller.tell(text_kind::GPU_TIME, dropped, state::SETTLED, b"");
        }
        if !IS_ON.load(Ordering::Relaxed) {
            self.late = self.late.saturating_sub(1);
        }
    }

    /// Writes the records of the buffers that came back.
    fn read(&mut self) {
        let (cupti, teller, count) = (self.cupti, &mut self.teller, &mut self.read);
        buffers::each_full(|at, valid| {
            let mut record = ptr::null_mut();
            // SAFETY: a buffer that CUPTI filled, with as many bytes as it says; it writes the next record's address.
            while unsafe { (cupti.next)(at, valid, &raw mut record) } == 0 && !record.is_null() {
                // SAFETY: CUPTI returned it, and the buffer is not freed yet.
                if let Some((work, name)) = unsafe { records::read(record) } {
                    teller.add(work, name);
                    *count += 1;
                }
            }
        });
        teller.write();
    }
}

/// Switches records off. Under the lock.
pub(super) fn switch_off(cupti: &Cupti) {
    if IS_ON.swap(false, Ordering::Relaxed) {
        for kind in records::KINDS {
            // SAFETY: a kind that was enabled.
            unsafe { (cupti.disable)(kind) };
        }
    }
}
