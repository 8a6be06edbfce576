//! Messages and times in the order of their time, until every ring was read as far as that.

use std::cmp::{Ordering, Reverse};
use std::collections::BinaryHeap;

use super::What;

/// More than so many are not kept waiting: then the oldest go on, whatever may still come before them.
const MOST: usize = 1 << 20;

/// What waits.
#[derive(Debug, Default)]
pub(super) struct Waiting {
    all: BinaryHeap<Reverse<Entry>>,
    /// How many came so far.
    came: u64,
}

/// Of one time the one that came first is first: messages of a thread come in their order.
#[derive(Debug)]
struct Entry {
    at_ns: i64,
    nth: u64,
    what: What,
}

impl Entry {
    fn place(&self) -> (i64, u64) {
        (self.at_ns, self.nth)
    }
}

impl PartialEq for Entry {
    fn eq(&self, other: &Entry) -> bool {
        self.place() == other.place()
    }
}

impl Eq for Entry {}

impl PartialOrd for Entry {
    fn partial_cmp(&self, other: &Entry) -> Option<Ordering> {
        Some(self.cmp(other))
    }
}

impl Ord for Entry {
    fn cmp(&self, other: &Entry) -> Ordering {
        self.place().cmp(&other.place())
    }
}

impl Waiting {
    pub(super) fn push(&mut self, at_ns: i64, what: What) {
        self.came += 1;
        self.all.push(Reverse(Entry { at_ns, nth: self.came, what }));
    }

    /// The earliest, if it is of a time before this one.
    pub(super) fn next(&mut self, before_ns: i64) -> Option<What> {
        let Reverse(first) = self.all.peek()?;
        if first.at_ns >= before_ns && before_ns != i64::MAX && self.all.len() <= MOST {
            return None;
        }
        self.all.pop().map(|Reverse(entry)| entry.what)
    }

    pub(super) fn is_empty(&self) -> bool {
        self.all.is_empty()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn asks(correlation_id: i64) -> What {
        What::Asks { queue: 1, correlation_id }
    }

    fn number(what: What) -> i64 {
        match what {
            What::Asks { correlation_id, .. } => correlation_id,
            other => panic!("{other:?}"),
        }
    }

    #[test]
    fn what_came_comes_in_the_order_of_its_time_and_then_of_its_coming() {
        let mut waiting = Waiting::default();
        for (at_ns, number) in [(5, 1), (3, 2), (5, 3), (4, 4), (9, 5)] {
            waiting.push(at_ns, asks(number));
        }
        let before =
            |waiting: &mut Waiting, ns| std::iter::from_fn(|| waiting.next(ns).map(number)).collect::<Vec<_>>();
        assert_eq!(before(&mut waiting, 5), [2, 4]);
        assert_eq!(before(&mut waiting, 6), [1, 3]);
        waiting.push(i64::MAX, asks(6));
        assert_eq!(before(&mut waiting, i64::MAX), [5, 6]);
        assert!(waiting.is_empty());
    }

    #[test]
    fn of_too_many_the_oldest_go_on() {
        let mut waiting = Waiting::default();
        for n in 0..MOST as i64 + 3 {
            waiting.push(n, asks(n));
        }
        let gone: Vec<_> = std::iter::from_fn(|| waiting.next(0).map(number)).collect();
        assert_eq!(gone, [0, 1, 2]);
    }
}
