//! Ticks of the processor's counter to nanoseconds since the Unix epoch.
//!
//! The collector reads counter, CLOCK_MONOTONIC and CLOCK_REALTIME together, often at first, then once a second. Over
//! the last minutes' pairs lies a line, and conversion follows it in pieces that join, so that time never jumps or
//! runs backwards within a run. The distance between CLOCK_MONOTONIC and CLOCK_REALTIME is taken once, at the start:
//! an administrator who sets the date in the middle of a run does not tear the trace.

use std::collections::VecDeque;
use std::time::Duration;

use gputrace_abi::clock::{ClockKind, counter};

use crate::manifest::{self, Pair};

/// The clock that the shim calls monotonic: on macOS the one of mach_absolute_time.
const MONOTONIC: libc::clockid_t = if cfg!(target_os = "macos") { CLOCK_UPTIME_RAW } else { libc::CLOCK_MONOTONIC };
/// Its number on macOS.
const CLOCK_UPTIME_RAW: libc::clockid_t = 8;

/// Bits after the point in [`Piece::slope`].
const POINT: u32 = 32;
/// Pairs over which the slope is taken.
const WINDOW: usize = 128;
/// Pairs that the manifest keeps; then every other one goes.
const KEPT: usize = 512;
/// Pieces that may still be needed: events are converted within a second of their reading.
const PIECES: usize = 64;
const SECOND: u64 = 1_000_000_000;
/// The first two pairs lie so far apart: each is some ten nanoseconds off, and the line through them is the clock of all
/// that comes before the third.
const FIRST_NS: u64 = 1_000_000;

/// A stretch of the conversion: from `ticks` on, at this slope.
#[derive(Clone, Copy, Debug)]
struct Piece {
    ticks: u64,
    ns: i64,
    /// Nanoseconds per tick, 32 bits after the point.
    slope: u64,
}

impl Piece {
    fn at(&self, ticks: u64) -> i64 {
        let forward = ticks.wrapping_sub(self.ticks) as i64;
        let ns = (i128::from(forward) * i128::from(self.slope)) >> POINT;
        (i128::from(self.ns) + ns).clamp(i64::MIN.into(), i64::MAX.into()) as i64
    }
}

/// The wall clock as it was at the start, and what has passed since: an administrator who sets the date makes nothing old.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Time {
    monotonic_ns: u64,
    realtime_ns: i64,
    /// How many times as fast as it does time passes.
    speed: u32,
}

impl Time {
    /// From now on.
    pub(crate) fn start(speed: u32) -> Time {
        Time { monotonic_ns: monotonic_ns(), realtime_ns: clock_ns(libc::CLOCK_REALTIME) as i64, speed }
    }

    /// Now, ns since the Unix epoch.
    pub(crate) fn now_ns(&self) -> i64 {
        self.at(monotonic_ns())
    }

    /// A moment of CLOCK_MONOTONIC.
    #[inline]
    fn at(&self, monotonic_ns: u64) -> i64 {
        let passed = monotonic_ns.wrapping_sub(self.monotonic_ns) as i64;
        self.realtime_ns.wrapping_add(passed.wrapping_mul(self.speed.into()))
    }
}

/// Ticks may be any number, for a process writes them itself. Of what they become sums and differences are numbers: no time is before 1933 or
/// after 2116, and nothing takes longer than 36 years.
const EARLIEST_NS: i64 = -(1 << 60);
pub(crate) const LATEST_NS: i64 = 1 << 62;
/// The longest time between two of them.
pub(crate) const LONGEST_NS: i64 = 1 << 60;

/// The clocks of this host.
#[derive(Debug)]
pub(crate) struct Clocks {
    time: Time,
    /// CLOCK_REALTIME - CLOCK_MONOTONIC at the start.
    offset_ns: i64,
    pieces: VecDeque<Piece>,
    window: VecDeque<Pair>,
    kept: Vec<Pair>,
    rejected: u64,
    rejected_in_a_row: u32,
    started_ns: u64,
    /// The most by which a pair was off the line, and half of the ticks that reading one took.
    off_ns: u64,
    reading: u64,
}

impl Clocks {
    /// Reads the first pair.
    pub(crate) fn start() -> Clocks {
        let (pair, took) = read();
        Clocks { reading: took / 2, ..Clocks::from_pair(pair) }
    }

    /// The same where time passes so many times as fast as it does; of the counter's ticks it does not.
    pub(crate) fn at_speed(speed: u32) -> Clocks {
        let mut clocks = Clocks::start();
        clocks.time.speed = speed;
        clocks
    }

    fn from_pair(first: Pair) -> Clocks {
        let offset_ns = first.realtime_ns.wrapping_sub(first.monotonic_ns) as i64;
        let ns = first.realtime_ns as i64;
        // One nanosecond a tick until the second pair says better; nothing is converted before it.
        let piece = Piece { ticks: first.ticks, ns, slope: 1 << POINT };
        Clocks {
            time: Time { monotonic_ns: first.monotonic_ns, realtime_ns: ns, speed: 1 },
            offset_ns,
            pieces: [piece].into(),
            window: [first].into(),
            kept: vec![first],
            rejected: 0,
            rejected_in_a_row: 0,
            started_ns: first.monotonic_ns,
            off_ns: 0,
            reading: 0,
        }
    }

