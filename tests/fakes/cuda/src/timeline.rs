//! The device's time: a discrete-event simulation that is held to the host's clock.
//!
//! Every operation starts at the latest of: its call, the end of what stands before it in its stream, the end of what
//! it waits for, and the freeing of its copy engine. It ends its duration later. Ends are handled in their order, so
//! the times are exact however late a thread wakes; nothing is visible to the host before its end. A waiting thread
//! drives the simulation itself. A thread of our own, started when first needed, drives it only while effects are
//! pending that the host could see without asking (a copy to pinned memory, a host function); a second one runs host
//! functions and callbacks.

use crate::observe;
use crate::state::{Cause, Driver, Guard, locked};
use crate::truth;
use crate::work::{Span, Step, Work};
use std::cmp::Reverse;
use std::collections::{BinaryHeap, VecDeque};
use std::sync::Condvar;
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};
use std::time::Duration;

/// Operations that have not ended, of all streams; read without the lock by the quiet path of launches.
pub(crate) static PENDING: AtomicU64 = AtomicU64::new(0);

static DONE: Condvar = Condvar::new();
static CLOCK: Condvar = Condvar::new();
static HOST: Condvar = Condvar::new();

/// A waiter polls the clock for the last part of a wait, as the vendor's driver does; sleeping overshoots by this.
const SPIN_NS: u64 = 80_000;
/// How long a waiter sleeps at most before it looks whether it was cancelled.
const SLICE_NS: u64 = 10_000_000;

pub(crate) struct Op {
    pub(crate) seq: u64,
    pub(crate) cause: Cause,
    /// Streams, each with the sequence number that it must have reached.
    pub(crate) after: Vec<(u64, u64)>,
    pub(crate) work: Work,
}

pub(crate) struct Timeline {
    /// (end, order of start, stream) of the running operations.
    running: BinaryHeap<Reverse<(u64, u64, u64)>>,
    started: u64,
    engines: [[u64; 2]; 8],
    /// Streams whose next operation may be able to start, and since when.
    ready: Vec<(u64, u64)>,
    /// Streams whose running operation waits for the callback thread.
    hosts: VecDeque<u64>,
    visible: u64,
    clock_thread: bool,
    host_thread: bool,
    /// Until when the clock thread sleeps; 0 while it is awake.
    sleeps_until: u64,
}

pub(crate) fn now() -> u64 {
    let mut time = libc::timespec { tv_sec: 0, tv_nsec: 0 };
    unsafe { libc::clock_gettime(libc::CLOCK_MONOTONIC, &mut time) };
    time.tv_sec as u64 * 1_000_000_000 + time.tv_nsec as u64
}

impl Timeline {
    pub(crate) fn new() -> Timeline {
        Timeline {
            running: BinaryHeap::new(),
            started: 0,
            engines: [[0; 2]; 8],
            ready: Vec::new(),
            hosts: VecDeque::new(),
            visible: 0,
            clock_thread: false,
            host_thread: false,
            sleeps_until: 0,
        }
    }
}

impl Driver {
    /// Puts an operation into a stream; returns its sequence number there.
    pub(crate) fn issue(&mut self, stream: u64, work: Work, after: Vec<(u64, u64)>) -> u64 {
        let now = now();
        if work.visible() {
            self.timeline.visible += 1;
        }
        let has_host = work.has_host();
        PENDING.fetch_add(1, Relaxed);
        let Some(s) = self.streams.get_mut(stream) else { return 0 };
        s.issued += 1;
        let seq = s.issued;
        let cause = Cause { issued_ns: now, tid: truth::tid(), tag: observe::call() };
        s.ops.push_back(Op { seq, cause, after, work });
        if s.ops.len() == 1 {
            self.timeline.ready.push((stream, now));
        }
        self.advance(now);
        if self.timeline.visible > 0 {
            self.wake(has_host);
        }
        seq
    }

    /// Handles everything that ended by `now`, in the order of its end.
    pub(crate) fn advance(&mut self, now: u64) {
        loop {
            if let Some((stream, at)) = self.timeline.ready.pop() {
                self.start(stream, at);
                continue;
            }
            match self.timeline.running.peek() {
                Some(Reverse((end, ..))) if *end <= now => {}
                _ => return,
            }
            let Some(Reverse((end, _, stream))) = self.timeline.running.pop() else { return };
            match self.streams.get(stream).and_then(|s| s.ops.front()) {
                Some(op) if op.work.has_host() => {
                    self.timeline.hosts.push_back(stream);
                    HOST.notify_one();
                }
                _ => self.finish(stream, end, true),
            }
        }
    }

    /// Starts the next operation of a stream, if what it waits for has ended.
    fn start(&mut self, stream: u64, at: u64) {
        let Some(s) = self.streams.get(stream) else { return };
        let Some(op) = s.ops.front() else { return };
        if s.running {
            return;
        }
        let open = op.after.iter().find(|(other, seq)| self.streams.get(*other).is_some_and(|o| o.done < *seq));
        if let Some(&(other, _)) = open {
            if let Some(o) = self.streams.get_mut(other) {
                o.blocks.push(stream);
            }
            return;
        }
        let mut start = at.max(op.cause.issued_ns).max(s.last_end_ns);
        let device = s.device;
        let (engine, ns) = (op.work.engine(), op.work.ns());
        if let Some(engine) = engine {
            start = start.max(self.timeline.engines[device][engine]);
            self.timeline.engines[device][engine] = start + ns;
        }
        if let Some(s) = self.streams.get_mut(stream) {
            s.running = true;
            s.started_ns = start;
        }
        self.timeline.started += 1;
        self.timeline.running.push(Reverse((start + ns, self.timeline.started, stream)));
    }

