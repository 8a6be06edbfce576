//! Launch calls: how many, how long, by whom, of what.
//!
//! One that was drawn by chance, because others were left out to keep to a budget, counts as those that it stands for: all numbers but
//! the longest calls are estimates then.

use gputrace_collectors::schema::TableId;
use rustc_hash::FxHashSet;

use super::Pass;
use super::drawn::{self, time_of};
use super::groups::Groups;
use super::kernels::{self, Graphs, Kernels};
use super::stats::Stats;
use super::steps::{Cursor, Steps};
use crate::trace::{NO_NAME, Rows, Want};

/// A launch call longer than this is an outlier (Nsight Systems' and HTA's threshold).
pub(crate) const OUTLIER_NS: i64 = 50_000;

/// Outliers that are kept one by one.
const LONGEST: usize = 10;
/// Kernels that are kept apart.
const KERNELS: usize = 20_000;
/// Seconds of a run whose rates are kept apart; later ones are folded into wider bins.
const RATE_BINS: usize = 4096;

/// A single launch worth a line.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) struct Outlier {
    /// Time in the call.
    pub(crate) api_ns: i64,
    /// When it began.
    pub(crate) start_ns: i64,
    /// Process.
    pub(crate) process_id: i64,
    /// Thread.
    pub(crate) tid: i32,
    /// Function.
    pub(crate) api_id: i64,
    /// Kernel.
    pub(crate) name_id: i64,
}

/// Launches of one process.
#[derive(Debug, Default)]
pub(crate) struct ProcessLaunches {
    /// Durations in steady steps; of all launches when there are no steps.
    pub(crate) steady: Stats,
    /// All.
    pub(crate) count: u64,
    /// Calls above [`OUTLIER_NS`].
    pub(crate) outliers: u64,
    /// Their time.
    pub(crate) outliers_ns: i64,
    /// Under stream capture: they build a graph and give the GPU no work.
    pub(crate) captured: u64,
    /// What they gave the GPU.
    pub(crate) kernels: Kernels,
    /// Begin of the first and of the last launch.
    pub(crate) span_ns: (i64, i64),
    /// Launches per bin of time.
    pub(crate) rate: Rate,
}

/// Launches per second, in bins that widen as the run goes on.
#[derive(Debug)]
pub(crate) struct Rate {
    first_ns: Option<i64>,
    width_ns: i64,
    bins: Vec<u32>,
    /// The bin of the last launch, and from when to when it is: the next one mostly lies there too, and dividing takes long.
    last: (usize, i64, i64),
}

impl Default for Rate {
    fn default() -> Self {
        Rate { first_ns: None, width_ns: 1_000_000_000, bins: Vec::new(), last: (0, 0, 0) }
    }
}

impl Rate {
    #[inline]
    fn add(&mut self, at: i64, times: u32) {
        if at < self.last.1 || self.last.2 <= at {
            self.look_up(at);
        }
        let bin = &mut self.bins[self.last.0];
        *bin = bin.saturating_add(times);
    }

    fn look_up(&mut self, at: i64) {
        let first = *self.first_ns.get_or_insert(at);
        let mut bin = ((at - first).max(0) / self.width_ns) as usize;
        while bin >= RATE_BINS {
            self.bins = self.bins.chunks(2).map(|c| c.iter().fold(0, |all, bin| bin.saturating_add(all))).collect();
            self.width_ns *= 2;
            bin /= 2;
        }
        if bin >= self.bins.len() {
            self.bins.resize(bin + 1, 0);
        }
        let from = first + bin as i64 * self.width_ns;
        self.last = (bin, from, from + self.width_ns);
    }

    /// The busiest bin, in launches per second, and its width in seconds.
    pub(crate) fn peak_per_s(&self) -> (f64, f64) {
        let width = self.width_ns as f64 / 1e9;
        (f64::from(self.bins.iter().copied().max().unwrap_or(0)) / width, width)
    }
}

