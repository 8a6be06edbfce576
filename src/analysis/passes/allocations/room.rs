//! Room for stacks. Imports of Python have millions, most of which allocate a few bytes once: of those that have nothing live, and so never
//! come again unless they allocate again, the smallest become one of each process. What is asked for are the largest.

use super::{Allocations, Amount, AtStack};
use crate::trace::OTHER_STACKS;

/// So many stacks are kept apart, or twice that.
const KEPT: usize = if cfg!(test) { 500 } else { 200_000 };
/// Less is what rounding left.
const DUST: f64 = 0.5;
/// How many bytes an allocation counts for beside its own.
const CALL: f64 = 32.0;

impl Allocations {
    /// Makes room where there are too many. Called now and then.
    pub(super) fn make_room(&mut self) {
        let count = self.stacks.len();
        if count < self.room.max(2 * KEPT) {
            return;
        }
        let processes = &self.processes;
        let size = |process_id: &i64, stack: &AtStack| {
            let at_peak = processes.get(process_id).map_or(0.0, |process| stack.at_peak(process).bytes);
            let size = stack.sums.all.bytes.max(at_peak) + CALL * stack.sums.all.blocks;
            (!stack.has_live()).then_some(size)
        };
        let mut sizes: Vec<f64> =
            self.stacks.iter().filter_map(|((process_id, _), stack)| size(process_id, stack)).collect();
        // The larger half stays, even where most stacks have something live.
        let many = (count - KEPT).min(sizes.len() / 2);
        let most = if many > 0 { *sizes.select_nth_unstable_by(many - 1, f64::total_cmp).1 } else { 0.0 };
        let gone = self.stacks.take_where(|(process_id, stack_id), stack| {
            *stack_id != OTHER_STACKS && size(process_id, stack).is_some_and(|size| size <= most)
        });
        for ((process_id, _), stack) in gone {
            let peaks = self.processes.at(process_id).peaks;
            self.stacks.at((process_id, OTHER_STACKS)).take(stack, peaks);
        }
        // Where most have something live they are not looked through again and again.
        self.room = 2 * self.stacks.len();
    }
}

impl AtStack {
    fn has_live(&self) -> bool {
        self.live.blocks.abs() > DUST || self.mapped.live.iter().any(|bytes| bytes.abs() > DUST)
    }

    /// Adds another one's, in which nothing is live now, nor for long grew.
    fn take(&mut self, other: AtStack, peaks: u64) {
        self.note(peaks, None);
        if other.at_peak.0 == peaks {
            self.at_peak.1.add(other.at_peak.1);
        }
        self.sums.all.add(other.sums.all);
        self.sums.steady.add(other.sums.steady);
        self.live.add(other.live);
        self.aged = (self.aged.0 + other.aged.0, self.aged.1 + other.aged.1);
        self.short.add(other.short);
        self.before_next.add(other.before_next);
        self.calls.iter_mut().zip(other.calls).for_each(|(own, others)| own.merge(others));
        self.mapped.merge(other.mapped);
        if let Some(grown) = other.grown {
            self.grown.get_or_insert(Amount::default()).add(grown);
        }
    }
}
