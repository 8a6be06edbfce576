//! Steps: where they begin and end, which are warm-up, how long they take.
//!
//! Two short reads before the others: [`Detect`] finds the loop of each process ([`super::period`]), [`Cut`] notes
//! when its anchor occurred. From then on every pass can ask [`Steps::place`] for a row. A step runs from one anchor to
//! the next: from the end of a wait to the end of the next one, or from a launch to the same launch a step later.
//!
//! **Warm-up** are the steps before the first five of which four take at most 1.3 times the median of the second half;
//! at most half of all steps. **Middle** are steady steps whose duration lies around the median ([`USUAL`]): a mean over
//! them is robust like the median, and its parts still sum to the whole.

use gputrace_collectors::schema::TableId;
use rustc_hash::{FxHashMap, FxHashSet};

use super::groups::Groups;
use super::period::{Name, Period, Sequence};
use crate::trace::{NO_NAME, Rows, Want};

/// Boundaries that are kept per process (32 MB); a loop with more is measured by its first so many.
const BOUNDARIES: usize = 4_000_000;

/// Steps between these quantiles of the durations are the usual ones.
const USUAL: (f64, f64) = (0.4, 0.6);

/// Kinds of `syncs.kind` in which the host waits.
pub(crate) fn blocks(kind: &str) -> bool {
    matches!(kind, "context" | "stream" | "event")
}

/// First read: the sequence of calls per thread.
#[derive(Debug, Default)]
pub(crate) struct Detect {
    threads: Groups<(i64, i32), Sequence>,
    callers: Groups<i64, Callers>,
}

/// The first two threads of a process that called the driver.
#[derive(Debug, Default)]
struct Callers(Vec<i32>);

impl Default for Groups<(i64, i32), Sequence> {
    fn default() -> Self {
        Groups::new(100_000, (-1, -1))
    }
}

impl Detect {
    /// What it reads.
    pub(crate) const WANTS: [Want; 4] = [
        Want { table: TableId::Launches, columns: &["tid", "correlation_id", "api_id", "name_id", "captured"] },
        Want { table: TableId::Syncs, columns: &["tid", "correlation_id", "api_id", "kind"] },
        Want { table: TableId::Transfers, columns: &["tid"] },
        Want { table: TableId::DeviceMemory, columns: &["tid"] },
    ];

    /// Takes rows in.
    pub(crate) fn rows(&mut self, rows: &Rows) {
        let (process, tid) = (rows.i64("process_id"), rows.i32_or("tid", 0));
        for (process, tid) in process.iter().zip(tid.iter()) {
            let callers = &mut self.callers.at(*process).0;
            if callers.len() < 2 && !callers.contains(tid) {
                callers.push(*tid);
            }
        }
        let (call, api) = (rows.i64("correlation_id"), rows.i64("api_id"));
        if rows.table == TableId::Launches {
            let (name, captured) = (rows.i64_or("name_id", NO_NAME), rows.flags("captured"));
            for row in 0..rows.len {
                if !captured.get(row) {
                    let name = if name[row] == NO_NAME { api[row] } else { name[row] };
                    self.threads.at((process[row], tid[row])).add(Name::Launch(name), call[row] as u32);
                }
            }
        } else if rows.table == TableId::Syncs {
            let kind = rows.texts("kind");
            for row in (0..rows.len).filter(|row| blocks(kind.get(*row))) {
                self.threads.at((process[row], tid[row])).add(Name::Wait(api[row]), call[row] as u32);
            }
        }
    }

    /// The loop of each process, if it has one: that of the thread with the most calls that has a wait in its loop,
    /// else of the thread with the most calls.
    pub(crate) fn cut(&self) -> Cut {
        let mut best: FxHashMap<i64, (i32, Period, (bool, u64))> = FxHashMap::default();
        for ((process, tid), sequence) in self.threads.iter() {
            let Some(period) = sequence.period() else { continue };
            let rank = (matches!(period.anchor, Name::Wait(_)), sequence.calls());
            if best.get(process).is_none_or(|(.., other)| rank > *other) {
                best.insert(*process, (*tid, period, rank));
            }
        }
        let loops = best.into_iter().map(|(process, (tid, period, _))| (process, Loop { tid, period, times: vec![] }));
        let several = self.callers.iter().filter(|(_, callers)| callers.0.len() > 1).map(|(process, _)| *process);
        Cut { loops: loops.collect(), several_callers: several.collect() }
    }
}

/// Second read: when the anchors occurred.
#[derive(Debug, Default)]
pub(crate) struct Cut {
    loops: FxHashMap<i64, Loop>,
    several_callers: FxHashSet<i64>,
}

