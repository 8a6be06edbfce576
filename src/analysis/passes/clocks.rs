//! The clocks of ranks, compared on moments that ranks have in common.
//!
//! Recorded processes of a host have one clock, that of their host; of an import each file has the clock that its profiler
//! wrote. A collective ends on all its ranks at nearly the same time, so two clocks differ by the median difference of
//! those ends, and how far single ends lie from that median says how exact this is. Clocks without a collective in common are
//! compared by way of others. One offset holds for the whole run: a clock that drifts shows as error.

use std::collections::BTreeMap;

use gputrace_collectors::launcher_of;
use rustc_hash::FxHashMap;

use crate::trace::{Filter, Process, Trace};

/// Moments that are held of two clocks.
const MOMENTS: usize = 20_000;
/// Fewer ends of kernels do not compare two clocks.
const FEWEST: usize = 3;

/// How a clock was compared with the first one.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Aligned {
    /// It is the first one.
    Reference,
    /// On the ends of so many collectives on the GPU.
    Kernels(usize),
    /// On the making of so many communicators, which all ranks finish together.
    Communicators(usize),
    /// There was nothing to compare.
    Not,
}

/// A clock.
#[derive(Clone, Debug)]
pub(crate) struct Clock {
    /// The first process whose times it gave, in the order of the ranks.
    pub(crate) process_id: i64,
    /// Processes of ranks whose times it gave.
    pub(crate) processes: usize,
    /// Their host.
    pub(crate) host: String,
    /// So far it is ahead of the first clock.
    pub(crate) ahead_ns: i64,
    /// Half of the moments in common lie within so much of that.
    pub(crate) error_ns: i64,
    /// How that is known.
    pub(crate) by: Aligned,
}

/// All clocks of a trace's ranks.
#[derive(Debug, Default)]
pub(crate) struct Clocks {
    /// In the order of their first ranks.
    pub(crate) all: Vec<Clock>,
    of: FxHashMap<i64, usize>,
    imported: Vec<bool>,
    /// By two clocks: how far the second is ahead at moments in common, by ends of kernels and by communicators.
    moments: BTreeMap<(usize, usize), [Vec<i64>; 2]>,
}

impl Clocks {
    /// The clocks of this trace's ranks that are looked at: the others have no moment in common with them.
    pub(crate) fn new(trace: &Trace, filter: &Filter) -> Clocks {
        let mut clocks = Clocks::default();
        let mut known: FxHashMap<(Option<i64>, &str), usize> = FxHashMap::default();
        let imported = |process: &Process| trace.is_imported(process.process_id);
        let is_kept = |process: &&Process| {
            filter.processes.as_ref().is_none_or(|kept| kept.contains(&process.process_id)) && process.rank.is_some()
        };
        for process in trace.processes.iter().filter(is_kept) {
            // A process's id begins with its launcher's, of which an import makes one a file.
            let import = imported(process).then_some(launcher_of(process.process_id));
            let next = clocks.all.len();
            let index = *known.entry((import, process.host.as_str())).or_insert(next);
            if index == next {
                let (process_id, host) = (process.process_id, process.host.clone());
                let by = if next == 0 { Aligned::Reference } else { Aligned::Not };
                clocks.all.push(Clock { process_id, processes: 0, host, ahead_ns: 0, error_ns: 0, by });
                clocks.imported.push(import.is_some());
            }
            clocks.all[index].processes += 1;
            clocks.of.insert(process.process_id, index);
        }
        clocks
    }

    /// The clock of a process.
    pub(crate) fn get(&self, process_id: i64) -> Option<&Clock> {
        self.of.get(&process_id).map(|index| &self.all[*index])
    }

    /// A collective ended on these processes' GPUs then.
    pub(crate) fn ended(&mut self, ends: &[(i64, i64)]) {
        self.add(0, ends);
    }

    /// These processes made a communicator then. An import does not tell when.
    pub(crate) fn made(&mut self, moments: &[(i64, i64)]) {
        let told = |(process, _): &&(i64, i64)| self.of.get(process).is_some_and(|clock| !self.imported[*clock]);
        let moments: Vec<(i64, i64)> = moments.iter().filter(told).copied().collect();
        self.add(1, &moments);
    }

