//! Our thread: makes pools of events, asks for the times of those that the GPU has passed, and writes them into its ring.
//!
//! It never waits for the GPU, and makes no call of the driver while a stream is being captured.

use core::ffi::c_void;
use core::ptr;
use core::sync::atomic::Ordering;

use gputrace_abi::event::text_kind;
use gputrace_abi::sample::{Account, SAMPLE_WORDS, SAMPLES, Sample};
use gputrace_abi::shed::Shed;

use super::super::batch::{self, Batch};
use super::super::windows;
use super::clock::{Clock, Times};
use super::pace::Pace;
use super::pool::{PAIRS, Pair, Pool};
use super::price::Price;
use super::{BELL, END, IS_ON, LOST, OWNER, WITHOUT_ROOM, driver, price};
use crate::thread::State;
use crate::{capture, ending, frame, session, sys, thread};

/// How often times are asked for: pairs of a pool are free again after so long.
const LOOK_EVERY_NS: u64 = 5_000_000;
/// Nothing is timed.
const REST_NS: u64 = 100_000_000;
/// How often both clocks are compared, while there is something to time.
const COMPARE_EVERY_NS: u64 = 50_000_000;
/// How often it is said what became of the launches that were drawn.
const TELL_EVERY_NS: u64 = 100_000_000;
/// Pairs of a pool that are asked about in vain, in one look.
const IN_VAIN: usize = 32;
/// A comparison that took longer is made again: later, where all of some did, and then longer is good enough.
const GOOD_NS: u64 = 20_000;
pub(super) const TRIES: u32 = 4;
const MOST_BAD: u32 = 8;
/// The GPU is waited for so long in one.
const PATIENCE_NS: u64 = 5_000_000;
/// How long the end of the program waits for our thread.
const LAST_WAIT_NS: u64 = 1_000_000_000;

/// What our thread knows of a pool.
struct Known {
    context: u64,
    clock: Option<Clock>,
    compared_ns: u64,
    /// Which of its base events stands for the last comparison.
    base: usize,
    /// What a pair takes by itself.
    price: Price,
    /// Where the next look begins.
    first: usize,
    /// Pairs were recorded since the last comparison.
    used: bool,
    /// Comparisons since the last good one.
    bad: u32,
}

/// Samples that are not written yet, and the account.
struct Teller {
    state: &'static State,
    samples: Batch<{ SAMPLES * SAMPLE_WORDS }>,
    account: Account,
    told: Account,
    told_ns: u64,
}

pub(super) unsafe extern "C" fn run(_: *mut c_void) -> *mut c_void {
    sys::name_thread(c"gputrace-events");
    if let Some(state) = thread::state_slow() {
        // What the driver calls of itself in calls of ours is no call of the program's.
        let mut mark = 0usize;
        frame::stamp(&raw mut mark);
        state.guard.set(&raw const mark as usize);
        driver::relax();
        ending::on_exit(at_exit);
        serve(state);
        state.guard.set(0);
    }
    END.store(2, Ordering::Release);
    sys::wake(&END);
    ptr::null_mut()
}

/// The program ends: has our thread tell the rest.
unsafe extern "C" fn at_exit(_: core::ffi::c_int, _: *mut c_void) {
    if OWNER.load(Ordering::Relaxed) != sys::getpid() {
        return;
    }
    IS_ON.store(false, Ordering::Relaxed);
    if END.compare_exchange(0, 1, Ordering::Release, Ordering::Relaxed).is_ok() {
        super::ring();
        super::super::wait_for(&END, 2, LAST_WAIT_NS);
    }
}

fn serve(state: &'static State) {
    const UNKNOWN: Option<Known> = None;
    let mut known = [UNKNOWN; 16];
    let mut teller =
        Teller { state, samples: Batch::new(), account: Account::default(), told: Account::default(), told_ns: 0 };
    let mut pace = Pace::new(sys::clock_ns(sys::MONOTONIC));
    loop {
        let heard = BELL.load(Ordering::Acquire);
        let ends = END.load(Ordering::Acquire) != 0;
        let mut pending = false;
        if !capture::any() {
            for (pool, known) in Pool::all().zip(&mut known) {
                pending |= look(pool, known, &mut teller);
            }
        }
        teller.write();
        teller.say(ends);
        let rarer = Shed::of(state.header().shed.load(Ordering::Relaxed)).launches;
        pace.set(sys::clock_ns(sys::MONOTONIC), windows::events_ppm(), rarer);
        if ends {
            return;
        }
        let rests = !pending && !IS_ON.load(Ordering::Relaxed);
        sys::wait(&BELL, heard, if rests { REST_NS } else { LOOK_EVERY_NS });
    }
}

