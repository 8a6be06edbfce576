//! Every metric of a session: its name, its meaning, and where its values stand in a snapshot. Those of counters are in [`super::counters`].
//!
//! Sums are of the session: all its processes, those that have ended among them, so that none runs back. What has `process` in
//! its name is of one process, as long as that runs, and of [`MOST_PROCESSES`] of those alone, the busiest; which that is stands in
//! `gputrace_process_info`, and in no other metric's labels but by pid and rank. Kernels and lines are no labels: there are too many.

use std::cmp::Reverse;
use std::collections::BTreeMap;
use std::sync::Arc;

use rustc_hash::FxHashMap;

use super::counters;
use super::metric::{Family, Histogram, Kind, Labels, Point, Value};
use crate::live::{self, Process, Snapshot, Sums};

/// Processes with values of their own: those that use the GPU first, of these and of the others those of a rank, then those with
/// most calls, by powers of four, so that few come and go from scrape to scrape; then the oldest.
const MOST_PROCESSES: usize = 64;
/// Characters of a command line in a label.
const COMMAND: usize = 200;

/// A metric. Its unit follows from its name.
struct Metric {
    name: &'static str,
    kind: Kind,
    help: &'static str,
    /// Adds its values.
    values: fn(&View<'_>, &mut Family),
}

/// A snapshot, and what several metrics want of it.
struct View<'a> {
    all: &'a Snapshot,
    /// Sums of all processes, by class.
    classes: BTreeMap<&'a str, Class>,
    /// Their names, as labels have them.
    names: FxHashMap<&'a str, Arc<str>>,
    processes: Vec<(&'a Process, Labels)>,
}

/// Sums of a class of calls, or of the GPU's work.
#[derive(Default)]
struct Class {
    seen: u64,
    events: u64,
    failed: u64,
    bytes: i64,
    timed: u64,
    total_ns: i64,
    dropped: u64,
    sampled_out: u64,
    running: u64,
    durations: Histogram,
}

const METRICS: &[Metric] = &[
    Metric {
        name: "gputrace_build_info",
        kind: Kind::Info,
        help: "Version of the gputrace that collects.",
        values: |view, out| out.add(vec![("version", view.all.tool_version.as_str().into())], 1.0),
    },
    Metric {
        name: "gputrace_session_info",
        kind: Kind::Info,
        help: "What is traced: the command, without what was recognised as a secret, its host, and the folder of the trace.",
        values: |view, out| {
            let command: Vec<_> = view.all.command.iter().map(|word| crate::quote(word)).collect();
            let labels = vec![
                ("command", short(&command.join(" ")).into()),
                ("host", view.all.host.as_str().into()),
                ("trace", view.all.trace.as_str().into()),
            ];
            out.add(labels, 1.0);
        },
    },
    Metric {
        name: "gputrace_session_start_timestamp_seconds",
        kind: Kind::Gauge,
        help: "When the collector began, since the Unix epoch. All sums begin then.",
        values: |view, out| out.add(Vec::new(), seconds(view.all.started_ns)),
    },
    Metric {
        name: "gputrace_processes",
        kind: Kind::Gauge,
        help: "Traced processes that run.",
        values: |view, out| out.add(Vec::new(), view.all.processes.len() as f64 + view.all.beyond as f64),
    },
    Metric {
        name: "gputrace_processes_ended_total",
        kind: Kind::Counter,
        help: "Traced processes that have ended.",
        values: |view, out| out.add(Vec::new(), view.all.ended as f64),
    },
    Metric {
        name: "gputrace_processes_untraced_total",
        kind: Kind::Counter,
        help: "Processes of the session that could not be traced.",
        values: |view, out| out.add(Vec::new(), view.all.untraced as f64),
    },
    Metric {
        name: "gputrace_hangs_total",
        kind: Kind::Counter,
        help: "Calls that stood still for longer than --hang-after.",
        values: |view, out| out.add(Vec::new(), view.all.hangs as f64),
    },
    Metric {
        name: "gputrace_calls_total",
        kind: Kind::Counter,
        help: "Calls that began, by class, by the account of the processes themselves: also those that were sampled out or dropped.",
        values: |view, out| by_class(view, out, |class| class.seen as f64),
    },
    Metric {
        name: "gputrace_calls_failed_total",
        kind: Kind::Counter,
        help: "Recorded calls that returned an error.",
        values: |view, out| by_class(view, out, |class| class.failed as f64),
    },
    Metric {
        name: "gputrace_calls_running",
        kind: Kind::Gauge,
        help: "Calls that have not returned yet.",
        values: |view, out| by_class(view, out, |class| class.running as f64),
    },
    Metric {
        name: "gputrace_call_bytes_total",
        kind: Kind::Counter,
        help: "Bytes that recorded calls moved, took or gave back.",
        values: |view, out| by_class(view, out, |class| class.bytes.max(0) as f64),
    },
    Metric {
        name: "gputrace_call_duration_seconds",
        kind: Kind::Histogram,
        help: "How long recorded calls took on the host, by class; of classes that are sampled only the samples.",
        values: |view, out| durations(view, out, false),
    },
    Metric {
        name: "gputrace_gpu_operation_duration_seconds",
        kind: Kind::Histogram,
        help: "How long kernels and copies (device_copy: and sets) ran on the GPU; only while that is recorded (--gpu-time).",
        values: |view, out| durations(view, out, true),
    },
    Metric {
        name: "gputrace_gpu_busy_seconds_total",
        kind: Kind::Counter,
        help: "Time in which at least one kernel, copy or set ran on the device; only while that is recorded (--gpu-time).",
        values: |view, out| {
            for (number, device) in view.all.devices.iter().enumerate() {
                let name =
                    device.uuid.clone().unwrap_or_else(|| device.ordinal.map_or(number as i32, |n| n).to_string());
                out.add(vec![("device", name.into())], seconds(device.busy_ns));
            }
        },
    },
    Metric {
        name: "gputrace_device_memory_bytes",
        kind: Kind::Gauge,
        help: "Device memory that the processes have from the driver, of what was taken while it was recorded.",
        values: |view, out| {
            let own = view.all.processes.iter().map(|process| process.sums.device_memory_bytes).sum::<i64>();
            out.add(Vec::new(), (own + view.all.others.device_memory_bytes).max(0) as f64);
        },
    },
    Metric {
        name: "gputrace_events_total",
        kind: Kind::Counter,
        help: "Events that the collector read.",
        values: |view, out| by_class(view, out, |class| class.events as f64),
    },
    Metric {
        name: "gputrace_events_dropped_total",
        kind: Kind::Counter,
        help: "Events that found no room, or were lost on their way.",
        values: |view, out| by_class(view, out, |class| class.dropped as f64),
    },
    Metric {
        name: "gputrace_events_sampled_out_total",
        kind: Kind::Counter,
        help: "Calls that sampling, or the budget, left out.",
        values: |view, out| by_class(view, out, |class| class.sampled_out as f64),
    },
    Metric {
        name: "gputrace_tracing_cost_seconds_total",
        kind: Kind::Counter,
        help: "Estimate of what tracing cost the processes, in time of their threads.",
        values: |view, out| {
            let all = view.all.processes.iter().map(|process| &process.sums).chain([&view.all.others]);
            if let Some(cost) = all.filter_map(|sums| sums.cost_ns).reduce(|all, one| all + one) {
                out.add(Vec::new(), cost / 1e9);
            }
        },
    },
    Metric {
        name: "gputrace_process_info",
        kind: Kind::Info,
        help: "A traced process that runs: its program and its command line, without what was recognised as a secret.",
        values: |view, out| {
            for (process, labels) in &view.processes {
                let more = [("exe", process.exe.as_str().into()), ("command", short(&process.command).into())];
                out.add(labels.iter().cloned().chain(more).collect(), 1.0);
            }
        },
    },
    Metric {
        name: "gputrace_process_start_timestamp_seconds",
        kind: Kind::Gauge,
        help: "When the process began, since the Unix epoch.",
        values: |view, out| by_process(view, out, |process| Some(seconds(process.start_ns))),
    },
    Metric {
        name: "gputrace_process_recording",
        kind: Kind::Gauge,
        help: "1 while the process records, 0 while it is paused.",
        values: |view, out| by_process(view, out, |process| Some(f64::from(u8::from(process.recording)))),
    },
    Metric {
        name: "gputrace_process_threads",
        kind: Kind::Gauge,
        help: "Threads of the process that made calls and live.",
        values: |view, out| by_process(view, out, |process| Some(process.threads as f64)),
    },
    Metric {
        name: "gputrace_process_calls_total",
        kind: Kind::Counter,
        help: "As gputrace_calls_total, of one process.",
        values: |view, out| by_process_and_class(view, out, |kind| kind.seen as f64),
    },
    Metric {
        name: "gputrace_process_call_seconds_total",
        kind: Kind::Counter,
        help: "Time in recorded calls, of all threads of the process together.",
        values: |view, out| by_process_and_class(view, out, |kind| seconds(kind.total_ns)),
    },
    Metric {
        name: "gputrace_process_call_bytes_total",
        kind: Kind::Counter,
        help: "As gputrace_call_bytes_total, of one process.",
        values: |view, out| by_process_and_class(view, out, |kind| kind.bytes.max(0) as f64),
    },
    Metric {
        name: "gputrace_process_events_dropped_total",
        kind: Kind::Counter,
        help: "As gputrace_events_dropped_total, of one process and all classes.",
        values: |view, out| {
            by_process(view, out, |process| {
                Some(process.sums.kinds.values().map(|kind| kind.dropped).sum::<u64>() as f64)
            });
        },
    },
    Metric {
        name: "gputrace_process_gpu_busy_seconds_total",
        kind: Kind::Counter,
        help: "Time in which the device (by its ordinal in the process) ran something for the process.",
        values: |view, out| {
            for (process, labels) in &view.processes {
                for device in process.gpu.iter().flat_map(|gpu| &gpu.devices) {
                    let ordinal = device.ordinal.map_or_else(String::new, |ordinal| ordinal.to_string());
                    let uuid = device.uuid.as_deref().unwrap_or_default();
                    let more = [("device", ordinal.into()), ("uuid", uuid.into())];
                    out.add(labels.iter().cloned().chain(more).collect(), seconds(device.busy_ns));
                }
            }
        },
    },
    Metric {
        name: "gputrace_process_gpu_observed_seconds_total",
        kind: Kind::Counter,
        help: "Time for which it is known what the GPU did for the process: busy time is a share of this.",
        values: |view, out| by_process(view, out, |process| Some(seconds(process.gpu.as_ref()?.observed_ns))),
    },
    Metric {
        name: "gputrace_process_device_memory_bytes",
        kind: Kind::Gauge,
        help: "As gputrace_device_memory_bytes, of one process.",
        values: |view, out| by_process(view, out, |process| Some(process.sums.device_memory_bytes.max(0) as f64)),
    },
    Metric {
        name: "gputrace_process_cost_ratio",
        kind: Kind::Gauge,
        help: "Estimate of what tracing cost the process, in time of its threads, per second since it began.",
        values: |view, out| {
            by_process(view, out, |process| {
                let wall_ns = view.all.at_ns.saturating_sub(process.start_ns).max(1);
                Some(process.sums.cost_ns? / wall_ns as f64)
            });
        },
    },
];

/// All metrics of a session.
pub(crate) fn families(all: &Snapshot) -> Vec<Family> {
    let classes = classes(all);
    let names = classes.keys().map(|name| (*name, Arc::from(*name))).collect();
    let view = View { all, classes, names, processes: processes(all) };
    let own = METRICS.iter().map(|metric| {
        let mut family = Family::new(metric.name, metric.kind, unit(metric.name), metric.help);
        (metric.values)(&view, &mut family);
        family
    });
    own.chain(counters::families(&all.counters, &view.processes)).collect()
}

/// The unit in a name.
fn unit(name: &str) -> &'static str {
    let name = name.strip_suffix("_total").unwrap_or(name);
    let is_last = |unit: &&str| name.strip_suffix(unit).is_some_and(|rest| rest.ends_with('_'));
    ["seconds", "bytes", "ratio"].into_iter().find(is_last).unwrap_or_default()
}

