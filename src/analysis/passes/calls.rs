//! Driver calls that have a stack, by process, function and stack.
//!
//! Launches are drawn at random: a drawn one counts for as many launches as its row says, each as long as itself. Those that have a
//! stack because they took long, or followed a pause, are among these already, and count for nothing then. Where every launch of a process has a
//! stack, or none was drawn, each counts for itself. Of the other calls only those that took long have a stack.

use gputrace_collectors::schema::TableId;
use rustc_hash::FxHashSet;

use super::Pass;
use super::groups::Groups;
use super::launches::OTHER;
use super::steps::Steps;
use crate::trace::{NO_STACK, Rows, Want};

/// Which calls are counted together.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(crate) struct Key {
    /// Process.
    pub(crate) process_id: i64,
    /// Function.
    pub(crate) api_id: i64,
    /// Their stack.
    pub(crate) stack_id: i64,
}

/// Calls and their time.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Sum {
    /// How many.
    pub(crate) count: i64,
    /// How long, ns.
    pub(crate) ns: i64,
}

/// Calls of one key. A function launches or does not: of those that do not both are the same.
#[derive(Debug, Default)]
struct Sums {
    /// Each for itself.
    own: Sum,
    /// Each for those that it was drawn from.
    drawn: Sum,
}

/// Launches of a process.
#[derive(Debug, Default)]
struct Launches {
    all: u64,
    with_stack: u64,
    drawn: u64,
}

/// The pass.
#[derive(Debug)]
pub(crate) struct Calls {
    sums: Groups<Key, Sums>,
    launches: Groups<i64, Launches>,
}

impl Default for Calls {
    fn default() -> Self {
        let other = Key { process_id: OTHER, api_id: OTHER, stack_id: NO_STACK };
        Calls { sums: Groups::new(50_000, other), launches: Groups::default() }
    }
}

impl Sum {
    fn add(&mut self, times: i64, ns: i64) {
        self.count = self.count.saturating_add(times);
        self.ns = self.ns.saturating_add(ns.max(0).saturating_mul(times));
    }
}

impl Calls {
    /// All that count for something.
    pub(crate) fn iter(&self) -> impl Iterator<Item = (&Key, Sum)> {
        self.sums.iter().map(|(key, sums)| (key, self.of(key, sums))).filter(|(_, sum)| sum.count > 0)
    }

    /// Ids of all stacks.
    pub(crate) fn stacks(&self) -> impl Iterator<Item = i64> {
        self.sums.iter().map(|(key, _)| key.stack_id).filter(|id| *id != NO_STACK)
    }

    fn of(&self, key: &Key, sums: &Sums) -> Sum {
        let launches = self.launches.get(&key.process_id);
        let by_drawn = launches.is_some_and(|launches| launches.drawn > 0 && launches.with_stack < launches.all);
        if by_drawn { sums.drawn } else { sums.own }
    }
}

impl Pass for Calls {
    fn wants(&self) -> &'static [Want] {
        const CALLS: &[&str] = &["api_ns", "api_id", "stack_id"];
        &[
            Want { table: TableId::Launches, columns: &["api_ns", "api_id", "stack_id", "stack_launches"] },
            Want { table: TableId::Syncs, columns: CALLS },
            Want { table: TableId::Transfers, columns: CALLS },
            Want { table: TableId::DeviceMemory, columns: CALLS },
            Want { table: TableId::Api, columns: CALLS },
        ]
    }

    fn rows(&mut self, rows: &Rows, _: &Steps) {
        let (process, length, api) = (rows.i64("process_id"), rows.i64("api_ns"), rows.i64("api_id"));
        let stack = rows.i64_or("stack_id", NO_STACK);
        let launches = (rows.table == TableId::Launches).then(|| rows.i64("stack_launches"));
        for row in 0..rows.len {
            let has_stack = stack[row] != NO_STACK;
            let stands_for = launches.as_ref().map(|launches| if has_stack { launches[row].max(0) } else { 0 });
            if let Some(stands_for) = stands_for {
                let of = self.launches.at(process[row]);
                of.all += 1;
                of.with_stack += u64::from(has_stack);
                of.drawn += u64::from(stands_for > 0);
            }
            if has_stack {
                let key = Key { process_id: process[row], api_id: api[row], stack_id: stack[row] };
                let sums = self.sums.at(key);
                sums.own.add(1, length[row]);
                sums.drawn.add(stands_for.unwrap_or(1), length[row]);
            }
        }
    }

    fn names(&self, ids: &mut FxHashSet<i64>) {
        ids.extend(self.sums.iter().map(|(key, _)| key.api_id));
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::analysis::{Facts, Need};
    use crate::trace::Filter;
    use crate::trace::testing::{START, TestTrace};

    /// Calls and time of each stack and function.
    fn sums(trace: &TestTrace) -> Vec<(i64, String, i64, i64)> {
        let (trace, filter) = (trace.open(), Filter::default());
        let facts = Facts::gather(&trace, &filter, &[Need::Calls]);
        let sum = |(key, sum): (&Key, Sum)| (key.stack_id, facts.names.full(key.api_id), sum.count, sum.ns);
        facts.calls.iter().map(sum).collect()
    }

    #[test]
    fn a_drawn_launch_counts_for_others_and_any_other_call_for_itself() {
        let mut trace = TestTrace::new();
        trace.process(1, 100, None, START + 100_000_000);
        let [forward, save] =
            [("forward", 88), ("save", 90)].map(|(name, line)| trace.stack(name, "/u/model.py", line));
        let mut thread = trace.thread(1, 11);
        for n in 0..40 {
            thread.stack = (n % 10 == 3).then_some((forward, 10));
            thread.launch("k", 2_000);
        }
        // After a pause: those that were drawn stand for it.
        thread.stack = Some((save, 0));
        thread.launch("k", 9_000);
        thread.copy("DtoH", ("device", "pageable"), false, 4, 30_000);
        thread.sync("cuStreamQuery", "query", 21_000);
        thread.other("cuStreamCreate", "api", 50_000);
        thread.stack = None;
        thread.sync("cuStreamQuery", "query", 1_000);
        let launch = |(_, api, ..): &(i64, String, i64, i64)| api == "cuLaunchKernel";
        let (launches, others): (Vec<_>, Vec<_>) = sums(&trace).into_iter().partition(launch);
        assert_eq!(launches, [(forward, "cuLaunchKernel".to_owned(), 40, 80_000)]);
        let mut others: Vec<(String, i64, i64)> = others.into_iter().map(|(_, api, n, ns)| (api, n, ns)).collect();
        others.sort();
        let wanted = [("cuMemcpy", 1, 30_000), ("cuStreamCreate", 1, 50_000), ("cuStreamQuery", 1, 21_000)];
        assert_eq!(others, wanted.map(|(api, n, ns)| (api.to_owned(), n, ns)));
    }

    #[test]
    fn launches_count_for_themselves_where_all_have_a_stack_or_none_was_drawn() {
        for (drawn, bare) in [(10, false), (0, true)] {
            let mut trace = TestTrace::new();
            trace.process(1, 100, None, START + 100_000_000);
            let forward = trace.stack("forward", "/u/model.py", 88);
            let mut thread = trace.thread(1, 11);
            for n in 0..4 {
                thread.stack = Some((forward, if n == 2 { drawn } else { 0 }));
                thread.launch("k", 2_000);
            }
            thread.stack = None;
            (0..u32::from(bare)).for_each(|_| thread.launch("k", 2_000));
            assert_eq!(sums(&trace), [(forward, "cuLaunchKernel".to_owned(), 4, 8_000)]);
        }
    }
}