    /// Reads another pair if it is time: after as long again as the clocks have run, at most after a second. The second pair is
    /// waited for, a moment, because nothing can be converted before it.
    pub(crate) fn tick(&mut self) {
        let Some(last) = self.window.back() else { return };
        let mut age = monotonic_ns().saturating_sub(last.monotonic_ns);
        while self.window.len() < 2 && age < FIRST_NS {
            std::thread::sleep(Duration::from_nanos(FIRST_NS - age));
            age = monotonic_ns().saturating_sub(last.monotonic_ns);
        }
        let due = last.monotonic_ns.saturating_sub(self.started_ns).clamp(50_000, SECOND);
        if self.window.len() < 2 || age >= due {
            let (pair, took) = read();
            self.reading = self.reading.max(took / 2);
            self.add(pair);
        }
    }

    fn add(&mut self, pair: Pair) {
        let Some(last) = self.window.back().copied() else { return };
        let passed = pair.monotonic_ns.saturating_sub(last.monotonic_ns);
        if passed == 0 || pair.ticks <= last.ticks {
            return self.reject(pair);
        }
        if self.window.len() >= 2 {
            let wanted = i128::from(pair.monotonic_ns) + i128::from(self.offset_ns);
            let found = self.line().map_or(wanted, |(at, slope)| {
                let ns = at.monotonic_ns as i64 + self.offset_ns;
                i128::from(Piece { ticks: at.ticks, ns, slope }.at(pair.ticks))
            });
            // NTP bends CLOCK_MONOTONIC by at most 0.05 %; reading the pair may have been interrupted.
            if (wanted - found).unsigned_abs() > 50_000 + u128::from(passed) / 1000 {
                return self.reject(pair);
            }
        }
        self.rejected_in_a_row = 0;
        self.accept(pair);
    }

    /// After a suspension or a migration the counter follows another line: three that do not fit begin it.
    fn reject(&mut self, pair: Pair) {
        self.rejected += 1;
        self.rejected_in_a_row += 1;
        if self.rejected_in_a_row < 3 {
            return;
        }
        self.rejected_in_a_row = 0;
        let slope = self.pieces.back().map_or(1 << POINT, |p| p.slope);
        // Not before the last moment that was sure.
        let before = self.window.back().zip(self.pieces.back()).map_or(0, |(last, piece)| piece.at(last.ticks));
        self.window.clear();
        self.window.push_back(pair);
        let ns = before.max(pair.monotonic_ns as i64 + self.offset_ns);
        self.pieces.clear();
        self.pieces.push_back(Piece { ticks: pair.ticks, ns, slope });
        self.keep(pair);
    }

    fn accept(&mut self, pair: Pair) {
        self.window.push_back(pair);
        if self.window.len() > WINDOW {
            self.window.pop_front();
        }
        self.keep(pair);
        let Some((_, slope)) = self.line() else { return };
        let truth = pair.monotonic_ns as i64 + self.offset_ns;
        if self.window.len() == 2 && self.pieces.len() == 1 {
            // The first slope: it holds from the first pair on.
            if let Some(first) = self.pieces.front_mut() {
                first.slope = slope;
            }
            return;
        }
        let now = self.pieces.back().map_or(truth, |p| p.at(pair.ticks));
        self.off_ns = self.off_ns.max((truth - now).unsigned_abs());
        // Whatever the conversion is off by is made good over the next second, by a twentieth at most.
        let off = (truth - now).clamp(-(SECOND as i64) / 20, SECOND as i64 / 20);
        let slope = (i128::from(slope) * i128::from(SECOND as i64 + off) / i128::from(SECOND)) as u64;
        self.pieces.push_back(Piece { ticks: pair.ticks, ns: now, slope });
        if self.pieces.len() > PIECES {
            self.pieces.pop_front();
        }
    }

    fn keep(&mut self, pair: Pair) {
        self.kept.push(pair);
        if self.kept.len() > KEPT {
            let mut n = 0;
            self.kept.retain(|_| {
                n += 1;
                n % 2 == 1
            });
        }
    }

    /// The newest pair and the slope between it and the oldest of the window.
    fn line(&self) -> Option<(Pair, u64)> {
        let (first, last) = (self.window.front()?, self.window.back()?);
        let ticks = last.ticks.checked_sub(first.ticks).filter(|t| *t > 0)?;
        let ns = last.monotonic_ns.saturating_sub(first.monotonic_ns);
        Some((*last, ((u128::from(ns) << POINT) / u128::from(ticks)) as u64))
    }

    /// The time of a tick count, ns since the Unix epoch.
    #[inline]
    pub(crate) fn ns(&self, kind: ClockKind, ticks: u64) -> i64 {
        self.any_ns(kind, ticks).clamp(EARLIEST_NS, LATEST_NS)
    }

