//! What the numbers in a process's events mean at a given time: function handles, contexts, addresses.
//!
//! A binding may stand in another thread's ring than the event that needs it, so the drain takes in the bindings of
//! one more pass before it resolves an event. Handles and addresses are reused; each has a history by time.

use std::collections::{BTreeMap, HashMap, VecDeque};
use std::hash::{BuildHasherDefault, Hasher};

/// Bindings of one process that are kept; a hostile one could send them without end.
const MOST: usize = 1 << 18;

/// A hasher for handles and addresses: one multiplication.
#[derive(Default)]
pub(crate) struct HandleHasher(u64);

impl Hasher for HandleHasher {
    fn finish(&self) -> u64 {
        self.0
    }

    fn write(&mut self, bytes: &[u8]) {
        bytes.iter().for_each(|b| self.write_u64(u64::from(*b)));
    }

    fn write_u64(&mut self, value: u64) {
        self.0 = (self.0 ^ value).wrapping_mul(0x9e37_79b9_7f4a_7c15).rotate_left(29);
    }
}

/// Values by handle or address.
pub(crate) type ByHandle<T> = HashMap<u64, T, BuildHasherDefault<HandleHasher>>;

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Name {
    Is(i64),
    SameAs(u64),
    Nothing,
}

/// Names of functions, by handle and time.
#[derive(Debug, Default)]
pub(crate) struct Names {
    by_handle: ByHandle<Vec<(u64, Name)>>,
    count: usize,
    /// Handles end, and are told to: a name that is told again may be of another one, whose beginning or the end of the one
    /// before is still to come from another ring.
    pub(crate) end: bool,
}

impl Names {
    /// From `ticks` on, the handle is the kernel with this name.
    pub(crate) fn bind(&mut self, handle: u64, ticks: u64, name_id: i64) {
        self.insert(handle, ticks, Name::Is(name_id));
    }

    /// From `ticks` on, the handle has the name of another one.
    pub(crate) fn alias(&mut self, handle: u64, ticks: u64, other: u64) {
        self.insert(handle, ticks, Name::SameAs(other));
    }

    /// From `ticks` on, the handle is nothing that has a name, if it was.
    pub(crate) fn unbind(&mut self, handle: u64, ticks: u64) {
        self.insert(handle, ticks, Name::Nothing);
    }

    fn insert(&mut self, handle: u64, ticks: u64, name: Name) {
        if self.count >= MOST {
            return;
        }
        let history = self.by_handle.entry(handle).or_default();
        let at = history.partition_point(|(t, _)| *t <= ticks);
        if !self.end && at > 0 && history.get(at - 1).is_some_and(|(_, n)| *n == name) {
            return;
        }
        history.insert(at, (ticks, name));
        self.count += 1;
    }

    /// A name that was learned in a call holds from the start of that call.
    pub(crate) fn hold_from(&mut self, handle: u64, ticks: u64, start: u64) {
        if let Some(history) = self.by_handle.get_mut(&handle)
            && let Some(at) = history.iter().position(|(t, _)| *t == ticks)
            && at.checked_sub(1).and_then(|before| history.get(before)).is_none_or(|(t, _)| *t <= start)
            && let Some(entry) = history.get_mut(at)
        {
            entry.0 = start;
        }
    }

    /// The name of a handle at a time; the first one ever where it is older than all.
    pub(crate) fn find(&self, handle: u64, ticks: u64) -> Option<i64> {
        let mut handle = handle;
        for _ in 0..4 {
            let history = self.by_handle.get(&handle)?;
            let name = match history.as_slice() {
                [(_, only)] => only,
                all => &all.get(all.partition_point(|(t, _)| *t <= ticks).saturating_sub(1))?.1,
            };
            match name {
                Name::Is(id) => return Some(*id),
                Name::SameAs(other) => handle = *other,
                Name::Nothing => return None,
            }
        }
        None
    }
}

/// Devices of contexts, by the context's number.
#[derive(Debug, Default)]
pub(crate) struct Contexts(Vec<Option<i32>>);

