//! When a process recorded.

use gputrace_abi::layout::SWITCHES_KEPT;
use gputrace_abi::sync::Ordering;

use super::Process;
use crate::clock::Clocks;
use crate::manifest::KeptDetail;

/// Intervals of a process that are told one by one; what is recorded after them counts as one more.
const MOST: usize = 1000;

/// From when to when.
#[derive(Debug, Default)]
pub(crate) struct Recording {
    /// When the open interval began; none: recording is off.
    since_ns: Option<i64>,
    intervals: Vec<(i64, i64)>,
    /// Whether it is off, and when it was last switched on, also where no more intervals are told.
    is_off: bool,
    on_ns: Option<i64>,
    /// It was off at any time.
    pub(crate) was_off: bool,
    /// How many of its own switches were read.
    read: u64,
    /// What was recorded before is another trace's.
    from_ns: Option<i64>,
}

impl Recording {
    /// Of a process that starts, recording or not.
    pub(crate) fn new(start_ns: i64, on: bool) -> Recording {
        Recording { since_ns: on.then_some(start_ns), is_off: !on, was_off: !on, ..Recording::default() }
    }

    /// It is switched on or off.
    pub(crate) fn turn(&mut self, on: bool, at_ns: i64) {
        if on && self.is_off {
            self.on_ns = Some(at_ns);
        }
        self.is_off = !on;
        match (on, self.since_ns) {
            (true, None) => self.since_ns = Some(at_ns),
            (false, Some(from_ns)) if self.intervals.len() < MOST => {
                self.since_ns = None;
                self.intervals.push((from_ns, at_ns.max(from_ns)));
            }
            _ => {}
        }
        self.was_off |= !on;
    }

    /// Whether it was switched on after a time and until another: what was sent before that may have gone unrecorded.
    pub(crate) fn went_on_between(&self, after_ns: i64, to_ns: i64) -> bool {
        let last = self.since_ns.into_iter().chain(self.intervals.iter().rev().map(|(from_ns, _)| *from_ns));
        let between = |on_ns: i64| on_ns > after_ns && on_ns <= to_ns;
        self.was_off && (self.on_ns.is_some_and(between) || last.take_while(|on_ns| *on_ns > after_ns).any(between))
    }

    /// All intervals; the open one until this time.
    pub(crate) fn intervals(&self, until_ns: i64) -> impl Iterator<Item = (i64, i64)> {
        let open = self.since_ns.map(|from_ns| (from_ns, until_ns.max(from_ns)));
        let here = |(from, to): (i64, i64)| (self.from_ns.map_or(from, |here| from.max(here)), to);
        self.intervals.iter().copied().chain(open).map(here).filter(|(from, to)| from <= to)
    }
}

impl Process {
    /// Sees how it starts. What it switched since is seen later.
    pub(crate) fn begin_recording(&mut self, clocks: &Clocks) {
        let header = self.segment.view().header();
        let first = header.switched.first().filter(|_| header.switches.load(Ordering::Acquire) > 0);
        let on = match first.map(|word| word.load(Ordering::Relaxed)) {
            // The first switch was to the other side.
            Some(word) => word & 1 == 0,
            None => header.paused.load(Ordering::Relaxed) == 0,
        };
        self.recording = Recording::new(self.start_ns(clocks), on);
    }

    /// What it recorded before this moment is another trace's.
    pub(crate) fn recorded_elsewhere(&mut self, until_ns: i64) {
        self.recording.from_ns = Some(until_ns);
    }

    /// Sees how it goes on after an earlier collector, which was killed at some time, and whose manifest says when recording was on
    /// (none: always). Its own switches are all in the segment.
    pub(crate) fn resume_recording(&mut self, before: Option<&KeptDetail>, killed_ns: i64, clocks: &Clocks) {
        self.begin_recording(clocks);
        let header = self.segment.view().header();
        if header.switches.load(Ordering::Acquire) > 0 {
            return;
        }
        let on = header.paused.load(Ordering::Relaxed) == 0;
        match before {
            Some(before) => {
                let known_to = before.switches().and_then(|on| Some(on.last()?.1)).unwrap_or(killed_ns);
                self.recording = Recording { was_off: true, ..Recording::new(known_to, on) };
            }
            // The word that it was switched off did not come to the disk.
            None if !on => {
                let started_ns = self.start_ns(clocks);
                self.recording = Recording::new(started_ns, true);
                self.recording.turn(false, killed_ns);
            }
            None => {}
        }
    }

    /// What it was told from outside, where it does not switch itself.
    pub(crate) fn is_told_to_record(&self) -> Option<bool> {
        let header = self.segment.view().header();
        (header.switches.load(Ordering::Acquire) == 0).then(|| self.is_recording())
    }

    /// Whether it records.
    pub(crate) fn is_recording(&self) -> bool {
        self.segment.view().header().paused.load(Ordering::Relaxed) == 0
    }

    /// Has it record, or not, from now on.
    pub(crate) fn record(&mut self, on: bool, now_ns: i64) {
        self.segment.view().header().paused.store(u32::from(!on), Ordering::SeqCst);
        self.recording.turn(on, now_ns);
    }

    /// Sees whether it has switched itself. True: it has.
    pub(crate) fn see_switches(&mut self, clocks: &Clocks) -> bool {
        let header = self.segment.view().header();
        let switches = header.switches.load(Ordering::Acquire);
        let new = switches.wrapping_sub(self.recording.read).min(SWITCHES_KEPT as u64);
        for number in (0..new).rev().map(|back| switches.wrapping_sub(1 + back)) {
            let word = header.switched.get(number as usize % SWITCHES_KEPT).map_or(0, |w| w.load(Ordering::Relaxed));
            self.recording.turn(word & 1 != 0, clocks.ns(self.clock, word >> 1));
        }
        self.recording.read = switches;
        new > 0
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn intervals_lie_between_switching_on_and_off() {
        let mut recording = Recording::new(10, true);
        assert!(!recording.was_off);
        [(false, 60), (false, 65), (true, 80), (true, 85)].into_iter().for_each(|(on, at)| recording.turn(on, at));
        assert!(recording.was_off);
        assert_eq!(recording.intervals(90).collect::<Vec<_>>(), [(10, 60), (80, 90)]);
        let off =
            [(20, 70), (20, 80), (80, 90), (20, 90), (5, 9)].map(|(from, to)| recording.went_on_between(from, to));
        assert_eq!(off, [false, true, false, true, false]);
    }

    #[test]
    fn a_program_that_switches_ever_again_has_one_last_interval() {
        let mut recording = Recording::new(0, false);
        (0..5000).for_each(|n| recording.turn(n % 2 == 0, n));
        assert_eq!(recording.intervals(9999).count(), MOST + 1);
        assert_eq!(recording.intervals(9999).last(), Some((2000, 9999)));
        assert!(recording.went_on_between(4997, 4999) && !recording.went_on_between(4998, 4999));
    }
}