    fn any_ns(&self, kind: ClockKind, ticks: u64) -> i64 {
        if kind == ClockKind::Monotonic {
            return self.time.at(ticks);
        }
        let mut pieces = self.pieces.iter().rev();
        let newest = pieces.next();
        match newest {
            Some(piece) if ticks >= piece.ticks => piece.at(ticks),
            _ => pieces.find(|p| ticks >= p.ticks).or(self.pieces.front()).map_or(0, |p| p.at(ticks)),
        }
    }

    /// The time of a moment of CLOCK_MONOTONIC, as [`Self::ns`] gives that of ticks: by the ticks of that moment, out of the pairs
    /// around it.
    pub(crate) fn ns_of_monotonic(&self, kind: ClockKind, monotonic_ns: u64) -> i64 {
        if kind == ClockKind::Monotonic {
            return self.ns(kind, monotonic_ns);
        }
        let later = self.window.partition_point(|pair| pair.monotonic_ns <= monotonic_ns);
        // Between two pairs, or on the line of the nearest two.
        let second = later.clamp(1, self.window.len().saturating_sub(1).max(1));
        let (Some(from), Some(to)) = (self.window.get(second - 1), self.window.get(second)) else {
            return (monotonic_ns as i64).saturating_add(self.offset_ns).clamp(EARLIEST_NS, LATEST_NS);
        };
        let wide = |pair: &Pair| (i128::from(pair.ticks), i128::from(pair.monotonic_ns));
        let ((ticks, ns), (next_ticks, next_ns)) = (wide(from), wide(to));
        let passed = (i128::from(monotonic_ns) - ns) * (next_ticks - ticks) / (next_ns - ns).max(1);
        self.ns(kind, (ticks + passed).clamp(0, i128::from(u64::MAX)) as u64)
    }

    /// The time between two tick counts, ns; 0 when they are in the wrong order.
    #[inline]
    pub(crate) fn span_ns(&self, kind: ClockKind, start: u64, end: u64) -> i64 {
        let ticks = end.saturating_sub(start);
        if kind == ClockKind::Monotonic {
            return ticks.saturating_mul(self.time.speed.into()).min(LONGEST_NS as u64) as i64;
        }
        let slope = self.pieces.back().map_or(0, |p| p.slope);
        ((u128::from(ticks) * u128::from(slope)) >> POINT).min(LONGEST_NS as u128) as i64
    }

    /// A cost in 1/256 ticks, in ns; none when it was not measured.
    pub(crate) fn cost_ns(&self, kind: ClockKind, cost: u64) -> Option<f64> {
        let slope = match kind {
            ClockKind::Monotonic => 1.0,
            _ => self.pieces.back().map_or(0.0, |p| p.slope as f64 / (1u64 << POINT) as f64),
        };
        (cost > 0).then_some(cost as f64 / 256.0 * slope)
    }

    /// Now, ns since the Unix epoch.
    pub(crate) fn now_ns(&self) -> i64 {
        self.time.now_ns()
    }

    /// How far times of events may be off CLOCK_MONOTONIC, ns.
    pub(crate) fn error_ns(&self, kind: ClockKind) -> u64 {
        if kind == ClockKind::Monotonic {
            return 0;
        }
        let slope = self.pieces.back().map_or(0, |piece| piece.slope);
        self.off_ns + ((u128::from(self.reading) * u128::from(slope)) >> POINT) as u64
    }

    /// What the manifest says about the clocks.
    pub(crate) fn describe(&self, kind: ClockKind) -> manifest::Clock {
        manifest::Clock {
            kind: kind.name().to_owned(),
            pairs: self.kept.clone(),
            rejected: self.rejected,
            error_ns: Some(self.error_ns(kind)),
            ..manifest::Clock::default()
        }
    }
}

/// Now in ticks of this kind.
pub(crate) fn now(kind: ClockKind) -> u64 {
    if kind == ClockKind::Monotonic { monotonic_ns() } else { counter() }
}

/// CLOCK_MONOTONIC, ns.
pub(crate) fn monotonic_ns() -> u64 {
    clock_ns(MONOTONIC)
}

/// Processor time of this thread, ns.
pub(crate) fn thread_ns() -> u64 {
    clock_ns(libc::CLOCK_THREAD_CPUTIME_ID)
}

fn clock_ns(clock: libc::clockid_t) -> u64 {
    let mut time = libc::timespec { tv_sec: 0, tv_nsec: 0 };
    // SAFETY: libc fills the struct.
    unsafe { libc::clock_gettime(clock, &mut time) };
    time.tv_sec as u64 * SECOND + time.tv_nsec as u64
}

/// All three clocks at one moment: of several readings the one that took the shortest, and how many ticks.
fn read() -> (Pair, u64) {
    let mut best = (u64::MAX, Pair::default());
    for _ in 0..8 {
        let before = counter();
        let monotonic_ns = clock_ns(MONOTONIC);
        let took = counter().wrapping_sub(before);
        if took < best.0 {
            let realtime_ns = clock_ns(libc::CLOCK_REALTIME);
            best = (took, Pair { ticks: before.wrapping_add(took / 2), monotonic_ns, realtime_ns });
        }
    }
    (best.1, best.0)
}

#[cfg(test)]
mod tests;
