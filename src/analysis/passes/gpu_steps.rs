//! How long steps take on the GPU: from the end of one step's last kernel to the end of the next one's.
//!
//! A host that runs ahead of the GPU gives the work of many steps in no time and then waits for room: its own steps say
//! little, and the GPU's say how many a second there are. A kernel belongs to the step in which its launch began. Numbers
//! of calls rise within a thread (in an import within a process), so the number of each step's first launch is kept, and a
//! kernel's own number tells its step: nothing is joined. Kernels whose launches have not been read yet wait for them.

use gputrace_collectors::schema::TableId;
use rustc_hash::FxHashMap;

use super::Pass;
use super::groups::Groups;
use super::launches::OTHER;
use super::steps::{Cursor, ProcessSteps, Steps, quantile};
use crate::trace::{Rows, Want};

/// Kernels that wait for their launches at most, more than a batch has; of further ones the launches are not in the trace.
const WAITING: usize = 200_000;
/// No step, or no call.
const NONE: usize = usize::MAX;
const NO_CALL: i64 = i64::MIN;

/// The steps of a process on its GPUs.
#[derive(Debug, Default)]
pub(crate) struct OnGpu {
    /// Of the steady steps: from the end of the step before to its own, sorted.
    pub(crate) sorted_ns: Vec<i64>,
    /// Of the steady steps: from the begin of the first kernel to the end of the last, sorted.
    pub(crate) spans_ns: Vec<i64>,
    /// The begin of the first step's first kernel, and the end of each step's last one: no earlier than the one before.
    boundaries: Vec<i64>,
}

impl OnGpu {
    /// The duration that a share of the steps do not exceed.
    pub(crate) fn quantile_ns(&self, share: f64) -> i64 {
        quantile(&self.sorted_ns, share)
    }

    /// How long after the host the GPU ends a step, or the last one before it.
    pub(crate) fn late_ns(&self, host: &ProcessSteps, step: usize) -> Option<i64> {
        let ends = step.saturating_add(1).min(self.boundaries.len().checked_sub(1)?);
        Some(self.boundaries[ends] - host.boundary(ends)?)
    }

    /// Median time from the first kernel to the last.
    pub(crate) fn span_ns(&self) -> i64 {
        quantile(&self.spans_ns, 0.5)
    }
}

/// A line of numbers that rise: where each step begins in it.
#[derive(Debug, Default)]
struct Line {
    /// Number of a step's first call, the place of its process, the step.
    firsts: Vec<(i64, usize, usize)>,
    /// The last number that was read.
    last: i64,
    hint: usize,
}

impl Line {
    /// The step of a call: the place of its process, and its number there.
    fn step(&mut self, call: i64) -> Option<(usize, usize)> {
        let holds = |at: usize| {
            self.firsts.get(at).is_some_and(|(first, ..)| *first <= call)
                && self.firsts.get(at + 1).is_none_or(|(next, ..)| call < *next)
        };
        if !holds(self.hint) {
            let after = self.firsts.partition_point(|(first, ..)| *first <= call);
            self.hint = after.checked_sub(1)?;
        }
        let (_, slot, step) = self.firsts[self.hint];
        (step != NONE).then_some((slot, step))
    }
}

/// The pass.
#[derive(Debug)]
pub(crate) struct GpuSteps {
    /// By process.
    processes: FxHashMap<i64, OnGpu>,
    lines: Groups<(i64, i64), Line>,
    /// Of each step, by process: begin of its first kernel, end of its last.
    spans: Vec<Vec<(i64, i64)>>,
    waiting: Vec<(i64, i64, i64, i64)>,
    cursor: Cursor,
}

impl Default for GpuSteps {
    fn default() -> Self {
        let (processes, spans, waiting, cursor) = Default::default();
        GpuSteps { processes, lines: Groups::new(100_000, (OTHER, OTHER)), spans, waiting, cursor }
    }
}

impl GpuSteps {
    /// The steps of a process on its GPUs, where kernels of most steady steps have times.
    pub(crate) fn of(&self, process_id: i64) -> Option<&OnGpu> {
        self.processes.get(&process_id)
    }