#[derive(Debug)]
struct Loop {
    tid: i32,
    period: Period,
    times: Vec<i64>,
}

impl Cut {
    /// What it reads: only the tables in which anchors stand.
    pub(crate) fn wants(&self) -> Vec<Want> {
        let has = |wait: bool| self.loops.values().any(|l| matches!(l.period.anchor, Name::Wait(_)) == wait);
        let launches = Want { table: TableId::Launches, columns: &["tid", "api_id", "name_id", "captured"] };
        let syncs = Want { table: TableId::Syncs, columns: &["tid", "api_id", "api_ns", "kind"] };
        [(has(false), launches), (has(true), syncs)].into_iter().filter(|(has, _)| *has).map(|(_, want)| want).collect()
    }

    /// Takes rows in.
    pub(crate) fn rows(&mut self, rows: &Rows) {
        let (process, tid, start) = (rows.i64("process_id"), rows.i32_or("tid", 0), rows.i64("start_ns"));
        let (api, name, length) = (rows.i64("api_id"), rows.i64_or("name_id", NO_NAME), rows.i64("api_ns"));
        let (captured, kind) = (rows.flags("captured"), rows.texts("kind"));
        let mut row = 0;
        while row < rows.len {
            let run = process[row..].iter().take_while(|p| **p == process[row]).count();
            if let Some(found) = self.loops.get_mut(&process[row]) {
                for row in row..row + run {
                    let at = match (found.period.anchor, rows.table) {
                        (Name::Launch(id), TableId::Launches) => {
                            let this = if name[row] == NO_NAME { api[row] } else { name[row] };
                            (this == id && !captured.get(row)).then(|| start[row])
                        }
                        (Name::Wait(id), TableId::Syncs) => {
                            (api[row] == id && blocks(kind.get(row))).then(|| start[row] + length[row])
                        }
                        _ => None,
                    };
                    if let Some(at) = at.filter(|_| tid[row] == found.tid && found.times.len() < BOUNDARIES) {
                        found.times.push(at);
                    }
                }
            }
            row += run;
        }
    }

    /// The steps.
    pub(crate) fn steps(self) -> Steps {
        let mut all: Vec<ProcessSteps> =
            self.loops.into_iter().filter_map(|(process, found)| ProcessSteps::new(process, found)).collect();
        all.sort_by_key(|s| s.process_id);
        let slots = all.iter().enumerate().map(|(i, s)| (s.process_id, i)).collect();
        Steps { slots, all, several_callers: self.several_callers }
    }
}

/// The steps of all processes.
#[derive(Debug, Default)]
pub(crate) struct Steps {
    /// Processes in which steps were found, by id.
    pub(crate) all: Vec<ProcessSteps>,
    slots: FxHashMap<i64, usize>,
    several_callers: FxHashSet<i64>,
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
    fn new(process_id: i64, found: Loop) -> Option<ProcessSteps> {
        let Loop { tid, period, mut times } = found;
        times.sort_unstable();
        times.dedup();
        if times.len() < 5 {
            return None;
        }
        let lengths: Vec<i64> = times.windows(2).map(|w| w[1] - w[0]).collect();
        let warm_up = warm_up(&lengths);
        let mut sorted_ns = lengths[warm_up..].to_vec();
        sorted_ns.sort_unstable();
        let usual = (quantile(&sorted_ns, USUAL.0), quantile(&sorted_ns, USUAL.1));
        let middle: Vec<i64> = sorted_ns.iter().copied().filter(|l| (usual.0..=usual.1).contains(l)).collect();
        Some(ProcessSteps {
            process_id,
            tid,
            anchor: period.anchor,
            count: period.count,
            warm_up,
            middle: middle.len() as u64,
            middle_ns: middle.iter().sum::<i64>() as f64 / middle.len().max(1) as f64,
            sorted_ns,
            times,
            usual,
        })
    }

    /// The duration that a share of the steady steps do not exceed.
    pub(crate) fn quantile_ns(&self, share: f64) -> i64 {
        quantile(&self.sorted_ns, share)
    }

    /// From the first steady step to the end of the last, ns since the epoch.
    pub(crate) fn steady_span(&self) -> (i64, i64) {
        (self.times.get(self.warm_up).copied().unwrap_or(0), self.times.last().copied().unwrap_or(0))
    }

    /// Time that the warm-up steps took.
    pub(crate) fn warm_up_ns(&self) -> i64 {
        self.steady_span().0 - self.times.first().copied().unwrap_or(0)
    }

    /// Steady steps that took more than twice the median.
    pub(crate) fn outliers(&self) -> usize {
        let limit = self.quantile_ns(0.5).saturating_mul(2);
        self.sorted_ns.len() - self.sorted_ns.partition_point(|l| *l <= limit)
    }

