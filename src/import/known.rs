//! Things that many rows have in common: each is kept once, under a number.

use std::hash::Hash;

use indexmap::IndexSet;
use rustc_hash::FxBuildHasher;

/// Things by their numbers, from 0 on in the order in which they were first met.
#[derive(Debug)]
pub(crate) struct Known<T>(IndexSet<T, FxBuildHasher>);

impl<T> Default for Known<T> {
    fn default() -> Self {
        Known(IndexSet::default())
    }
}

impl<T: Eq + Hash> Known<T> {
    /// The number of a thing.
    pub(crate) fn number(&mut self, one: T) -> u32 {
        self.0.insert_full(one).0 as u32
    }

    /// The thing with a number that this gave.
    pub(crate) fn get(&self, number: u32) -> &T {
        &self.0[number as usize]
    }

    /// All, in the order of their numbers.
    pub(crate) fn all(&self) -> impl Iterator<Item = &T> {
        self.0.iter()
    }
}
