//! Time covered by intervals that overlap, streamed: each nanosecond counts once.
//!
//! Intervals may come out of order, because rows of different threads do. Those that lie further back than the
//! [`PENDING`] youngest pieces are cut off at what was already counted, and [`Union::late_ns`] says how much that was.

use std::collections::BTreeMap;

/// So many separate pieces may still be joined by a late interval.
const PENDING: usize = 65_536;

/// The union of intervals.
#[derive(Debug, Default)]
pub(crate) struct Union {
    /// The youngest piece: nearly every interval extends it or comes after it.
    last: Option<(i64, i64)>,
    /// Earlier pieces, none of which touches another or `last`.
    pieces: BTreeMap<i64, i64>,
    closed_ns: i64,
    /// Nothing before this can be added any more.
    floor_ns: Option<i64>,
    /// Time of intervals that came too late to be counted exactly.
    pub(crate) late_ns: i64,
}

impl Union {
    /// Adds an interval; one that ends before it starts is empty.
    pub(crate) fn add(&mut self, start: i64, end: i64) {
        let cut = self.floor_ns.map_or(start, |floor| start.max(floor));
        self.late_ns += (cut - start).min((end - start).max(0));
        let start = cut;
        if end <= start {
            return;
        }
        match &mut self.last {
            Some((_, last_end)) if start > *last_end => {
                if let Some((s, e)) = self.last.replace((start, end)) {
                    self.pieces.insert(s, e);
                    self.shrink();
                }
            }
            Some((last_start, last_end)) if start >= *last_start => *last_end = end.max(*last_end),
            Some(_) => self.add_late(start, end),
            None => self.last = Some((start, end)),
        }
    }

    /// An interval that begins before the youngest piece: joins all pieces that it touches.
    fn add_late(&mut self, mut start: i64, mut end: i64) {
        if let Some((s, e)) = self.pieces.range(..=start).next_back().map(|(s, e)| (*s, *e))
            && e >= start
        {
            start = s;
            end = end.max(e);
            self.pieces.remove(&s);
        }
        while let Some((s, e)) = self.pieces.range(start..=end).next().map(|(s, e)| (*s, *e)) {
            end = end.max(e);
            self.pieces.remove(&s);
        }
        match &mut self.last {
            Some((s, e)) if end >= *s => {
                *s = start;
                *e = end.max(*e);
            }
            _ => {
                self.pieces.insert(start, end);
            }
        }
    }

    /// Counts the older half for good once there are too many pieces.
    fn shrink(&mut self) {
        while self.pieces.len() > PENDING {
            for _ in 0..PENDING / 2 {
                if let Some((s, e)) = self.pieces.pop_first() {
                    self.closed_ns += e - s;
                    self.floor_ns = Some(e);
                }
            }
        }
    }

    /// Time covered so far.
    pub(crate) fn total_ns(&self) -> i64 {
        let pieces: i64 = self.pieces.iter().map(|(s, e)| e - s).sum();
        self.closed_ns + pieces + self.last.map_or(0, |(s, e)| e - s)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn overlap_counts_once_in_any_order() {
        let intervals = [(0, 10), (5, 15), (20, 30), (22, 25), (40, 50), (30, 31), (14, 20), (60, 60), (70, 65)];
        let mut orders = vec![intervals.to_vec(), intervals.iter().rev().copied().collect()];
        orders.push(intervals.iter().skip(4).chain(&intervals[..4]).copied().collect());
        for order in orders {
            let mut union = Union::default();
            order.iter().for_each(|(s, e)| union.add(*s, *e));
            assert_eq!(union.total_ns(), 41, "{order:?}");
        }
    }

    #[test]
    fn a_union_agrees_with_a_bitmap_whatever_comes() {
        let mut seed = 1u64;
        let mut random = move || {
            seed = seed.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1);
            (seed >> 40) as i64
        };
        for _ in 0..50 {
            let mut union = Union::default();
            let mut map = [false; 2000];
            for _ in 0..200 {
                let (start, length) = (random() % 1900, random() % 30);
                union.add(start, start + length);
                map[start as usize..(start + length) as usize].fill(true);
            }
            assert_eq!(union.total_ns(), map.iter().filter(|b| **b).count() as i64);
        }
    }

    #[test]
    fn memory_is_bounded_and_late_time_is_named() {
        let mut union = Union::default();
        for i in 0..300_000 {
            union.add(i * 10, i * 10 + 5);
        }
        assert!(union.pieces.len() <= PENDING);
        assert_eq!((union.total_ns(), union.late_ns), (1_500_000, 0));
        union.add(0, 3);
        assert_eq!((union.total_ns(), union.late_ns), (1_500_000, 3));
    }
}
