//! Steps: where they begin and end, which are warm-up, how long they take.
//!
//! They are found before all other reads ([`super::detect`]); every pass can then ask [`Steps::place`] for a row. A step
//! runs from one anchor to the next: from the beginning of a range that the program calls a step to that of the next one,
//! else from the end of a wait to the end of the next one, or from a launch to the same launch a step later.
//!
//! **Warm-up** are the steps before the first five of which four take at most 1.3 times the median of the second half,
//! or as long as nine of ten steps there; at most half of all steps. **Middle** are steady steps whose duration lies
//! around the median: a mean over them is robust like the median, and its parts still sum to the whole. Where the host runs
//! ahead of the GPU its steps are timed by the GPU ([`process`]).

mod line;
mod process;
mod rhythm;

use rustc_hash::{FxHashMap, FxHashSet};

use super::givers::Givers;
use super::period::Name;
use crate::trace::{Filter, Spans};
use process::Hint;
pub(crate) use process::ProcessSteps;

/// Kinds of `syncs.kind` in which the host waits.
pub(crate) fn blocks(kind: &str) -> bool {
    matches!(kind, "context" | "stream" | "event" | "schedule" | "room")
}

/// The steps of all processes.
#[derive(Debug, Default)]
pub(crate) struct Steps {
    /// Processes in which steps were found, by id.
    pub(crate) all: Vec<ProcessSteps>,
    slots: FxHashMap<i64, usize>,
    called: Called,
}

/// What is known of all processes' calls beside the steps.
#[derive(Debug, Default)]
pub(crate) struct Called {
    /// Processes in which several threads call the driver.
    pub(crate) several: FxHashSet<i64>,
    /// Calls of all processes.
    pub(crate) calls: u64,
    /// Threads that give the GPU work.
    pub(crate) givers: Givers,
    /// Work was queued behind another stream's because one of the two was the legacy default stream.
    pub(crate) legacy_order: bool,
    /// A call that the user named marks the steps of a process.
    pub(crate) asked: bool,
    /// Steps that the ends of a span cut, by process.
    pub(crate) cut: FxHashMap<i64, usize>,
}

/// Where a row lies.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Place {
    /// In a process without steps, or before its first or after its last one.
    Outside,
    /// In a warm-up step.
    WarmUp,
    /// In a steady step.
    Steady,
    /// In a steady step of usual duration, which ends then.
    Middle(i64),
}

impl Place {
    /// In a steady step.
    #[inline]
    pub(crate) fn is_steady(self) -> bool {
        matches!(self, Place::Steady | Place::Middle(_))
    }

    /// In a steady step of usual duration.
    #[inline]
    pub(crate) fn is_middle(self) -> bool {
        matches!(self, Place::Middle(_))
    }
}

/// Where a pass last looked: rows come nearly in the order of time, so the next one lies in the same step or the next.
#[derive(Debug, Default)]
pub(crate) struct Cursor {
    process: Option<(i64, Option<usize>)>,
    hints: Vec<Hint>,
}

impl Steps {
    /// Of all processes.
    pub(crate) fn new(mut all: Vec<ProcessSteps>, called: Called) -> Steps {
        all.sort_by_key(|s| s.process_id);
        Steps { slots: all.iter().enumerate().map(|(i, s)| (s.process_id, i)).collect(), all, called }
    }

    /// The same, processes in the order of their places.
    pub(crate) fn in_order_of(mut self, place: impl Fn(i64) -> usize) -> Steps {
        self.all.sort_by_key(|s| (place(s.process_id), s.process_id));
        self.slots = self.all.iter().enumerate().map(|(slot, s)| (s.process_id, slot)).collect();
        self
    }

    /// These steps of each process that has them.
    pub(crate) fn only(self, first: usize, last: usize) -> Steps {
        let all = self.all.into_iter().filter_map(|steps| steps.only(first, last)).collect();
        Steps::new(all, self.called)
    }

    /// The steps of each process that lie wholly in a span of time; those that its ends cut are counted.
    pub(crate) fn whole_in(mut self, span: (i64, i64)) -> Steps {
        let mut kept = Vec::new();
        for steps in std::mem::take(&mut self.all) {
            let (whole, cut) = steps.in_span(span);
            self.called.cut.insert(steps.process_id, cut);
            kept.extend(whole.and_then(|(first, last)| steps.only(first, last)));
        }
        Steps::new(kept, self.called)
    }

