//! What a process did before this trace began, where an earlier collector read it for another one.
//!
//! Its counters go on from there, and are no account of this trace: what they say once the rings were read for the first time, beside
//! what was found in those, is taken off them. What is called between the two looks at them is of this trace all the same: its rows come.
//! What the counters have beyond that and beyond the account of the other trace, its collector had read when it was killed, and not written:
//! that is lost, and said here.

use std::collections::BTreeMap;

use gputrace_abi::Class;
use gputrace_abi::layout::stacks;
use gputrace_abi::sync::Ordering;

use super::Process;
use crate::accounting::{ByClass, NotHere};
use crate::facts;
use crate::manifest::Count;

/// What is not of this trace's account.
#[derive(Default)]
pub(super) struct Elsewhere {
    /// The rings were not read yet. What the earlier trace's account has of the process; none: nobody knows, and it has all.
    is_new: Option<Option<BTreeMap<String, Count>>>,
    counts: NotHere,
    /// By hook.
    counted: Vec<u64>,
    stacks: [u64; stacks::COUNT],
    stack_ticks: u64,
}

impl Process {
    /// Its account begins here: an earlier collector read it for another trace, whose account says so of it.
    pub(crate) fn begin_here(&mut self, account: Option<BTreeMap<String, Count>>) {
        self.take_off(account.as_ref());
        self.elsewhere.is_new = Some(account);
    }

    /// The rings were read.
    pub(super) fn see_elsewhere(&mut self) {
        if let Some(account) = self.elsewhere.is_new.take() {
            self.take_off(account.as_ref());
        }
    }

    fn take_off(&mut self, account: Option<&BTreeMap<String, Count>>) {
        self.elsewhere = Elsewhere::default();
        self.books.set_elsewhere(ByClass::default());
        let mut counts = NotHere::default();
        for (name, count) in self.accounting() {
            let Some(class) = Class::named(&name) else { continue };
            let all = count.kept() + count.left_out + count.dropped + count.sampled_out;
            let unknown = count.seen.saturating_sub(all + count.in_flight + count.abandoned);
            let theirs = account.map_or(u64::MAX, |account| {
                let of = account.get(&name).copied().unwrap_or_default();
                // Of those dropped the threads know, but for what was lost with the collector.
                of.kept() + of.left_out + of.dropped.saturating_sub(count.dropped)
            });
            let of = [count.dropped, count.sampled_out, count.abandoned, unknown.min(theirs)];
            counts.iter_mut().zip(of).for_each(|(counts, n)| counts[class as usize] = n);
        }
        let header = self.segment.view().header();
        let stack_ticks = header.stack_ticks.load(Ordering::Relaxed);
        let stacks = self.stack_counts();
        let counted = facts::counted(self.segment.view());
        self.elsewhere = Elsewhere { is_new: None, counts, counted, stacks, stack_ticks };
        self.books.set_elsewhere(counts[3]);
        if let Some(told) = self.told() {
            told.elsewhere(&counts);
        }
    }

    /// Goes on with a process of whose account an earlier collector of this trace said so.
    pub(super) fn resume_elsewhere(&mut self, counts: NotHere) {
        self.elsewhere.counts = counts;
        self.books.set_elsewhere(counts[3]);
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
        for class in Class::ALL {
            let [dropped, sampled_out, abandoned, theirs] = self.counts.map(|counts| counts[class as usize]);
            let Some(count) = accounting.get_mut(class.name()) else { continue };
            count.seen = count.seen.saturating_sub(theirs + dropped + sampled_out + abandoned);
            count.dropped = count.dropped.saturating_sub(dropped);
            count.sampled_out = count.sampled_out.saturating_sub(sampled_out);
            count.abandoned = count.abandoned.saturating_sub(abandoned);
        }
        accounting.retain(|_, count| *count != Count::default());
    }
}
