//! How long the GPU was busy, estimated from launches whose time is known: events timed them, or CUPTI told of them in windows.
//!
//! Launches are sorted into kinds: the same kernel in the same shape in the same stream takes about the same time. Of each kind
//! the launches are counted, all of them, and the time of some is known; their mean stands for the rest. So chance decides only
//! how well a kind's mean is known, and not how many launches of which kind were drawn. In that mean a launch counts as often as
//! it has others beside it of which nothing is known: a run in windows at first and with events after that is estimated as a
//! whole. A kind of which nothing is known gets the mean of its kernel in other shapes, else that of the process; a graph is like no kernel. Where launches
//! were left out for a budget, those that have rows stand for them.

use gputrace_abi::sample::USUAL_NS;
use gputrace_collectors::schema::TableId;
use rustc_hash::{FxHashMap, FxHashSet};

mod beside;
mod mean;
mod waited;

use self::beside::Beside;
use self::mean::{Mean, spread};
use self::waited::Waited;
use super::Pass;
use super::drawn;
use super::groups::Groups;
use super::launches::OTHER;
use super::steps::{Cursor, Steps};
use crate::trace::{Axes, DeviceNames, Identity, NO_NAME, Process, Rows, Trace, Want};

/// Kinds that are told apart.
const KINDS: usize = 1 << 16;
/// Half the width of an interval that holds the truth 95 times in 100, in standard errors.
const SURE: f64 = 1.96;

/// Launches that are taken for alike: process, device and stream, and what was launched.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub(crate) struct Kind {
    pub(crate) process_id: i64,
    pub(crate) device: i32,
    stream: (i32, i64),
    /// Name of the kernel; [`GRAPH`].
    pub(crate) name_id: i64,
    shape: [Axes; 2],
}

/// Graphs, whichever.
pub(crate) const GRAPH: i64 = -1;
/// A kernel that was in no graph.
const NO_NODE: i64 = i64::MIN;

/// Launches of a kind.
#[derive(Clone, Copy, Debug, Default)]
struct Launched {
    count: f64,
    /// In steady steps of usual duration; of a process without steps all.
    usual: f64,
    /// By how much chance may have these wrong: its variance, in launches.
    drawn: f64,
    /// Those that events timed, with as many launches as they stand for, and those that CUPTI told of.
    times: Mean,
    stands_for: f64,
    told: Mean,
    /// From the first of them, or of what was timed, to the last.
    span: Option<(i64, i64)>,
}

impl Launched {
    /// All whose time is known.
    fn known(&self) -> Mean {
        let mut known = self.times;
        known.add(&self.told);
        known
    }

    /// The mean of the others, ns: a launch that was told of in windows has `beside` others beside it.
    fn rest_ns(&self, beside: f64) -> f64 {
        let timed = self.stands_for - self.times.timed as f64;
        let (timed, told) = (timed / self.times.timed.max(1) as f64, beside);
        let count = timed * self.times.timed as f64 + told * self.told.timed as f64;
        if count > 0.0 { (timed * self.times.sum_ns + told * self.told.sum_ns) / count } else { self.known().ns() }
    }

    fn reach(&mut self, from: i64, to: i64) {
        self.span = Some(wider(self.span, (from, to)));
    }
}

fn wider(span: Option<(i64, i64)>, (from, to): (i64, i64)) -> (i64, i64) {
    span.map_or((from, to), |(first, last)| (first.min(from), last.max(to)))
}

/// What is summed of a device, and the processes that use it, each with its ordinal there.
#[derive(Debug, Default)]
struct OfDevice {
    span: Option<(i64, i64)>,
    busy: Estimate,
    used_by: Vec<(i64, i32)>,
}

