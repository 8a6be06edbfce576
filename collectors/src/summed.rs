//! Processes that have ended, beyond so many, as one account: a service that runs for months starts hundreds of thousands.
//!
//! The account of a process takes a kilobyte in the manifest, which is written anew each second, and in the memory of collector and readers.
//! So the manifest names so many of those that have ended; the accounts of others are added up in one. Counts stay exact: of each class the
//! sum is balanced where each of its parts was. What cannot be added (a rank, a list of devices, one's own notes) is left out: a process has it in
//! its row of the table `processes`, which stays.
//!
//! Which those are follows from two numbers: a process is among them if its number is below `below`, and no entry of the manifest has it. Numbers
//! are given in order, and who has one either runs, and is named, or has ended.

use std::collections::HashSet;

use serde::{Deserialize, Serialize};

use crate::manifest::{Cost, Coverage, Manifest, Process, Stacks};
use crate::{PROCESS_BITS, launcher_of, process_id};

/// Ended processes that a manifest names.
pub const MOST_NAMED: usize = 4096;
/// When there is one too many, so large a part of them is summed up: not each end looks through all.
const PART: usize = 16;
/// Names of one kind in the coverage of all: a hostile process makes names up.
const MOST_NAMES: usize = 1024;
/// Processes that could not be traced which are named.
pub(crate) const MOST_UNTRACED: usize = 4096;

/// Many processes that have ended.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Summed {
    /// How many.
    pub processes: u64,
    /// Processes that could not be traced, beyond those that are named.
    #[serde(default)]
    pub untraced: u64,
    /// A process whose number (the lowest 24 bits of its id) is below this, and that is not named, is one of them.
    pub below: i64,
    /// All their accounts in one, whose id no process has; `pid` is 0.
    pub account: Process,
}

/// Which processes of a manifest are summed up.
pub(crate) struct Among {
    id: i64,
    below: i64,
    named: HashSet<i64>,
}

impl Among {
    /// These are not, though no entry has them: they run.
    pub(crate) fn but(mut self, running: impl Iterator<Item = i64>) -> Among {
        self.named.extend(running);
        self
    }

    /// The id of their account.
    pub(crate) fn id(&self) -> i64 {
        self.id
    }

    /// Whether a process is among them; their account is too.
    pub(crate) fn holds(&self, id: i64) -> bool {
        let number = id & ((1 << PROCESS_BITS) - 1);
        id == self.id || launcher_of(id) == launcher_of(self.id) && number < self.below && !self.named.contains(&id)
    }
}

impl Manifest {
    /// Every account: those of single processes, and the one of those that are summed up.
    pub fn accounts(&self) -> impl Iterator<Item = &Process> {
        self.processes.iter().chain(self.summed.as_deref().map(|summed| &summed.account))
    }

    /// The same, to be changed.
    pub(crate) fn accounts_mut(&mut self) -> impl Iterator<Item = &mut Process> {
        self.processes.iter_mut().chain(self.summed.as_deref_mut().map(|summed| &mut summed.account))
    }

    /// How many processes could not be traced.
    pub fn untraced_count(&self) -> u64 {
        self.untraced.len() as u64 + self.summed.as_ref().map_or(0, |summed| summed.untraced)
    }

    /// Who is summed up; none: nobody is.
    pub(crate) fn among(&self) -> Option<Among> {
        let summed = self.summed.as_ref().filter(|summed| summed.processes > 0)?;
        let named = self.processes.iter().map(|process| process.process_id).collect();
        Some(Among { id: summed.account.process_id, below: summed.below, named })
    }

    /// Where more than `most` processes that have ended are named, sums some of them up, the earliest first; those that gave a GPU work, and
    /// the last image of `root`, stay as long as others can go. Whether any was.
    pub fn sum_up(&mut self, most: usize, root: Option<u32>) -> bool {
        if self.processes.len() <= most {
            return false;
        }
        let stays = self.processes.iter().rposition(|process| Some(process.pid as u32) == root);
        let stays = stays.map(|at| self.processes[at].process_id);
        let mut ended: Vec<(bool, i64)> = self
            .processes
            .iter()
            .filter(|process| !process.running && Some(process.process_id) != stays)
            .map(|process| (gave_work(process), process.process_id))
            .collect();
        ended.sort_unstable();
        let beyond = (self.processes.len() - most + most / PART).min(ended.len());
        let gone: HashSet<i64> = ended[..beyond].iter().map(|(_, id)| *id).collect();
        let summed = self.summed.get_or_insert_with(|| Box::new(Summed::of(self.launcher_id)));
        for process in self.processes.extract_if(.., |process| gone.contains(&process.process_id)) {
            summed.add(&process);
        }
        !gone.is_empty()
    }

