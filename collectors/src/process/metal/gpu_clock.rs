//! Clocks of GPUs: what pairs of host and GPU time say of times of command buffers.
//!
//! Metal documents GPUStartTime as host time. Where it is, a command buffer begins after its commit and ends before its end is told.
//! One that does not, and that does when its times are taken for the GPU's own and put right by the pairs, shows that they are. What
//! more command buffers of a device show decides for those that fit both ways.
//!
//! A moment of the GPU's clock stands here as if that clock were the host's, in ns since the epoch: as its times are told.

use std::collections::{BTreeMap, VecDeque};

use gputrace_abi::event::Event;

use super::{Times, rows};
use crate::manifest::GpuClock;

/// Devices that the shim numbers.
const MOST_DEVICES: u16 = 16;
/// Pairs that are kept: of the last minute.
const MOST_PAIRS: usize = 64;
/// Over so many of the last ones the clock's course is taken.
const COURSE: usize = 4;
/// What rounding makes of times: a double's, and that of ticks of 24 MHz.
const ROUNDING_NS: u64 = 100;
/// What pairs may be off their course where times are looked at whether they fit.
const MOST_OFF_NS: u64 = 100_000;
/// Two pairs that are this far apart in a hundred are of clocks that count the same units.
const SAME_UNITS: f64 = 0.01;
/// The longest reading of a pair that says something.
const LONGEST_PAIR_NS: i64 = 1_000_000_000;

#[derive(Clone, Copy, Debug)]
struct Pair {
    gpu_ns: i64,
    host_ns: i64,
}

impl Pair {
    fn offset_ns(self) -> i64 {
        self.gpu_ns.saturating_sub(self.host_ns)
    }
}

#[derive(Debug, Default)]
struct Clock {
    pairs: VecDeque<Pair>,
    first: Option<Pair>,
    /// Command buffers that fit by the pairs alone, and as they are alone.
    own: u64,
    host: u64,
    about: GpuClock,
}

impl Clock {
    fn take(&mut self, pair: Pair, error_ns: u64) {
        let about = &mut self.about;
        about.pairs += 1;
        about.pair_error_ns = about.pair_error_ns.max(error_ns);
        let is_hosts = pair.offset_ns().unsigned_abs() <= error_ns + ROUNDING_NS;
        about.runs_as_host = Some(about.runs_as_host.unwrap_or(true) && is_hosts);
        let goes_on = |last: &Pair| pair.gpu_ns > last.gpu_ns && pair.host_ns > last.host_ns;
        if let Some(last) = self.pairs.back().copied() {
            if goes_on(&last) {
                let off_ns = self.host_ns(pair.gpu_ns).abs_diff(pair.host_ns);
                let passed_ns = pair.host_ns.abs_diff(last.host_ns);
                if self.pairs.len() > 1 || (off_ns as f64) < SAME_UNITS * passed_ns as f64 {
                    self.about.foretold_error_ns = self.about.foretold_error_ns.max(off_ns);
                }
            } else {
                // The GPU's clock began anew, as after a sleep.
                self.pairs.clear();
                self.first = None;
            }
        }
        if self.pairs.len() == MOST_PAIRS {
            self.pairs.pop_front();
        }
        self.pairs.push_back(pair);
        let first = *self.first.get_or_insert(pair);
        self.about.offset_ns = Some(first.offset_ns());
        self.about.drift_ppm = drift(first, pair, |pair| pair.host_ns).map(|drift| drift * 1e6);
    }

    /// A moment of the GPU's clock on the host's: between two pairs on the line through them, else on that of the nearest ones.
    fn host_ns(&self, gpu_ns: i64) -> i64 {
        let at = |nth: usize| self.pairs.get(nth).copied();
        let next = self.pairs.partition_point(|pair| pair.gpu_ns <= gpu_ns);
        let last = self.pairs.len().saturating_sub(1);
        let (from, to) = match next {
            0 => (0, COURSE.min(last)),
            next if next > last => (last.saturating_sub(COURSE), last),
            next => (next - 1, next),
        };
        let (Some(from), Some(to)) = (at(from), at(to)) else { return gpu_ns };
        // From the nearer one on.
        let base = if next > last { to } else { from };
        let passed_ns = gpu_ns.saturating_sub(base.gpu_ns);
        let gained = drift(from, to, |pair| pair.gpu_ns).unwrap_or(0.0) * passed_ns as f64;
        // The conversion saturates, and no time is a number.
        gpu_ns.saturating_sub(base.offset_ns()).saturating_sub(gained as i64)
    }

    fn is_own(&self) -> bool {
        self.own > self.host
    }

    /// Where its pairs are not the host's time, times may be the GPU's own.
    fn is_apart(&self) -> bool {
        self.about.runs_as_host == Some(false)
    }

    fn error_ns(&self, host_error_ns: u64) -> u64 {
        let foretold_ns = if self.about.corrected > 0 { self.about.foretold_error_ns } else { 0 };
        host_error_ns.saturating_add(self.about.pair_error_ns).saturating_add(foretold_ns).saturating_add(ROUNDING_NS)
    }
}

