//! Recording that is off for a while: of which time single events are in the trace.
//!
//! A process records or not by a word in its segment's header, which the collector (`gputrace start`, `gputrace stop`) and the
//! process itself set. A thread that records reads it only where it is slow anyway: the last events of each may be
//! later than the interval says, none of the interval is missing.

use std::sync::PoisonError;

use crate::control::Client;
use crate::manifest::{Interval, KeptDetail};
use crate::process::{Process, Recording};
use crate::writer::Message;

use super::Drain;
use super::scheduled::Schedule;

/// Intervals that are told.
const MOST: usize = 1000;

/// When recording was on.
#[derive(Default)]
pub(super) struct Switch {
    /// What was asked for last, from outside.
    asked: Option<bool>,
    /// It was off in any process.
    was_off: bool,
    /// Intervals of processes that have ended.
    over: Vec<(i64, i64)>,
    /// Processes that ran when this collector came: those that do not record, and those that do.
    found: [u64; 2],
    /// When it came.
    came_ns: i64,
}

impl Switch {
    /// Nothing was asked for yet, of a collector that comes now.
    pub(super) fn new(now_ns: i64) -> Switch {
        Switch { came_ns: now_ns, ..Switch::default() }
    }

    /// Goes on with what an earlier collector's manifest says.
    pub(super) fn resume(&mut self, before: Option<&KeptDetail>) {
        let Some(before) = before.and_then(KeptDetail::switches) else { return };
        self.was_off = true;
        self.over = union(before);
    }

    /// What was asked for last, as a process of an earlier collector was told it.
    pub(super) fn ask(&mut self, on: Option<bool>) {
        self.asked = on.or(self.asked);
    }

    /// Tells a process that has just come what was asked for.
    pub(super) fn apply(&self, process: &mut Process, now_ns: i64) {
        if let Some(on) = self.asked {
            process.record(on, now_ns);
        }
    }

    /// A process came, which may have run before this collector did.
    pub(super) fn found(&mut self, process: &Process, started_ns: i64) {
        let ran = started_ns < self.came_ns && !process.is_gone();
        self.found[usize::from(process.is_recording())] += u64::from(ran);
    }

    /// A process has ended.
    pub(super) fn ended(&mut self, recording: &Recording, ended_ns: i64) {
        self.was_off |= recording.was_off;
        self.over.extend(recording.intervals(ended_ns));
        self.over = union(std::mem::take(&mut self.over));
    }

    /// Of which time single events are in the trace, as of now; none where that is all of it.
    fn describe<'a>(&self, running: impl Iterator<Item = &'a Recording>, now_ns: i64) -> Option<KeptDetail> {
        let (mut was_off, mut all) = (self.was_off, self.over.clone());
        for recording in running {
            was_off |= recording.was_off;
            all.extend(recording.intervals(now_ns));
        }
        let mut intervals = union(all);
        let more = intervals.len().saturating_sub(MOST);
        intervals.drain(..more);
        let interval = |(from_ns, to_ns)| Interval { from_ns, to_ns, why: "recording was on".to_owned() };
        was_off.then(|| KeptDetail {
            mode: KeptDetail::SWITCHED.to_owned(),
            intervals: intervals.into_iter().map(interval).collect(),
            refused: more as u64,
            ..KeptDetail::default()
        })
    }
}

/// The time that any of them covers.
fn union(mut all: Vec<(i64, i64)>) -> Vec<(i64, i64)> {
    all.sort_unstable();
    let mut joined: Vec<(i64, i64)> = Vec::with_capacity(all.len());
    for (from, to) in all {
        match joined.last_mut() {
            Some(last) if from <= last.1 => last.1 = last.1.max(to),
            _ => joined.push((from, to)),
        }
    }
    joined
}

impl Drain {
    /// Switches all processes, and those that come.
    pub(super) fn switch_all(&mut self, on: bool, client: Client) {
        if on && self.disabled.is_there {
            return client.answer(Err("an administrator switched recording off on this machine"));
        }
        // Who says so now is not overruled by what was asked for before.
        self.schedule = Schedule::default();
        self.record_all(on);
        if on {
            client.answer(Ok(&self.trace().display().to_string()));
        } else {
            // What was recorded is on the disk when it is said that it ended.
            self.answer_when_written(self.clocks.now_ns(), client);
        }
    }

