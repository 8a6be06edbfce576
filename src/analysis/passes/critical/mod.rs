//! The critical path, and what would be gained if some of the work were not there.
//!
//! The run is replayed event by event, in the order of time: begins and ends of calls, and operations of the GPUs. Each has to
//! wait for others: a call for the one before it, an operation for its call and for the one before it on its stream, the
//! end of a wait for the operation that it waits for ([`host`], [`device`]). What ended last of these is its predecessor; the way
//! back from a step's end is the critical path ([`path`]). Beside the run as it was the same events are replayed without the
//! host's own time, without waits, and so on, in every combination ([`lanes`]): all that they had to wait for remains, but
//! comes as early as it can. The difference is what would be gained, of one cause or of several together, and is no
//! sum of times: work that something else hides gains nothing.
//!
//! Of a long run some of the steps are replayed ([`stretches`]). Nothing is kept of an event but the time that each thread,
//! stream and outstanding call has reached, and the last of them: the memory does not grow with the trace.

mod device;
mod edges;
mod host;
mod lanes;
mod path;
mod process;
mod recent;
mod stretches;

use std::sync::Arc;

use gputrace_collectors::schema::TableId;
use rustc_hash::{FxHashMap, FxHashSet};

use super::Pass;
use super::by_call::ByCall;
use super::gpu::order::{Columns, Order, Work};
use super::gpu::{Did, SLACK_NS};
use super::steps::Steps;
use crate::trace::{NO_NAME, Rows, Trace, Want};
use device::Begun;
use edges::{Edge, Edges, Made};
use host::{ALL_ID, Call, NO_ID};
pub(crate) use lanes::{CLASSES, Class, Without};
use path::Nodes;
pub(crate) use path::PIECES;
use process::Process;
pub(crate) use process::Sums;
use stretches::Stretches;

/// Processes that are replayed.
const PROCESSES: usize = 256;
/// Pages of calls whose operations may still come that are kept at most: 65,536 calls. A stream's queue takes 1,024.
const CALLS: usize = 1024;

/// The pass.
#[derive(Debug)]
pub(crate) struct Critical {
    processes: Processes,
    stretches: Stretches,
    /// Calls whose operations may still come.
    calls: ByCall<Begun>,
    communication: Arc<FxHashSet<i64>>,
    order: Order,
    edges: Edges,
    nodes: Nodes,
    launcher: usize,
}

impl Critical {
    /// `communication`: the names of NCCL's kernels.
    pub(crate) fn new(trace: &Trace, communication: Arc<FxHashSet<i64>>, steps: &Steps) -> Critical {
        Critical::of_calls(trace, communication, steps, stretches::CALLS)
    }

    /// The same; of a longer run so many calls are replayed.
    fn of_calls(trace: &Trace, communication: Arc<FxHashSet<i64>>, steps: &Steps, most: f64) -> Critical {
        let rare = [
            (Class::Memory, trace.may_hold(TableId::DeviceMemory)),
            (Class::System, trace.may_hold(TableId::OsWaits)),
            (Class::Communication, !communication.is_empty()),
            (Class::Streams, steps.has_legacy_order()),
        ];
        let classes = CLASSES.map(|(class, ..)| class).into_iter();
        let has = |class: &Class| rare.iter().all(|(of, there)| of != class || *there);
        let classes = Without::these(&classes.filter(has).collect::<Vec<Class>>());
        Critical {
            processes: Processes { classes, ..Processes::default() },
            stretches: Stretches::new(steps, most),
            calls: ByCall::new(CALLS),
            communication,
            order: Order::default(),
            edges: Edges::default(),
            nodes: Nodes::default(),
            launcher: 0,
        }
    }

    /// What it costs when it costs so much to replay all.
    pub(crate) fn costs(&self, all: u32) -> u32 {
        (f64::from(all) * self.stretches.share()) as u32
    }

    /// What was found in a process; none where none of its operations are known.
    pub(crate) fn of(&self, process_id: i64) -> Option<&Sums> {
        let process = self.processes.get(process_id).filter(|process| process.on_gpu)?;
        Some(&process.sums).filter(|sums| sums.count > 0 && sums.total_ns() > 0.0)
    }

    fn calls(&mut self, rows: &Rows) {
        let Some(queue) = edges::queue_of(rows.table) else { return };
        let (start, process, tid) = (rows.i64("start_ns"), rows.i64("process_id"), rows.i32_or("tid", 0));
        let length = rows.i64(if rows.table == TableId::OsWaits { "wait_ns" } else { "api_ns" });
        let (api, stream, cause) = (rows.i64("api_id"), rows.i64("stream"), rows.i64("correlation_id"));
        let (text, kernels) =
            (rows.texts(if rows.table == TableId::Api { "class" } else { "kind" }), rows.i32_or("kernels", 0));
        let legacy = rows.flags("legacy");
        for row in 0..rows.len {
            let (start, kind) = (start[row], text.get(row));
            if !self.stretches.hold(process[row], start) {
                continue;
            }
            let call = Call {
                start,
                // An end has its place after its begin.
                end: start.saturating_add(length[row].max(1)),
                tid: tid[row],
                did: Did::of(rows.table, kind),
                api_id: api[row],
                id: match rows.table {
                    TableId::Launches | TableId::Transfers => cause[row],
                    TableId::Syncs if kind == "stream" => stream[row],
                    TableId::Syncs if kind == "context" => ALL_ID,
                    _ => NO_ID,
                },
                single: rows.table == TableId::Launches && kernels[row] == 1,
                legacy: legacy.get(row),
            };
            self.edges.push(queue, Made { process_id: process[row], call });
        }
    }

