//! What single steps did: calls, bytes and time by cause, for a sample of the steps and for those that took too long.
//!
//! The steps are known before this read. Of a process with very many every k-th is summed, so that the memory is bounded and
//! no part of the run is preferred; steps that took more than twice the median are summed with the sites that took the time.

use std::sync::Arc;

use gputrace_collectors::schema::TableId;
use rustc_hash::FxHashMap;

use super::Pass;
use super::drawn;
use super::step_work::StepWork;
use super::steps::{Cursor, Steps, blocks};
use super::waiting::{Idle, Memory, Pending, Transfer};
use crate::trace::{NO_STACK, Rows, Want};

/// Steps that are summed, of all processes (some 20 MB).
const SUMMED: usize = 200_000;
/// Fewer of one process are always summed.
const FEWEST: usize = 100;
/// Steps of all processes that are looked into because they took too long, the longest first.
const OUTLIERS: usize = 1_000;
/// Sites of one such step.
const SITES: usize = 256;

/// What a step's time went to, beside the host's own work.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
#[repr(usize)]
pub(crate) enum Cause {
    /// The host waited for the GPU.
    Wait,
    /// The loop's thread waited for the operating system.
    System,
    /// Code was loaded or compiled.
    Load,
    /// Memory was taken from the driver or given back.
    Memory,
    /// Copies and sets.
    Copy,
    /// Launches.
    Launch,
    /// Other driver calls.
    Other,
}

impl Cause {
    /// All, and how a report calls them.
    pub(crate) const ALL: [(Cause, &'static str); 7] = [
        (Cause::Wait, "waits"),
        (Cause::System, "system waits"),
        (Cause::Load, "module loads"),
        (Cause::Memory, "allocations"),
        (Cause::Copy, "copies"),
        (Cause::Launch, "launches"),
        (Cause::Other, "other driver calls"),
    ];
}

/// What one step did.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Tally {
    /// Calls by cause; of allocations only those that take memory.
    pub(crate) calls: [u32; 7],
    /// Time by cause, over all threads.
    pub(crate) ns: [i64; 7],
    /// Kernels given to the GPU.
    pub(crate) kernels: u32,
    /// Bytes copied and set.
    pub(crate) bytes: i64,
    /// Calls that give memory back.
    pub(crate) frees: u32,
    /// Copies, sets, frees and allocations that waited for earlier work; their waiting is time of [`Cause::Wait`].
    pub(crate) implicit_waits: u32,
}

impl Tally {
    /// Waits, said and unsaid, as the summary counts them.
    pub(crate) fn waits(&self) -> u32 {
        self.calls[Cause::Wait as usize] + self.implicit_waits
    }
}

/// A step that took more than twice the median.
#[derive(Debug)]
pub(crate) struct Outlier {
    /// Place of its process in [`Steps::all`].
    pub(crate) slot: usize,
    /// Its number, from 0, those of the warm-up too.
    pub(crate) index: usize,
    /// When it began.
    pub(crate) start_ns: i64,
    /// How long it took.
    pub(crate) ns: i64,
    /// What it did.
    pub(crate) tally: Tally,
    sites: FxHashMap<(Cause, i64), i64>,
}

impl Outlier {
    /// The stack that most of the time of a cause went to, if one is known.
    pub(crate) fn site(&self, cause: Cause) -> Option<i64> {
        let of_cause = self.sites.iter().filter(|((of, stack), _)| *of == cause && *stack != NO_STACK);
        of_cause.max_by_key(|((_, stack), ns)| (**ns, *stack)).map(|((_, stack), _)| *stack)
    }
}

/// The steps of one process that are summed: every `stride`-th steady one.
#[derive(Debug)]
struct Sample {
    first: usize,
    stride: usize,
    tallies: Vec<Tally>,
}

/// Where the last row of a table went: most rows lie in the step of the row before.
#[derive(Debug, Default)]
struct Last {
    step: Option<(usize, usize)>,
    sampled: Option<usize>,
    outlier: Option<usize>,
}

/// The pass.
#[derive(Debug, Default)]
pub(crate) struct StepSums {
    samples: Vec<Sample>,
    /// Steps that took more than twice the median, in the order of process and time.
    pub(crate) outliers: Vec<Outlier>,
    work: StepWork,
    idle: Arc<Idle>,
    cursors: [Cursor; TABLES],
    last: [Last; TABLES],
}

const TABLES: usize = 6;