/// A time that is estimated.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub(crate) struct Estimate {
    pub(crate) ns: f64,
    variance: f64,
    /// By how much all of it may be too long or too short, where it was not measured what timing takes by itself.
    assumed_ns: f64,
    /// Launches, about where some were left out; those that events timed, and those that CUPTI told of in windows.
    pub(crate) launches: f64,
    pub(crate) timed: u64,
    pub(crate) told: u64,
    /// Launches of which nothing is known, nor of any like them: they are not in it.
    pub(crate) unknown: f64,
}

impl Estimate {
    /// The truth is no further away, 95 times in 100.
    pub(crate) fn error_ns(&self) -> f64 {
        SURE * self.variance.sqrt() + self.assumed_ns
    }

    fn add(&mut self, other: &Estimate) {
        self.ns += other.ns;
        self.variance += other.variance;
        self.assumed_ns += other.assumed_ns;
        self.launches += other.launches;
        self.timed += other.timed;
        self.told += other.told;
        self.unknown += other.unknown;
    }
}

/// A device, from its first launch to the last thing that is known of it: a launch, the end of one that was timed, or of the first wait
/// for it behind these; of all processes that use it.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Device {
    /// The first one of these processes, and its ordinal there.
    pub(crate) process_id: i64,
    pub(crate) device: i32,
    /// How many there are.
    pub(crate) processes: usize,
    pub(crate) range_ns: i64,
    pub(crate) busy: Estimate,
}

impl Device {
    /// Busy time, of the range; no more than all of it.
    pub(crate) fn percent(&self) -> f64 {
        (100.0 * self.busy.ns / self.range_ns.max(1) as f64).min(100.0)
    }

    /// How far that may be off, points.
    pub(crate) fn error_points(&self) -> f64 {
        100.0 * self.busy.error_ns() / self.range_ns.max(1) as f64
    }
}

/// The pass.
#[derive(Debug)]
pub(crate) struct Samples {
    names: DeviceNames,
    /// By process: those of another launcher use other devices.
    launchers: FxHashMap<i64, usize>,
    kinds: Groups<Kind, Launched>,
    cursor: Cursor,
    timed: u64,
    /// Launches may have been timed.
    may_be: bool,
    /// Processes in which it was assumed what timing takes by itself.
    assumed: FxHashSet<i64>,
    beside: Beside,
    waited: Waited,
    /// What is estimated, when all rows are read: by process and device, in usual steps by process, and by kernel.
    devices: Vec<Device>,
    usual: FxHashMap<i64, Estimate>,
    at_least_ns: FxHashMap<i64, f64>,
    sharing: FxHashMap<i64, usize>,
    kernels: FxHashMap<(i64, i64), Estimate>,
}

impl Default for Samples {
    fn default() -> Samples {
        let other =
            Kind { process_id: OTHER, device: -1, stream: (0, 0), name_id: NO_NAME, shape: [(0, 0, 0), (0, 0, 0)] };
        Samples {
            names: DeviceNames::default(),
            launchers: FxHashMap::default(),
            kinds: Groups::new(KINDS, other),
            cursor: Cursor::default(),
            timed: 0,
            may_be: false,
            assumed: FxHashSet::default(),
            beside: Beside::default(),
            waited: Waited::default(),
            devices: Vec::new(),
            usual: FxHashMap::default(),
            at_least_ns: FxHashMap::default(),
            sharing: FxHashMap::default(),
            kernels: FxHashMap::default(),
        }
    }
}

impl Samples {
    /// Of the processes of a trace.
    pub(crate) fn new(trace: &Trace) -> Samples {
        let may_be = trace.may_hold(TableId::GpuSamples);
        let is_assumed = |process: &&Process| {
            let about = process.manifest.as_ref().and_then(|of| of.gpu_time.as_ref());
            about.and_then(|about| about.events.as_ref()).is_some_and(|events| events.assumed > 0)
        };
        let assumed = trace.processes.iter().filter(is_assumed).map(|process| process.process_id).collect();
        Samples { names: DeviceNames::new(&trace.processes), may_be, assumed, ..Samples::default() }
    }