    /// Boundaries on the GPU of the processes whose hosts run ahead of it.
    pub(crate) fn ahead(
        self,
        steps: &Steps,
        is_ahead: impl Fn(&ProcessSteps, &OnGpu) -> bool,
    ) -> FxHashMap<i64, Vec<i64>> {
        let is_ahead = |process_id: i64, of: &OnGpu| steps.of(process_id).is_some_and(|host| is_ahead(host, of));
        let ahead = self.processes.into_iter().filter(|(process_id, of)| is_ahead(*process_id, of));
        ahead.map(|(process_id, of)| (process_id, of.boundaries)).collect()
    }

    fn launches(&mut self, rows: &Rows, steps: &Steps) {
        let (process, start) = (rows.i64("process_id"), rows.i64("start_ns"));
        let call = rows.i64_or("correlation_id", NO_CALL);
        for row in (0..rows.len).filter(|row| call[*row] != NO_CALL) {
            let line = self.lines.at((process[row], call[row] >> 32));
            if !line.firsts.is_empty() && call[row] <= line.last {
                continue;
            }
            line.last = call[row];
            let (slot, step) = steps.index(&mut self.cursor, process[row], start[row]).unwrap_or((NONE, NONE));
            if line.firsts.last().is_none_or(|(_, last_slot, last)| (*last_slot, *last) != (slot, step)) {
                line.firsts.push((call[row], slot, step));
            }
        }
        let waiting = std::mem::take(&mut self.waiting);
        waiting.into_iter().for_each(|kernel| self.kernel(kernel, false));
    }

    /// A kernel: its process, call, begin and end. `now`: its launch does not come any more.
    fn kernel(&mut self, (process, call, start, end): (i64, i64, i64, i64), now: bool) {
        let line = self.lines.at((process, call >> 32));
        if !now && (line.firsts.is_empty() || call > line.last) {
            if self.waiting.len() < WAITING {
                self.waiting.push((process, call, start, end));
            }
            return;
        }
        let Some((slot, step)) = line.step(call) else { return };
        if let Some(span) = self.spans.get_mut(slot).and_then(|spans| spans.get_mut(step)) {
            *span = (span.0.min(start), span.1.max(end));
        }
    }
}

impl Pass for GpuSteps {
    fn wants(&self) -> &'static [Want] {
        &[
            Want { table: TableId::Launches, columns: &["correlation_id"] },
            Want { table: TableId::Kernels, columns: &["gpu_ns", "correlation_id"] },
        ]
    }

    fn rows(&mut self, rows: &Rows, steps: &Steps) {
        if self.spans.is_empty() {
            self.spans = steps.all.iter().map(|of| vec![(i64::MAX, i64::MIN); of.each().len()]).collect();
        }
        if self.spans.is_empty() {
            return;
        }
        if rows.table == TableId::Launches {
            return self.launches(rows, steps);
        }
        let (process, start, length) = (rows.i64("process_id"), rows.i64("start_ns"), rows.i64("gpu_ns"));
        let call = rows.i64_or("correlation_id", NO_CALL);
        for row in (0..rows.len).filter(|row| call[*row] != NO_CALL && length[*row] >= 0) {
            self.kernel((process[row], call[row], start[row], start[row] + length[row]), false);
        }
    }

    fn end(&mut self, steps: &Steps) {
        std::mem::take(&mut self.waiting).into_iter().for_each(|kernel| self.kernel(kernel, true));
        for (of, spans) in steps.all.iter().zip(&self.spans) {
            let known = |span: &(i64, i64)| span.0 <= span.1;
            let steady = spans.get(of.warm_up..).unwrap_or_default();
            let begin = spans.iter().find(|span| known(span)).map_or(of.first_ns(), |span| span.0);
            let ends = spans.iter().scan(begin, |end, span| {
                *end = span.1.max(*end);
                Some(*end)
            });
            let mut on_gpu = OnGpu {
                boundaries: [begin].into_iter().chain(ends).collect(),
                sorted_ns: steady.windows(2).filter(|pair| pair.iter().all(known)).map(|p| p[1].1 - p[0].1).collect(),
                spans_ns: steady.iter().filter(|span| known(span)).map(|span| span.1 - span.0).collect(),
            };
            on_gpu.sorted_ns.sort_unstable();
            on_gpu.spans_ns.sort_unstable();
            if 2 * on_gpu.sorted_ns.len() >= of.sorted_ns.len().max(4) {
                self.processes.insert(of.process_id, on_gpu);
            }
        }
        *self = GpuSteps { processes: std::mem::take(&mut self.processes), ..GpuSteps::default() };
    }
}
