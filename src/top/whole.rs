//! What a finished trace comes to: its sums, and where it has none (`--rollup off`, and traces of other profilers) those of its rows.
//!
//! How long copies, allocations and frees waited for work before them is in no sum: that is taken from their rows, as far as they were
//! kept, as the report takes it.

use std::collections::BTreeMap;

use gputrace_collectors::live::{HotKernel, Kind, Sums};
use gputrace_collectors::schema::TableId;
use rustc_hash::FxHashMap;

use super::view::Made;
use crate::analysis::{Idle, Memory, Pending, Transfer};
use crate::trace::{Filter, NO_NAME, NO_STACK, Rows, Trace, Want};

/// Kernels, and lines, that are told apart.
const MOST: usize = 100_000;
const KERNEL: &str = "kernel";
const LAUNCH: &str = "launch";
const COPY: &str = "device_copy";

/// The sums of a trace.
#[derive(Default)]
pub(super) struct Whole {
    pub(super) processes: BTreeMap<i64, Sums>,
    /// Time of the GPU's work by process, device and stream.
    pub(super) streams: BTreeMap<i64, FxHashMap<(i64, i64), i64>>,
    /// By name: launches, time in them, runs with a time, their time.
    pub(super) kernels: FxHashMap<i64, HotKernel>,
    /// By line and class.
    pub(super) sites: FxHashMap<(i64, String), Made>,
    /// Of single rows: there are no sums.
    pub(super) of_rows: bool,
    /// End of the last period that has sums, or of the last row: as long as the run was there at least.
    pub(super) last_ns: Option<i64>,
}

/// Reads it.
pub(super) fn read(trace: &Trace) -> Whole {
    let mut whole = of_sums(trace);
    if whole.processes.is_empty() {
        whole = of_rows(trace);
    }
    add_waits(trace, &mut whole);
    whole
}

impl Whole {
    fn kind(&mut self, process_id: i64, class: &str) -> &mut Kind {
        self.processes.entry(process_id).or_default().kinds.entry(class.to_owned().into()).or_default()
    }

    /// There is something that began then and took so long.
    fn lasted(&mut self, start_ns: &[i64], took_ns: &[i64]) {
        let ends = start_ns.iter().zip(took_ns).map(|(start_ns, ns)| start_ns.saturating_add((*ns).max(0)));
        self.last_ns = self.last_ns.max(ends.max());
    }

    /// The GPU worked, on a stream of a device.
    fn worked(&mut self, process_id: i64, place: (i64, i64), ns: i64) {
        *self.streams.entry(process_id).or_default().entry(place).or_default() += ns;
    }

    fn kernel(&mut self, name: i64, more: HotKernel) {
        if self.kernels.len() < MOST || self.kernels.contains_key(&name) {
            let kernel = self.kernels.entry(name).or_default();
            kernel.launches = kernel.launches.saturating_add(more.launches);
            kernel.launch_ns = kernel.launch_ns.saturating_add(more.launch_ns);
            kernel.timed = kernel.timed.saturating_add(more.timed);
            kernel.gpu_ns = kernel.gpu_ns.saturating_add(more.gpu_ns);
        }
    }

    fn site(&mut self, stack: i64, class: &str, more: Made) {
        let site = (stack, class.to_owned());
        if stack != NO_STACK && (self.sites.len() < MOST || self.sites.contains_key(&site)) {
            let made = self.sites.entry(site).or_default();
            *made = Made {
                calls: made.calls + more.calls,
                ns: made.ns + more.ns,
                estimated: made.estimated || more.estimated,
            };
        }
    }

    /// A call of a row.
    fn call(&mut self, process_id: i64, class: &str, ns: i64, bytes: i64, failed: bool) {
        let kind = self.kind(process_id, class);
        kind.events += 1;
        kind.seen += 1;
        kind.timed += 1;
        kind.failed += u64::from(failed);
        kind.total_ns = kind.total_ns.saturating_add(ns);
        kind.bytes = kind.bytes.saturating_add(bytes);
    }
}