impl StepSums {
    /// Sums these steps; allocations are judged by what they take when nothing is pending.
    pub(crate) fn new(steps: &Steps, idle: Arc<Idle>) -> StepSums {
        let most = (SUMMED / steps.all.len().max(1)).max(FEWEST);
        let sample = |all: &super::steps::ProcessSteps| {
            let steady = all.each().len() - all.warm_up;
            let stride = steady.div_ceil(most).max(1);
            Sample { first: all.warm_up, stride, tallies: vec![Tally::default(); steady.div_ceil(stride)] }
        };
        let samples = steps.all.iter().map(sample).collect();
        let mut outliers: Vec<Outlier> = Vec::new();
        for (slot, all) in steps.all.iter().enumerate() {
            let limit = all.quantile_ns(0.5).saturating_mul(2);
            let steady = all.each().enumerate().skip(all.warm_up);
            let long = steady.filter(|(index, (_, ns))| *ns > limit && !all.is_left_out(*index));
            for (index, (start_ns, ns)) in long {
                let (tally, sites) = (Tally::default(), FxHashMap::default());
                outliers.push(Outlier { slot, index, start_ns, ns, tally, sites });
            }
            outliers.sort_by_key(|o| (std::cmp::Reverse(o.ns), o.slot, o.index));
            outliers.truncate(OUTLIERS);
        }
        outliers.sort_by_key(|o| (o.slot, o.index));
        let work = StepWork::new(steps, outliers.iter().map(|of| (of.slot, of.start_ns, of.ns)));
        StepSums { samples, outliers, work, idle, ..StepSums::default() }
    }

    /// What the kernels of a step that took too long took beyond those of the others; none where their times are not known.
    pub(crate) fn work_beyond_ns(&self, outlier: &Outlier) -> Option<f64> {
        self.work.beyond_ns(outlier.slot, outlier.start_ns)
    }

    /// What the summed steps of a process did, each with its number.
    pub(crate) fn tallies(&self, slot: usize) -> impl Iterator<Item = (usize, &Tally)> {
        let samples = self.samples.get(slot).into_iter();
        samples.flat_map(|s| s.tallies.iter().enumerate().map(|(n, tally)| (s.first + n * s.stride, tally)))
    }

    /// Stacks of the steps that took too long.
    pub(crate) fn stacks(&self) -> impl Iterator<Item = i64> {
        self.outliers.iter().flat_map(|o| o.sites.keys()).map(|(_, stack)| *stack).filter(|stack| *stack != NO_STACK)
    }

    /// Adds a row's time to its step.
    #[inline]
    fn add(
        &mut self,
        table: usize,
        step: (usize, usize),
        stack: i64,
        parts: &[(Cause, i64)],
        more: impl Fn(&mut Tally),
    ) {
        let last = &mut self.last[table];
        if last.step != Some(step) {
            let sample = &self.samples[step.0];
            let number = step.1.checked_sub(sample.first).filter(|number| number % sample.stride == 0);
            let sampled = number.map(|number| number / sample.stride);
            let outlier = self.outliers.binary_search_by_key(&step, |o| (o.slot, o.index)).ok();
            *last = Last { step: Some(step), sampled, outlier };
        }
        let take = |tally: &mut Tally| {
            for (cause, ns) in parts.iter().filter(|(_, ns)| *ns > 0) {
                tally.ns[*cause as usize] += ns;
            }
            more(tally);
        };
        if let Some(tally) = last.sampled.and_then(|at| self.samples[step.0].tallies.get_mut(at)) {
            take(tally);
        }
        if let Some(outlier) = last.outlier.map(|at| &mut self.outliers[at]) {
            take(&mut outlier.tally);
            for (cause, ns) in parts.iter().filter(|(_, ns)| *ns > 0) {
                if outlier.sites.len() < SITES || outlier.sites.contains_key(&(*cause, stack)) {
                    *outlier.sites.entry((*cause, stack)).or_default() += ns;
                }
            }
        }
    }
}

