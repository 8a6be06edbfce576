//! Finds the steps in two reads before all others.
//!
//! Where a process names its steps, these are they ([`NamedSteps`]). Else [`Detect`] finds the loop of the process
//! ([`super::period`]), and [`Cut`] notes when its anchor occurred, and what may mark turns of uneven length around it.
//!
//! Where launches were left out to keep to a budget, those that have a row came by chance, and calls are numbered without the others:
//! neither says where a step begins. So the loop of such a process is found in what it did before, when all of its calls were
//! recorded, and what marks it must be no launch: waits, copies and allocations are recorded to the end.

use gputrace_collectors::schema::TableId;
use rustc_hash::FxHashMap;

use super::asked::Asked;
use super::givers::Givers;
use super::groups::Groups;
use super::named_steps::NamedSteps;
use super::period::uneven::{self, Mark, Marks};
use super::period::{Name, Period, Sequence, TINY};
use super::runs;
use super::steps::{Called, ProcessSteps, Steps, blocks};
use crate::trace::{NO_NAME, Rows, Want};

/// Boundaries that are kept per process (32 MB); a loop with more is measured by its first so many.
pub(super) const BOUNDARIES: usize = 4_000_000;

/// First read: the sequence of calls per thread.
#[derive(Debug, Default)]
pub(crate) struct Detect {
    named: NamedSteps,
    asked: Asked,
    threads: Groups<(i64, i32), Sequence>,
    callers: Groups<i64, Callers>,
    givers: Givers,
    /// A call was queued behind another stream's because of the legacy default stream.
    legacy_order: bool,
    calls: u64,
    /// From when on launches of a process were left out.
    thinned: FxHashMap<i64, i64>,
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
    const WANTS: [Want; 6] = [
        NamedSteps::WANT,
        Want {
            table: TableId::Launches,
            columns: &["tid", "correlation_id", "api_id", "name_id", "captured", "legacy"],
        },
        Want { table: TableId::Syncs, columns: &["tid", "correlation_id", "api_id", "kind"] },
        Want { table: TableId::Transfers, columns: &["tid", "correlation_id", "api_id", "legacy"] },
        Want { table: TableId::DeviceMemory, columns: &["tid", "correlation_id", "api_id"] },
        Want { table: TableId::Api, columns: &["tid"] },
    ];
    /// And where the user names a call.
    const ASKED: [Want; 2] =
        [Want { table: TableId::Syncs, columns: &["api_ns"] }, Want { table: TableId::Api, columns: &["api_id"] }];

    /// Looks for steps of these names first. `thinned`: from when on launches of a process were left out.
    pub(crate) fn new(named: NamedSteps, asked: Asked, thinned: FxHashMap<i64, i64>) -> Detect {
        Detect { named, asked, thinned, ..Detect::default() }
    }

    /// What it reads.
    pub(crate) fn wants(&self) -> Vec<Want> {
        let asked = if self.asked.any() { &Detect::ASKED[..] } else { &[] };
        Detect::WANTS.iter().chain(asked).copied().collect()
    }