fn seconds(ns: i64) -> f64 {
    ns as f64 / 1e9
}

fn short(text: &str) -> String {
    match text.char_indices().nth(COMMAND) {
        Some((end, _)) => format!("{}..", &text[..end]),
        None => text.to_owned(),
    }
}

fn classes(all: &Snapshot) -> BTreeMap<&str, Class> {
    let mut classes: BTreeMap<&str, Class> = BTreeMap::new();
    let own = all.processes.iter().map(|process| &process.sums);
    for (name, kind) in own.chain([&all.others]).flat_map(|sums: &Sums| &sums.kinds) {
        classes.entry(name).or_default().add(kind);
    }
    classes
}

impl Class {
    fn add(&mut self, kind: &live::Kind) {
        self.seen = self.seen.saturating_add(kind.seen);
        self.events = self.events.saturating_add(kind.events);
        self.failed += kind.failed;
        self.bytes = self.bytes.saturating_add(kind.bytes);
        self.timed = self.timed.saturating_add(kind.timed);
        self.total_ns = self.total_ns.saturating_add(kind.total_ns);
        self.dropped = self.dropped.saturating_add(kind.dropped);
        self.sampled_out = self.sampled_out.saturating_add(kind.sampled_out);
        self.running += kind.running;
        kind.durations.buckets().into_iter().for_each(|(end_ns, count)| self.durations.add(end_ns, count));
        self.durations.sum_seconds = seconds(self.total_ns);
    }
}