impl Pass for StepSums {
    fn wants(&self) -> &'static [Want] {
        const TRANSFERS: &[&str] =
            &["api_ns", "stack_id", "kind", "src_kind", "dst_kind", "direction", "bytes", "async", "pending_streams"];
        const MEMORY: &[&str] = &["api_ns", "api_id", "stack_id", "action", "kind", "bytes", "pending_streams"];
        const WANTS: &[Want] = &[
            Want { table: TableId::Launches, columns: &["api_ns", "stack_id", "kernels", "stands_for"] },
            Want { table: TableId::Syncs, columns: &["api_ns", "stack_id", "kind"] },
            Want { table: TableId::Transfers, columns: TRANSFERS },
            Want { table: TableId::DeviceMemory, columns: MEMORY },
            Want { table: TableId::Api, columns: &["api_ns", "stack_id", "class"] },
            Want { table: TableId::OsWaits, columns: &["tid", "wait_ns", "stack_id"] },
            Want { table: TableId::Kernels, columns: &["gpu_ns"] },
        ];
        // What kernels took is asked of steps that took too long alone.
        if self.outliers.is_empty() { &WANTS[..TABLES] } else { WANTS }
    }

    fn rows(&mut self, rows: &Rows, steps: &Steps) {
        if self.samples.is_empty() {
            return;
        }
        if rows.table == TableId::Kernels {
            return self.work.rows(rows);
        }
        let Some(table) = self.wants().iter().position(|want| want.table == rows.table) else { return };
        let (process, start, tid) = (rows.i64("process_id"), rows.i64("start_ns"), rows.i32_or("tid", 0));
        let length = rows.i64(if rows.table == TableId::OsWaits { "wait_ns" } else { "api_ns" });
        let (stack, api, bytes) = (rows.i64_or("stack_id", NO_STACK), rows.i64("api_id"), rows.i64_or("bytes", 0));
        let (kind, class, action) = (rows.texts("kind"), rows.texts("class"), rows.texts("action"));
        let (src, dst, queued) = (rows.texts("src_kind"), rows.texts("dst_kind"), rows.flags("async"));
        let (direction, stands_for) = (rows.texts("direction"), rows.i32_or("stands_for", 1));
        let (kernels, pending) = (rows.i32_or("kernels", 0), rows.i32_or("pending_streams", Pending::MISSING));
        for row in 0..rows.len {
            let Some(step) = steps.index(&mut self.cursors[table], process[row], start[row]) else { continue };
            let (process_id, ns, bytes, stack) = (process[row], length[row].max(0), bytes[row].max(0), stack[row]);
            let pending = Pending::of(pending[row]);
            let count = |cause: Cause| move |tally: &mut Tally| tally.calls[cause as usize] += 1;
            match rows.table {
                TableId::Launches => {
                    // One that was drawn by chance counts as those that it stands for.
                    let times = drawn::times(stands_for[row]);
                    self.add(table, step, stack, &[(Cause::Launch, drawn::time_of(ns, times))], |tally| {
                        let calls = &mut tally.calls[Cause::Launch as usize];
                        *calls = calls.saturating_add(times);
                        tally.kernels =
                            tally.kernels.saturating_add((kernels[row].max(0) as u32).saturating_mul(times));
                    });
                }
                TableId::Transfers => {
                    let (set, memory) = (kind.get(row) == "set", [src.get(row), dst.get(row)]);
                    let (queued, direction) = (queued.get(row), direction.get(row));
                    let waited = Transfer { set, queued, memory, direction, pending }.waited_ns(bytes, ns);
                    self.add(table, step, stack, &[(Cause::Wait, waited), (Cause::Copy, ns - waited)], |tally| {
                        count(Cause::Copy)(tally);
                        tally.bytes = tally.bytes.saturating_add(bytes);
                        tally.implicit_waits += u32::from(waited > 0);
                    });
                }
                TableId::DeviceMemory => {
                    let memory = Memory { process_id, api_id: api[row], kind: kind.get(row), bytes, pending };
                    let waited = memory.waited_ns(&self.idle, ns);
                    let taken = action.get(row) == "alloc";
                    self.add(table, step, stack, &[(Cause::Wait, waited), (Cause::Memory, ns - waited)], |tally| {
                        tally.calls[Cause::Memory as usize] += u32::from(taken);
                        tally.frees += u32::from(!taken);
                        tally.implicit_waits += u32::from(waited > 0);
                    });
                }
                TableId::OsWaits => {
                    if steps.holds_up(process_id, tid[row], start[row], start[row] + ns) {
                        self.add(table, step, stack, &[(Cause::System, ns)], count(Cause::System));
                    }
                }
                TableId::Syncs if blocks(kind.get(row)) => {
                    self.add(table, step, stack, &[(Cause::Wait, ns)], count(Cause::Wait));
                }
                TableId::Api if class.get(row) == "module" => {
                    self.add(table, step, stack, &[(Cause::Load, ns)], count(Cause::Load));
                }
                _ => self.add(table, step, stack, &[(Cause::Other, ns)], count(Cause::Other)),
            }
        }
    }
}
