//! The host's calls of the last while: which one caused an operation, and what a thread did at some time.

use std::collections::VecDeque;

use gputrace_collectors::schema::TableId;
use rustc_hash::FxHashMap;

use crate::analysis::passes::by_call::{ByCall, Place};
use crate::analysis::passes::runs;
use crate::analysis::passes::steps::blocks;
use crate::trace::{NO_NAME, NO_STACK, Rows};

/// What a call did.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(crate) enum Did {
    /// Gave work.
    Launch,
    /// Copied or set memory.
    Transfer,
    /// Waited for the GPU.
    Wait,
    /// Asked the GPU, or made streams wait.
    Ask,
    /// Took memory or gave it back.
    Memory,
    /// Loaded or compiled code.
    Load,
    /// Called the driver for something else.
    Other,
    /// Called NCCL.
    Collective,
    /// Waited for the operating system.
    System,
}

impl Did {
    /// What a row of a table is; `text`: its class in `api`, its kind elsewhere.
    #[inline]
    pub(in crate::analysis::passes) fn of(table: TableId, text: &str) -> Did {
        match table {
            TableId::Launches => Did::Launch,
            TableId::Transfers => Did::Transfer,
            TableId::Syncs if blocks(text) => Did::Wait,
            TableId::Syncs => Did::Ask,
            TableId::DeviceMemory => Did::Memory,
            TableId::Api if text == "module" => Did::Load,
            TableId::Api => Did::Other,
            TableId::Collectives => Did::Collective,
            _ => Did::System,
        }
    }
}

/// A call.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Call {
    pub(crate) start: i64,
    pub(crate) end: i64,
    pub(crate) did: Did,
    pub(crate) tid: i32,
    pub(crate) api_id: i64,
    pub(crate) stack_id: i64,
    /// It launched one kernel: nothing else of it will come.
    single: bool,
}

impl Call {
    /// Stands for the launch that a thread had not made when its range ended.
    pub(super) fn none(tid: i32, at: i64) -> Call {
        Call { start: at, end: at, did: Did::Launch, tid, api_id: NO_NAME, stack_id: NO_STACK, single: false }
    }
}

/// Kinds of rows that are kept apart for a thread: each comes in the order of time by itself.
const KINDS: usize = 7;
/// The kind that waits for the operating system are.
const SYSTEM: usize = 6;
/// Calls of one kind and thread that are kept, at least, before old ones are forgotten.
const KEPT: usize = 4096;
/// The same at most, 3 MiB: several batches of rows.
const MOST: usize = 65_536;
/// Pages of calls whose operations have not all come that are kept at most: two million calls, 120 MB.
const OPEN: usize = 32_768;
/// Calls whose operations did not come within this time caused none that is in the trace.
pub(super) const PATIENCE_NS: i64 = 10_000_000_000;

/// Calls of the last while.
#[derive(Debug)]
pub(super) struct Calls {
    /// Calls whose operations have not all come. One that launched a single kernel leaves with it.
    causes: ByCall<Call>,
    /// Up to when `causes` were forgotten.
    forgotten_ns: i64,
    threads: FxHashMap<(i64, i32), [VecDeque<Call>; KINDS]>,
}

impl Default for Calls {
    fn default() -> Calls {
        Calls { causes: ByCall::new(OPEN), forgotten_ns: i64::MIN, threads: FxHashMap::default() }
    }
}

fn kind(table: TableId) -> Option<usize> {
    Some(match table {
        TableId::Launches => 0,
        TableId::Transfers => 1,
        TableId::Syncs => 2,
        TableId::DeviceMemory => 3,
        TableId::Api => 4,
        TableId::Collectives => 5,
        TableId::OsWaits => SYSTEM,
        _ => return None,
    })
}

