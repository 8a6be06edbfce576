//! The live blocks of malloc: size, weight, stack and start of each, so that a free can say what it gives back.
//!
//! A program may hold ten million blocks that are all recorded, so a block takes one slot of 24 bytes in a table with
//! open addressing, of which four fifths are used at most. The table grows by a quarter and in 64 parts, each by
//! itself: nothing doubles at once. All together it is 30 to 38 bytes for each block.

use crate::bindings::ByHandle;

/// Blocks beyond this number are not remembered: their frees have no size. About 600 MB.
const MOST: usize = 1 << 24;
/// Stacks beyond this number are not remembered either.
const MOST_STACKS: usize = 1 << 22;
/// Parts of the table.
const PARTS: usize = 64;
/// Slots of a part that has any.
const FEWEST: usize = 16;
/// Room before the first block's start, for those that began before it and are read later.
const BEFORE_NS: i64 = 3_600_000_000_000;

/// A block that was allocated.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub(crate) struct Block {
    pub(crate) start_ns: i64,
    pub(crate) bytes: u64,
    /// By how many powers of two samples lay further apart than was asked for.
    pub(crate) rarer: u8,
    /// Stack of the allocation.
    pub(crate) stack_id: Option<i64>,
}

/// A block as it is kept; without an address it is vacant.
#[derive(Clone, Copy, Default)]
struct Slot {
    address: u64,
    /// ns since the table's begin, above 8 bits of `rarer`.
    when: u64,
    /// Bytes; [`u32::MAX`]: too many for 32 bits, they stand aside.
    bytes: u32,
    /// Place in the list of stacks and 1, or 0.
    stack: u32,
}

const _: () = assert!(size_of::<Slot>() == 24);

/// A 64th of the table.
#[derive(Default)]
struct Part {
    slots: Vec<Slot>,
    used: usize,
}

/// Blocks by address.
#[derive(Default)]
pub(crate) struct Blocks {
    parts: Vec<Part>,
    used: usize,
    begin_ns: i64,
    large: ByHandle<u64>,
    stacks: Vec<i64>,
    numbers: ByHandle<u32>,
    forgotten: u64,
}

/// One multiplication spreads addresses, which differ in few bits; its high bits are the best.
fn hash(address: u64) -> u64 {
    (address ^ address >> 32).wrapping_mul(0x9e37_79b9_7f4a_7c15)
}

impl Part {
    /// Where a search for the address begins.
    fn home(&self, address: u64) -> usize {
        let rest = hash(address) << PARTS.ilog2();
        ((u128::from(rest) * self.slots.len() as u128) >> 64) as usize
    }

    fn after(&self, place: usize) -> usize {
        if place + 1 == self.slots.len() { 0 } else { place + 1 }
    }

    /// The place of the address, or the vacant one where it would stand.
    fn place(&self, address: u64) -> usize {
        let mut place = self.home(address);
        while self.slots[place].address != address && self.slots[place].address != 0 {
            place = self.after(place);
        }
        place
    }

    fn resize(&mut self, slots: usize) {
        let old = std::mem::replace(&mut self.slots, vec![Slot::default(); slots]);
        for slot in old.into_iter().filter(|slot| slot.address != 0) {
            let place = self.place(slot.address);
            self.slots[place] = slot;
        }
    }

    fn insert(&mut self, slot: Slot) -> Option<Slot> {
        if (self.used + 1) * 5 > self.slots.len() * 4 {
            self.resize((self.slots.len() * 5 / 4).max(FEWEST));
        }
        let place = self.place(slot.address);
        let old = std::mem::replace(&mut self.slots[place], slot);
        if old.address == 0 {
            self.used += 1;
            return None;
        }
        Some(old)
    }

    fn remove(&mut self, address: u64) -> Option<Slot> {
        if self.used == 0 {
            return None;
        }
        let mut hole = self.place(address);
        let slot = std::mem::take(&mut self.slots[hole]);
        if slot.address == 0 {
            return None;
        }
        // What stands behind the hole and was pushed past it moves up, or it would not be found.
        let count = self.slots.len();
        let mut place = self.after(hole);
        while self.slots[place].address != 0 {
            let since = |from: usize| if place >= from { place - from } else { place + count - from };
            if since(self.home(self.slots[place].address)) >= since(hole) {
                self.slots[hole] = std::mem::take(&mut self.slots[place]);
                hole = place;
            }
            place = self.after(place);
        }
        self.used -= 1;
        // A peak that is over gives its memory back.
        if count > FEWEST && self.used * 4 < count {
            self.resize((count / 2).max(FEWEST));
        }
        Some(slot)
    }
}

