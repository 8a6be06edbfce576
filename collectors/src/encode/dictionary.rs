//! The dictionaries of one column of one row group: each distinct value gets the next number.

use std::collections::HashMap;

/// More distinct values than this are not worth a dictionary, and numbers must fit 16 bits.
const MOST: usize = 1 << 15;
const FIRST_SLOTS: usize = 64;

/// Numbers for 64-bit values (floats by their bits).
#[derive(Debug)]
pub(crate) struct Numbers {
    /// Open addressing: number + 1 of the value whose hash leads here, 0 where free.
    slots: Vec<u32>,
    values: Vec<u64>,
    shift: u32,
}

impl Default for Numbers {
    fn default() -> Numbers {
        Numbers { slots: vec![0; FIRST_SLOTS], values: Vec::new(), shift: 64 - FIRST_SLOTS.ilog2() }
    }
}

impl Numbers {
    /// The value's number; none when the dictionary is full.
    #[inline]
    pub(crate) fn number(&mut self, value: u64) -> Option<u16> {
        let mask = self.slots.len() - 1;
        let mut at = (value.wrapping_mul(0x9e37_79b9_7f4a_7c15) >> self.shift) as usize;
        loop {
            match self.slots[at & mask] {
                0 => return self.insert(at & mask, value),
                n if self.values[n as usize - 1] == value => return Some((n - 1) as u16),
                _ => at += 1,
            }
        }
    }

    #[cold]
    fn insert(&mut self, at: usize, value: u64) -> Option<u16> {
        if self.values.len() >= MOST {
            return None;
        }
        self.values.push(value);
        self.slots[at] = self.values.len() as u32;
        let number = (self.values.len() - 1) as u16;
        if self.values.len() * 2 > self.slots.len() {
            self.grow();
        }
        Some(number)
    }

    fn grow(&mut self) {
        let slots = self.slots.len() * 2;
        self.shift -= 1;
        self.slots = vec![0; slots];
        for (n, value) in self.values.iter().enumerate() {
            let mut at = (value.wrapping_mul(0x9e37_79b9_7f4a_7c15) >> self.shift) as usize;
            while self.slots[at & (slots - 1)] != 0 {
                at += 1;
            }
            self.slots[at & (slots - 1)] = n as u32 + 1;
        }
    }

    /// The values in the order of their numbers.
    pub(crate) fn values(&self) -> &[u64] {
        &self.values
    }
}

/// Numbers for texts.
#[derive(Debug, Default)]
pub(crate) struct Texts {
    numbers: HashMap<Box<str>, u16>,
    values: Vec<Box<str>>,
}

impl Texts {
    /// The text's number; none when the dictionary is full.
    pub(crate) fn number(&mut self, text: &str) -> Option<u16> {
        if let Some(number) = self.numbers.get(text) {
            return Some(*number);
        }
        if self.values.len() >= MOST {
            return None;
        }
        let number = self.values.len() as u16;
        self.values.push(text.into());
        self.numbers.insert(text.into(), number);
        Some(number)
    }

    /// The texts in the order of their numbers.
    pub(crate) fn values(&self) -> &[Box<str>] {
        &self.values
    }
}