    fn operations(&mut self, rows: &Rows) {
        let (columns, name) = (Columns::of(rows), rows.i64_or("name_id", NO_NAME));
        let table = usize::from(rows.table == TableId::DeviceCopies);
        for row in 0..rows.len {
            let work = match rows.table {
                TableId::DeviceCopies => Work::Copy,
                _ if self.communication.contains(&name[row]) => Work::Communication,
                _ => Work::Kernel,
            };
            let of = columns.operation(row, name[row], work);
            if let Some(of) = of.filter(|of| self.stretches.hold(of.process_id, of.start)) {
                self.order.push(table, of);
            }
        }
    }

    /// Replays everything that was before this time.
    fn settle(&mut self, before: i64, steps: &Steps) {
        while let Some(edge) = self.edges.next(before) {
            self.launch_up_to(edge.at().saturating_add(1), steps);
            let (Edge::Begin(made) | Edge::End(made)) = &edge;
            let Some(process) = self.processes.at(made.process_id, edge.at(), steps, &self.stretches) else { continue };
            match edge {
                Edge::End(Made { call, .. }) => process.end(&call, steps, &mut self.nodes),
                Edge::Begin(Made { process_id, call }) => {
                    if let Some(begun) = process.begin(&call, steps, &mut self.nodes) {
                        self.calls.insert(process_id, call.id, call.start, begun);
                    }
                }
            }
        }
        self.launch_up_to(before, steps);
        let begins = self.processes.all.iter().map(|(_, process)| process.path_begins);
        self.nodes.forget(begins.min().unwrap_or(0));
    }

    fn launch_up_to(&mut self, before: i64, steps: &Steps) {
        while let Some(of) = self.order.next(before) {
            let Some(process) = self.processes.at(of.process_id, of.start, steps, &self.stretches) else { continue };
            let call = self.calls.get(of.process_id, of.cause);
            let single = call.is_some_and(|call| call.single);
            process.operation(&of, call, steps, &mut self.nodes);
            if single {
                self.calls.take(of.process_id, of.cause);
            }
        }
    }
}

/// The processes, and which of them an event was of last.
#[derive(Debug, Default)]
struct Processes {
    all: Vec<(i64, Process)>,
    index: FxHashMap<i64, usize>,
    last: usize,
    /// Of which the trace has work.
    classes: Without,
}

impl Processes {
    fn get(&self, process_id: i64) -> Option<&Process> {
        self.index.get(&process_id).map(|index| &self.all[*index].1)
    }

    /// The process of an event at this time; none where there are too many.
    #[inline]
    fn at(&mut self, process_id: i64, at: i64, steps: &Steps, stretches: &Stretches) -> Option<&mut Process> {
        if self.all.get(self.last).is_none_or(|(id, _)| *id != process_id) {
            self.last = match self.index.get(&process_id) {
                Some(known) => *known,
                None if self.all.len() < PROCESSES => {
                    let (steps, stretches) = (steps.of(process_id), stretches.of(process_id).to_vec());
                    self.all.push((process_id, Process::new(process_id, at, steps, stretches, self.classes)));
                    self.index.insert(process_id, self.all.len() - 1);
                    self.all.len() - 1
                }
                None => return None,
            };
        }
        self.all.get_mut(self.last).map(|(_, process)| process)
    }
}

impl Pass for Critical {
    fn wants(&self) -> &'static [Want] {
        &[
            Want { table: TableId::Kernels, columns: &["gpu_ns", "device", "stream", "correlation_id", "name_id"] },
            Want { table: TableId::DeviceCopies, columns: &["gpu_ns", "device", "stream", "correlation_id"] },
            Want {
                table: TableId::Launches,
                columns: &["api_ns", "tid", "correlation_id", "api_id", "kernels", "legacy"],
            },
            Want { table: TableId::Transfers, columns: &["api_ns", "tid", "correlation_id", "api_id", "legacy"] },
            Want { table: TableId::Syncs, columns: &["api_ns", "tid", "api_id", "kind", "stream"] },
            Want { table: TableId::DeviceMemory, columns: &["api_ns", "tid", "api_id"] },
            Want { table: TableId::Api, columns: &["api_ns", "tid", "api_id", "class"] },
            Want { table: TableId::Collectives, columns: &["api_ns", "tid", "api_id"] },
            Want { table: TableId::OsWaits, columns: &["wait_ns", "tid", "api_id"] },
        ]
    }

    fn rows(&mut self, rows: &Rows, steps: &Steps) {
        if rows.launcher != self.launcher {
            // Another collector's files: they begin from the start of the run again.
            self.settle(i64::MAX, steps);
            self.order.restart();
            self.launcher = rows.launcher;
        }
        let start = rows.i64("start_ns");
        let begin = start.first().copied().unwrap_or(i64::MIN);
        match rows.table {
            _ if !self.stretches.hold_any(&rows.i64("process_id"), &start) => {}
            TableId::Kernels | TableId::DeviceCopies => self.operations(rows),
            _ => self.calls(rows),
        }
        self.settle(begin.saturating_sub(SLACK_NS), steps);
    }

    fn end(&mut self, steps: &Steps) {
        self.settle(i64::MAX, steps);
        for (_, process) in &mut self.processes.all {
            process.finish(steps, &mut self.nodes);
        }
    }

    fn names(&self, ids: &mut FxHashSet<i64>) {
        let sums = self.processes.all.iter().map(|(_, process)| &process.sums);
        ids.extend(sums.flat_map(|sums| sums.names.iter().map(|((_, name), _)| *name)));
    }
}

#[cfg(test)]
mod tests;