/// Looks after a pool. Whether pairs of it are still under way.
fn look(pool: &'static Pool, known: &mut Option<Known>, teller: &mut Teller) -> bool {
    let made = pool.make(|| {
        let made = in_context(pool, || make(pool)).flatten();
        pool.made(made.is_some());
        made
    });
    if let Some(made) = made {
        *known = made;
        if let Some(known) = known {
            teller.account.contexts += 1;
            teller.account.pair_ns = known.price.queued_ns as u64;
            teller.account.assumed += u64::from(known.price.is_assumed);
        }
    }
    let Some(known) = known else { return false };
    let pending = pool.serve(|| {
        let is_same = pool.context.load(Ordering::Relaxed) == known.context;
        is_same && in_context(pool, || ask(pool, known, teller)).unwrap_or(false)
    });
    pending.unwrap_or(false)
}

/// Does work in a pool's context. None: the driver refuses.
fn in_context<R>(pool: &Pool, work: impl FnOnce() -> R) -> Option<R> {
    if driver::push(pool.context.load(Ordering::Relaxed)) != driver::SUCCESS {
        return None;
    }
    let done = work();
    let mut popped = 0;
    driver::pop(&mut popped);
    Some(done)
}

/// Makes the events of a pool. None: not all of them.
fn make(pool: &Pool) -> Option<Known> {
    let (mut device, mut stream) = (0, 0);
    if driver::device(&mut device) == driver::SUCCESS {
        pool.device.store(device as u32, Ordering::Relaxed);
    }
    if driver::make_stream(&mut stream, driver::NON_BLOCKING) != driver::SUCCESS {
        return None;
    }
    pool.stream.store(stream, Ordering::Relaxed);
    for place in pool.bases.iter().chain(pool.pairs().iter().flat_map(|pair| &pair.events)) {
        let mut event = 0;
        if !sees_out_captures(pool) || driver::make_event(&mut event, 0) != driver::SUCCESS {
            return None;
        }
        place.store(event, Ordering::Relaxed);
    }
    let price = price::of_pair(pool, stream)?;
    let context = pool.context.load(Ordering::Relaxed);
    Some(Known { context, clock: None, compared_ns: 0, base: 0, price, first: 0, used: true, bad: 0 })
}

/// Waits until no stream is being captured. False: there is no need of the pool any more.
pub(super) fn sees_out_captures(pool: &Pool) -> bool {
    while capture::any() && pool.goes_on() && END.load(Ordering::Acquire) == 0 {
        sys::nap(200_000);
    }
    pool.goes_on() && !capture::any()
}

/// Waits until the GPU passes an event of our own stream, which has nothing else to do; not for ever.
pub(super) fn passes(event: u64) -> bool {
    let until = sys::clock_ns(sys::MONOTONIC) + PATIENCE_NS;
    loop {
        match driver::query(event) {
            driver::SUCCESS => return true,
            driver::NOT_READY if !capture::any() && sys::clock_ns(sys::MONOTONIC) < until => core::hint::spin_loop(),
            _ => return false,
        }
    }
}

/// Asks for the times of a pool's pairs. Whether some are still under way.
fn ask(pool: &'static Pool, known: &mut Known, teller: &mut Teller) -> bool {
    let now = sys::clock_ns(sys::MONOTONIC);
    let recorded = pool.pairs().iter().any(Pair::is_recorded);
    known.used |= recorded;
    if (known.used || known.clock.is_none()) && now.saturating_sub(known.compared_ns) >= COMPARE_EVERY_NS {
        known.compare(pool, now);
    }
    if !recorded || known.clock.is_none() {
        return recorded;
    }
    let (mut in_vain, first) = (0, known.first);
    for nth in (0..PAIRS).map(|nth| (first + nth) % PAIRS) {
        let Some(pair) = pool.pairs().get(nth).filter(|pair| pair.is_recorded()) else { continue };
        if !pool.is_ready() || capture::any() {
            return true;
        }
        match driver::query(pair.event(1)) {
            driver::SUCCESS => {
                known.take(pool, pair, teller);
                pair.give_back();
            }
            driver::NOT_READY => {
                in_vain += 1;
                if in_vain == IN_VAIN {
                    known.first = nth + 1;
                    break;
                }
            }
            _ => {
                // The context is broken, and will not be better.
                LOST.fetch_add(1, Ordering::Relaxed);
                pair.give_back();
                pool.give_up();
                return false;
            }
        }
    }
    in_vain > 0
}

