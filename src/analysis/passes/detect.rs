//! Finds the steps in two reads before all others.
//!
//! Where a process names its steps, these are they ([`NamedSteps`]). Else [`Detect`] finds the loop of the process
//! ([`super::period`]), and [`Cut`] notes when its anchor occurred.

use gputrace_collectors::schema::TableId;
use rustc_hash::FxHashMap;

use super::givers::Givers;
use super::groups::Groups;
use super::named_steps::NamedSteps;
use super::period::{Name, Period, Sequence};
use super::runs;
use super::steps::{Called, ProcessSteps, Steps, blocks};
use crate::trace::{NO_NAME, Rows, Want};

/// Boundaries that are kept per process (32 MB); a loop with more is measured by its first so many.
pub(super) const BOUNDARIES: usize = 4_000_000;

/// First read: the sequence of calls per thread.
#[derive(Debug, Default)]
pub(crate) struct Detect {
    named: NamedSteps,
    threads: Groups<(i64, i32), Sequence>,
    callers: Groups<i64, Callers>,
    givers: Givers,
    /// A call was queued behind another stream's because of the legacy default stream.
    legacy_order: bool,
    calls: u64,
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
    pub(crate) const WANTS: [Want; 6] = [
        NamedSteps::WANT,
        Want {
            table: TableId::Launches,
            columns: &["tid", "correlation_id", "api_id", "name_id", "captured", "legacy"],
        },
        Want { table: TableId::Syncs, columns: &["tid", "correlation_id", "api_id", "kind"] },
        Want { table: TableId::Transfers, columns: &["tid", "legacy"] },
        Want { table: TableId::DeviceMemory, columns: &["tid"] },
        Want { table: TableId::Api, columns: &["tid"] },
    ];

    /// Looks for steps of these names first.
    pub(crate) fn new(named: NamedSteps) -> Detect {
        Detect { named, ..Detect::default() }
    }

    /// Takes rows in.
    pub(crate) fn rows(&mut self, rows: &Rows) {
        if rows.table == TableId::Ranges {
            return self.named.rows(rows);
        }
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
            match rows.table {
                TableId::Transfers => self.givers.gave(process, tid),
                TableId::Launches => {
                    self.givers.launched(process, tid, &start[run.clone()]);
                    let calls = self.threads.at((process, tid));
                    for row in run.filter(|row| !captured.get(*row)) {
                        let name = if name[row] == NO_NAME { api[row] } else { name[row] };
                        calls.add(Name::Launch(name), call[row] as u32);
                    }
                }
                TableId::Syncs => {
                    let calls = self.threads.at((process, tid));
                    for row in run.filter(|row| blocks(kind.get(*row))) {
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
        let named: Vec<ProcessSteps> = self.named.steps().collect();
        let is_named = |process: &i64| named.iter().any(|steps| steps.process_id == *process);
        let mut best: FxHashMap<i64, (i32, Period, (bool, u64))> = FxHashMap::default();
        for ((process, tid), sequence) in self.threads.iter() {
            let Some(period) = sequence.period().filter(|_| !is_named(process)) else { continue };
            let rank = (matches!(period.anchor, Name::Wait(_)), sequence.calls());
            if best.get(process).is_none_or(|(.., other)| rank > *other) {
                best.insert(*process, (*tid, period, rank));
            }
        }
        let loops = best.into_iter().map(|(process, (tid, period, _))| (process, Loop { tid, period, times: vec![] }));
        let called = Called {
            several: self.callers.iter().filter(|(_, own)| own.0.len() > 1).map(|(process, _)| *process).collect(),
            calls: self.calls,
            givers: self.givers,
            legacy_order: self.legacy_order,
        };
        Cut { loops: loops.collect(), named, called }
    }
}

/// Second read: when the anchors occurred.
#[derive(Debug, Default)]
pub(crate) struct Cut {
    loops: FxHashMap<i64, Loop>,
    named: Vec<ProcessSteps>,
    called: Called,
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
        let process = |(process_id, found): (i64, Loop)| {
            let anchor = (found.period.anchor, found.period.count);
            ProcessSteps::new(process_id, found.tid, anchor, found.times)
        };
        Steps::new(self.named.into_iter().chain(self.loops.into_iter().filter_map(process)).collect(), self.called)
    }
}
