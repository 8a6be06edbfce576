//! Which processes have sums of their own: so many that run, and where there are more, those that do something.
//!
//! Whoever comes first has a place. At each look at all processes (once a second) those without one that work take the places of
//! those that do not: a thousand sleeping shells do not hide the one program that uses the GPU. A process that has used the GPU keeps
//! its place as long as it runs, and one that made calls loses it to the GPU's only; so nobody comes and goes. What a process did
//! before it had a place stays with the others' sums.

use std::collections::BTreeMap;

use super::snapshot::Sums;
use super::{Live, MOST_PROCESSES, OTHERS, Slot, account};
use crate::manifest::{self, Count};

/// What is known of a process whether it has sums of its own or not.
#[derive(Debug, Default)]
pub(super) struct Place {
    /// Where its sums are.
    pub(super) slot: usize,
    pub(super) device_memory_bytes: i64,
    /// Places of its devices among all, by ordinal.
    pub(super) devices: Vec<Option<usize>>,
}

impl Live {
    /// A process is there: it has sums of its own from now on, if there is a place for them.
    pub(crate) fn began(&mut self, process_id: i64) {
        let slot = self.vacant().unwrap_or(OTHERS);
        self.places.insert(process_id, Place { slot, ..Place::default() });
        self.last = (i64::MIN, OTHERS);
    }

    /// A process has ended. Its sums go to the others', and so does what comes late.
    pub(crate) fn ended(&mut self, process: &manifest::Process) {
        self.ended += 1;
        self.last = (i64::MIN, OTHERS);
        let mut account = account::described(process);
        let slot = self.places.remove(&process.process_id).map_or(OTHERS, |place| place.slot);
        if slot == OTHERS {
            return self.late.add(&account);
        }
        account.at_least(&self.vacate(slot));
        if let Some(others) = self.slots.get_mut(OTHERS) {
            others.account.add(&account);
        }
    }

    /// All processes that run were looked at: places go to those that work, and those without sums of their own are counted with the
    /// others as of now.
    pub(crate) fn looked<'a>(&mut self, running: impl Iterator<Item = &'a manifest::Process>) {
        let late = std::mem::take(&mut self.late);
        if let Some(others) = self.slots.get_mut(OTHERS) {
            others.account.add(&late);
        }
        let (own, without): (Vec<_>, Vec<_>) = running.partition(|process| self.has_own(process.process_id));
        let mut beyond = Sums::default();
        let (mut leave, mut come) = (own, without);
        if !come.is_empty() {
            // The one that does least stands last, and of such the one that came last.
            leave.sort_by_key(|process| std::cmp::Reverse(works(&process.accounting)));
            come.sort_by_key(|process| std::cmp::Reverse(works(&process.accounting)));
        }
        for process in come {
            let does = works(&process.accounting);
            let known = self.places.contains_key(&process.process_id);
            let mut slot = if does == IDLE || !known { None } else { self.vacant() };
            if slot.is_none()
                && known
                && let Some(last) = leave.pop_if(|last| works(&last.accounting) < does)
            {
                let mut account = account::described(last);
                account.at_least(&self.leave(last.process_id));
                beyond.add(&account);
                slot = self.vacant();
            }
            match slot.zip(self.places.get_mut(&process.process_id)) {
                Some((slot, place)) => {
                    place.slot = slot;
                    if let Some(slot) = self.slots.get_mut(slot) {
                        slot.account = account::described(process);
                    }
                }
                None => beyond.add(&account::described(process)),
            }
        }
        self.last = (i64::MIN, OTHERS);
        self.beyond = beyond;
    }

    /// Whether a process has sums of its own.
    pub(crate) fn has_own(&self, process_id: i64) -> bool {
        self.place(process_id) != OTHERS
    }

    /// Where the sums of a process are.
    pub(super) fn place(&self, process_id: i64) -> usize {
        self.places.get(&process_id).map_or(OTHERS, |place| place.slot)
    }

    /// A process that runs loses its place. Returns its account as it was told last.
    fn leave(&mut self, process_id: i64) -> Sums {
        let slot = self.places.get_mut(&process_id).map_or(OTHERS, |place| std::mem::take(&mut place.slot));
        self.vacate(slot)
    }

    /// A place gets free; what was added up there goes to the others'. Returns the account that was told last.
    fn vacate(&mut self, slot: usize) -> Sums {
        self.vacant.push(slot);
        let old = self.slots.get_mut(slot).map(std::mem::take).unwrap_or_default();
        if let Some(others) = self.slots.get_mut(OTHERS) {
            others.kinds.merge(&old.kinds);
        }
        old.account
    }

    /// A place that is free.
    fn vacant(&mut self) -> Option<usize> {
        self.vacant.pop().or_else(|| {
            let free = self.slots.len() <= MOST_PROCESSES;
            free.then(|| {
                self.slots.push(Slot::default());
                self.slots.len() - 1
            })
        })
    }
}

/// A process that made no call.
const IDLE: u8 = 0;

/// What a process does: nothing, calls, or something with the GPU.
fn works(accounting: &BTreeMap<String, Count>) -> u8 {
    let made = |(class, count): (&String, &Count)| match count.seen {
        0 => IDLE,
        _ if is_of_gpu(class) => 2,
        _ => 1,
    };
    accounting.iter().map(made).max().unwrap_or(IDLE)
}

/// Whether calls of a class, or work, are the GPU's: whoever makes them uses it.
pub(crate) fn is_of_gpu(class: &str) -> bool {
    !matches!(class, "api" | "host_alloc" | "host_free" | "os_wait" | "range")
}

/// Calls that began, of all classes.
pub(crate) fn calls(sums: &Sums) -> u64 {
    sums.kinds.values().fold(0, |all, kind| all.saturating_add(kind.seen))
}