/// Of the trace's own sums.
fn of_sums(trace: &Trace) -> Whole {
    let mut whole = Whole::default();
    let columns =
        &["period_ns", "class", "process_id", "device", "stream", "events", "errors", "timed", "total_ns", "bytes"];
    trace.scan(&[Want { table: TableId::Rollups, columns }], &Filter::default(), &mut |rows| {
        let (class, process, device, stream) =
            (rows.texts("class"), rows.i64("process_id"), rows.ints("device"), rows.i64_or("stream", 0));
        let (events, errors, timed) = (rows.i64("events"), rows.i64("errors"), rows.i64("timed"));
        let (total_ns, bytes) = (rows.i64("total_ns"), rows.i64("bytes"));
        whole.lasted(&rows.i64("start_ns"), &rows.i64("period_ns"));
        for row in 0..rows.len {
            let class = class.get(row);
            let kind = whole.kind(process[row], class);
            let count = |value: i64| value.max(0).unsigned_abs();
            kind.events = kind.events.saturating_add(count(events[row]));
            kind.seen = kind.events;
            kind.failed = kind.failed.saturating_add(count(errors[row]));
            kind.timed = kind.timed.saturating_add(count(timed[row]));
            kind.total_ns = kind.total_ns.saturating_add(total_ns[row]);
            kind.bytes = kind.bytes.saturating_add(bytes[row]);
            if [KERNEL, "device_copy"].contains(&class) {
                whole.worked(process[row], (device.known(row).unwrap_or(-1), stream[row]), total_ns[row]);
            }
        }
    });
    let columns = &["class", "name_id", "stack_id", "events", "timed", "total_ns"];
    trace.scan(&[Want { table: TableId::RollupNames, columns }], &Filter::default(), &mut |rows| {
        let (class, name, stack) =
            (rows.texts("class"), rows.i64_or("name_id", NO_NAME), rows.i64_or("stack_id", NO_STACK));
        let (events, timed, total_ns) = (rows.i64("events"), rows.i64("timed"), rows.i64("total_ns"));
        for row in 0..rows.len {
            let class = class.get(row);
            let count = |value: i64| value.max(0).unsigned_abs();
            if class == KERNEL {
                whole.kernel(
                    name[row],
                    HotKernel { timed: count(timed[row]), gpu_ns: total_ns[row], ..HotKernel::default() },
                );
            } else if class == LAUNCH && name[row] != NO_NAME {
                let (launches, launch_ns) = (count(events[row]), total_ns[row]);
                whole.kernel(name[row], HotKernel { launches, launch_ns, ..HotKernel::default() });
            }
            let made = Made { calls: events[row] as f64, ns: total_ns[row] as f64, estimated: false };
            whole.site(stack[row], class, made);
        }
    });
    whole
}

/// What single rows come to.
fn of_rows(trace: &Trace) -> Whole {
    let mut whole = Whole { of_rows: true, ..Whole::default() };
    let calls: [(TableId, &[&str]); 6] = [
        (TableId::Launches, &["api_ns", "result", "stack_id", "name_id", "stack_launches"]),
        (TableId::Syncs, &["api_ns", "result", "stack_id"]),
        (TableId::Transfers, &["api_ns", "result", "stack_id", "bytes"]),
        (TableId::DeviceMemory, &["api_ns", "result", "stack_id", "bytes", "action"]),
        (TableId::Api, &["api_ns", "result", "stack_id", "class"]),
        (TableId::OsWaits, &["wait_ns", "stack_id"]),
    ];
    let work: [(TableId, &[&str]); 2] = [
        (TableId::Kernels, &["gpu_ns", "name_id", "device", "stream"]),
        (TableId::DeviceCopies, &["gpu_ns", "bytes", "device", "stream"]),
    ];
    let wants: Vec<Want> = calls.into_iter().chain(work).map(|(table, columns)| Want { table, columns }).collect();
    trace.scan(&wants, &Filter::default(), &mut |rows| match rows.table {
        TableId::Kernels | TableId::DeviceCopies => work_of(rows, &mut whole),
        _ => calls_of(rows, &mut whole),
    });
    whole
}