    /// Takes rows in.
    pub(crate) fn rows(&mut self, rows: &Rows) {
        if rows.table == TableId::Ranges {
            return self.named.rows(rows);
        }
        self.asked.rows(rows);
        let (process, tid) = (rows.i64("process_id"), rows.i32_or("tid", 0));
        let (call, api, start) = (rows.i64("correlation_id"), rows.i64("api_id"), rows.i64("start_ns"));
        let (name, captured) = (rows.i64_or("name_id", NO_NAME), rows.flags("captured"));
        let kind = rows.texts("kind");
        self.calls += rows.len as u64;
        self.legacy_order |= rows.flags("legacy").any();
        for run in runs(&process, &tid) {
            let (process, tid) = (process[run.start], tid[run.start]);
            let callers = &mut self.callers.at(process).0;
            if callers.len() < 2 && !callers.contains(&tid) {
                callers.push(tid);
            }
            let all_until = self.thinned.get(&process).copied().unwrap_or(i64::MAX);
            let is_told = |row: &usize| start[*row] < all_until;
            match rows.table {
                TableId::Transfers => {
                    self.givers.gave(process, tid);
                    let calls = self.threads.at((process, tid));
                    run.filter(is_told).for_each(|row| calls.add(Name::Call(api[row]), call[row] as u32));
                }
                TableId::DeviceMemory => {
                    let calls = self.threads.at((process, tid));
                    run.filter(is_told).for_each(|row| calls.add(Name::Call(api[row]), call[row] as u32));
                }
                TableId::Launches => {
                    self.givers.launched(process, tid, &start[run.clone()]);
                    let calls = self.threads.at((process, tid));
                    for row in run.filter(is_told).filter(|row| !captured.get(*row)) {
                        match name[row] {
                            NO_NAME => calls.add_graph(api[row], call[row] as u32),
                            name => calls.add(Name::Launch(name), call[row] as u32),
                        }
                    }
                }
                TableId::Syncs => {
                    let calls = self.threads.at((process, tid));
                    for row in run.filter(is_told).filter(|row| blocks(kind.get(*row))) {
                        calls.add(Name::Wait(api[row]), call[row] as u32);
                    }
                }
                _ => {}
            }
        }
    }

    /// The loop of each process, if it has one: that of the thread with the most calls that has a wait in its loop,
    /// else of the thread with the most calls.
    pub(crate) fn cut(self) -> Cut {
        let mut named: Vec<ProcessSteps> = self.named.steps().collect();
        let is_named = |named: &[ProcessSteps], process: i64| named.iter().any(|steps| steps.process_id == process);
        let is_told = |steps: &ProcessSteps| {
            !(matches!(steps.anchor, Name::Launch(_)) && self.thinned.contains_key(&steps.process_id))
        };
        let is_new = |steps: &ProcessSteps| is_told(steps) && !is_named(&named, steps.process_id);
        let asked: Vec<ProcessSteps> = self.asked.steps().into_iter().filter(is_new).collect();
        let asks = !asked.is_empty();
        named.extend(asked);
        let mut best: FxHashMap<i64, (Rank, Loop)> = FxHashMap::default();
        for ((process, tid), sequence) in self.threads.iter().filter(|((process, _), _)| !is_named(&named, *process)) {
            let period = sequence.period();
            let mut marks = sequence.marks(period.as_ref());
            let all_until = self.thinned.get(process).copied();
            if all_until.is_some() {
                marks.retain(|of| !matches!(of.name, Name::Launch(_)));
            }
            let marked = period.filter(|period| all_until.is_none() || !matches!(period.anchor, Name::Launch(_)));
            if marked.is_none() && marks.is_empty() {
                continue;
            }
            let waits = marked.is_some_and(|period| matches!(period.anchor, Name::Wait(_)));
            let rank = (waits, marked.is_some(), sequence.calls());
            if best.get(process).is_none_or(|(other, _)| rank > *other) {
                let found = Loop { all_until, ..Loop::new(*tid, period, sequence.waits(), marks) };
                best.insert(*process, (rank, found));
            }
        }
        let called = Called {
            several: self.callers.iter().filter(|(_, own)| own.0.len() > 1).map(|(process, _)| *process).collect(),
            calls: self.calls,
            givers: self.givers,
            legacy_order: self.legacy_order,
            asked: asks,
            ..Called::default()
        };
        Cut { loops: best.into_iter().map(|(process, (_, found))| (process, found)).collect(), named, called }
    }
}

/// Which thread's loop is the process's: its loop has a wait, it is a regular one, calls of the thread.
type Rank = (bool, bool, u64);

/// Second read: when the anchors occurred.
#[derive(Debug, Default)]
pub(crate) struct Cut {
    loops: FxHashMap<i64, Loop>,
    named: Vec<ProcessSteps>,
    called: Called,
}