    #[inline]
    fn place(&self, hint: &mut usize, at: i64) -> Place {
        let holds =
            |i: usize| self.times.get(i).is_some_and(|t| *t <= at) && self.times.get(i + 1).is_some_and(|t| at < *t);
        if !holds(*hint) {
            *hint = if holds(*hint + 1) {
                *hint + 1
            } else {
                match self.times.partition_point(|t| *t <= at) {
                    0 => return Place::Outside,
                    after if after == self.times.len() => return Place::Outside,
                    after => after - 1,
                }
            };
        }
        if *hint < self.warm_up {
            return Place::WarmUp;
        }
        let end = self.times[*hint + 1];
        let length = end - self.times[*hint];
        if (self.usual.0..=self.usual.1).contains(&length) { Place::Middle(end) } else { Place::Steady }
    }
}

/// Where a pass last looked: rows come nearly in the order of time, so the next one lies in the same step or the next.
#[derive(Debug, Default)]
pub(crate) struct Cursor {
    process: Option<(i64, Option<usize>)>,
    hints: Vec<usize>,
}

impl Steps {
    /// The steps of a process, if it has any.
    pub(crate) fn of(&self, process_id: i64) -> Option<&ProcessSteps> {
        self.slots.get(&process_id).map(|i| &self.all[*i])
    }

    /// Whether more than one thread of a process called the driver.
    pub(crate) fn several_callers(&self, process_id: i64) -> bool {
        self.several_callers.contains(&process_id)
    }

    /// Where a row that begins at `at` lies.
    #[inline]
    pub(crate) fn place(&self, cursor: &mut Cursor, process_id: i64, at: i64) -> Place {
        let slot = match cursor.process {
            Some((process, slot)) if process == process_id => slot,
            _ => {
                let slot = self.slots.get(&process_id).copied();
                cursor.process = Some((process_id, slot));
                cursor.hints.resize(self.all.len(), 0);
                slot
            }
        };
        slot.map_or(Place::Outside, |slot| self.all[slot].place(&mut cursor.hints[slot], at))
    }

    /// Names of the anchors.
    pub(crate) fn names(&self, ids: &mut FxHashSet<i64>) {
        ids.extend(self.all.iter().map(|s| match s.anchor {
            Name::Launch(id) | Name::Wait(id) => id,
        }));
    }
}

fn quantile(sorted: &[i64], share: f64) -> i64 {
    let rank = (share * sorted.len() as f64).ceil() as usize;
    sorted.get(rank.clamp(1, sorted.len().max(1)) - 1).copied().unwrap_or(0)
}

fn warm_up(lengths: &[i64]) -> usize {
    let mut second_half = lengths[lengths.len() / 2..].to_vec();
    second_half.sort_unstable();
    let limit = quantile(&second_half, 0.5) as f64 * 1.3;
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
        let period =
            Period { anchor: Name::Wait(1), count: times.len() as u64, calls: 3.0, regularity: 1.0, spread: 0.0 };
        ProcessSteps::new(9, Loop { tid: 1, period, times: times.to_vec() }).expect("steps")
    }

    #[test]
    fn slow_first_steps_are_warm_up_and_nothing_else_is() {
        let lengths = [900, 300, 100, 101, 99, 100, 500, 100, 102, 98, 100, 100, 100, 100];
        let times: Vec<i64> = lengths.iter().scan(0, |t, l| Some(std::mem::replace(t, *t + l))).chain([2900]).collect();
        let steps = steps(&times);
        assert_eq!((steps.count, steps.warm_up, steps.warm_up_ns()), (15, 2, 1200));
        assert_eq!((steps.quantile_ns(0.5), steps.quantile_ns(0.99), steps.outliers()), (100, 500, 1));
        assert!((steps.middle_ns - 100.0).abs() < 1.0);
    }

    #[test]
    fn rows_find_their_step_in_any_order() {
        let process = steps(&[1000, 2000, 3000, 4000, 5000, 6000, 7000]);
        let steps = Steps { slots: [(9, 0)].into_iter().collect(), all: vec![process], ..Steps::default() };
        let mut cursor = Cursor::default();
        let mut place = |at| steps.place(&mut cursor, 9, at);
        assert_eq!(place(999), Place::Outside);
        assert_eq!(place(1000), Place::Middle(2000));
        assert_eq!(place(6999), Place::Middle(7000));
        assert_eq!(place(2500), Place::Middle(3000));
        assert_eq!(place(7000), Place::Outside);
        assert_eq!(steps.place(&mut Cursor::default(), 8, 2500), Place::Outside);
    }
}
