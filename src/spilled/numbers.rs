//! Numbers for texts and other keys, from 1 in the order in which they are first asked for.

use std::hash::{BuildHasher, Hash, RandomState};
use std::io;

use super::Spilled;

/// The numbers so far. What has one is known by a hash of 64 bits whose key nobody knows: of a hundred million texts two would
/// share a number once in 3,700 exports.
#[derive(Default)]
pub(crate) struct Numbers {
    known: Spilled<i64>,
    hasher: RandomState,
    last: i64,
}

impl Numbers {
    /// The number of a text, or whatever else, and whether it is new.
    pub(crate) fn of(&mut self, what: &(impl Hash + ?Sized)) -> io::Result<(i64, bool)> {
        self.of_key(self.hasher.hash_one(what) as i64)
    }

    /// Whether it has one.
    pub(crate) fn has(&self, what: &(impl Hash + ?Sized)) -> io::Result<bool> {
        Ok(self.known(self.hasher.hash_one(what) as i64)?.is_some())
    }

    /// The same of what has a number of its own, that tells it from all others.
    pub(crate) fn of_key(&mut self, key: i64) -> io::Result<(i64, bool)> {
        if let Some(number) = self.known.get(key)? {
            return Ok((number, false));
        }
        self.last += 1;
        self.known.insert(key, self.last)?;
        Ok((self.last, true))
    }

    /// How many there are: the last number.
    pub(crate) fn count(&self) -> i64 {
        self.last
    }

    /// The number of what was numbered before.
    pub(crate) fn known(&self, key: i64) -> io::Result<Option<i64>> {
        self.known.get(key)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_text_keeps_its_number_and_a_new_one_gets_the_next() {
        let mut numbers = Numbers { known: Spilled::within(1_000), ..Numbers::default() };
        for number in 1..=500 {
            assert_eq!(numbers.of(&format!("text {number}")).unwrap(), (number, true));
        }
        for number in 1..=500 {
            assert_eq!(numbers.of(&format!("text {number}")).unwrap(), (number, false));
            assert!(numbers.has(&format!("text {number}")).unwrap());
        }
        assert_eq!((numbers.of_key(7).unwrap(), numbers.known(7).unwrap()), ((501, true), Some(501)));
        assert_eq!(numbers.known(8).unwrap(), None);
    }
}