    /// Notes a process that could not be traced.
    pub(crate) fn add_untraced(&mut self, process: crate::manifest::Untraced) {
        let is_known = |reason: &str| self.untraced.iter().any(|known| known.reason == reason);
        if self.untraced.len() < MOST_UNTRACED || !is_known(&process.reason) {
            return self.untraced.push(process);
        }
        self.summed.get_or_insert_with(|| Box::new(Summed::of(self.launcher_id))).untraced += 1;
    }
}

/// Whether reports about GPUs would miss it.
fn gave_work(process: &Process) -> bool {
    ["launch", "commit", "transfer", "collective"].iter().any(|class| process.accounting.contains_key(*class))
}

impl Summed {
    fn of(launcher_id: u64) -> Summed {
        // The highest number: no process gets it before all others have gone.
        let account =
            Process { process_id: process_id(launcher_id, -1), traced: true, balanced: true, ..Process::default() };
        Summed { account, ..Summed::default() }
    }

    fn add(&mut self, process: &Process) {
        self.processes = self.processes.saturating_add(1);
        self.below = self.below.max((process.process_id & ((1 << PROCESS_BITS) - 1)) + 1);
        let all = &mut self.account;
        for (class, count) in &process.accounting {
            all.accounting.entry(class.clone()).or_default().add(count);
        }
        all.balanced &= process.balanced || !process.traced;
        all.nested = all.nested.saturating_add(process.nested);
        (all.metal, all.python_pools) = (all.metal | process.metal, all.python_pools | process.python_pools);
        all.stacks.add(&process.stacks);
        add_coverage(&mut all.coverage, &process.coverage);
        all.cost.add(&process.cost);
        match (&mut all.gpu_time, &process.gpu_time) {
            (Some(sum), Some(one)) => sum.add(one),
            (sum, one) => *sum = sum.take().or_else(|| one.clone()),
        }
        for clock in &process.gpu_clocks {
            match all.gpu_clocks.iter_mut().find(|sum| sum.device == clock.device) {
                Some(sum) => sum.add(clock),
                None => all.gpu_clocks.push(clock.clone()),
            }
        }
        match (&mut all.budget, &process.budget) {
            (Some(sum), Some(one)) => sum.add(one),
            (sum, one) => *sum = sum.take().or_else(|| one.clone()),
        }
        join(&mut all.notes, &process.notes);
    }
}

impl Stacks {
    fn add(&mut self, more: &Stacks) {
        self.python = self.python.saturating_add(more.python);
        self.native = self.native.saturating_add(more.native);
        self.none = self.none.saturating_add(more.none);
        self.unread = self.unread.saturating_add(more.unread);
        self.lost = self.lost.saturating_add(more.lost);
    }
}

impl Cost {
    /// Adds what another process was cost. What one event takes is not added: the last one's stays.
    fn add(&mut self, more: &Cost) {
        let sum = |one: &mut Option<f64>, more: Option<f64>| {
            *one = one.map_or(more, |one| Some(one + more.unwrap_or(0.0)));
        };
        self.event_ns = more.event_ns.or(self.event_ns);
        self.malloc_ns = more.malloc_ns.or(self.malloc_ns);
        self.counted_ns = more.counted_ns.or(self.counted_ns);
        self.events = self.events.saturating_add(more.events);
        sum(&mut self.graphs_ns, more.graphs_ns);
        sum(&mut self.stacks_ns, more.stacks_ns);
        sum(&mut self.waited_ns, more.waited_ns);
        sum(&mut self.total_ns, more.total_ns);
    }
}

/// Adds what is not there yet, as far as there is room.
fn join<T: Clone + PartialEq>(all: &mut Vec<T>, more: &[T]) {
    for one in more {
        if all.len() < MOST_NAMES && !all.contains(one) {
            all.push(one.clone());
        }
    }
}

