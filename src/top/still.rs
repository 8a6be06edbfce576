//! A finished trace as one picture: the whole run, from the sums of its events (`whole`).
//!
//! Rates are means over each process's time. Sums do not tell how much memory was live, nor for how long a GPU worked whose streams
//! worked at once: that is shown as not known.

use std::cmp::Reverse;
use std::collections::BTreeMap;

use gputrace_collectors::live::{HotKernel, Process, Sums};
use rustc_hash::{FxHashMap, FxHashSet};

use super::rates::{Rates, rates};
use super::table::{Cell, Row};
use super::view::{self, Made, PROCESSES, View};
use super::whole::{Whole, read};
use crate::render::duration;
use crate::trace::{self, NO_NAME, Trace};

/// Kernels, and lines, that are shown.
const MOST_SHOWN: usize = 50;
/// The picture of a trace.
pub(crate) fn of_trace(trace: &Trace, name: &str) -> View {
    let whole = read(trace);
    let wall_ns = trace.ended_ns().map_or(0, |end| end - trace.began_ns()).max(0);
    let seconds = wall_ns as f64 / 1e9;
    let mut devices: BTreeMap<String, f64> = BTreeMap::new();
    let none = Sums::default();
    let rows = trace.processes.iter().filter(|process| process.traced).map(|process| {
        let sums = whole.processes.get(&process.process_id).unwrap_or(&none);
        let used = busy(process, whole.streams.get(&process.process_id));
        for (device, share) in used.iter().flatten() {
            *devices.entry(device.clone()).or_default() += share;
        }
        let mean = used.map(|used| used.iter().map(|(_, share)| share).sum::<f64>() / used.len().max(1) as f64);
        process_row(process, sums, mean)
    });
    let rows: Vec<Row> = rows.collect();
    // A device that processes share is one, and works for one of them at a time, as a rule.
    let mean = devices.values().map(|share| share.min(1.0)).sum::<f64>() / devices.len() as f64;
    let verdict = match devices.is_empty() {
        false => format!("GPU busy {} of the time that is known; gputrace report says why", view::share(mean)),
        true => "GPU busy time is not in the sums; gputrace report says what limited it".to_owned(),
    };
    // Who was killed left no last word; of a launcher on another host nobody here knows whether it still writes.
    let cut_short = trace.manifests().any(|manifest| manifest.is_cut_short());
    let what = if cut_short { "NOT FINISHED, OR CUT SHORT: what there is" } else { "FINISHED: the whole run" };
    let from = if whole.of_rows { ", from its rows" } else { "" };
    View {
        title: format!("{name}  {what}, {}{from}", duration(wall_ns as f64)),
        verdict,
        rows: [rows, kernel_rows(trace, &whole, seconds), site_rows(trace, &whole, seconds)],
        span: format!("whole run, {}", duration(wall_ns as f64)),
        none: ["no process was traced", "no kernel was launched", "no call had a stack"],
    }
}

/// The share of the known time in which each of a process's GPUs worked: known where each of them had one stream.
fn busy(process: &trace::Process, streams: Option<&FxHashMap<(i64, i64), i64>>) -> Option<Vec<(String, f64)>> {
    let streams = streams?;
    let devices: FxHashSet<i64> = streams.keys().map(|(device, _)| *device).collect();
    if devices.len() != streams.len() {
        return None;
    }
    let manifest = process.manifest.as_ref();
    let observed_ns = match manifest.and_then(|manifest| manifest.gpu_time.as_ref()) {
        Some(gpu_time) => gpu_time.on_ns,
        None => process.end_ns? - process.start_ns,
    };
    let uuids = manifest.map_or(&[][..], |manifest| &manifest.devices);
    let name = |ordinal: i64| match usize::try_from(ordinal).ok().and_then(|at| uuids.get(at)) {
        Some(uuid) => uuid.clone(),
        None => format!("{} of {}", ordinal, process.process_id),
    };
    let share = |busy_ns: i64| (busy_ns as f64 / observed_ns as f64).clamp(0.0, 1.0);
    let shares = streams.iter().map(|((device, _), busy_ns)| (name(*device), share(*busy_ns)));
    (observed_ns > 0).then(|| shares.collect())
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
    sites.sort_by(|(a, x), (b, y)| y.ns.total_cmp(&x.ns).then(y.calls.total_cmp(&x.calls)).then_with(|| a.cmp(b)));
    sites.truncate(MOST_SHOWN);
    let lines = trace.sites(&sites.iter().map(|((stack, _), _)| *stack).collect());
    let named = |((stack, class), made): (&(i64, String), &Made)| {
        ((class.clone(), lines.get(*stack).map(|site| site.short())), *made)
    };
    view::site_rows(sites.into_iter().map(named), seconds)
}