impl Contexts {
    /// The context is on this device; `ordinal` is beyond 31 bits where the process did not know.
    pub(crate) fn bind(&mut self, number: u16, ordinal: u64) {
        let number = usize::from(number);
        if self.0.len() <= number {
            self.0.resize(number + 1, None);
        }
        self.0[number] = i32::try_from(ordinal).ok();
    }

    /// The device of a context.
    #[inline]
    pub(crate) fn device(&self, number: u16) -> Option<i32> {
        self.0.get(usize::from(number)).copied().flatten()
    }
}

/// A block of memory that the driver gave out.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Block {
    /// Its size; 0 for handles.
    pub(crate) bytes: u64,
    /// One of [`gputrace_abi::event::detail`] of class Alloc.
    pub(crate) detail: u8,
    from: u64,
    to: u64,
}

/// An allocation or a free that has not been applied yet.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Change {
    /// When it took effect: the end of an allocation, the start of a free.
    pub(crate) ticks: u64,
    /// The address or handle.
    pub(crate) address: u64,
    /// What was allocated; none for a free.
    pub(crate) block: Option<(u64, u8)>,
}

/// The driver's memory by address and time.
#[derive(Debug, Default)]
pub(crate) struct Memory {
    blocks: BTreeMap<u64, Vec<Block>>,
    changes: Vec<Change>,
    /// Addresses of freed blocks, and when they were freed, in that order.
    freed: VecDeque<(u64, u64)>,
    count: usize,
}

/// Freed blocks that are remembered beside those that are still asked for: a long call that began before the free may be
/// read after it.
const FREED: usize = 4096;

impl Memory {
    /// Takes in a change.
    pub(crate) fn add(&mut self, change: Change) {
        // What is freed makes room: a free that was left out would have its block live for ever.
        if self.changes.len() < MOST && (change.block.is_none() || self.count + self.changes.len() < MOST) {
            self.changes.push(change);
        }
    }

    /// Applies the changes before `horizon`, in the order of their time. No earlier change may come later.
    pub(crate) fn apply(&mut self, horizon: u64) {
        if self.changes.is_empty() {
            return;
        }
        self.changes.sort_by_key(|c| c.ticks);
        let ready = self.changes.partition_point(|c| c.ticks <= horizon);
        for change in self.changes.drain(..ready).collect::<Vec<_>>() {
            match change.block {
                Some((bytes, detail)) => self.allocate(change.address, bytes, detail, change.ticks),
                None => self.free(change.address, change.ticks),
            }
        }
    }

    fn allocate(&mut self, address: u64, bytes: u64, detail: u8, ticks: u64) {
        self.free(address, ticks); // a free that was not seen
        self.blocks.entry(address).or_default().push(Block { bytes, detail, from: ticks, to: u64::MAX });
        self.count += 1;
    }

    fn free(&mut self, address: u64, ticks: u64) {
        let Some(last) = self.blocks.get_mut(&address).and_then(|all| all.last_mut()) else { return };
        if last.to != u64::MAX {
            return;
        }
        last.to = ticks;
        self.freed.push_back((address, ticks));
    }

    /// Whether more blocks are remembered that were freed than need be.
    pub(crate) fn remembers_many(&self) -> bool {
        self.freed.len() > FREED
    }

    /// Forgets all but the last blocks of those that were freed before `ticks`: events from then on are still to be resolved,
    /// their own frees among them, however many there are.
    pub(crate) fn forget(&mut self, ticks: u64) {
        while self.remembers_many() && self.freed.front().is_some_and(|(_, at)| *at < ticks) {
            let Some((oldest, _)) = self.freed.pop_front() else { return };
            let Some(all) = self.blocks.get_mut(&oldest) else { continue };
            if let Some(at) = all.iter().position(|b| b.to != u64::MAX) {
                all.remove(at);
                self.count = self.count.saturating_sub(1);
            }
            if all.is_empty() {
                self.blocks.remove(&oldest);
            }
        }
    }

