//! A finished trace as one picture: the whole run, from the sums of its events.
//!
//! Rates are means over each process's time. Sums do not tell how much memory was live, nor for how long a GPU worked whose streams
//! worked at once: that is shown as not known.

use std::cmp::Reverse;
use std::collections::BTreeMap;

use gputrace_collectors::live::{HotKernel, Kind, Process, Sums};
use gputrace_collectors::schema::TableId;
use rustc_hash::{FxHashMap, FxHashSet};

use super::rates::{Rates, rates};
use super::table::{Cell, Row};
use super::view::{self, Made, PROCESSES, View};
use crate::render::duration;
use crate::trace::{self, Filter, NO_NAME, NO_STACK, Trace, Want};

/// Kernels, and lines, that are shown.
const MOST_SHOWN: usize = 50;
/// Kernels, and lines, that are told apart.
const MOST: usize = 100_000;
const KERNEL: &str = "kernel";

/// The sums of a trace.
#[derive(Default)]
struct Whole {
    processes: BTreeMap<i64, Sums>,
    /// Time of the GPU's work by process, device and stream.
    streams: BTreeMap<i64, FxHashMap<(i64, i64), i64>>,
    /// By name: launches, time in them, runs with a time, their time.
    kernels: FxHashMap<i64, HotKernel>,
    /// By line and class: calls, and their time.
    sites: FxHashMap<(i64, String), (i64, i64)>,
}

/// The picture of a trace; none where it has no sums.
pub(crate) fn of_trace(trace: &Trace, name: &str) -> Option<View> {
    let whole = read(trace);
    if whole.processes.is_empty() {
        return None;
    }
    let wall_ns = trace.ended_ns().map_or(0, |end| end - trace.began_ns()).max(0);
    let seconds = wall_ns as f64 / 1e9;
    let mut busy_all = Vec::new();
    let rows = trace.processes.iter().filter_map(|process| {
        let sums = whole.processes.get(&process.process_id)?;
        let busy = busy(process, whole.streams.get(&process.process_id));
        busy_all.extend(busy);
        Some(process_row(process, sums, busy))
    });
    let rows: Vec<Row> = rows.collect();
    let mean = (!busy_all.is_empty()).then(|| busy_all.iter().sum::<f64>() / busy_all.len() as f64);
    let verdict = match mean {
        Some(mean) => format!("GPU busy {} of the time that is known; gputrace report says why", view::share(mean)),
        None => "GPU busy time is not in the sums; gputrace report says what limited it".to_owned(),
    };
    // Who was killed left no last word; of a launcher on another host nobody here knows whether it still writes.
    let cut_short = trace.manifests().any(|manifest| manifest.is_cut_short());
    let what = if cut_short { "NOT FINISHED, OR CUT SHORT: what there is" } else { "FINISHED: the whole run" };
    Some(View {
        title: format!("{name}  {what}, {}", duration(wall_ns as f64)),
        verdict,
        rows: [rows, kernel_rows(trace, &whole, seconds), site_rows(trace, &whole, seconds)],
        span: format!("whole run, {}", duration(wall_ns as f64)),
        none: ["no process was traced", "no kernel was launched", "no call had a stack"],
    })
}

