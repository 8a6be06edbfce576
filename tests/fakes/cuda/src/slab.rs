//! Handles: numbers that look like pointers, name one object of one kind, and go stale when it is destroyed.
//!
//! A handle is `kind << 40 | generation << 28 | index << 4`; nothing is mapped at those addresses, so a client that
//! dereferences one crashes at once.

use std::sync::atomic::{AtomicU32, Ordering::Relaxed};

pub(crate) struct Slab<T> {
    kind: u64,
    slots: Vec<(u64, Option<T>)>,
    free: Vec<u32>,
    size: &'static AtomicU32,
}

const KIND_SHIFT: u32 = 40;
const GENERATION_SHIFT: u32 = 28;
const GENERATIONS: u64 = 1 << 12;
const INDICES: u64 = 1 << 24;

/// The kind and index of a handle, whether or not its object lives.
#[inline]
pub(crate) fn parts(handle: u64) -> (u64, u32) {
    (handle >> KIND_SHIFT, ((handle >> 4) % INDICES) as u32)
}

impl<T> Slab<T> {
    /// `size` follows the number of slots, so that a reader without the lock can bound an index.
    pub(crate) fn new(kind: u64, size: &'static AtomicU32) -> Slab<T> {
        Slab { kind, slots: Vec::new(), free: Vec::new(), size }
    }

    pub(crate) fn insert(&mut self, value: T) -> u64 {
        let index = match self.free.pop() {
            Some(index) => index as usize,
            None => {
                self.slots.push((0, None));
                self.size.store(self.slots.len() as u32, Relaxed);
                self.slots.len() - 1
            }
        };
        let slot = &mut self.slots[index];
        slot.1 = Some(value);
        self.kind << KIND_SHIFT | (slot.0 % GENERATIONS) << GENERATION_SHIFT | (index as u64) << 4
    }

    #[inline]
    fn index(&self, handle: u64) -> Option<usize> {
        let (kind, index) = parts(handle);
        let slot = self.slots.get(index as usize)?;
        (kind == self.kind && handle & 15 == 0 && (handle >> GENERATION_SHIFT) % GENERATIONS == slot.0 % GENERATIONS)
            .then_some(index as usize)
    }

    #[inline]
    pub(crate) fn get(&self, handle: u64) -> Option<&T> {
        self.slots[self.index(handle)?].1.as_ref()
    }

    #[inline]
    pub(crate) fn get_mut(&mut self, handle: u64) -> Option<&mut T> {
        let index = self.index(handle)?;
        self.slots[index].1.as_mut()
    }

    pub(crate) fn remove(&mut self, handle: u64) -> Option<T> {
        let index = self.index(handle)?;
        let value = self.slots[index].1.take()?;
        self.slots[index].0 += 1;
        self.free.push(index as u32);
        Some(value)
    }

    pub(crate) fn iter(&self) -> impl Iterator<Item = (u64, &T)> {
        self.slots.iter().enumerate().filter_map(move |(index, (generation, value))| {
            let handle = self.kind << KIND_SHIFT | (generation % GENERATIONS) << GENERATION_SHIFT | (index as u64) << 4;
            value.as_ref().map(|value| (handle, value))
        })
    }
}
