//! Steps that the program itself names: `ProfilerStep#12`, `step`, `train_step 7`, or what the user calls a step.
//!
//! Of each process the name that ranks first counts ([`step_names`]; what the user names comes before all), in the thread that
//! has most of it. A range inside another one of that name is no step of its own.

use gputrace_collectors::schema::TableId;
use gputrace_collectors::step_names;
use rustc_hash::FxHashMap;

use super::detect::BOUNDARIES;
use super::period::Name;
use super::steps::ProcessSteps;
use crate::trace::{Filter, Rows, Trace, Want};

/// Fewer ranges are no loop.
const FEWEST: usize = 5;

/// A step begins where the one before it ends. Where a profiler's microseconds are floating point numbers, as little as this
/// before it: of times since 1970 these are a quarter of a microsecond apart.
const ROUNDING_NS: i64 = 1_000;

/// Names of ranges that mean a step, and the steps so far.
#[derive(Debug, Default)]
pub(crate) struct NamedSteps {
    /// By `name_id`: the rank of the name.
    ids: FxHashMap<i64, usize>,
    /// By process, rank and thread.
    found: FxHashMap<(i64, usize, i32), Vec<Range>>,
}

/// A range that means a step.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
struct Range {
    start_ns: i64,
    end_ns: i64,
    name_id: i64,
}

impl NamedSteps {
    /// What it reads.
    pub(crate) const WANT: Want = Want { table: TableId::Ranges, columns: &["tid", "end_ns", "name_id", "kind"] };

    /// Reads which names mean a step in this trace; `wanted` is the user's.
    pub(crate) fn new(trace: &Trace, wanted: Option<&str>) -> NamedSteps {
        let mut steps = NamedSteps::default();
        let wanted = wanted.map(step_names::base);
        let want = [Want { table: TableId::Names, columns: &["name_id", "kind", "name"] }];
        trace.scan(&want, &Filter::default(), &mut |rows| {
            let (ids, kinds, names) = (rows.i64("name_id"), rows.texts("kind"), rows.texts("name"));
            for row in (0..rows.len).filter(|row| kinds.get(*row) == "range") {
                let rank = match &wanted {
                    Some(wanted) => (step_names::base(names.get(row)) == *wanted).then_some(0),
                    None => step_names::rank(names.get(row)),
                };
                steps.ids.extend(rank.map(|rank| (ids[row], rank)));
            }
        });
        steps
    }

    /// Takes rows of ranges in.
    pub(crate) fn rows(&mut self, rows: &Rows) {
        if self.ids.is_empty() {
            return;
        }
        let (process, tid) = (rows.i64("process_id"), rows.i32_or("tid", 0));
        let (start, end, name) = (rows.i64("start_ns"), rows.i64_or("end_ns", 0), rows.i64_or("name_id", -1));
        let kind = rows.texts("kind");
        for row in 0..rows.len {
            let Some(rank) = self.ids.get(&name[row]).filter(|_| end[row] != 0 && kind.get(row) != "mark") else {
                continue;
            };
            let found = self.found.entry((process[row], *rank, tid[row])).or_default();
            if found.len() < BOUNDARIES {
                found.push(Range { start_ns: start[row], end_ns: end[row], name_id: name[row] });
            }
        }
    }

    /// The steps of each process that names some.
    pub(crate) fn steps(self) -> impl Iterator<Item = ProcessSteps> {
        let mut best: FxHashMap<i64, (usize, i32, Vec<Range>)> = FxHashMap::default();
        for ((process, rank, tid), mut ranges) in self.found {
            ranges.sort_unstable();
            let mut last_end = i64::MIN;
            ranges.retain(|range| {
                let behind = range.end_ns > last_end && range.start_ns.saturating_add(ROUNDING_NS) >= last_end;
                let is_outer = range.start_ns >= last_end || behind;
                last_end = last_end.max(range.end_ns);
                is_outer
            });
            let better = |(other_rank, other_tid, other): &(usize, i32, Vec<Range>)| {
                (rank, std::cmp::Reverse(ranges.len()), tid) < (*other_rank, std::cmp::Reverse(other.len()), *other_tid)
            };
            if ranges.len() >= FEWEST && best.get(&process).is_none_or(better) {
                best.insert(process, (rank, tid, ranges));
            }
        }
        best.into_iter().filter_map(|(process, (_, tid, ranges))| {
            let anchor = (Name::Range(ranges.first()?.name_id), ranges.len() as u64);
            let end = ranges.last().map(|last| last.end_ns);
            let times = ranges.iter().map(|range| range.start_ns).chain(end).collect();
            ProcessSteps::new(process, tid, anchor, times)
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// How many steps ranges from then to then are.
    fn steps(ranges: &[(i64, i64)]) -> Option<u64> {
        let ranges = ranges.iter().map(|(start_ns, end_ns)| Range { start_ns: *start_ns, end_ns: *end_ns, name_id: 7 });
        let found = [((1, 0, 11), ranges.collect())].into_iter().collect();
        NamedSteps { found, ..NamedSteps::default() }.steps().next().map(|steps| steps.count)
    }

    #[test]
    fn a_step_that_begins_a_hair_before_the_last_one_ends_is_a_step() {
        let exact: Vec<(i64, i64)> = (0..6).map(|step| (step * 10_000, (step + 1) * 10_000)).collect();
        let rounded: Vec<(i64, i64)> = exact.iter().map(|(start, end)| (*start, end + 250)).collect();
        let inside = |(start, end): &(i64, i64)| [(*start, *end), (end - 500, *end)];
        let nested: Vec<(i64, i64)> = exact.iter().flat_map(inside).collect();
        assert_eq!([exact, rounded, nested].map(|ranges| steps(&ranges)), [Some(6); 3]);
    }
}