    /// How many processes use the devices of this one, itself among them.
    pub(crate) fn sharing(&self, process_id: i64) -> usize {
        self.sharing.get(&process_id).copied().unwrap_or(1)
    }

    /// Whether launches were timed.
    pub(crate) fn any(&self) -> bool {
        self.timed > 0
    }

    /// Devices, by their first process and its ordinal.
    pub(crate) fn devices(&self) -> &[Device] {
        &self.devices
    }

    /// Time in which a process's own launches kept its devices busy, in its usual steps or in all of its run.
    pub(crate) fn usual(&self, process_id: i64) -> Option<&Estimate> {
        self.usual.get(&process_id).filter(|busy| busy.timed + busy.told > 0)
    }

    /// Time in which one stream of the process was busy in its usual steps, or in all of its run, less how far that may be off: its
    /// kernels run one after another, those of several streams may run beside each other.
    pub(crate) fn at_least_ns(&self, process_id: i64) -> f64 {
        self.at_least_ns.get(&process_id).copied().unwrap_or_default()
    }

    /// Time by process and kernel, most first.
    pub(crate) fn kernels(&self) -> Vec<(&(i64, i64), &Estimate)> {
        let mut kernels: Vec<_> = self.kernels.iter().collect();
        kernels.sort_by(|(a, x), (b, y)| y.ns.total_cmp(&x.ns).then(a.cmp(b)));
        kernels
    }

    fn launches(&mut self, rows: &Rows, steps: &Steps) {
        let (kinds, start, length) = (kinds(rows), rows.i64("start_ns"), rows.i64("api_ns"));
        let (graph, kernels) = (rows.i64_or("graph_exec_id", GRAPH), rows.i32_or("kernels", -1));
        let (captured, stands_for) = (rows.flags("captured"), rows.i32_or("stands_for", 1));
        for row in 0..rows.len {
            // A graph, or a launch of one kernel that was neither captured nor failed.
            let is_graph = graph[row] != GRAPH || kernels[row] < 0;
            if captured.get(row) || (!is_graph && kernels[row] != 1) {
                continue;
            }
            let kind = kinds(row, is_graph);
            let usual = steps.of(kind.process_id).is_none_or(|own| own.middle == 0)
                || steps.place(&mut self.cursor, kind.process_id, start[row]).is_middle();
            let launched = self.kinds.at(kind);
            launched.reach(start[row], start[row] + length[row].max(0));
            let count = f64::from(drawn::times(stands_for[row]));
            launched.count += count;
            launched.usual += if usual { count } else { 0.0 };
            launched.drawn += count * (count - 1.0);
        }
    }

    fn samples(&mut self, rows: &Rows) {
        let (kinds, start, gpu) = (kinds(rows), rows.i64("start_ns"), rows.i64("gpu_ns"));
        let (what, weight) = (rows.texts("kind"), rows.i32_or("weight", 1));
        for row in 0..rows.len {
            let kind = kinds(row, what.get(row) == "graph");
            let ns = gpu[row].max(0);
            let launched = self.kinds.at(kind);
            launched.reach(start[row], start[row].saturating_add(ns));
            launched.times.add(&Mean::one(ns as f64));
            launched.stands_for += f64::from(weight[row].max(1));
            self.timed += 1;
        }
    }

    /// Kernels of which CUPTI told: what graphs launched is no launch of a kernel.
    fn told(&mut self, rows: &Rows) {
        let (kinds, start, gpu) = (kinds(rows), rows.i64("start_ns"), rows.i64("gpu_ns"));
        let node = rows.i64_or("graph_node", NO_NODE);
        for row in (0..rows.len).filter(|row| node[*row] == NO_NODE && gpu[*row] >= 0) {
            let launched = self.kinds.at(kinds(row, false));
            launched.reach(start[row], start[row].saturating_add(gpu[row]));
            launched.told.add(&Mean::one(gpu[row] as f64));
        }
    }
}

