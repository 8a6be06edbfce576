//! How long kernels ran in steps that took too long, and in the others: more work than usual is a cause that no call tells.

use rustc_hash::FxHashMap;

use super::steps::Steps;
use crate::trace::Rows;

/// The kernels of one process.
#[derive(Debug, Default)]
struct Work {
    /// From the first steady step to the end of the last.
    steady: (i64, i64),
    /// Begin, end and time of kernels of steps that took too long, in the order of time.
    long: Vec<(i64, i64, i64)>,
    /// Time of kernels in all steady steps.
    ns: i64,
    /// Steady steps.
    steps: usize,
    /// A span in which no step is that took too long: most kernels lie where the last one did.
    clear: (i64, i64),
}

/// The kernels of all processes that have steps that took too long.
#[derive(Debug, Default)]
pub(super) struct StepWork {
    slots: FxHashMap<i64, usize>,
    all: Vec<Work>,
}

impl StepWork {
    /// For these long steps, each the place of its process, its begin and how long it took, in the order of time.
    pub(super) fn new(steps: &Steps, long: impl Iterator<Item = (usize, i64, i64)>) -> StepWork {
        let of = |steps: &super::steps::ProcessSteps| Work {
            steady: steps.steady_span(),
            steps: steps.sorted_ns.len(),
            ..Work::default()
        };
        let mut all: Vec<Work> = steps.all.iter().map(of).collect();
        long.for_each(|(slot, start, ns)| all[slot].long.push((start, start + ns, 0)));
        let slots = steps.all.iter().enumerate().map(|(slot, steps)| (steps.process_id, slot));
        let slots = slots.filter(|(_, slot)| !all[*slot].long.is_empty()).collect();
        StepWork { slots, all }
    }

    /// Adds kernels.
    pub(super) fn rows(&mut self, rows: &Rows) {
        let (process, start, length) = (rows.i64("process_id"), rows.i64("start_ns"), rows.i64("gpu_ns"));
        for row in (0..rows.len).filter(|row| length[*row] > 0) {
            let Some(slot) = self.slots.get(&process[row]) else { continue };
            self.all[*slot].add(start[row], start[row].saturating_add(length[row]));
        }
    }

    /// What the kernels of a long step took beyond those of the other steps, on average; none where no kernel has a time.
    pub(super) fn beyond_ns(&self, slot: usize, start: i64) -> Option<f64> {
        let of = self.all.get(slot).filter(|of| of.ns > 0)?;
        let own = of.long.iter().find(|(begin, ..)| *begin == start)?.2;
        let others = of.ns - of.long.iter().map(|(.., ns)| ns).sum::<i64>();
        Some(own as f64 - others as f64 / of.steps.saturating_sub(of.long.len()).max(1) as f64)
    }
}

impl Work {
    fn add(&mut self, start: i64, end: i64) {
        self.ns += (end.min(self.steady.1) - start.max(self.steady.0)).max(0);
        if self.clear.0 <= start && end <= self.clear.1 {
            return;
        }
        let first = self.long.partition_point(|(_, end, _)| *end <= start);
        let before = first.checked_sub(1).map_or(i64::MIN, |last| self.long[last].1);
        self.clear = (before, self.long.get(first).map_or(i64::MAX, |(begin, ..)| *begin));
        for (from, to, ns) in self.long[first..].iter_mut().take_while(|(from, ..)| *from < end) {
            *ns += end.min(*to) - start.max(*from);
        }
    }
}