    /// The block that held this address at that time.
    pub(crate) fn find(&self, address: u64, ticks: u64) -> Option<Block> {
        // Blocks do not overlap, but a registered range or a mapping may lie inside another block's life.
        for (start, all) in self.blocks.range(..=address).rev().take(4) {
            let holds =
                |b: &&Block| b.from <= ticks && ticks <= b.to && (address == *start || address - start < b.bytes);
            if let Some(block) = all.iter().rev().find(holds) {
                return Some(*block);
            }
        }
        None
    }

    /// The block at exactly this address that a free at that time ends.
    pub(crate) fn freed(&self, address: u64, ticks: u64) -> Option<Block> {
        self.blocks.get(&address)?.iter().rev().find(|b| b.from <= ticks && ticks <= b.to).copied()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use gputrace_abi::event::detail;

    #[test]
    fn a_reused_handle_has_the_name_of_its_time() {
        let mut names = Names::default();
        names.bind(7, 100, 1);
        names.bind(7, 200, 2);
        names.alias(9, 150, 7);
        assert_eq!([50, 100, 199, 200].map(|t| names.find(7, t)), [Some(1), Some(1), Some(1), Some(2)]);
        assert_eq!((names.find(9, 160), names.find(9, 260), names.find(8, 1)), (Some(1), Some(2), None));
        names.end = true;
        names.unbind(7, 250);
        names.unbind(8, 250);
        // The end of one comes from another ring, after the next one's name and before its own.
        names.bind(5, 30, 1);
        names.unbind(5, 20);
        names.unbind(5, 40);
        names.bind(5, 10, 1);
        assert_eq!([15, 25, 35, 45].map(|t| names.find(5, t)), [Some(1), None, Some(1), None]);
        assert_eq!((names.find(7, 249), names.find(7, 251), names.find(8, 260)), (Some(2), None, None));
        // Learned at 300, in a launch that began at 290.
        names.bind(7, 300, 3);
        names.hold_from(7, 300, 290);
        assert_eq!((names.find(7, 289), names.find(7, 290)), (None, Some(3)));
    }

    #[test]
    fn handles_that_lead_in_a_circle_have_no_name() {
        let mut names = Names::default();
        names.alias(1, 0, 2);
        names.alias(2, 0, 1);
        assert_eq!(names.find(1, 5), None);
    }

    #[test]
    fn memory_is_found_by_address_and_time_whatever_order_it_came_in() {
        let mut memory = Memory::default();
        memory.add(Change { ticks: 30, address: 1000, block: None });
        memory.add(Change { ticks: 40, address: 1000, block: Some((10, detail::MANAGED)) });
        memory.add(Change { ticks: 10, address: 1000, block: Some((100, detail::DEVICE)) });
        memory.apply(35);
        let kind = |m: &Memory, at, t| m.find(at, t).map(|b| b.detail);
        assert_eq!(kind(&memory, 1099, 20), Some(detail::DEVICE));
        assert_eq!((kind(&memory, 1100, 20), kind(&memory, 1000, 9), kind(&memory, 1000, 50)), (None, None, None));
        assert_eq!(memory.freed(1000, 30).map(|b| b.bytes), Some(100));
        memory.apply(50);
        assert_eq!((kind(&memory, 1009, 50), kind(&memory, 1050, 20)), (Some(detail::MANAGED), Some(detail::DEVICE)));
    }

    #[test]
    fn freed_blocks_are_forgotten_in_time() {
        let mut memory = Memory::default();
        for n in 0..100_000u64 {
            memory.add(Change { ticks: 2 * n, address: n % 7, block: Some((1, detail::DEVICE)) });
            memory.add(Change { ticks: 2 * n + 1, address: n % 7, block: None });
        }
        memory.apply(u64::MAX);
        // Each free is found as long as its event may come.
        assert!((0..100_000u64).all(|n| memory.freed(n % 7, 2 * n + 1).is_some()));
        memory.forget(100_000);
        assert!((50_000..100_000u64).all(|n| memory.freed(n % 7, 2 * n + 1).is_some()));
        memory.forget(u64::MAX);
        assert!(memory.count <= FREED + 7);
    }
}