fn calls_of(rows: &Rows, whole: &mut Whole) {
    let waits = rows.table == TableId::OsWaits;
    let (process, length) = (rows.i64("process_id"), rows.i64_or(if waits { "wait_ns" } else { "api_ns" }, 0));
    let (bytes, stack, name) =
        (rows.i64_or("bytes", 0), rows.i64_or("stack_id", NO_STACK), rows.i64_or("name_id", NO_NAME));
    let (result, drawn) = (rows.i32_or("result", 0), rows.i64_or("stack_launches", 0));
    let (action, class) = (rows.texts("action"), rows.texts("class"));
    whole.lasted(&rows.i64("start_ns"), &length);
    for row in 0..rows.len {
        let ns = length[row].max(0);
        let class = match rows.table {
            TableId::Launches => LAUNCH,
            TableId::Syncs => "sync",
            TableId::Transfers => "transfer",
            TableId::DeviceMemory => action.get(row),
            TableId::OsWaits => "os_wait",
            _ => class.get(row),
        };
        let failed = result[row] != 0;
        whole.call(process[row], class, ns, if failed { 0 } else { bytes[row] }, failed);
        if rows.table == TableId::Launches && name[row] != NO_NAME {
            whole.kernel(name[row], HotKernel { launches: 1, launch_ns: ns, ..HotKernel::default() });
        }
        let stands_for = drawn[row].max(1) as f64;
        let estimated = drawn[row] > 1;
        whole.site(stack[row], class, Made { calls: stands_for, ns: ns as f64 * stands_for, estimated });
    }
}

fn work_of(rows: &Rows, whole: &mut Whole) {
    let (process, length) = (rows.i64("process_id"), rows.i64("gpu_ns"));
    let (name, bytes) = (rows.i64_or("name_id", NO_NAME), rows.i64_or("bytes", 0));
    let (device, stream) = (rows.ints("device"), rows.i64_or("stream", 0));
    let kernels = rows.table == TableId::Kernels;
    whole.lasted(&rows.i64("start_ns"), &length);
    for row in 0..rows.len {
        let ns = length[row].max(0);
        whole.call(process[row], if kernels { KERNEL } else { COPY }, ns, bytes[row], false);
        whole.worked(process[row], (device.known(row).unwrap_or(-1), stream[row]), ns);
        if kernels {
            whole.kernel(name[row], HotKernel { timed: 1, gpu_ns: ns, ..HotKernel::default() });
        }
    }
}

/// Adds how long calls waited that do not say so.
fn add_waits(trace: &Trace, whole: &mut Whole) {
    let mut idle = Idle::default();
    trace.scan(&[Idle::WANT], &Filter::default(), &mut |rows| idle.rows(rows));
    let copies =
        &["api_ns", "kind", "async", "bytes", "src_kind", "dst_kind", "direction", "pending_streams"] as &[&str];
    let memory = &["api_ns", "api_id", "kind", "bytes", "action", "pending_streams"];
    let wants =
        [Want { table: TableId::Transfers, columns: copies }, Want { table: TableId::DeviceMemory, columns: memory }];
    trace.scan(&wants, &Filter::default(), &mut |rows| {
        let (process, length, bytes) = (rows.i64("process_id"), rows.i64("api_ns"), rows.i64_or("bytes", 0));
        let (kind, pending) = (rows.texts("kind"), rows.i32_or("pending_streams", Pending::MISSING));
        let (queued, direction, action) = (rows.flags("async"), rows.texts("direction"), rows.texts("action"));
        let (src, dst, api) = (rows.texts("src_kind"), rows.texts("dst_kind"), rows.i64_or("api_id", 0));
        for row in 0..rows.len {
            let pending = Pending::of(pending[row]);
            let (class, waited) = if rows.table == TableId::Transfers {
                let (set, memory) = (kind.get(row) == "set", [src.get(row), dst.get(row)]);
                let (queued, direction) = (queued.get(row), direction.get(row));
                let transfer = Transfer { set, queued, memory, direction, pending };
                ("transfer", transfer.waited_ns(bytes[row], length[row]))
            } else {
                let (process_id, api_id, bytes) = (process[row], api[row], bytes[row]);
                let memory = Memory { process_id, api_id, kind: kind.get(row), bytes, pending };
                (action.get(row), memory.waited_ns(&idle, length[row]))
            };
            if waited > 0 {
                whole.kind(process[row], class).waited_ns += waited;
            }
        }
    });
}
