//! What the inline engine (`shim/inline`) and the shim of a process tell each other: which copy of the driver was
//! patched, and how to reach the original of each of its functions.
//!
//! The table is a variable of the shim, [`SYMBOL`]. The engine writes it while the loader holds the driver, before
//! anybody can have called it; the shim reads it when it looks for originals.

use core::sync::atomic::{AtomicUsize, Ordering};

/// The shim's variable.
pub const SYMBOL: &str = "gputrace_patches";

/// What came of a function; more than one of [`why`] never applies.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Outcome {
    /// Its calls come to the hook; here its original goes on.
    Patched(usize),
    /// It is as it was: one of [`why`].
    Left(u8),
}

/// Why a function was not patched. Numbers under 15: they travel in four bits of a hook's row.
pub mod why {
    /// Not a reason: it was patched.
    pub const PATCHED: u8 = 1;
    /// Shorter than the jump that would be written into it.
    pub const TOO_SHORT: u8 = 2;
    /// The instructions that would move cannot be moved, or are not known.
    pub const UNKNOWN_START: u8 = 3;
    /// It jumps back to where the jump would be written.
    pub const JUMPS_BACK: u8 = 4;
    /// Another library defines it as well, to be called before the driver.
    pub const INTERPOSED: u8 = 5;
    /// The engine refused it.
    pub const REFUSED: u8 = 6;
    /// Each reason in words.
    pub const ALL: [(u8, &str); 5] = [
        (TOO_SHORT, "too short for a jump"),
        (UNKNOWN_START, "its first instructions cannot be moved"),
        (JUMPS_BACK, "it jumps back to its beginning"),
        (INTERPOSED, "another library defines it too"),
        (REFUSED, "the engine refused it"),
    ];
}

/// Places of the table: a power of two, at most half of it used.
const PLACES: usize = 2048;
/// Functions that the table takes.
pub const MOST: usize = PLACES / 2;

/// The table.
#[repr(C)]
pub struct Patches {
    base: AtomicUsize,
    dynamic: AtomicUsize,
    namespace: AtomicUsize,
    path: AtomicUsize,
    used: AtomicUsize,
    /// Address of a function, and where its original goes on or why it was left.
    entries: [[AtomicUsize; 2]; PLACES],
}

/// The copy of the driver that was patched.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Driver {
    /// Where it is loaded.
    pub base: usize,
    /// Its dynamic section.
    pub dynamic: usize,
    /// The loader's number of its namespace.
    pub namespace: isize,
    /// Its path, a C string that the loader keeps as long as it is loaded.
    pub path: usize,
}

impl Patches {
    /// A table without a driver.
    #[allow(clippy::new_without_default, reason = "it is a variable")]
    pub const fn new() -> Patches {
        Patches {
            base: AtomicUsize::new(0),
            dynamic: AtomicUsize::new(0),
            namespace: AtomicUsize::new(0),
            path: AtomicUsize::new(0),
            used: AtomicUsize::new(0),
            entries: [const { [const { AtomicUsize::new(0) }; 2] }; PLACES],
        }
    }

    /// Enters what came of a function. False: the table is full, and the function must be left alone.
    pub fn enter(&self, function: usize, outcome: Outcome) -> bool {
        if self.used.load(Ordering::Relaxed) >= MOST {
            return false;
        }
        for probe in 0..PLACES {
            let Some([key, value]) = self.entries.get(place(function, probe)) else { return false };
            if key.load(Ordering::Relaxed) == 0 {
                let word = match outcome {
                    Outcome::Patched(original) => original,
                    Outcome::Left(why) => usize::from(why),
                };
                value.store(word, Ordering::Relaxed);
                key.store(function, Ordering::Release);
                self.used.fetch_add(1, Ordering::Relaxed);
                return true;
            }
        }
        false
    }

    /// What came of the function at this address; none when it was not looked at.
    pub fn outcome(&self, function: usize) -> Option<Outcome> {
        for probe in 0..PLACES {
            let [key, value] = self.entries.get(place(function, probe))?;
            match key.load(Ordering::Acquire) {
                0 => return None,
                known if known == function => {
                    let word = value.load(Ordering::Relaxed);
                    // No function stands in the first page.
                    return Some(if word < 16 { Outcome::Left(word as u8) } else { Outcome::Patched(word) });
                }
                _ => {}
            }
        }
        None
    }