    /// The same, of which steps that are told by process and time count as none.
    pub(crate) fn leave_out(mut self, is_none: impl Fn(i64, (i64, i64)) -> bool) -> Steps {
        for steps in &mut self.all {
            let process_id = steps.process_id;
            steps.leave_out(|span| is_none(process_id, span));
        }
        self
    }

    /// Steps of a process that the ends of a span cut.
    pub(crate) fn cut(&self, process_id: i64) -> usize {
        self.called.cut.get(&process_id).copied().unwrap_or(0)
    }

    /// The same of which only what lies inside of the filter's ranges counts as their usual length, and only steps of which all
    /// is known as usual ones.
    pub(crate) fn inside(mut self, filter: &Filter) -> Steps {
        let ranges: Vec<&Spans> =
            filter.within.iter().map(|spans| &**spans).filter(|spans| spans.are_ranges()).collect();
        for steps in self.all.iter_mut().filter(|_| !ranges.is_empty()) {
            let process_id = steps.process_id;
            // Ranges that begin where steps do are steps.
            let begins: Vec<i64> = steps.each().map(|(begin, _)| begin).collect();
            let are_steps =
                |spans: &Spans| spans.of(process_id).iter().all(|(from, _)| begins.binary_search(from).is_ok());
            if ranges.iter().all(|spans| are_steps(spans)) {
                only_begun(steps, |at| ranges.iter().all(|spans| spans.hold(process_id, None, at)));
            }
        }
        for steps in self.all.iter_mut().filter(|_| filter.projects()) {
            let process_id = steps.process_id;
            steps.inside(|span| filter.inside(process_id, span).iter().map(|(from, to)| to - from).sum());
        }
        for steps in &mut self.all {
            let process_id = steps.process_id;
            if let Some(spans) = filter.observed_of(process_id) {
                steps.usual_where(|step| spans.cover(process_id, step));
            }
        }
        self
    }

    /// The steps of all other processes.
    pub(crate) fn without(self, processes: FxHashSet<i64>) -> Steps {
        let all = self.all.into_iter().filter(|steps| !processes.contains(&steps.process_id)).collect();
        Steps::new(all, self.called)
    }

    /// The same steps; those of hosts that run ahead with their boundaries on the GPU, by process. Turns of tiny loops that are
    /// parts of a step make way for it.
    pub(crate) fn ahead(self, mut boundaries: FxHashMap<i64, Vec<i64>>) -> Steps {
        let timed = |steps: ProcessSteps| match boundaries.remove(&steps.process_id) {
            Some(boundaries) => steps.ahead(boundaries).whole(),
            None => steps.whole(),
        };
        Steps::new(self.all.into_iter().map(timed).collect(), self.called)
    }

    /// Whether any process names its steps, or makes the calls that the user named.
    pub(crate) fn any_named(&self) -> bool {
        self.called.asked || self.all.iter().any(|steps| matches!(steps.anchor, Name::Range(_)))
    }

    /// The steps of a process, if it has any.
    pub(crate) fn of(&self, process_id: i64) -> Option<&ProcessSteps> {
        self.slots.get(&process_id).map(|i| &self.all[*i])
    }

    /// Whether more than one thread of a process called the driver.
    pub(crate) fn several_callers(&self, process_id: i64) -> bool {
        self.called.several.contains(&process_id)
    }

    /// Threads that give the GPU work.
    pub(crate) fn givers(&self) -> &Givers {
        &self.called.givers
    }

    /// Calls of the driver by all processes.
    pub(crate) fn calls(&self) -> u64 {
        self.called.calls
    }

    /// Whether a wait for the operating system holds the loop of its process up: the loop's thread waits, and no other
    /// thread launches meanwhile.
    pub(crate) fn holds_up(&self, process_id: i64, tid: i32, start: i64, end: i64) -> bool {
        let in_loop = self.of(process_id).is_some_and(|steps| steps.tid == tid);
        in_loop && !(self.several_callers(process_id) && self.called.givers.another(process_id, tid, start, end))
    }