    fn add(&mut self, kind: usize, moments: &[(i64, i64)]) {
        let mut clocks = moments.iter().filter_map(|(process, at)| Some((*self.of.get(process)?, *at)));
        let Some((first, first_at)) = clocks.next() else { return };
        for (clock, at) in clocks.filter(|(clock, _)| *clock != first) {
            let apart = if clock > first { at - first_at } else { first_at - at };
            let held = &mut self.moments.entry((first.min(clock), first.max(clock))).or_default()[kind];
            if held.len() < MOMENTS {
                held.push(apart);
            }
        }
    }

    /// Compares the clocks with the first one, each with a known one with which it has most in common.
    pub(crate) fn align(&mut self) {
        let moments: Vec<((usize, usize), Aligned, i64, i64)> = std::mem::take(&mut self.moments)
            .into_iter()
            .filter_map(|(clocks, [ends, made])| {
                let (apart, by) = match (ends.len(), made.len()) {
                    (FEWEST.., _) => (ends.clone(), Aligned::Kernels(ends.len())),
                    (_, 1..) => (made.clone(), Aligned::Communicators(made.len())),
                    _ => return None,
                };
                let ahead_ns = middle(apart.clone());
                let error_ns = middle(apart.iter().map(|apart| (apart - ahead_ns).abs()).collect());
                Some((clocks, by, ahead_ns, error_ns))
            })
            .collect();
        let worth = |by: Aligned| match by {
            Aligned::Kernels(count) => (1, count),
            Aligned::Communicators(count) => (0, count),
            Aligned::Reference | Aligned::Not => (0, 0),
        };
        let is_known = |all: &[Clock], clock: usize| all[clock].by != Aligned::Not;
        loop {
            let next = moments.iter().filter(|((a, b), ..)| is_known(&self.all, *a) != is_known(&self.all, *b));
            let next = next.max_by_key(|(clocks, by, ..)| (worth(*by), std::cmp::Reverse(*clocks)));
            let Some(((a, b), by, ahead_ns, error_ns)) = next else { return };
            let (known, new, ahead_ns) =
                if is_known(&self.all, *a) { (*a, *b, *ahead_ns) } else { (*b, *a, -ahead_ns) };
            let base = self.all[known].clone();
            let clock = &mut self.all[new];
            (clock.ahead_ns, clock.error_ns) = (base.ahead_ns + ahead_ns, base.error_ns + error_ns);
            clock.by = *by;
        }
    }
}

/// The middle one.
fn middle(mut values: Vec<i64>) -> i64 {
    values.sort_unstable();
    values.get(values.len() / 2).copied().unwrap_or(0)
}

#[cfg(test)]
mod tests {
    use gputrace_collectors::manifest::IMPORTED;

    use super::*;
    use crate::trace::testing::{START, TestTrace};

    #[test]
    fn of_some_ranks_the_first_of_these_is_what_the_others_are_compared_with() {
        let mut trace = TestTrace::new();
        for rank in 0..3 {
            // Each of a launcher of its own, as the files of an import.
            trace.process(i64::from(rank + 1) << 32, 100 + rank, Some(rank), START + 1_000_000);
        }
        trace.manifest.as_mut().expect("a manifest").clock.kind = IMPORTED.to_owned();
        let trace = trace.open();
        let by = |ranks: &[i32]| {
            let filter = Filter::default().only(&trace.processes, &[], ranks);
            let mut clocks = Clocks::new(&trace, &filter);
            (0..4).for_each(|at| clocks.ended(&[(2 << 32, at), (3 << 32, at + 500)]));
            clocks.align();
            clocks.all.iter().map(|clock| (clock.by, clock.ahead_ns)).collect::<Vec<_>>()
        };
        assert_eq!(by(&[1, 2]), [(Aligned::Reference, 0), (Aligned::Kernels(4), 500)]);
        assert_eq!(by(&[]), [(Aligned::Reference, 0), (Aligned::Not, 0), (Aligned::Not, 0)]);
    }
}
