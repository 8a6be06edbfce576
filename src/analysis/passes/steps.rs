//! Steps: where they begin and end, which are warm-up, how long they take.
//!
//! They are found before all other reads ([`super::detect`]); every pass can then ask [`Steps::place`] for a row. A step
//! runs from one anchor to the next: from the beginning of a range that the program calls a step to that of the next one,
//! else from the end of a wait to the end of the next one, or from a launch to the same launch a step later.
//!
//! **Warm-up** are the steps before the first five of which four take at most 1.3 times the median of the second half,
//! or as long as nine of ten steps there; at most half of all steps. **Middle** are steady steps whose duration lies
//! around the median ([`USUAL`]): a mean over them is robust like the median, and its parts still sum to the whole.

use rustc_hash::{FxHashMap, FxHashSet};

use super::givers::Givers;
use super::period::Name;

/// Steps between these quantiles of the durations are the usual ones.
const USUAL: (f64, f64) = (0.4, 0.6);

/// Kinds of `syncs.kind` in which the host waits.
pub(crate) fn blocks(kind: &str) -> bool {
    matches!(kind, "context" | "stream" | "event")
}

/// The steps of all processes.
#[derive(Debug, Default)]
pub(crate) struct Steps {
    /// Processes in which steps were found, by id.
    pub(crate) all: Vec<ProcessSteps>,
    slots: FxHashMap<i64, usize>,
    several_callers: FxHashSet<i64>,
    /// Threads that give the GPU work.
    pub(crate) givers: Givers,
}

/// The steps of one process.
#[derive(Debug)]
pub(crate) struct ProcessSteps {
    /// The process.
    pub(crate) process_id: i64,
    /// The thread whose loop it is.
    pub(crate) tid: i32,
    /// What marks a step.
    pub(crate) anchor: Name,
    /// How often the anchor occurred.
    pub(crate) count: u64,
    /// Steps at the start that are left out.
    pub(crate) warm_up: usize,
    /// Durations of the steady steps, sorted.
    pub(crate) sorted_ns: Vec<i64>,
    /// Steps of usual duration.
    pub(crate) middle: u64,
    /// Their mean duration.
    pub(crate) middle_ns: f64,
    times: Vec<i64>,
    usual: (i64, i64),
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

impl ProcessSteps {
    /// The steps between these times, at which the anchor occurred `count` times; none when there are too few.
    pub(crate) fn new(process_id: i64, tid: i32, (anchor, count): (Name, u64), mut times: Vec<i64>) -> Option<Self> {
        times.sort_unstable();
        times.dedup();
        if times.len() < 5 {
            return None;
        }
        let warm_up = warm_up(&lengths(&times));
        Some(ProcessSteps::of(process_id, tid, (anchor, count), times, warm_up))
    }

    /// The steps between these times, of which the first ones are warm-up.
    fn of(process_id: i64, tid: i32, (anchor, count): (Name, u64), times: Vec<i64>, warm_up: usize) -> ProcessSteps {
        let mut sorted_ns = lengths(&times)[warm_up..].to_vec();
        sorted_ns.sort_unstable();
        let usual = (quantile(&sorted_ns, USUAL.0), quantile(&sorted_ns, USUAL.1));
        let middle: Vec<i64> = sorted_ns.iter().copied().filter(|l| (usual.0..=usual.1).contains(l)).collect();
        ProcessSteps {
            process_id,
            tid,
            anchor,
            count,
            warm_up,
            middle: middle.len() as u64,
            middle_ns: middle.iter().sum::<i64>() as f64 / middle.len().max(1) as f64,
            sorted_ns,
            times,
            usual,
        }
    }

    /// These steps alone, counted from 0 with those of warm-up; warm-up counts as such unless there is nothing else.
    fn only(self, first: usize, last: usize) -> Option<ProcessSteps> {
        let end = last.saturating_add(1).min(self.times.len().checked_sub(1)?);
        let times = self.times.get(first..=end).filter(|times| times.len() > 1)?.to_vec();
        let steps = times.len() - 1;
        let warm_up = Some(self.warm_up.saturating_sub(first)).filter(|warm_up| *warm_up < steps).unwrap_or(0);
        Some(ProcessSteps::of(self.process_id, self.tid, (self.anchor, steps as u64), times, warm_up))
    }

    /// Mean duration of the steady steps.
    pub(crate) fn mean_ns(&self) -> f64 {
        self.sorted_ns.iter().sum::<i64>() as f64 / self.sorted_ns.len().max(1) as f64
    }

    /// The duration that a share of the steady steps do not exceed.
    pub(crate) fn quantile_ns(&self, share: f64) -> i64 {
        quantile(&self.sorted_ns, share)
    }

    /// When the first step began, ns since the epoch.
    pub(crate) fn first_ns(&self) -> i64 {
        self.times.first().copied().unwrap_or(0)
    }