/// The time of so many launches of a kind. `around`: means of what is like it; `beside`: launches beside each that was told of.
fn estimate(launched: &Launched, count: f64, around: [Option<&Mean>; 2], beside: f64, spread: f64) -> Estimate {
    let (times, known) = (launched.times, launched.known());
    let mean = std::iter::once(known).chain(around.into_iter().flatten().copied()).find(|mean| mean.timed > 0);
    let about =
        Estimate { launches: launched.count, timed: times.timed, told: launched.told.timed, ..Estimate::default() };
    let Some(mean) = mean else { return Estimate { unknown: count, ..about } };
    let (own, all) = (known.timed as f64, launched.count.max(1.0));
    let rest_ns = if known.timed == 0 { mean.ns() } else { launched.rest_ns(beside) };
    // What is known of the whole, as much as these are of it, and for the rest a mean, which is not, times their number.
    let unknown = count * (1.0 - own / all).max(0.0);
    let ns = (known.sum_ns * count / all.max(own)) + unknown * rest_ns;
    // Another kind's mean may be twice as long, or nothing.
    let other = if known.timed == 0 { mean.ns() * mean.ns() } else { 0.0 };
    let variance = (mean.variance(spread) + other) * (unknown * unknown / own.max(1.0) + unknown);
    let drawn = launched.drawn * (count / all).powi(2) * rest_ns * rest_ns;
    Estimate { ns, variance: variance + drawn, ..about }
}

/// What a row's launch is.
fn kinds<'a>(rows: &'a Rows) -> impl Fn(usize, bool) -> Kind + use<'a> {
    let (process, device, context) = (rows.i64("process_id"), rows.i32_or("device", -1), rows.i32_or("context", 0));
    let (stream, name) = (rows.i64("stream"), rows.i64_or("name_id", NO_NAME));
    let (grid, block) = (rows.axes("grid"), rows.axes("block"));
    move |row, is_graph| {
        let (name_id, shape) = match is_graph {
            true => (GRAPH, [(0, 0, 0); 2]),
            false => (name[row], [grid.get(row), block.get(row)]),
        };
        let stream = (context[row], stream[row]);
        Kind { process_id: process[row], device: device[row], stream, name_id, shape }
    }
}