fn read(trace: &Trace) -> Whole {
    let mut whole = Whole::default();
    let columns = &["class", "process_id", "device", "stream", "events", "errors", "timed", "total_ns", "bytes"];
    trace.scan(&[Want { table: TableId::Rollups, columns }], &Filter::default(), &mut |rows| {
        let (class, process, device, stream) =
            (rows.texts("class"), rows.i64("process_id"), rows.ints("device"), rows.i64_or("stream", 0));
        let (events, errors, timed) = (rows.i64("events"), rows.i64("errors"), rows.i64("timed"));
        let (total_ns, bytes) = (rows.i64("total_ns"), rows.i64("bytes"));
        for row in 0..rows.len {
            let class = class.get(row);
            let sums = whole.processes.entry(process[row]).or_default();
            if !sums.kinds.contains_key(class) {
                sums.kinds.insert(class.to_owned().into(), Kind::default());
            }
            let Some(kind) = sums.kinds.get_mut(class) else { continue };
            let count = |value: i64| value.max(0).unsigned_abs();
            kind.events = kind.events.saturating_add(count(events[row]));
            kind.seen = kind.events;
            kind.failed = kind.failed.saturating_add(count(errors[row]));
            kind.timed = kind.timed.saturating_add(count(timed[row]));
            kind.total_ns = kind.total_ns.saturating_add(total_ns[row]);
            kind.bytes = kind.bytes.saturating_add(bytes[row]);
            if [KERNEL, "device_copy"].contains(&class) {
                let place = (device.known(row).unwrap_or(-1), stream[row]);
                *whole.streams.entry(process[row]).or_default().entry(place).or_default() += total_ns[row];
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
            let runs = class == KERNEL;
            if (runs || class == "launch" && name[row] != NO_NAME)
                && (whole.kernels.len() < MOST || whole.kernels.contains_key(&name[row]))
            {
                let kernel = whole.kernels.entry(name[row]).or_default();
                let (count, ns) = match runs {
                    true => (&mut kernel.timed, &mut kernel.gpu_ns),
                    false => (&mut kernel.launches, &mut kernel.launch_ns),
                };
                *count = count.saturating_add(if runs { timed[row] } else { events[row] }.max(0).unsigned_abs());
                *ns = ns.saturating_add(total_ns[row]);
            }
            let site = (stack[row], class.to_owned());
            if stack[row] != NO_STACK && (whole.sites.len() < MOST || whole.sites.contains_key(&site)) {
                let (calls, ns) = whole.sites.entry(site).or_default();
                (*calls, *ns) = (calls.saturating_add(events[row]), ns.saturating_add(total_ns[row]));
            }
        }
    });
    whole
}

/// The share of the known time in which a process's GPUs worked: known where each of them had one stream.
fn busy(process: &trace::Process, streams: Option<&FxHashMap<(i64, i64), i64>>) -> Option<f64> {
    let streams = streams?;
    let devices: FxHashSet<i64> = streams.keys().map(|(device, _)| *device).collect();
    if devices.len() != streams.len() {
        return None;
    }
    let observed_ns = match process.manifest.as_ref().and_then(|manifest| manifest.gpu_time.as_ref()) {
        Some(gpu_time) => gpu_time.on_ns,
        None => process.end_ns? - process.start_ns,
    };
    let busy_ns: i64 = streams.values().sum();
    (observed_ns > 0).then(|| (busy_ns as f64 / observed_ns as f64 / devices.len() as f64).clamp(0.0, 1.0))
}

fn process_row(process: &trace::Process, sums: &Sums, busy: Option<f64>) -> Row {
    let manifest = process.manifest.as_ref();
    let mut sums = Sums { cost_ns: manifest.and_then(|manifest| manifest.cost.total_ns), ..sums.clone() };
    for (class, count) in manifest.iter().flat_map(|manifest| &manifest.accounting) {
        if let Some(kind) = sums.kinds.get_mut(class.as_str()) {
            kind.dropped = count.dropped;
        }
    }
    let seconds = process.end_ns.map_or(0.0, |end_ns| (end_ns - process.start_ns) as f64 / 1e9);
    let means: Option<Rates> = (seconds > 0.0).then(|| rates(&sums, &Sums::default(), seconds));
    let shown = Process {
        process_id: process.process_id,
        pid: process.pid,
        rank: process.rank,
        exe: process.exe.clone(),
        command: process.command.clone(),
        recording: true,
        sums,
        ..Process::default()
    };
    let mut row = view::process_row(&shown, means.as_ref(), busy);
    if let Some(memory) = PROCESSES.iter().position(|column| column.name == "memory") {
        row[memory] = Cell::number(None, |_| String::new());
    }
    row
}

fn kernel_rows(trace: &Trace, whole: &Whole, seconds: f64) -> Vec<Row> {
    let mut kernels: Vec<(&i64, &HotKernel)> = whole.kernels.iter().collect();
    kernels.sort_by_key(|(name, kernel)| (Reverse((kernel.gpu_ns, kernel.launches)), **name));
    kernels.truncate(MOST_SHOWN);
    let names = trace.names(&kernels.iter().map(|(name, _)| **name).collect());
    let row = |(name, kernel): (&i64, &HotKernel)| {
        let mut row = view::kernel_row(kernel, seconds);
        if let Some(cell) = row.last_mut().filter(|_| *name != NO_NAME) {
            *cell = Cell::text(names.full(*name));
        }
        row
    };
    kernels.into_iter().map(row).collect()
}

fn site_rows(trace: &Trace, whole: &Whole, seconds: f64) -> Vec<Row> {
    let mut sites: Vec<_> = whole.sites.iter().collect();
    sites.sort_by_key(|(site, (calls, ns))| (Reverse((*ns, *calls)), *site));
    sites.truncate(MOST_SHOWN);
    let lines = trace.sites(&sites.iter().map(|((stack, _), _)| *stack).collect());
    let named = |((stack, class), (calls, ns)): (&(i64, String), &(i64, i64))| {
        ((class.clone(), lines.get(*stack).map(|site| site.short())), Made { calls: *calls as f64, ns: *ns as f64, estimated: false })
    };
    view::site_rows(sites.into_iter().map(named), seconds)
}