impl Blocks {
    /// A block was recorded. Gives the one that stood there, whose free was not seen.
    pub(crate) fn insert(&mut self, address: u64, block: &Block) -> Option<Block> {
        if address == 0 {
            return None;
        }
        if self.used >= MOST {
            self.forgotten += 1;
            return None;
        }
        if self.parts.is_empty() {
            self.parts.resize_with(PARTS, Part::default);
            self.begin_ns = block.start_ns.saturating_sub(BEFORE_NS);
        }
        let stack = block.stack_id.map_or(0, |id| self.number(id));
        let since = block.start_ns.saturating_sub(self.begin_ns).clamp(0, (1 << 56) - 1) as u64;
        let bytes = u32::try_from(block.bytes).unwrap_or(u32::MAX);
        let slot = Slot { address, when: since << 8 | u64::from(block.rarer), bytes, stack };
        let old = self.parts[part(address)].insert(slot);
        self.used += usize::from(old.is_none());
        let old = old.map(|old| self.block(&old));
        if bytes == u32::MAX {
            self.large.insert(address, block.bytes);
        }
        old
    }

    /// It is freed.
    pub(crate) fn remove(&mut self, address: u64) -> Option<Block> {
        let slot = self.parts.get_mut(part(address))?.remove(address)?;
        self.used -= 1;
        Some(self.block(&slot))
    }

    /// Blocks that there was no room for.
    pub(crate) fn forgotten(&self) -> u64 {
        self.forgotten
    }

    fn block(&mut self, slot: &Slot) -> Block {
        let large = (slot.bytes == u32::MAX).then(|| self.large.remove(&slot.address)).flatten();
        Block {
            start_ns: self.begin_ns + (slot.when >> 8) as i64,
            bytes: large.unwrap_or(slot.bytes.into()),
            rarer: slot.when as u8,
            stack_id: (slot.stack as usize).checked_sub(1).and_then(|place| self.stacks.get(place)).copied(),
        }
    }

    /// The number of a stack, from 1 on; 0 where there is no room for another.
    fn number(&mut self, id: i64) -> u32 {
        if let Some(number) = self.numbers.get(&(id as u64)) {
            return *number;
        }
        if self.stacks.len() >= MOST_STACKS {
            return 0;
        }
        self.stacks.push(id);
        let number = self.stacks.len() as u32;
        self.numbers.insert(id as u64, number);
        number
    }
}

fn part(address: u64) -> usize {
    (hash(address) >> (64 - PARTS.ilog2())) as usize
}

#[cfg(test)]
mod tests {
    use std::collections::HashMap;

    use super::*;

    fn block(n: u64) -> Block {
        Block {
            start_ns: 1_800_000_000_000_000_000 + n as i64,
            bytes: if n.is_multiple_of(97) { n << 33 } else { n },
            rarer: (n % 17) as u8,
            stack_id: (!n.is_multiple_of(5)).then_some(-(n as i64 % 1000)),
        }
    }

    /// Random blocks come and go, and a plain map agrees about each.
    #[test]
    fn blocks_are_found_as_they_were_put_in() {
        let (mut blocks, mut plain) = (Blocks::default(), HashMap::new());
        let mut random = 7u64;
        for round in 0..300_000u64 {
            random = random.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1);
            let address = 0x7f00_0000_0000 + (random >> 40) % 30_000 * 16;
            // Grows first, then shrinks.
            if random >> 60 < if round < 150_000 { 10 } else { 4 } {
                assert_eq!(blocks.insert(address, &block(round)), plain.insert(address, block(round)));
            } else {
                assert_eq!(blocks.remove(address), plain.remove(&address));
            }
            assert_eq!(blocks.used, plain.len());
        }
        for (address, block) in plain {
            assert_eq!(blocks.remove(address), Some(block));
        }
        assert!(blocks.large.is_empty() && blocks.parts.iter().all(|part| part.slots.len() <= FEWEST));
    }

    #[test]
    fn a_live_block_takes_less_than_forty_bytes_and_a_freed_one_none() {
        let mut blocks = Blocks::default();
        let bytes = |blocks: &Blocks| blocks.parts.iter().map(|part| part.slots.capacity() * 24).sum::<usize>();
        let addresses = |n: u64| 0x5555_0000_0000 + n * 48;
        for n in 0..400_000 {
            blocks.insert(addresses(n), &block(n));
            if n > 50_000 {
                assert!(bytes(&blocks) < 40 * blocks.used, "{} bytes for {} blocks", bytes(&blocks), blocks.used);
            }
        }
        (0..400_000).for_each(|n| assert!(blocks.remove(addresses(n)).is_some()));
        assert!(bytes(&blocks) < 100_000);
    }

    #[test]
    fn no_address_has_no_block() {
        let mut blocks = Blocks::default();
        assert_eq!((blocks.insert(0, &block(1)), blocks.remove(0), blocks.remove(5)), (None, None, None));
    }
}