impl Calls {
    /// Takes rows in; `by_thread`: what a thread did at some time will be asked for.
    pub(super) fn add(&mut self, rows: &Rows, by_thread: bool) {
        let Some(kind) = kind(rows.table) else { return };
        let (start, process, tid) = (rows.i64("start_ns"), rows.i64("process_id"), rows.i32_or("tid", 0));
        let length = rows.i64(if rows.table == TableId::OsWaits { "wait_ns" } else { "api_ns" });
        let (api, stack) = (rows.i64("api_id"), rows.i64_or("stack_id", NO_STACK));
        let (text, causes) = (rows.texts(if kind == 4 { "class" } else { "kind" }), kind < 2);
        let cause = rows.i64("correlation_id");
        let kernels = rows.i32_or("kernels", 0);
        for run in runs(&process, &tid) {
            let queue = &mut self.threads.entry((process[run.start], tid[run.start])).or_default()[kind];
            for row in run {
                let did = Did::of(rows.table, text.get(row));
                let call = Call {
                    start: start[row],
                    end: start[row].saturating_add(length[row].max(0)),
                    did,
                    tid: tid[row],
                    api_id: api[row],
                    stack_id: stack[row],
                    single: kind == 0 && kernels[row] == 1,
                };
                if causes {
                    self.causes.insert(process[row], cause[row], call.start, call);
                }
                if by_thread {
                    push(queue, call);
                }
            }
        }
    }

    /// Where the call is that caused an operation.
    #[inline]
    pub(super) fn cause_of(&mut self, process_id: i64, cause: i64) -> Option<Place> {
        self.causes.place(process_id, cause)
    }

    /// The call at a place. It is not copied for each operation: that took a tenth of the pass.
    #[inline]
    pub(super) fn at(&self, place: Option<Place>) -> Option<&Call> {
        self.causes.at(place?)
    }

    /// The operation has been joined with the call: one that launched nothing else is not kept any longer.
    #[inline]
    pub(super) fn joined(&mut self, place: Option<Place>) {
        if let Some(place) = place.filter(|place| self.causes.at(*place).is_some_and(|call| call.single)) {
            self.causes.take_at(place);
        }
    }

    /// The calls of a thread that were not over at `from` and began before `to`, of each kind in their order.
    pub(super) fn between(&self, process_id: i64, tid: i32, from: i64, to: i64) -> impl Iterator<Item = &Call> {
        let kinds = self.threads.get(&(process_id, tid)).into_iter().flatten();
        kinds.flat_map(move |calls| {
            // Calls of one thread do not overlap, so their ends are sorted as well.
            let first = calls.partition_point(|call| call.end < from);
            calls.range(first..).take_while(move |call| call.start < to)
        })
    }

    /// The thread of a process that called the driver, where only one did.
    pub(super) fn only_thread(&self, process_id: i64) -> Option<i32> {
        let called = |kinds: &[VecDeque<Call>; KINDS]| kinds[..SYSTEM].iter().any(|calls| !calls.is_empty());
        let mut threads = self.threads.iter().filter(|((of, _), kinds)| *of == process_id && called(kinds));
        let ((_, tid), _) = threads.next()?;
        threads.next().is_none().then_some(*tid)
    }

    /// Forgets what cannot be asked for any more: no gap begins before `settled`, and no row before `before` will come.
    pub(super) fn forget(&mut self, settled: i64, before: i64) {
        let old = before.saturating_sub(PATIENCE_NS);
        // Now and then; and when another collector's files begin.
        if old < self.forgotten_ns || old >= self.forgotten_ns.saturating_add(PATIENCE_NS / 10) {
            self.causes.forget(old);
            self.forgotten_ns = old;
        }
        for calls in self.threads.values_mut().flatten() {
            while calls.len() > MOST || calls.len() > KEPT && calls.front().is_some_and(|call| call.end < settled) {
                calls.pop_front();
            }
        }
    }
}

/// Nearly always the youngest one.
#[inline]
fn push(calls: &mut VecDeque<Call>, call: Call) {
    if calls.back().is_none_or(|last| last.start <= call.start) {
        return calls.push_back(call);
    }
    let later = calls.iter().rev().take_while(|other| other.start > call.start).count();
    calls.insert(calls.len() - later, call);
}