/// The processes with values of their own, and the labels that tell them apart.
fn processes(all: &Snapshot) -> Vec<(&Process, Labels)> {
    let mut chosen: Vec<&Process> = all.processes.iter().collect();
    chosen.sort_by_cached_key(|process| {
        let kinds = &process.sums.kinds;
        let uses = kinds.iter().any(|(class, kind)| (kind.seen > 0 || kind.events > 0) && live::is_of_gpu(class));
        let calls = u64::BITS - live::calls(&process.sums).leading_zeros();
        let rank = process.rank.unwrap_or(i32::MAX);
        (Reverse(uses), rank, Reverse(calls.div_ceil(2)), process.start_ns, process.process_id)
    });
    let labels = |process: &Process| {
        let rank = process.rank.map_or_else(String::new, |rank| rank.to_string());
        vec![("pid", process.pid.to_string().into()), ("rank", rank.into())]
    };
    chosen.into_iter().take(MOST_PROCESSES).map(|process| (process, labels(process))).collect()
}

/// Whether it is the GPU's work, and no call.
fn is_work(class: &str) -> bool {
    matches!(class, "kernel" | "device_copy")
}

fn by_class(view: &View<'_>, out: &mut Family, value: fn(&Class) -> f64) {
    for (name, class) in view.classes.iter().filter(|(name, _)| !is_work(name)) {
        out.add(vec![("class", (*name).into())], value(class));
    }
}

fn durations(view: &View<'_>, out: &mut Family, work: bool) {
    for (name, class) in view.classes.iter().filter(|(name, class)| is_work(name) == work && class.timed > 0) {
        let labels = vec![("class", (*name).into())];
        out.points.push(Point { labels, value: Value::Histogram(Box::new(class.durations.clone())) });
    }
}

fn by_process(view: &View<'_>, out: &mut Family, value: impl Fn(&Process) -> Option<f64>) {
    for (process, labels) in &view.processes {
        if let Some(value) = value(process) {
            out.add(labels.clone(), value);
        }
    }
}

fn by_process_and_class(view: &View<'_>, out: &mut Family, value: fn(&live::Kind) -> f64) {
    for (process, labels) in &view.processes {
        for (class, kind) in process.sums.kinds.iter().filter(|(class, _)| !is_work(class)) {
            // All processes have the same classes: their names are made once.
            let name = view.names.get(&**class).map_or_else(|| Arc::from(&**class), Arc::clone);
            let mut own = Labels::with_capacity(labels.len() + 1);
            own.extend_from_slice(labels);
            own.push(("class", name));
            out.add(own, value(kind));
        }
    }
}

#[cfg(test)]
#[path = "tests.rs"]
mod tests;