    /// Switches all off where any records, else on.
    pub(super) fn switch_over(&mut self) {
        let on = !self.processes.values().any(Process::is_recording);
        if !(on && self.disabled.is_there) {
            self.schedule = Schedule::default();
            self.record_all(on);
        }
    }

    /// Says of processes that ran already, and stay as they are, where that is not what this collector begins with: those that do not
    /// record would be missed by nobody.
    pub(super) fn tell_found(&mut self) {
        let [off, on] = std::mem::take(&mut self.switch.found);
        let Some(root) = self.config.standing_root().filter(|_| !self.disabled.is_there) else { return };
        // What goes by the clock is switched in any case.
        if self.config.capture.is_some() {
            return;
        }
        let (found, is, order) = match self.config.begin_paused {
            true => (on, "on", "stop"),
            false => (off, "off", "start"),
        };
        let programs = match found {
            0 => return,
            1 => "a program".to_owned(),
            more => format!("{more} programs"),
        };
        let until = format!("gputrace {order} {}", crate::quote(&root));
        let line = format!("recording is {is} in {programs} that ran already, and stays so until: {until}");
        self.shared.lock().unwrap_or_else(PoisonError::into_inner).warnings.push_back(line);
    }

    /// Has all processes record, or not, from now on, and those that come.
    pub(super) fn record_all(&mut self, on: bool) {
        self.switch.asked = Some(on);
        self.see_switches();
        let now_ns = self.clocks.now_ns();
        self.processes.values_mut().for_each(|process| process.record(on, now_ns));
        self.changed = true;
        if on {
            // Whoever goes on, should this collector be killed, knows from when on.
            self.unsent.push(Message::Manifest(Box::new(self.describe())));
        }
    }

    /// Sees whether processes have switched themselves.
    pub(super) fn see_switches(&mut self) {
        for process in self.processes.values_mut() {
            self.changed |= process.see_switches(&self.clocks);
        }
    }

    /// As [`Switch::describe`] has it.
    pub(super) fn describe_switches(&self) -> Option<KeptDetail> {
        let recordings = self.processes.values().map(|process| &process.recording);
        let mut kept = self.switch.describe(recordings, self.clocks.now_ns())?;
        kept.never = self.config.awaited.clone().filter(|_| kept.intervals.is_empty());
        Some(kept)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_any_process_recorded_is_in_the_trace() {
        assert_eq!(union(vec![(5, 9), (1, 3), (8, 12), (3, 4), (20, 21)]), [(1, 4), (5, 12), (20, 21)]);
        let mut switch = Switch::default();
        assert_eq!(switch.describe([].into_iter(), 9), None);
        let mut recording = Recording::new(10, false);
        switch.ended(&Recording::new(0, true), 5);
        assert_eq!(switch.describe([&recording].into_iter(), 30).unwrap().intervals, [interval(0, 5)]);
        recording.turn(true, 20);
        let kept = switch.describe([&recording].into_iter(), 30).unwrap();
        assert_eq!(kept.intervals, [interval(0, 5), interval(20, 30)]);
    }

    #[test]
    fn who_goes_on_joins_what_an_earlier_collector_said() {
        let first = Switch::default();
        let mut recording = Recording::new(0, false);
        recording.turn(true, 20);
        let said = first.describe([&recording].into_iter(), 30);
        let mut second = Switch::default();
        second.resume(said.as_ref());
        // The process records on, as far as the first one told of it.
        let going_on = Recording::new(30, true);
        assert_eq!(second.describe([&going_on].into_iter(), 50).unwrap().intervals, [interval(20, 50)]);
    }

    fn interval(from_ns: i64, to_ns: i64) -> Interval {
        Interval { from_ns, to_ns, why: "recording was on".to_owned() }
    }
}