fn add_coverage(all: &mut Coverage, more: &Coverage) {
    for hook in &more.hooks {
        let room = all.hooks.len() < MOST_NAMES;
        let known = all.hooks.iter_mut().find(|known| known.name == hook.name && known.class == hook.class);
        match known {
            Some(known) => {
                known.calls = known.calls.saturating_add(hook.calls);
                known.left_out = known.left_out.saturating_add(hook.left_out);
                known.counted |= hook.counted;
                join(&mut known.routes, &hook.routes);
            }
            None if room => all.hooks.push(hook.clone()),
            None => {}
        }
    }
    join(&mut all.uncovered, &more.uncovered);
    join(&mut all.export_tables, &more.export_tables);
    join(&mut all.past_symbols, &more.past_symbols);
    match (&mut all.inline, &more.inline) {
        (Some(sum), Some(one)) => {
            sum.patched = sum.patched.max(one.patched);
            join(&mut sum.left, &one.left);
        }
        (sum, one) => *sum = sum.take().or_else(|| one.clone()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::manifest::{Count, Hook, Untraced};
    use crate::schema::TableId;

    /// A process with so many calls, each of whose counts says something.
    fn process(number: i64) -> Process {
        let n = number as u64;
        let count = Count {
            seen: 3 * n + 2,
            recorded: n,
            culled: 1,
            dropped: n,
            sampled_out: n,
            in_flight: 1,
            ..Count::default()
        };
        let hook = Hook { name: "malloc".to_owned(), calls: n, ..Hook::default() };
        Process {
            process_id: process_id(7, number),
            pid: number as i32 + 100,
            accounting: [("host_alloc".to_owned(), count)].into(),
            balanced: true,
            traced: true,
            nested: n,
            stacks: Stacks { native: n, ..Stacks::default() },
            coverage: Coverage { hooks: vec![hook], ..Coverage::default() },
            cost: Cost { events: n, total_ns: Some(n as f64), ..Cost::default() },
            ..Process::default()
        }
    }

    fn sums(manifest: &Manifest) -> (Count, u64, u64, u64, f64) {
        let mut count = Count::default();
        manifest.accounts().flat_map(|of| of.accounting.values()).for_each(|of| count.add(of));
        let all = || manifest.accounts();
        let calls = all().flat_map(|of| &of.coverage.hooks).map(|hook| hook.calls).sum();
        let cost = all().filter_map(|of| of.cost.total_ns).sum();
        (count, all().map(|of| of.nested).sum(), all().map(|of| of.stacks.native).sum(), calls, cost)
    }

    #[test]
    fn an_account_of_many_is_the_sum_of_theirs_exactly() {
        let all: Vec<Process> = (0..1000).map(process).collect();
        let whole = Manifest { launcher_id: 7, processes: all.clone(), ..Manifest::default() };
        let mut manifest = Manifest { launcher_id: 7, ..Manifest::default() };
        for process in all {
            manifest.processes.push(process);
            manifest.sum_up(32, None);
            assert!(manifest.processes.len() <= 32);
        }
        assert_eq!(sums(&manifest), sums(&whole));
        let summed = manifest.summed.as_ref().expect("some are");
        assert_eq!(summed.processes as usize + manifest.processes.len(), 1000);
        assert!(summed.account.balanced && summed.account.accounting.values().all(Count::is_balanced));
        let among = manifest.among().expect("some are");
        let count = |holds: bool| (0..2000).filter(|n| among.holds(process_id(7, *n)) == holds).count();
        assert_eq!(count(true) as u64, summed.processes, "the others are named, or were never there");
        assert!(among.holds(summed.account.process_id) && !among.holds(process_id(8, 1)));
        assert_eq!(TableId::Processes.table().name, "processes", "where each still has its row");
    }

    #[test]
    fn who_runs_who_gave_a_gpu_work_and_the_root_stay_named() {
        let mut manifest =
            Manifest { launcher_id: 7, processes: (0..100).map(process).collect(), ..Manifest::default() };
        manifest.processes[1].running = true;
        let work = Count { seen: 1, recorded: 1, ..Count::default() };
        manifest.processes[2].accounting.insert("launch".to_owned(), work);
        manifest.processes[3].balanced = false;
        assert!(manifest.sum_up(20, Some(100 + 5)));
        let named: Vec<i64> = manifest.processes.iter().map(|of| of.process_id & 0xff).collect();
        assert!([1, 2, 5, 99].iter().all(|number| named.contains(number)), "{named:?}");
        assert_eq!(named.len(), 19);
        assert!(!manifest.summed.as_ref().expect("some are").account.balanced, "one of them is not");
    }

    #[test]
    fn of_a_hundred_thousand_programs_that_cannot_be_traced_the_first_are_named() {
        let mut manifest = Manifest::default();
        for n in 0..100_000 {
            let reason = if n == 99_999 { "another" } else { "static" }.to_owned();
            manifest.add_untraced(Untraced { pid: n, exe: "/bin/x".to_owned(), reason });
        }
        assert_eq!((manifest.untraced.len(), manifest.untraced_count()), (MOST_UNTRACED + 1, 100_000));
        assert_eq!(manifest.untraced.last().map(|one| one.reason.as_str()), Some("another"));
    }
}