    /// Says which driver all this is about, once everything is entered.
    pub fn publish(&self, driver: Driver) {
        self.dynamic.store(driver.dynamic, Ordering::Relaxed);
        self.namespace.store(driver.namespace as usize, Ordering::Relaxed);
        self.path.store(driver.path, Ordering::Relaxed);
        self.base.store(driver.base, Ordering::Release);
    }

    /// The driver that was patched, if one was.
    pub fn driver(&self) -> Option<Driver> {
        let base = self.base.load(Ordering::Acquire);
        (base != 0).then(|| Driver {
            base,
            dynamic: self.dynamic.load(Ordering::Relaxed),
            namespace: self.namespace.load(Ordering::Relaxed) as isize,
            path: self.path.load(Ordering::Relaxed),
        })
    }

    /// The driver is unloaded, or the process ends. What came of its functions stays: a call that is late goes past the
    /// patch all the same.
    pub fn withdraw(&self) {
        self.base.store(0, Ordering::Release);
    }

    /// All functions that were looked at, and what came of them.
    pub fn all(&self) -> impl Iterator<Item = (usize, Outcome)> {
        let known = self.entries.iter().map(|[key, _]| key.load(Ordering::Acquire)).filter(|key| *key != 0);
        known.filter_map(|key| Some((key, self.outcome(key)?)))
    }

    /// The table as it lies in memory: for who writes it into another process.
    pub fn words(&self) -> impl Iterator<Item = usize> {
        let head = [&self.base, &self.dynamic, &self.namespace, &self.path, &self.used];
        head.into_iter().chain(self.entries.iter().flatten()).map(|word| word.load(Ordering::Acquire))
    }

    /// The same the other way round. Words that are missing are zero.
    pub fn set_words(&self, words: impl Iterator<Item = usize>) {
        let head = [&self.base, &self.dynamic, &self.namespace, &self.path, &self.used];
        let places = head.into_iter().chain(self.entries.iter().flatten());
        places.zip(words).for_each(|(place, word)| place.store(word, Ordering::Release));
    }

    /// Forgets an earlier driver before another one is patched.
    pub fn clear(&self) {
        self.used.store(0, Ordering::Relaxed);
        for [key, _] in &self.entries {
            key.store(0, Ordering::Relaxed);
        }
    }
}

fn place(function: usize, probe: usize) -> usize {
    (function >> 4).wrapping_add(probe) & (PLACES - 1)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_was_entered_is_found_and_a_full_table_says_so() {
        static TABLE: Patches = Patches::new();
        let outcome =
            |n: usize| if n.is_multiple_of(3) { Outcome::Left(why::TOO_SHORT) } else { Outcome::Patched(0x1000 + n) };
        for n in 0..MOST {
            assert!(TABLE.enter(0x7000_0000 + 8 * n, outcome(n)));
        }
        assert!(!TABLE.enter(0x10, Outcome::Left(why::REFUSED)));
        for n in 0..MOST {
            assert_eq!(TABLE.outcome(0x7000_0000 + 8 * n), Some(outcome(n)));
        }
        assert_eq!(TABLE.outcome(0x7000_0001), None);
        let driver = Driver { base: 0x7000_0000, dynamic: 0x7000_1000, namespace: 2, path: 0x7000_2000 };
        assert_eq!(TABLE.driver(), None);
        TABLE.publish(driver);
        assert_eq!(TABLE.driver(), Some(driver));
        static COPY: Patches = Patches::new();
        COPY.set_words(TABLE.words());
        assert_eq!((COPY.driver(), COPY.all().count()), (Some(driver), MOST));
        assert!(COPY.all().all(|(function, outcome)| TABLE.outcome(function) == Some(outcome)));
        assert_eq!(TABLE.words().count() * size_of::<usize>(), size_of::<Patches>());
        TABLE.withdraw();
        assert_eq!((TABLE.driver(), TABLE.outcome(0x7000_0000)), (None, Some(outcome(0))));
        TABLE.clear();
        assert_eq!(TABLE.outcome(0x7000_0000), None);
    }
}