    /// From the first steady step to the end of the last, ns since the epoch.
    pub(crate) fn steady_span(&self) -> (i64, i64) {
        (self.times.get(self.warm_up).copied().unwrap_or(0), self.times.last().copied().unwrap_or(0))
    }

    /// From the begin of one step to the end of another, counted from 0 with those of warm-up; as far as there are steps.
    pub(crate) fn between(&self, first: usize, last: usize) -> Option<(i64, i64)> {
        let last = last.saturating_add(1).min(self.times.len().checked_sub(1)?);
        (first < last).then(|| (self.times[first], self.times[last]))
    }

    /// The begin of a step, counted from 0 with those of warm-up, or the end of the last one.
    pub(crate) fn boundary(&self, step: usize) -> Option<i64> {
        self.times.get(step).copied()
    }

    /// Whether it is a steady step of usual duration.
    pub(crate) fn is_middle(&self, step: usize) -> bool {
        let lasts = self.boundary(step + 1).zip(self.boundary(step)).map(|(end, begin)| end - begin);
        step >= self.warm_up && lasts.is_some_and(|ns| self.is_usual(ns))
    }

    /// Begin and end of at most so many steady steps, spread evenly over the run.
    pub(crate) fn sample(&self, most: usize) -> Vec<(i64, i64)> {
        let steady = self.times.get(self.warm_up..).unwrap_or_default();
        let all = steady.len().saturating_sub(1);
        let taken = all.min(most);
        (0..taken).map(|i| i * all / taken).map(|step| (steady[step], steady[step + 1])).collect()
    }

    /// Time that the warm-up steps took.
    pub(crate) fn warm_up_ns(&self) -> i64 {
        self.steady_span().0 - self.first_ns()
    }

    /// Steady steps that took more than twice the median.
    pub(crate) fn outliers(&self) -> usize {
        let limit = self.quantile_ns(0.5).saturating_mul(2);
        self.sorted_ns.len() - self.sorted_ns.partition_point(|l| *l <= limit)
    }

    /// When each step began and how long it took, in order, those of the warm-up first.
    pub(crate) fn each(&self) -> impl ExactSizeIterator<Item = (i64, i64)> {
        self.times.windows(2).map(|pair| (pair[0], pair[1] - pair[0]))
    }

    /// Whether a step of this duration is a usual one.
    pub(crate) fn is_usual(&self, ns: i64) -> bool {
        (self.usual.0..=self.usual.1).contains(&ns)
    }

    /// The step in which a row lies.
    #[inline]
    fn index(&self, hint: &mut usize, at: i64) -> Option<usize> {
        let holds =
            |i: usize| self.times.get(i).is_some_and(|t| *t <= at) && self.times.get(i + 1).is_some_and(|t| at < *t);
        if !holds(*hint) {
            *hint = if holds(*hint + 1) {
                *hint + 1
            } else {
                match self.times.partition_point(|t| *t <= at) {
                    0 => return None,
                    after if after == self.times.len() => return None,
                    after => after - 1,
                }
            };
        }
        Some(*hint)
    }

    #[inline]
    fn place(&self, hint: &mut usize, at: i64) -> Place {
        let Some(index) = self.index(hint, at) else { return Place::Outside };
        if index < self.warm_up {
            return Place::WarmUp;
        }
        let end = self.times[index + 1];
        if self.is_usual(end - self.times[index]) { Place::Middle(end) } else { Place::Steady }
    }

    fn middle_ns(&self, hint: &mut usize, start: i64, end: i64) -> i64 {
        let (mut at, mut ns) = (start, 0);
        while at < end {
            let place = self.place(hint, at);
            let next = match place {
                Place::Outside => self.times.first().copied().filter(|first| *first > at),
                _ => self.times.get(*hint + 1).copied(),
            };
            let Some(next) = next else { break };
            if place.is_middle() {
                ns += next.min(end) - at;
            }
            at = next;
        }
        ns
    }
}

/// Where a pass last looked: rows come nearly in the order of time, so the next one lies in the same step or the next.
#[derive(Debug, Default)]
pub(crate) struct Cursor {
    process: Option<(i64, Option<usize>)>,
    hints: Vec<usize>,
}

impl Steps {
    /// Of all processes, those in which several threads call the driver, and the threads that give work.
    pub(crate) fn new(mut all: Vec<ProcessSteps>, several_callers: FxHashSet<i64>, givers: Givers) -> Steps {
        all.sort_by_key(|s| s.process_id);
        Steps { slots: all.iter().enumerate().map(|(i, s)| (s.process_id, i)).collect(), all, several_callers, givers }
    }

    /// These steps of each process that has them.
    pub(crate) fn only(self, first: usize, last: usize) -> Steps {
        let all = self.all.into_iter().filter_map(|steps| steps.only(first, last)).collect();
        Steps::new(all, self.several_callers, self.givers)
    }

    /// Whether any process names its steps.
    pub(crate) fn any_named(&self) -> bool {
        self.all.iter().any(|steps| matches!(steps.anchor, Name::Range(_)))
    }

