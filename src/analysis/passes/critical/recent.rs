//! The last operations, in the order of their end: an event waits for what ended last before it.

use std::collections::VecDeque;

/// Operations that are kept.
const RECENT: usize = 64;

/// What is kept of the last operations.
#[derive(Debug)]
pub(super) struct Recent<T> {
    /// A ring.
    all: Vec<T>,
    oldest: usize,
    /// When each ends and its place in the ring, sorted.
    ends: VecDeque<(i64, usize)>,
}

impl<T> Default for Recent<T> {
    fn default() -> Recent<T> {
        Recent { all: Vec::with_capacity(RECENT), oldest: 0, ends: VecDeque::with_capacity(RECENT + 1) }
    }
}

impl<T> Recent<T> {
    /// Adds an operation; the oldest one, once there are too many.
    pub(super) fn push(&mut self, end: i64, of: T) -> Option<T> {
        let place = self.oldest;
        self.oldest = (place + 1) % RECENT;
        let before = match self.all.get_mut(place) {
            Some(oldest) => {
                // Nearly always the one that ended first.
                let at = self.ends.iter().position(|(_, other)| *other == place);
                at.and_then(|at| self.ends.remove(at));
                Some(std::mem::replace(oldest, of))
            }
            None => {
                self.all.push(of);
                None
            }
        };
        let later = self.ends.iter().rev().take_while(|other| **other > (end, place)).count();
        self.ends.insert(self.ends.len() - later, (end, place));
        before
    }

    /// Those that had ended by some time, the last one first.
    pub(super) fn ended_by(&self, at: i64) -> impl Iterator<Item = &T> {
        let ended = self.ends.iter().rev().skip_while(move |(end, _)| *end > at);
        ended.map(|(_, place)| &self.all[*place])
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_last_ones_are_found_by_their_end() {
        let mut recent = Recent::default();
        let ends: Vec<i64> = (0..200).map(|n| n * 10 - n * 7919 % 45).collect();
        for (n, end) in ends.iter().enumerate() {
            assert_eq!(recent.push(*end, *end), n.checked_sub(RECENT).map(|old| ends[old]));
            let kept = &ends[(n + 1).saturating_sub(RECENT)..=n];
            let mut before: Vec<i64> = kept.iter().copied().filter(|other| *other <= end - 20).collect();
            before.sort_unstable_by_key(|end| std::cmp::Reverse(*end));
            assert_eq!(recent.ended_by(end - 20).copied().collect::<Vec<_>>(), before);
        }
    }
}