    /// The step in which a call lies that begins at `at`: the place of its process in [`Steps::all`], and its number there.
    #[inline]
    pub(crate) fn index(&self, cursor: &mut Cursor, process_id: i64, at: i64) -> Option<(usize, usize)> {
        let slot = self.slot(cursor, process_id)?;
        Some((slot, self.all[slot].index(&mut cursor.hints[slot], at)?))
    }

    #[inline]
    fn slot(&self, cursor: &mut Cursor, process_id: i64) -> Option<usize> {
        match cursor.process {
            Some((process, slot)) if process == process_id => slot,
            _ => {
                let slot = self.slots.get(&process_id).copied();
                cursor.process = Some((process_id, slot));
                cursor.hints.resize(self.all.len(), Hint::default());
                slot
            }
        }
    }

    /// Where a call lies that begins at `at`.
    #[inline]
    pub(crate) fn place(&self, cursor: &mut Cursor, process_id: i64, at: i64) -> Place {
        let slot = self.slot(cursor, process_id);
        slot.map_or(Place::Outside, |slot| self.all[slot].place(&mut cursor.hints[slot], at))
    }

    /// Whether what the GPU began then lies in a steady step of usual duration, or its process has no steps.
    #[inline]
    pub(crate) fn counts_on_gpu(&self, cursor: &mut Cursor, process_id: i64, at: i64) -> bool {
        let slot = self.slot(cursor, process_id);
        slot.is_none_or(|slot| self.all[slot].place_on_gpu(&mut cursor.hints[slot], at).is_middle())
    }

    /// The part of a span of the GPU's time that lies in steady steps of usual duration; all of it in a process without steps.
    pub(crate) fn middle_ns(&self, cursor: &mut Cursor, process_id: i64, start: i64, end: i64) -> i64 {
        match self.slot(cursor, process_id) {
            Some(slot) => self.all[slot].middle_ns(&mut cursor.hints[slot], start, end),
            None => end - start,
        }
    }

    /// The part of a span of time that lies in steady steps, usual or not; nothing in a process without steps.
    pub(crate) fn steady_ns(&self, cursor: &mut Cursor, process_id: i64, start: i64, end: i64) -> i64 {
        let span = self.slot(cursor, process_id).map_or((0, 0), |slot| self.all[slot].steady_span());
        (end.min(span.1) - start.max(span.0)).max(0)
    }

    /// Whether any work was queued behind another stream's because of the legacy default stream.
    pub(crate) fn has_legacy_order(&self) -> bool {
        self.called.legacy_order
    }

    /// Names of the anchors.
    pub(crate) fn names(&self, ids: &mut FxHashSet<i64>) {
        ids.extend(self.all.iter().map(|s| s.anchor.id()));
    }
}

/// Counts only those that begin at such times, those of warm-up too where there are no others.
fn only_begun(steps: &mut ProcessSteps, is_begin: impl Fn(i64) -> bool) {
    if !steps.each().skip(steps.warm_up).any(|(begin, _)| is_begin(begin)) {
        steps.warm_up = 0;
    }
    let all = steps.each().len() as u64;
    steps.leave_out(|(begin, _)| !is_begin(begin));
    let left_out = (0..all as usize).filter(|step| steps.is_left_out(*step)).count() as u64;
    steps.count -= left_out.min(steps.count);
}