    /// The steps of a process, if it has any.
    pub(crate) fn of(&self, process_id: i64) -> Option<&ProcessSteps> {
        self.slots.get(&process_id).map(|i| &self.all[*i])
    }

    /// Whether more than one thread of a process called the driver.
    pub(crate) fn several_callers(&self, process_id: i64) -> bool {
        self.several_callers.contains(&process_id)
    }

    /// Whether a wait for the operating system holds the loop of its process up: the loop's thread waits, and no other
    /// thread launches meanwhile.
    pub(crate) fn holds_up(&self, process_id: i64, tid: i32, start: i64, end: i64) -> bool {
        let in_loop = self.of(process_id).is_some_and(|steps| steps.tid == tid);
        in_loop && !(self.several_callers(process_id) && self.givers.another(process_id, tid, start, end))
    }

    /// The step in which a row that begins at `at` lies: the place of its process in [`Steps::all`], and its number there.
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
                cursor.hints.resize(self.all.len(), 0);
                slot
            }
        }
    }

    /// Where a row that begins at `at` lies.
    #[inline]
    pub(crate) fn place(&self, cursor: &mut Cursor, process_id: i64, at: i64) -> Place {
        let slot = self.slot(cursor, process_id);
        slot.map_or(Place::Outside, |slot| self.all[slot].place(&mut cursor.hints[slot], at))
    }

    /// The part of a span of time that lies in steady steps of usual duration; all of it in a process without steps.
    pub(crate) fn middle_ns(&self, cursor: &mut Cursor, process_id: i64, start: i64, end: i64) -> i64 {
        match self.slot(cursor, process_id) {
            Some(slot) => self.all[slot].middle_ns(&mut cursor.hints[slot], start, end),
            None => end - start,
        }
    }

    /// Names of the anchors.
    pub(crate) fn names(&self, ids: &mut FxHashSet<i64>) {
        ids.extend(self.all.iter().map(|s| match s.anchor {
            Name::Launch(id) | Name::Wait(id) | Name::Range(id) => id,
        }));
    }
}

fn lengths(times: &[i64]) -> Vec<i64> {
    times.windows(2).map(|pair| pair[1] - pair[0]).collect()
}

fn quantile(sorted: &[i64], share: f64) -> i64 {
    let rank = (share * sorted.len() as f64).ceil() as usize;
    sorted.get(rank.clamp(1, sorted.len().max(1)) - 1).copied().unwrap_or(0)
}

fn warm_up(lengths: &[i64]) -> usize {
    let mut second_half = lengths[lengths.len() / 2..].to_vec();
    second_half.sort_unstable();
    let limit = (quantile(&second_half, 0.5) as f64 * 1.3).max(quantile(&second_half, 0.9) as f64);
    let calm = |i: &usize| {
        let next = &lengths[*i..(*i + 5).min(lengths.len())];
        lengths[*i] as f64 <= limit && next.iter().filter(|l| **l as f64 <= limit).count() * 5 >= next.len() * 4
    };
    (0..lengths.len() / 2).find(calm).unwrap_or(lengths.len() / 2)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn steps(times: &[i64]) -> ProcessSteps {
        ProcessSteps::new(9, 1, (Name::Wait(1), times.len() as u64), times.to_vec()).expect("steps")
    }

    #[test]
    fn slow_first_steps_are_warm_up_and_nothing_else_is() {
        let lengths = [900, 300, 100, 101, 99, 100, 500, 100, 102, 98, 100, 100, 100, 100];
        let times: Vec<i64> = lengths.iter().scan(0, |t, l| Some(std::mem::replace(t, *t + l))).chain([2900]).collect();
        let steps = steps(&times);
        assert_eq!((steps.count, steps.warm_up, steps.warm_up_ns()), (15, 2, 1200));
        assert_eq!((steps.quantile_ns(0.5), steps.quantile_ns(0.99), steps.outliers()), (100, 500, 1));
        assert!((steps.middle_ns - 100.0).abs() < 1.0);
        assert_eq!(steps.sample(100).len(), 12);
        assert_eq!(steps.between(2, 3), Some((1200, 1401)));
        assert_eq!((steps.between(13, 900), steps.between(14, 20)), (Some((2700, 2900)), None));
        assert_eq!(steps.sample(3), [(1200, 1300), (1600, 2100), (2400, 2500)]);
        // A few of them are the steps that they were.
        let few = steps.only(1, 4).expect("steps");
        assert_eq!((few.count, few.warm_up, few.quantile_ns(1.0), few.mean_ns()), (4, 1, 101, 100.0));
        assert!(few.only(9, 9).is_none());
    }

    #[test]
    fn rows_find_their_step_in_any_order() {
        let process = steps(&[1000, 2000, 3000, 4000, 5000, 6000, 7000]);
        let steps = Steps::new(vec![process], FxHashSet::default(), Givers::default());
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
