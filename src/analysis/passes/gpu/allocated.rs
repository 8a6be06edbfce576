//! What threads allocated of malloc while a device did nothing because they had given it nothing to do.
//!
//! Rows are kept by thread until the time of every device is settled beyond them. Each counts once, also where several devices wait
//! for one thread. A row that sums culled blocks has no moment of its own.

use std::collections::VecDeque;

use rustc_hash::FxHashMap;

use crate::analysis::passes::allocations::Amount;
use crate::analysis::passes::groups::Groups;
use crate::analysis::passes::launches::OTHER;
use crate::trace::{NO_STACK, Rows};

/// Rows that are kept at most, of all threads: 56 MB.
const MOST: usize = 1 << 20;

/// An allocation, or a sample of some.
#[derive(Clone, Copy, Debug)]
struct Allocation {
    at: i64,
    stack_id: i64,
    amount: Amount,
    counted: bool,
}

/// Allocations in gaps.
#[derive(Debug)]
pub(crate) struct Allocated {
    /// All of them.
    pub(crate) all: Amount,
    /// By process and stack.
    pub(crate) stacks: Groups<(i64, i64), Amount>,
    /// Gaps in which something was allocated: how many, and how long they were until the thread gave work again.
    pub(crate) gaps: (u64, i64),
    /// Allocations of which it is not known whether they lie in a gap: culled ones, and those beyond what is kept.
    pub(crate) unplaced: u64,
    threads: FxHashMap<(i64, i32), VecDeque<Allocation>>,
    kept: usize,
}

impl Default for Allocated {
    fn default() -> Allocated {
        Allocated {
            all: Amount::default(),
            stacks: Groups::new(200_000, (OTHER, NO_STACK)),
            gaps: (0, 0),
            unplaced: 0,
            threads: FxHashMap::default(),
            kept: 0,
        }
    }
}

impl Allocated {
    /// Takes rows of malloc in.
    pub(super) fn add(&mut self, rows: &Rows) {
        let (process_id, start, tid) = (rows.i64("process_id"), rows.i64("start_ns"), rows.i32_or("tid", 0));
        let (action, stack_id) = (rows.texts("action"), rows.i64_or("stack_id", NO_STACK));
        let (bytes, weight, calls) = (rows.i64("bytes"), rows.f64("weight_bytes"), rows.i64("calls"));
        for row in 0..rows.len {
            match action.get(row) {
                "alloc" => {}
                "culled" => {
                    self.unplaced = self.unplaced.saturating_add(calls[row].max(0) as u64);
                    continue;
                }
                _ => continue,
            }
            let amount = Amount::of(bytes[row], weight[row], calls[row]);
            let new = Allocation { at: start[row], stack_id: stack_id[row], amount, counted: false };
            let queue = self.threads.entry((process_id[row], tid[row])).or_default();
            // A thread's rows come in the order of time, but where it was stopped on the way.
            let place = if queue.back().is_none_or(|last| last.at <= new.at) {
                queue.len()
            } else {
                queue.partition_point(|known| known.at <= new.at)
            };
            queue.insert(place, new);
            self.kept += 1;
            if self.kept > MOST {
                self.kept -= 1;
                self.unplaced += u64::from(queue.pop_front().is_some_and(|oldest| !oldest.counted));
            }
        }
    }

    /// A device did nothing from then until this thread gave it work again.
    pub(super) fn gap(&mut self, (process_id, tid): (i64, i32), from: i64, to: i64) {
        let Some(queue) = self.threads.get_mut(&(process_id, tid)) else { return };
        let first = queue.partition_point(|known| known.at < from);
        let inside = queue.range_mut(first..).take_while(|known| known.at < to).filter(|known| !known.counted);
        let mut any = false;
        for allocation in inside {
            allocation.counted = true;
            any = true;
            self.all.add(allocation.amount);
            self.stacks.at((process_id, allocation.stack_id)).add(allocation.amount);
        }
        if any {
            self.gaps = (self.gaps.0 + 1, self.gaps.1 + (to - from));
        }
    }

    /// Forgets what lies before this time, in which there are no gaps to come.
    pub(super) fn forget(&mut self, before: i64) {
        for queue in self.threads.values_mut() {
            let old = queue.partition_point(|known| known.at < before);
            queue.drain(..old);
            self.kept -= old;
        }
    }
}