impl Known {
    /// Compares the GPU's clock with ours.
    fn compare(&mut self, pool: &Pool, now: u64) {
        let stream = pool.stream.load(Ordering::Relaxed);
        let [base, next] =
            [self.base, 1 - self.base].map(|nth| pool.bases.get(nth).map_or(0, |e| e.load(Ordering::Relaxed)));
        let mut at = None;
        for _ in 0..TRIES {
            let (monotonic_ns, ticks) = (sys::clock_ns(sys::MONOTONIC), session::now());
            if driver::record(next, stream) != driver::SUCCESS || !passes(next) {
                at = None;
                break;
            }
            let took_ns = sys::clock_ns(sys::MONOTONIC).saturating_sub(monotonic_ns);
            at = Some((monotonic_ns, ticks, took_ns));
            if took_ns < GOOD_NS {
                break;
            }
        }
        // A device that is too busy for our stream, or a host for our thread, is asked again in the next look.
        let good = GOOD_NS << self.bad;
        let Some((monotonic_ns, ticks, took_ns)) = at.filter(|(_, _, took_ns)| *took_ns < good) else {
            self.bad = (self.bad + 1).min(MOST_BAD);
            return;
        };
        (self.compared_ns, self.bad) = (now, 0);
        match &mut self.clock {
            None => self.clock = Some(Clock::new(ticks, monotonic_ns, rate(ticks, monotonic_ns), took_ns as f64)),
            Some(clock) => {
                let Some(gpu_ns) = driver::ns_between(base, next) else { return };
                clock.compare(gpu_ns, ticks, monotonic_ns, took_ns as f64);
            }
        }
        (self.base, self.used) = (1 - self.base, false);
    }

    /// Takes the times of a pair that the GPU has passed.
    fn take(&mut self, pool: &Pool, pair: &Pair, teller: &mut Teller) {
        let base = pool.bases.get(self.base).map_or(0, |event| event.load(Ordering::Relaxed));
        let [first, second] = [pair.event(0), pair.event(1)];
        let times = self.clock.as_mut().zip(driver::ns_between(base, first)).zip(driver::ns_between(first, second));
        let Some(((clock, from), pair_ns)) = times else {
            LOST.fetch_add(1, Ordering::Relaxed);
            return;
        };
        let ticks = [0, 1, 2, 3].map(|nth| pair.ticks.get(nth).map_or(0, |tick| tick.load(Ordering::Relaxed)));
        let Some(ran) = clock.ran(&Times { ticks, gpu_ns: [from, from + pair_ns] }, self.price) else {
            teller.account.late += 1;
            return;
        };
        let sample = Sample::from_words(&[pair.about.load(Ordering::Relaxed), 0, 0, 0, 0]);
        let [_, call, ..] = ticks;
        teller.add(Sample {
            call,
            start: ran.start_ns,
            gpu: ran.gpu_ns as u64,
            pair: pair_ns.max(0.0) as u64,
            ..sample
        });
        teller.account.error_ns = teller.account.error_ns.max(clock.error_ns as u64);
    }
}

/// ns in a tick, as far as the process has run.
fn rate(ticks: u64, monotonic_ns: u64) -> f64 {
    let Some(view) = session::present().filter(|_| session::uses_counter()) else { return 1.0 };
    let began = view.started();
    let (ns, ticks) = (monotonic_ns.saturating_sub(began.monotonic_ns), ticks.saturating_sub(began.ticks));
    if ticks == 0 { 1.0 } else { ns as f64 / ticks as f64 }
}

impl Teller {
    fn add(&mut self, sample: Sample) {
        if self.samples.push(sample.to_words()) {
            self.write();
        }
    }

    fn write(&mut self) {
        let count = self.samples.count(SAMPLE_WORDS);
        if count == 0 {
            return;
        }
        let told = self.tell(text_kind::GPU_SAMPLES, count, self.samples.text());
        *(if told { &mut self.account.timed } else { &mut self.account.dropped }) += count;
        self.samples.clear();
    }

    /// Says what became of the launches that were drawn, where that is news.
    fn say(&mut self, last: bool) {
        let now = sys::clock_ns(sys::MONOTONIC);
        self.account.without_room = WITHOUT_ROOM.load(Ordering::Relaxed);
        self.account.lost = LOST.load(Ordering::Relaxed);
        let news = self.account != self.told;
        if !last && (!news || now.saturating_sub(self.told_ns) < TELL_EVERY_NS) {
            return;
        }
        self.told_ns = now;
        if self.tell(text_kind::GPU_SAMPLING, 0, batch::bytes(&self.account.to_words())) {
            self.told = self.account;
        }
    }

    fn tell(&self, kind: u64, number: u64, text: &[u8]) -> bool {
        self.state.write_text(kind, 0, number, text, session::now())
    }
}