/// The pass.
#[derive(Debug)]
pub(crate) struct Launches {
    /// By process.
    pub(crate) processes: Groups<i64, ProcessLaunches>,
    /// By process, thread and function.
    pub(crate) calls: Groups<(i64, i32, i64), Stats>,
    /// By function and kernel.
    pub(crate) kernels: Groups<(i64, i64), Stats>,
    /// Of graphs, by process and instantiation.
    pub(crate) graphs: Graphs,
    /// The longest calls, longest first.
    pub(crate) longest: Vec<Outlier>,
    cursor: Cursor,
}

/// Stands for everything that found no place of its own.
pub(crate) const OTHER: i64 = -2;

impl Default for Launches {
    fn default() -> Self {
        Launches {
            processes: Groups::default(),
            calls: Groups::new(20_000, (OTHER, 0, OTHER)),
            kernels: Groups::new(KERNELS, (OTHER, OTHER)),
            graphs: Graphs::default(),
            longest: Vec::new(),
            cursor: Cursor::default(),
        }
    }
}

impl Launches {
    fn outlier(&mut self, found: Outlier) {
        // Of equal ones the order must not depend on whose files come first.
        let order = |o: &Outlier| (std::cmp::Reverse(o.api_ns), o.start_ns, o.process_id);
        let at = self.longest.partition_point(|o| order(o) <= order(&found));
        if at < LONGEST {
            self.longest.insert(at, found);
            self.longest.truncate(LONGEST);
        }
    }
}

impl Pass for Launches {
    fn wants(&self) -> &'static [Want] {
        const COLUMNS: &[&str] =
            &["tid", "api_ns", "api_id", "name_id", "captured", "stands_for", kernels::COLUMNS[0], kernels::COLUMNS[1]];
        &[Want { table: TableId::Launches, columns: COLUMNS }]
    }

    fn rows(&mut self, rows: &Rows, steps: &Steps) {
        let (process, tid) = (rows.i64("process_id"), rows.i32_or("tid", 0));
        let (start, length) = (rows.i64("start_ns"), rows.i64("api_ns"));
        let (api, name) = (rows.i64("api_id"), rows.i64_or("name_id", NO_NAME));
        let (captured, stands_for) = (rows.flags("captured"), rows.i32_or("stands_for", 1));
        let kernels = kernels::Columns::of(rows);
        for row in 0..rows.len {
            let ns = length[row].max(0);
            let drawn = drawn::times(stands_for[row]);
            let times = u64::from(drawn);
            self.calls.at((process[row], tid[row], api[row])).add_times(ns, times);
            self.kernels.at((api[row], name[row])).add_times(ns, times);
            let place = steps.place(&mut self.cursor, process[row], start[row]);
            let of = self.processes.at(process[row]);
            if of.count == 0 {
                of.span_ns = (start[row], start[row]);
            }
            of.count += times;
            of.span_ns = (of.span_ns.0.min(start[row]), of.span_ns.1.max(start[row]));
            of.captured += times * u64::from(captured.get(row));
            kernels.add(row, times, process[row], place.is_middle(), ns, &mut of.kernels, &mut self.graphs);
            of.rate.add(start[row], drawn);
            if place.is_steady() || steps.of(process[row]).is_none() {
                of.steady.add_times(ns, times);
            }
            if ns > OUTLIER_NS {
                of.outliers += times;
                of.outliers_ns += time_of(ns, drawn);
                if self.longest.len() < LONGEST || self.longest.last().is_some_and(|o| o.api_ns <= ns) {
                    let (api_id, name_id) = (api[row], name[row]);
                    let (process_id, tid, start_ns) = (process[row], tid[row], start[row]);
                    self.outlier(Outlier { api_ns: ns, start_ns, process_id, tid, api_id, name_id });
                }
            }
        }
    }

    fn names(&self, ids: &mut FxHashSet<i64>) {
        ids.extend(self.kernels.iter().flat_map(|((api, name), _)| [*api, *name]));
        ids.extend(self.calls.iter().map(|((.., api), _)| *api));
    }
}