/// By how much the GPU's clock gained on the host's between two pairs, for each ns of one of the two.
fn drift(from: Pair, to: Pair, of: impl Fn(Pair) -> i64) -> Option<f64> {
    let passed_ns = of(to).saturating_sub(of(from));
    (passed_ns > 0).then(|| to.offset_ns().saturating_sub(from.offset_ns()) as f64 / passed_ns as f64)
}

/// Whether something lies between two moments, by no more than that off.
fn fits((begin_ns, end_ns): (i64, i64), (from_ns, to_ns): (i64, i64), off_ns: u64) -> bool {
    let off_ns = off_ns.min(i64::MAX as u64) as i64;
    begin_ns >= from_ns.saturating_sub(off_ns) && end_ns <= to_ns.saturating_add(off_ns)
}

/// The clocks of a process's devices.
#[derive(Debug, Default)]
pub(super) struct GpuClocks {
    clocks: BTreeMap<u16, Clock>,
    /// How far times of the host's may be off.
    pub(super) host_error_ns: u64,
}

impl GpuClocks {
    fn clock(&mut self, context: u16) -> Option<&mut Clock> {
        (1..=MOST_DEVICES).contains(&context).then(|| self.clocks.entry(context).or_default())
    }

    /// A pair, as [`gputrace_abi::event::KIND_GPU_CLOCK`] says, of this moment.
    pub(super) fn take(&mut self, event: &Event, now_ns: i64) {
        let [gpu, before, after, apart] = event.payload.map(u64::cast_signed);
        let took_ns = after.saturating_sub(before);
        let is_sound = |ns: i64| (0..=LONGEST_PAIR_NS).contains(&ns);
        if !is_sound(took_ns) || !is_sound(before) || !is_sound(apart) {
            return;
        }
        let pair = Pair { gpu_ns: now_ns.saturating_add(gpu), host_ns: now_ns.saturating_add(before + took_ns / 2) };
        let error_ns = (took_ns.div_euclid(2) + apart.div_euclid(2)).unsigned_abs() + 1;
        self.clock(event.context).into_iter().for_each(|clock| clock.take(pair, error_ns));
    }

    /// When a command buffer ended, as far as that can be said without its commit.
    pub(super) fn end_ns(times: &Times) -> i64 {
        let Some((_, end_ns)) = times.gpu_ns else { return times.told_ns };
        // Of two ways it may have been the later one is the likelier: handlers run soon.
        let ways = [Some(end_ns), times.right_ns.map(|(_, end_ns)| end_ns)];
        let before = |end_ns: &i64| *end_ns <= times.told_ns;
        ways.into_iter().flatten().filter(before).max().unwrap_or(times.told_ns)
    }

    /// Times as the pairs put them right that were taken so far, where they may be in the GPU's own clock.
    pub(super) fn put_right(&self, context: u16, gpu_ns: Option<(i64, i64)>) -> Option<(i64, i64)> {
        let clock = self.clocks.get(&context).filter(|clock| clock.is_apart())?;
        gpu_ns.map(|(begin_ns, end_ns)| (clock.host_ns(begin_ns), clock.host_ns(end_ns)))
    }

    /// Begin and length of a command buffer that was committed then, if its times can be its own.
    pub(super) fn gpu(&mut self, context: u16, times: &Times, committed_ns: i64) -> Option<(i64, i64)> {
        let told = times.gpu_ns?;
        let (host_error_ns, window) = (self.host_error_ns, (committed_ns, times.told_ns));
        let Some(clock) = self.clock(context) else { return rows::sound(told, window) };
        let mut gpu = told;
        if let Some(right) = times.right_ns {
            let error_ns = clock.error_ns(host_error_ns);
            let off_ns = error_ns.saturating_add(clock.about.foretold_error_ns.min(MOST_OFF_NS));
            match (fits(told, window, error_ns), fits(right, window, off_ns)) {
                (false, true) => clock.own += 1,
                (true, false) => clock.host += 1,
                _ => {}
            }
            if clock.is_own() && fits(right, window, off_ns) {
                gpu = right;
                clock.about.corrected += 1;
            }
        }
        let found = rows::sound(gpu, window)?;
        let error_ns = clock.error_ns(host_error_ns);
        let early_ns = committed_ns.saturating_sub(gpu.0);
        clock.about.joined += 1;
        clock.about.early += u64::from(early_ns > 0);
        clock.about.earliest_ns = clock.about.earliest_ns.max(early_ns);
        clock.about.violations += u64::from(!fits(gpu, window, error_ns));
        Some(found)
    }

    /// What the manifest says.
    pub(super) fn describe(&self) -> Vec<GpuClock> {
        let about = |(context, clock): (&u16, &Clock)| GpuClock {
            device: i32::from(*context) - 1,
            alignment_error_ns: clock.error_ns(self.host_error_ns),
            ..clock.about.clone()
        };
        self.clocks.iter().map(about).collect()
    }
}
