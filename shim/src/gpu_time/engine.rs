//! Our thread: switches records on and off as it is time, has CUPTI give them out, and writes them into its ring.

use core::cell::Cell;
use core::ptr;
use core::sync::atomic::{AtomicBool, Ordering};

use gputrace_abi::event::text_kind;
use gputrace_abi::gpu::{WORK_BYTES, WORK_WORDS, WORKS, Work, kind, reason, state};

use super::library::{self, Cupti};
use super::path::Path;
use super::{BELL, BOUND, CUPTI, END, IS_ON, WANTED, aside, at_exit, buffers, locked, names, ready, records, stamp};
use crate::thread::State;
use crate::{ending, session, sys, thread};

/// How often CUPTI is asked for what is complete, while records are on.
const FLUSH_EVERY_NS: u64 = 200_000_000;
/// How often buffers that came back by themselves are read.
const READ_EVERY_NS: u64 = 10_000_000;
/// Nothing is on: a look now and then whether others are done with CUPTI.
const LOOK_EVERY_NS: u64 = 100_000_000;
/// A program may load CUPTI's library, or CUDA's others, after cuInit.
const SEARCHES: u32 = 60;
const SEARCH_EVERY_NS: u64 = 500_000_000;
/// A ring is waited for so long; then what does not fit is counted.
const ROOM_LOOKS: u32 = 2000;

/// CUPTI keeps one clock for the process, and somebody else may have given it theirs.
pub(super) static CLOCK_IS_OURS: AtomicBool = AtomicBool::new(false);
/// CUPTI's buffers are ours.
pub(super) static CALLBACKS_ARE_OURS: AtomicBool = AtomicBool::new(false);

/// Our thread's work.
pub(super) fn run() {
    let Some(state) = thread::state_slow() else { return };
    let mut teller = Teller { state, records: [0; WORKS * WORK_WORDS], count: 0, lost: 0, patient: Cell::new(true) };
    let Some(cupti) = find(&mut teller) else { return };
    let mut engine = Engine { cupti, teller, flushed_ns: 0, refused: false };
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
    /// CUPTI said no, and will again.
    refused: bool,
}

impl Engine {
    fn serve(&mut self) {
        let mut listening = false;
        loop {
            let now = sys::clock_ns(sys::MONOTONIC);
            self.look_aside();
            if !IS_ON.load(Ordering::Relaxed) && !self.refused && !aside::is_wanted(now) {
                self.turn_on();
            }
            let is_on = IS_ON.load(Ordering::Relaxed);
            if !listening && is_on {
                // After CUPTI registered its own functions: what was registered last is called first.
                ending::on_exit(at_exit);
                listening = true;
            }
            ready();
            if is_on && now.saturating_sub(self.flushed_ns) >= FLUSH_EVERY_NS {
                self.flush();
            }
            self.read();
            if !pause(if is_on { READ_EVERY_NS } else { LOOK_EVERY_NS }) {
                break;
            }
        }
        self.end();
    }

    fn end(&mut self) {
        self.look_aside();
        if IS_ON.load(Ordering::Relaxed) {
            let at = session::now();
            locked(None, || switch_off(&self.cupti));
            self.teller.tell_at(text_kind::GPU_TIME, reason::END, state::OFF, b"", at);
        }
        // Not what is theirs.
        if CALLBACKS_ARE_OURS.load(Ordering::Relaxed) {
            self.flush();
        }
        self.read();
    }

    fn turn_on(&mut self) {
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
                self.teller.tell(text_kind::GPU_TIME, reason::FULL, state::ON, b"");
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
    }

    /// Writes the records of the buffers that came back; how many.
    fn read(&mut self) -> u64 {
        let (cupti, teller, mut count) = (self.cupti, &mut self.teller, 0);
        buffers::each_full(|at, valid| {
            let mut record = ptr::null_mut();
            // SAFETY: a buffer that CUPTI filled, with as many bytes as it says; it writes the next record's address.
            while unsafe { (cupti.next)(at, valid, &raw mut record) } == 0 && !record.is_null() {
                // SAFETY: CUPTI returned it, and the buffer is not freed yet.
                if let Some((work, name)) = unsafe { records::read(record) } {
                    teller.add(work, name);
                    count += 1;
                }
            }
        });
        teller.write();
        count
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

/// Writes records and what became of asking into our thread's ring.
struct Teller {
    state: &'static State,
    /// Records that are not written yet.
    records: [u64; WORKS * WORK_WORDS],
    count: usize,
    /// Records for which there was no room.
    lost: u64,
    /// Nobody reads: do not wait for each text.
    patient: Cell<bool>,
}

impl Teller {
    fn add(&mut self, mut work: Work, name: &[u8]) {
        if work.kind == kind::KERNEL && !name.is_empty() {
            work.amount = names::key(name, |key, name| self.tell(text_kind::KERNEL_NAME, key, 0, name));
        }
        if let Some(place) = self.records.get_mut(self.count * WORK_WORDS..).and_then(|rest| rest.first_chunk_mut()) {
            *place = work.to_words();
            self.count += 1;
        }
        if self.count == WORKS {
            self.write();
        }
    }

    fn write(&mut self) {
        if self.count == 0 {
            return;
        }
        let bytes = self.count * WORK_BYTES;
        // SAFETY: words seen as the bytes that they are; both processors that we know are little-endian.
        let text = unsafe { core::slice::from_raw_parts(self.records.as_ptr().cast::<u8>(), bytes) };
        if !self.tell_at(text_kind::GPU_WORK, 0, self.count as u64, text, session::now()) {
            self.lost += self.count as u64;
        }
        self.count = 0;
    }

    fn tell(&self, kind: u64, key: u64, number: u64, text: &[u8]) -> bool {
        self.tell_at(kind, key, number, text, session::now())
    }

    /// Waits for room, which the collector makes every few milliseconds, unless the last text waited in vain.
    fn tell_at(&self, kind: u64, key: u64, number: u64, text: &[u8], at: u64) -> bool {
        let looks = if self.patient.get() { ROOM_LOOKS } else { 1 };
        let told = (0..looks).any(|look| {
            if look > 0 {
                sys::nap(1_000_000);
            }
            self.state.write_text(kind, key, number, text, at)
        });
        self.patient.set(told);
        told
    }
}