/// The loop of a thread, and what may mark turns of another length around it.
#[derive(Debug)]
struct Loop {
    tid: i32,
    period: Option<Period>,
    waits: u64,
    /// When the anchor of the period occurred.
    times: Vec<i64>,
    /// What may mark uneven turns.
    uneven: Vec<Marks>,
    launches: u32,
    /// From then on launches were left out, and no launch marks a step.
    all_until: Option<i64>,
}

impl Loop {
    fn new(tid: i32, period: Option<Period>, waits: u64, uneven: Vec<Marks>) -> Loop {
        Loop { tid, period, waits, times: Vec::new(), uneven, launches: 0, all_until: None }
    }

    #[inline]
    fn occurs(&mut self, name: Name, call: u32, at_ns: i64) {
        if self.period.is_some_and(|period| period.anchor == name) && self.times.len() < BOUNDARIES {
            self.times.push(at_ns);
        }
        let launches = self.launches;
        self.launches = launches.wrapping_add(u32::from(matches!(name, Name::Launch(_))));
        if let Some(of) = self.uneven.iter_mut().find(|of| of.name == name) {
            of.marks.push(Mark { call, launches, at_ns });
        }
    }

    /// The names to look for.
    fn names(&self) -> impl Iterator<Item = Name> {
        self.period.iter().map(|period| period.anchor).chain(self.uneven.iter().map(|marks| marks.name))
    }

    /// The steps, of the period or of the turns around it.
    fn steps(mut self, process_id: i64) -> Option<ProcessSteps> {
        let mut is_tiny = false;
        let (period, waits) = (self.period.as_ref(), self.waits);
        let chosen = match self.all_until {
            // How many calls lie between is told of what came before.
            Some(until) => {
                uneven::choose(period, waits, &mut self.uneven.iter().map(|of| of.before(until)).collect::<Vec<_>>())
            }
            None => uneven::choose(period, waits, &mut self.uneven),
        };
        let (anchor, times) = match chosen {
            Some(at) => {
                let Marks { name, marks } = self.uneven.swap_remove(at);
                ((name, marks.len() as u64), marks.into_iter().map(|mark| mark.at_ns).collect())
            }
            None => {
                let is_told = |period: &Period| self.all_until.is_none() || !matches!(period.anchor, Name::Launch(_));
                let period = self.period.filter(is_told)?;
                is_tiny = period.calls < TINY && matches!(period.anchor, Name::Launch(_));
                // Of a loop that was found in the first part of a run it is the count of that part.
                let count = if self.all_until.is_some() { self.times.len() as u64 } else { period.count };
                ((period.anchor, count), self.times)
            }
        };
        let steps = ProcessSteps::new(process_id, self.tid, anchor, times)?;
        Some(if is_tiny { steps.may_be_parts() } else { steps })
    }
}

impl Cut {
    /// What it reads: only the tables in which anchors stand.
    pub(crate) fn wants(&self) -> Vec<Want> {
        const LAUNCHES: Want = Want { table: TableId::Launches, columns: &["tid", "api_id", "name_id", "captured"] };
        const SYNCS: Want = Want { table: TableId::Syncs, columns: &["tid", "api_id", "api_ns", "kind"] };
        const COPIES: Want = Want { table: TableId::Transfers, columns: &["tid", "api_id"] };
        const MEMORY: Want = Want { table: TableId::DeviceMemory, columns: &["tid", "api_id"] };
        let has = |is: fn(&Name) -> bool| self.loops.values().flat_map(Loop::names).any(|name| is(&name));
        let wants = [
            (has(|name| matches!(name, Name::Launch(_))), LAUNCHES),
            (has(|name| matches!(name, Name::Wait(_))), SYNCS),
            (has(|name| matches!(name, Name::Call(_))), COPIES),
            (has(|name| matches!(name, Name::Call(_))), MEMORY),
        ];
        // Only turns of uneven length are told by how many calls lie between.
        let numbered = self.loops.values().any(|found| !found.uneven.is_empty());
        let number = |want: Want| Want { columns: &["correlation_id"], ..want };
        let wants = wants.into_iter().filter(|(has, _)| *has).map(|(_, want)| want);
        wants.flat_map(|want| [Some(want), numbered.then(|| number(want))]).flatten().collect()
    }