/// The value that a share of sorted values do not exceed; 0 of none.
pub(super) fn quantile(sorted: &[i64], share: f64) -> i64 {
    let rank = (share * sorted.len() as f64).ceil() as usize;
    sorted.get(rank.clamp(1, sorted.len().max(1)) - 1).copied().unwrap_or(0)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn steps(times: &[i64]) -> ProcessSteps {
        ProcessSteps::new(9, 1, (Name::Wait(1), times.len() as u64), times.to_vec()).expect("steps")
    }

    /// As long as usual steps take of a span.
    fn steps_middle(times: &[i64], start: i64, end: i64) -> i64 {
        Steps::new(vec![steps(times)], Called::default()).middle_ns(&mut Cursor::default(), 9, start, end)
    }

    #[test]
    fn slow_first_steps_are_warm_up_and_nothing_else_is() {
        let lengths = [900, 300, 100, 101, 99, 100, 500, 100, 102, 98, 100, 100, 100, 100];
        let times: Vec<i64> = lengths.iter().scan(0, |t, l| Some(std::mem::replace(t, *t + l))).chain([2900]).collect();
        let steps = steps(&times);
        assert_eq!((steps.count, steps.warm_up, steps.warm_up_ns()), (15, 2, 1200));
        assert_eq!((steps.quantile_ns(0.5), steps.quantile_ns(0.99), steps.outliers()), (100, 500, 1));
        assert!((steps.middle_ns - 100.0).abs() < 1.0);
        assert_eq!(steps.sample(2..14, 100).len(), 12);
        assert_eq!(steps.between(2, 3), Some((1200, 1401)));
        assert_eq!((steps.between(13, 900), steps.between(14, 20)), (Some((2700, 2900)), None));
        let spans = [(2, (1200, 1300)), (6, (1600, 2100)), (10, (2400, 2500))];
        assert_eq!(steps.sample(2..14, 3), spans.map(|(step, span)| (step, [span; 2])));
        // A few of them are the steps that they were.
        let few = steps.only(1, 4).expect("steps");
        assert_eq!((few.count, few.warm_up, few.quantile_ns(1.0), few.mean_ns()), (4, 1, 101, 100.0));
        assert_eq!(few.number, 1);
        assert!(few.only(9, 9).is_none());
        // One that is left out is in no number, and what lies in it is in no step.
        let left = Steps::new(vec![self::steps(&times)], Called::default())
            .leave_out(|_, (from, to)| from <= 1700 && 1700 < to);
        let of = left.of(9).expect("steps");
        assert_eq!((of.sorted_ns.len(), of.quantile_ns(0.99), of.outliers()), (11, 200, 0));
        let mut cursor = Cursor::default();
        assert_eq!([1650, 2150].map(|at| left.place(&mut cursor, 9, at) == Place::Outside), [true, false]);
        assert_eq!(left.middle_ns(&mut cursor, 9, 1600, 2200), steps_middle(&times, 1600, 2200));
        // A span has its whole steps, and cuts one at either end.
        let steps = Steps::new(vec![self::steps(&times)], Called::default());
        let some = steps.whole_in((1250, 1502));
        assert_eq!((some.of(9).map(|of| (of.count, of.number, of.first_ns())), some.cut(9)), (Some((2, 3, 1300)), 2));
        let none = some.whole_in((1310, 1320));
        assert_eq!((none.of(9).is_none(), none.cut(9)), (true, 1));
    }

    #[test]
    fn a_cursor_tells_the_hosts_time_from_the_gpus() {
        let process = steps(&[0, 10, 20, 30, 40, 50]).ahead(vec![1000, 1100, 1200, 1300, 1400, 1500]);
        let steps = Steps::new(vec![process], Called::default());
        let mut cursor = Cursor::default();
        for (host, gpu) in [(5, 1050), (6, 1051), (15, 1150), (1050, 5), (45, 1499), (50, 1500)] {
            let inside = (0..50).contains(&host);
            assert_eq!(steps.place(&mut cursor, 9, host) != Place::Outside, inside);
            assert_eq!(steps.index(&mut cursor, 9, host), inside.then_some((0, host as usize / 10)));
            assert_eq!(steps.counts_on_gpu(&mut cursor, 9, gpu), (1000..1500).contains(&gpu));
        }
    }

    #[test]
    fn rows_find_their_step_in_any_order() {
        let process = steps(&[1000, 2000, 3000, 4000, 5000, 6000, 7000]);
        let steps = Steps::new(vec![process], Called::default());
        let mut cursor = Cursor::default();
        let mut place = |at| steps.place(&mut cursor, 9, at);
        assert_eq!(place(999), Place::Outside);
        assert_eq!(place(1000), Place::Middle(2000));
        assert_eq!(place(6999), Place::Middle(7000));
        assert_eq!(place(2500), Place::Middle(3000));
        assert_eq!(place(7000), Place::Outside);
        let middle = |start, end| steps.middle_ns(&mut Cursor::default(), 9, start, end);
        assert_eq!((middle(0, 10_000), middle(1500, 2500), middle(8000, 9000)), (6000, 1000, 0));
        assert_eq!(steps.place(&mut Cursor::default(), 8, 2500), Place::Outside);
    }
}
