//! What the report knows of a finished trace and sums do not: how busy the GPUs were, and the most memory that a process had of them. It
//! is taken from single rows, where all of these are there.
//!
//! A device that processes share is one. The report knows when it worked for any of them. Sums tell only how long it worked for each;
//! as it works for one of them at a time, as a rule, these times add up, and what they are of is the time from the first of the processes
//! to the end of the last.

use std::collections::BTreeMap;

use gputrace_collectors::schema::TableId;
use rustc_hash::{FxHashMap, FxHashSet};

use super::whole::Whole;
use crate::analysis::{ALL, Facts, Need, Value, answer, loss};
use crate::trace::{Filter, Process, Trace};

/// Whose number is taken for how busy GPUs were.
const UTILISATION: &str = "gpu-utilisation";

/// What is known of rows.
#[derive(Default)]
pub(super) struct Reported {
    /// The share of time in which GPUs worked, which the report may withhold; none where it is not about the whole run.
    busy: Option<Option<f64>>,
    /// Most bytes of devices that each process had at once.
    pub(super) peaks: FxHashMap<i64, i64>,
}

/// Reads it. Where some rows are not kept one by one, the report is about the others, and no whole run.
pub(super) fn read(trace: &Trace) -> Reported {
    let mut reported = Reported::default();
    let Some(analysis) = ALL.iter().find(|analysis| analysis.name() == UTILISATION) else { return reported };
    if trace.intervals().is_some() {
        return reported;
    }
    let filter = Filter::of(trace);
    let facts = Facts::gather(trace, &filter, &[analysis.needs(), &[Need::DeviceMemory]].concat());
    if !loss::is_removed(trace, &[TableId::Kernels, TableId::DeviceCopies]) {
        let section = answer(*analysis, &facts);
        let busy = section.facts.iter().find(|fact| fact.key == "busy_percent");
        let share = |value: &Value| if let Value::Num(percent) = value { Some(percent / 100.0) } else { None };
        reported.busy = busy.map(|fact| share(&fact.value));
    }
    // Profiles of others have the calls, and no sizes.
    let memory = &facts.device_memory;
    let sized = memory.calls.iter().any(|(_, calls)| calls.bytes > 0);
    if sized && !loss::is_removed(trace, &[TableId::DeviceMemory]) {
        reported.peaks = memory.processes.iter().map(|(process_id, own)| (*process_id, own.peak_bytes)).collect();
    }
    reported
}

impl Reported {
    /// How busy GPUs were is not known from rows.
    pub(super) fn is_of_sums(&self) -> bool {
        self.busy.is_none()
    }

    /// The share of time in which the trace's GPUs worked, as far as it is known. `end_ns`: of the trace.
    pub(super) fn busy(&self, trace: &Trace, whole: &Whole, end_ns: Option<i64>) -> Option<f64> {
        self.busy.unwrap_or_else(|| summed(trace, whole, end_ns))
    }
}

/// As sums have it: the mean of the devices.
fn summed(trace: &Trace, whole: &Whole, end_ns: Option<i64>) -> Option<f64> {
    /// Time in which it worked, and from when to when it could.
    type Known = (f64, i64, i64);
    let mut devices: BTreeMap<String, Known> = BTreeMap::new();
    for process in trace.processes.iter().filter(|process| process.traced) {
        let end_ns = process.end_ns.or(end_ns);
        let (Some(used), Some(end_ns)) = (busy_of(process, whole.streams.get(&process.process_id)), end_ns) else {
            continue;
        };
        for (device, share) in used {
            let known = devices.entry(device).or_insert((0.0, process.start_ns, end_ns));
            known.0 += share * (end_ns - process.start_ns) as f64;
            (known.1, known.2) = (known.1.min(process.start_ns), known.2.max(end_ns));
        }
    }
    let share = |(worked_ns, from_ns, to_ns): &Known| (worked_ns / (to_ns - from_ns).max(1) as f64).clamp(0.0, 1.0);
    let all = devices.values().map(share).sum::<f64>();
    (!devices.is_empty()).then(|| all / devices.len() as f64)
}

/// The share of the known time in which each of a process's GPUs worked: known where each of them had one stream.
pub(super) fn busy_of(process: &Process, streams: Option<&FxHashMap<(i64, i64), i64>>) -> Option<Vec<(String, f64)>> {
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