    /// Takes rows in.
    pub(crate) fn rows(&mut self, rows: &Rows) {
        let (process, tid, start) = (rows.i64("process_id"), rows.i32_or("tid", 0), rows.i64("start_ns"));
        let (api, name, length) = (rows.i64("api_id"), rows.i64_or("name_id", NO_NAME), rows.i64_or("api_ns", 0));
        let (call, captured, kind) = (rows.i64("correlation_id"), rows.flags("captured"), rows.texts("kind"));
        let mut row = 0;
        while row < rows.len {
            let run = process[row..].iter().take_while(|p| **p == process[row]).count();
            if let Some(found) = self.loops.get_mut(&process[row]) {
                let own = found.tid;
                for row in (row..row + run).filter(|row| tid[*row] == own) {
                    let call = call[row] as u32;
                    match rows.table {
                        TableId::Launches if !captured.get(row) => {
                            let id = if name[row] == NO_NAME { api[row] } else { name[row] };
                            found.occurs(Name::Launch(id), call, start[row]);
                        }
                        TableId::Syncs if blocks(kind.get(row)) => {
                            found.occurs(Name::Wait(api[row]), call, start[row] + length[row]);
                        }
                        TableId::Transfers | TableId::DeviceMemory => {
                            found.occurs(Name::Call(api[row]), call, start[row])
                        }
                        _ => {}
                    }
                }
            }
            row += run;
        }
    }

    /// The steps.
    pub(crate) fn steps(self) -> Steps {
        let found = self.loops.into_iter().filter_map(|(process_id, found)| found.steps(process_id));
        Steps::new(self.named.into_iter().chain(found).collect(), self.called)
    }
}

#[cfg(test)]
mod tests {
    use crate::analysis::Facts;
    use crate::trace::Filter;
    use crate::trace::testing::{START, TestTrace};

    #[test]
    fn replays_of_a_graph_are_the_steps_of_a_trace_that_tried_its_layers_before() {
        let mut trace = TestTrace::new();
        trace.process(1, 100, None, START + 1_000_000_000);
        let mut thread = trace.thread(1, 11);
        for _ in 0..120 {
            (0..4).for_each(|k| thread.launch(&format!("layer {k}"), 2_000));
        }
        (0..400).for_each(|_| thread.launch_graph(Some(7), Some(160), 2_000));
        let (trace, filter) = (trace.open(), Filter::default());
        let facts = Facts::gather(&trace, &filter, &[]);
        let steps = facts.steps.of(1).expect("steps");
        assert_eq!((steps.count, facts.names.full(steps.anchor.id()).as_str()), (400, "cuGraphLaunch"));
    }

    #[test]
    fn requests_of_any_length_are_the_steps_of_a_trace() {
        for waits in [true, false] {
            let mut trace = TestTrace::new();
            trace.process(1, 100, None, START + 1_000_000_000);
            let mut thread = trace.thread(1, 11);
            for request in 0..40 {
                thread.copy("HtoD", ("pinned", "device"), true, 4096, 4_000);
                thread.launch("embed", 2_000);
                for _ in 0..2 + request * 7919 % 31 {
                    (0..12).for_each(|k| thread.launch(&format!("layer {k}"), 2_000));
                }
                thread.launch("head", 2_000);
                if waits {
                    thread.sync("cuStreamSynchronize", "stream", 9_000);
                }
            }
            let (trace, filter) = (trace.open(), Filter::default());
            let facts = Facts::gather(&trace, &filter, &[]);
            let steps = facts.steps.of(1).expect("steps");
            let name = if waits { "cuStreamSynchronize" } else { "cuMemcpyAsync" };
            assert_eq!((steps.count, facts.names.full(steps.anchor.id()).as_str()), (40, name));
        }
    }
}
