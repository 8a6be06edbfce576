//! How long the GPU was busy, estimated from launches that were timed.
//!
//! Launches are sorted into kinds: the same kernel in the same shape in the same stream takes about the same time. Of each kind
//! the launches are counted, all of them, and some are timed; their mean stands for the kind. So chance decides only how well a
//! kind's mean is known, and not how many launches of which kind were drawn. A kind of which none was timed gets the mean of
//! its kernel in other shapes, else that of the process.

use gputrace_collectors::schema::TableId;
use rustc_hash::{FxHashMap, FxHashSet};

mod waited;

use self::waited::Waited;
use super::Pass;
use super::groups::Groups;
use super::launches::OTHER;
use super::steps::{Cursor, Steps};
use crate::trace::{Axes, DeviceNames, Identity, NO_NAME, Rows, Trace, Want};

/// Kinds that are told apart.
const KINDS: usize = 1 << 16;
/// How much the times of a kind differ, of their mean, where too few were timed to say; that weighs as much as [`WEIGHT`] times do.
const SPREAD: f64 = 0.5;
const WEIGHT: f64 = 2.0;
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

/// Launches of a kind.
#[derive(Clone, Copy, Debug, Default)]
struct Launched {
    count: u64,
    /// In steady steps of usual duration; of a process without steps all.
    usual: u64,
    times: Mean,
    /// From the first of them, or of what was timed, to the last.
    span: Option<(i64, i64)>,
}

impl Launched {
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
    pub(crate) launches: u64,
    pub(crate) timed: u64,
}

impl Estimate {
    /// The truth is no further away, 95 times in 100.
    pub(crate) fn error_ns(&self) -> f64 {
        SURE * self.variance.sqrt()
    }

    fn add(&mut self, other: &Estimate) {
        self.ns += other.ns;
        self.variance += other.variance;
        self.launches += other.launches;
        self.timed += other.timed;
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
        Samples { names: DeviceNames::new(&trace.processes), ..Samples::default() }
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
        self.usual.get(&process_id).filter(|busy| busy.timed > 0)
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
        let captured = rows.flags("captured");
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
            launched.count += 1;
            launched.usual += u64::from(usual);
        }
    }

    fn samples(&mut self, rows: &Rows) {
        let (kinds, start, gpu) = (kinds(rows), rows.i64("start_ns"), rows.i64("gpu_ns"));
        let what = rows.texts("kind");
        for row in 0..rows.len {
            let kind = kinds(row, what.get(row) == "graph");
            let ns = gpu[row].max(0);
            let launched = self.kinds.at(kind);
            launched.reach(start[row], start[row].saturating_add(ns));
            launched.times.add(&Mean { timed: 1, sum_ns: ns as f64, squares: ns as f64 * ns as f64 });
            self.timed += 1;
        }
    }
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

/// The mean of some times, and their variance, as far as it is known.
#[derive(Clone, Copy, Debug, Default)]
struct Mean {
    timed: u64,
    sum_ns: f64,
    squares: f64,
}

impl Mean {
    fn add(&mut self, of: &Mean) {
        self.timed += of.timed;
        self.sum_ns += of.sum_ns;
        self.squares += of.squares;
    }

    fn ns(&self) -> f64 {
        self.sum_ns / self.timed.max(1) as f64
    }

    /// Squares of what the times are off their mean, summed.
    fn deviations(&self) -> f64 {
        (self.squares - self.sum_ns * self.ns()).max(0.0)
    }

    /// Of a single time; of few, as if times of a kind differed by so much of their mean.
    fn variance(&self, spread: f64) -> f64 {
        let free = self.timed.saturating_sub(1) as f64;
        (self.deviations() + WEIGHT * (spread * self.ns()).powi(2)) / (free + WEIGHT)
    }
}

/// How much the times of a kind differ, of their mean: as kinds do of which several were timed.
fn spread(kinds: &[(Kind, Launched)]) -> f64 {
    let (mut free, mut squares) = (WEIGHT, WEIGHT * SPREAD * SPREAD);
    for mean in kinds.iter().map(|(_, launched)| launched.times).filter(|mean| mean.timed > 1 && mean.sum_ns > 0.0) {
        free += mean.timed as f64 - 1.0;
        squares += mean.deviations() / (mean.ns() * mean.ns());
    }
    (squares / free).sqrt()
}

impl Pass for Samples {
    fn wants(&self) -> &'static [Want] {
        const LAUNCHES: &[&str] =
            &["device", "context", "stream", "api_ns", "name_id", "graph_exec_id", "kernels", "captured"];
        const SAMPLES: &[&str] = &["device", "context", "stream", "gpu_ns", "kind", "name_id"];
        const SHAPE: &[&str] = &["grid_x", "grid_y", "grid_z", "block_x", "block_y", "block_z"];
        &[
            Want { table: TableId::Launches, columns: LAUNCHES },
            Want { table: TableId::Launches, columns: SHAPE },
            Want { table: TableId::Syncs, columns: &["device", "api_ns", "kind", "pending_streams"] },
            Want { table: TableId::GpuSamples, columns: SAMPLES },
            Want { table: TableId::GpuSamples, columns: SHAPE },
        ]
    }

    fn rows(&mut self, rows: &Rows, steps: &Steps) {
        let mut last = None;
        for process in rows.i64("process_id").iter().filter(|process| last.replace(**process) != Some(**process)) {
            self.launchers.insert(*process, rows.launcher);
        }
        match rows.table {
            TableId::Launches => self.launches(rows, steps),
            TableId::Syncs => self.waited.add(rows),
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
            named.entry((kind.process_id, kind.name_id)).or_default().add(&launched.times);
            if kind.name_id != GRAPH {
                processes.entry(kind.process_id).or_default().add(&launched.times);
            }
        }
        let mut devices: FxHashMap<Identity, OfDevice> = FxHashMap::default();
        let mut streams: FxHashMap<(i64, i32, (i32, i64)), Estimate> = FxHashMap::default();
        for (kind, launched) in &kinds {
            let own = launched.times;
            let around = [named.get(&(kind.process_id, kind.name_id)), processes.get(&kind.process_id)];
            let mean = std::iter::once(own).chain(around.into_iter().flatten().copied()).find(|mean| mean.timed > 0);
            // Where nothing like it was timed (events began later), it has no part in the time that is told of either.
            let Some(mean) = mean else { continue };
            let estimate = |count: u64| {
                // What was timed is known; the rest is a kind's mean, which is not, times their number.
                let unknown = count as f64 * (1.0 - own.timed as f64 / launched.count.max(1) as f64).max(0.0);
                let timed = own.timed.max(1) as f64;
                // Another kind's mean may be twice as long, or nothing.
                let other = if own.timed == 0 { mean.ns() * mean.ns() } else { 0.0 };
                let variance = (mean.variance(spread) + other) * (unknown * unknown / timed + unknown);
                Estimate { ns: count as f64 * mean.ns(), variance, launches: launched.count, timed: own.timed }
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
            .filter(|of| of.busy.timed > 0)
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
