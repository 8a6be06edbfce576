//! What a process did before this trace began, where an earlier collector read it for another one.
//!
//! Its counters go on from there, and are no account of this trace: what they say once the rings were read for the first time, beside
//! what was found in those, is taken off them. What is called between the two looks at them is of this trace all the same: its rows come.

use std::collections::BTreeMap;

use gputrace_abi::Class;
use gputrace_abi::layout::stacks;
use gputrace_abi::sync::Ordering;

use super::Process;
use crate::accounting::ByClass;
use crate::facts;
use crate::manifest::Count;

/// What is not of this trace's account.
#[derive(Default)]
pub(super) struct Elsewhere {
    /// The rings were not read yet.
    is_new: bool,
    counts: BTreeMap<String, Count>,
    /// By hook.
    counted: Vec<u64>,
    stacks: [u64; stacks::COUNT],
    stack_ticks: u64,
}

impl Process {
    /// Its account begins here: an earlier collector read it for another trace.
    pub(crate) fn begin_here(&mut self) {
        self.take_off();
        self.elsewhere.is_new = true;
    }

    /// The rings were read.
    pub(super) fn see_elsewhere(&mut self) {
        if self.elsewhere.is_new {
            self.take_off();
        }
    }

    fn take_off(&mut self) {
        let view = *self.segment.view();
        self.elsewhere = Elsewhere::default();
        let counted = facts::counted(&view);
        self.elsewhere.counted.clone_from(&counted);
        let stacks = self.stack_counts();
        let stack_ticks = view.header().stack_ticks.load(Ordering::Relaxed);
        let mut read_elsewhere = ByClass::default();
        let mut counts = self.accounting();
        for (name, count) in &mut counts {
            let all = count.kept() + count.left_out + count.dropped + count.sampled_out;
            let unknown = count.seen.saturating_sub(all + count.in_flight + count.abandoned);
            if let Some(class) = Class::ALL.into_iter().find(|class| class.name() == name) {
                read_elsewhere[class as usize] = unknown;
            }
            let (dropped, sampled_out, abandoned) = (count.dropped, count.sampled_out, count.abandoned);
            let seen = unknown + dropped + sampled_out + abandoned;
            *count = Count { seen, dropped, sampled_out, abandoned, ..Count::default() };
        }
        self.books.set_elsewhere(read_elsewhere);
        self.elsewhere = Elsewhere { is_new: false, counts, counted, stacks, stack_ticks };
    }

    /// Calls of each hook that were counted only.
    pub(super) fn counted_calls(&self) -> Vec<u64> {
        let mut counted = facts::counted(self.segment.view());
        for (calls, before) in counted.iter_mut().zip(&self.elsewhere.counted) {
            *calls = calls.saturating_sub(*before);
        }
        counted
    }

    /// Stacks, by what they are of.
    pub(super) fn stack_counts(&self) -> [u64; stacks::COUNT] {
        let all = &self.segment.view().header().stacks;
        std::array::from_fn(|what| all[what].load(Ordering::Relaxed).saturating_sub(self.elsewhere.stacks[what]))
    }

    /// Ticks that taking them took.
    pub(super) fn stack_ticks(&self) -> u64 {
        self.segment.view().header().stack_ticks.load(Ordering::Relaxed).saturating_sub(self.elsewhere.stack_ticks)
    }
}

impl Elsewhere {
    /// Takes it off an account.
    pub(super) fn take_off(&self, accounting: &mut BTreeMap<String, Count>) {
        for (class, before) in &self.counts {
            let Some(count) = accounting.get_mut(class) else { continue };
            count.seen = count.seen.saturating_sub(before.seen);
            count.dropped = count.dropped.saturating_sub(before.dropped);
            count.sampled_out = count.sampled_out.saturating_sub(before.sampled_out);
            count.abandoned = count.abandoned.saturating_sub(before.abandoned);
        }
        accounting.retain(|_, count| *count != Count::default());
    }
}