    /// Ends a stream's running operation and lets go on what waited for it.
    fn finish(&mut self, stream: u64, end: u64, effect: bool) {
        let Some(s) = self.streams.get_mut(stream) else { return };
        let Some(op) = s.ops.pop_front() else { return };
        s.done = op.seq;
        s.last_end_ns = end;
        s.running = false;
        let start = s.started_ns;
        let blocked = std::mem::take(&mut s.blocks);
        let gone = s.destroyed && s.ops.is_empty();
        self.timeline.ready.push((stream, end));
        self.timeline.ready.extend(blocked.into_iter().map(|blocked| (blocked, end)));
        PENDING.fetch_sub(1, Relaxed);
        if op.work.visible() {
            self.timeline.visible -= 1;
        }
        self.cause = op.cause;
        if effect {
            op.work.effect(self, Span { stream, start, end, node: 0 });
        }
        if gone
            && let Some(s) = self.streams.remove(stream)
            && let Some(context) = self.contexts.get_mut(s.context)
        {
            context.all_streams.retain(|other| *other != stream);
        }
    }

    /// Sees to it that a thread of ours is awake in time for the next visible effect.
    fn wake(&mut self, host: bool) {
        if host && !self.timeline.host_thread {
            self.timeline.host_thread = true;
            spawn("cuda-callback", run_host_functions);
        }
        if !self.timeline.clock_thread {
            self.timeline.clock_thread = true;
            spawn("cuda-clock", run_clock);
        }
        if self.next_end().is_some_and(|end| end < self.timeline.sleeps_until) {
            CLOCK.notify_one();
        }
    }

    fn next_end(&self) -> Option<u64> {
        self.timeline.running.peek().map(|Reverse((end, ..))| *end)
    }
}

unsafe extern "C" {
    fn pthread_testcancel();
}

/// Keeps the calling thread busy until then.
pub(crate) fn busy_until(end: u64) {
    while now() < end {
        std::hint::spin_loop();
    }
}

/// Blocks until `done` holds, driving the simulation meanwhile. A thread can be cancelled in it.
pub(crate) fn wait(mut driver: Guard, done: impl Fn(&Driver) -> bool) -> Guard {
    loop {
        let time = now();
        driver.advance(time);
        if done(&driver) {
            return driver;
        }
        driver = match driver.next_end() {
            Some(end) if end <= time + SPIN_NS => {
                drop(driver);
                busy_until(end);
                locked()
            }
            next => {
                drop(driver);
                unsafe { pthread_testcancel() };
                let sleep = next.map_or(SLICE_NS, |end| end.saturating_sub(now() + SPIN_NS / 2).min(SLICE_NS));
                DONE.wait_timeout(locked(), Duration::from_nanos(sleep)).unwrap_or_else(|e| e.into_inner()).0
            }
        };
    }
}

fn run_clock() {
    let mut driver = locked();
    loop {
        driver.advance(now());
        let time = now();
        let next = driver.next_end().filter(|_| driver.timeline.visible > 0);
        driver.timeline.sleeps_until = next.unwrap_or(u64::MAX);
        driver = match next {
            None => CLOCK.wait(driver).unwrap_or_else(|e| e.into_inner()),
            Some(end) => {
                let sleep = Duration::from_nanos(end.saturating_sub(time));
                CLOCK.wait_timeout(driver, sleep).unwrap_or_else(|e| e.into_inner()).0
            }
        };
        driver.timeline.sleeps_until = 0;
    }
}

fn run_host_functions() {
    let mut driver = locked();
    loop {
        let Some(stream) = driver.timeline.hosts.pop_front() else {
            driver = HOST.wait(driver).unwrap_or_else(|e| e.into_inner());
            continue;
        };
        let Some((work, start, context)) =
            driver.streams.get(stream).and_then(|s| Some((s.ops.front()?.work.clone(), s.started_ns, s.context)))
        else {
            continue;
        };
        let status = driver.sticky(context);
        driver = match &work {
            // What stands before a host function in its graph must have happened when it runs.
            Work::Graph(plan) => plan.steps.iter().fold(driver, |driver, step| run_step(driver, step, stream, start)),
            _ => unlocked(driver, || work.host_part(status)),
        };
        let time = now();
        driver.finish(stream, time, false);
        driver.advance(time);
        if driver.timeline.visible > 0 {
            driver.wake(true);
        }
        DONE.notify_all();
    }
}

fn run_step(mut driver: Guard, step: &Step, stream: u64, start: u64) -> Guard {
    if step.work.has_host() {
        return unlocked(driver, || step.work.host_part(0));
    }
    let cause = driver.streams.get(stream).and_then(|s| s.ops.front()).map(|op| op.cause);
    driver.cause = cause.unwrap_or_default();
    step.work.effect(&mut driver, step.span(Span { stream, start, end: start, node: 0 }));
    driver
}

/// Runs a client's function, which may take as long as it likes, without the lock.
fn unlocked(driver: Guard, body: impl FnOnce()) -> Guard {
    drop(driver);
    body();
    locked()
}

/// Starts a thread of the driver, which takes none of the process's signals.
fn spawn(name: &str, body: fn()) {
    unsafe {
        let mut all = std::mem::zeroed();
        let mut before = std::mem::zeroed();
        libc::sigfillset(&mut all);
        libc::pthread_sigmask(libc::SIG_SETMASK, &all, &mut before);
        let thread = std::thread::Builder::new().name(name.to_owned()).stack_size(256 << 10).spawn(body);
        libc::pthread_sigmask(libc::SIG_SETMASK, &before, std::ptr::null_mut());
        if let Err(error) = thread {
            eprintln!("fake-cuda: no thread {name}: {error}");
        }
    }
}