impl Pass for Samples {
    fn wants(&self) -> &'static [Want] {
        const LAUNCHES: &[&str] =
            &["device", "context", "stream", "api_ns", "name_id", "graph_exec_id", "kernels", "captured", "stands_for"];
        const SAMPLES: &[&str] = &["device", "context", "stream", "gpu_ns", "kind", "name_id", "weight"];
        const KERNELS: &[&str] = &["device", "context", "stream", "gpu_ns", "name_id", "graph_node"];
        const SHAPE: &[&str] = &["grid_x", "grid_y", "grid_z", "block_x", "block_y", "block_z"];
        // Times of kernels are of interest beside launches that were timed only.
        const ALL: &[Want] = &[
            Want { table: TableId::Launches, columns: LAUNCHES },
            Want { table: TableId::Launches, columns: SHAPE },
            Want { table: TableId::Syncs, columns: &["device", "api_ns", "kind", "pending_streams"] },
            Want { table: TableId::GpuSamples, columns: SAMPLES },
            Want { table: TableId::GpuSamples, columns: SHAPE },
            Want { table: TableId::GpuWindows, columns: &["window_ns"] },
            Want { table: TableId::Kernels, columns: KERNELS },
            Want { table: TableId::Kernels, columns: SHAPE },
        ];
        if self.may_be { ALL } else { &ALL[..ALL.len() - 3] }
    }

    fn rows(&mut self, rows: &Rows, steps: &Steps) {
        let mut last = None;
        for process in rows.i64("process_id").iter().filter(|process| last.replace(**process) != Some(**process)) {
            self.launchers.insert(*process, rows.launcher);
        }
        match rows.table {
            TableId::Launches => self.launches(rows, steps),
            TableId::Syncs => self.waited.add(rows),
            TableId::Kernels => self.told(rows),
            TableId::GpuWindows => self.beside.add(rows),
            _ => self.samples(rows),
        }
    }

    fn end(&mut self, _: &Steps) {
        // In one order, however the rows came: sums of fractions depend on it.
        let mut kinds: Vec<(Kind, Launched)> = self.kinds.iter().map(|(kind, launched)| (*kind, *launched)).collect();
        kinds.sort_by_key(|(kind, _)| *kind);
        let spread = spread(&kinds);
        let mut named: FxHashMap<(i64, i64), Mean> = FxHashMap::default();
        let mut processes: FxHashMap<i64, Mean> = FxHashMap::default();
        for (kind, launched) in &kinds {
            named.entry((kind.process_id, kind.name_id)).or_default().add(&launched.known());
            if kind.name_id != GRAPH {
                processes.entry(kind.process_id).or_default().add(&launched.known());
            }
        }
        let mut devices: FxHashMap<Identity, OfDevice> = FxHashMap::default();
        let mut streams: FxHashMap<(i64, i32, (i32, i64)), Estimate> = FxHashMap::default();
        for (kind, launched) in &kinds {
            // No kernel's time says how long a graph takes.
            let of_process = processes.get(&kind.process_id).filter(|_| kind.name_id != GRAPH);
            let around = [named.get(&(kind.process_id, kind.name_id)), of_process];
            let beside = self.beside.of(kind.process_id);
            let assumed_ns = if self.assumed.contains(&kind.process_id) { USUAL_NS as f64 } else { 0.0 };
            let estimate = |count: f64| Estimate {
                assumed_ns: assumed_ns * count,
                ..estimate(launched, count, around, beside, spread)
            };
            let launcher = self.launchers.get(&kind.process_id).copied().unwrap_or_default();
            let device = devices.entry(self.names.identity(launcher, kind.process_id, kind.device)).or_default();
            device.span = launched.span.map_or(device.span, |own| Some(wider(device.span, own)));
            device.busy.add(&estimate(launched.count));
            if device.used_by.last().is_none_or(|(process_id, _)| *process_id != kind.process_id) {
                device.used_by.push((kind.process_id, kind.device));
            }
            self.kernels.entry((kind.process_id, kind.name_id)).or_default().add(&estimate(launched.count));
            self.usual.entry(kind.process_id).or_default().add(&estimate(launched.usual));
            let stream = streams.entry((kind.process_id, kind.device, kind.stream)).or_default();
            stream.add(&estimate(launched.usual));
        }
        for ((process_id, ..), busy) in streams {
            let least = self.at_least_ns.entry(process_id).or_default();
            *least = least.max(busy.ns - busy.error_ns());
        }
        self.devices = devices
            .into_values()
            .filter(|of| of.busy.timed + of.busy.told > 0)
            .filter_map(|OfDevice { span, busy, used_by }| {
                let ((from, to), (process_id, device)) = (span?, *used_by.first()?);
                for (process_id, _) in &used_by {
                    let sharing = self.sharing.entry(*process_id).or_default();
                    *sharing = used_by.len().max(*sharing);
                }
                let ended = used_by.iter().filter_map(|(process, device)| self.waited.after(*process, *device, to));
                let to = ended.max().unwrap_or(to);
                Some(Device { process_id, device, processes: used_by.len(), range_ns: to - from, busy })
            })
            .collect();
        self.devices.sort_by_key(|device| (device.process_id, device.device));
    }

    fn names(&self, ids: &mut FxHashSet<i64>) {
        ids.extend(self.kernels.keys().map(|(_, name)| *name).filter(|name| *name != GRAPH));
    }
}

#[cfg(test)]
mod tests;
