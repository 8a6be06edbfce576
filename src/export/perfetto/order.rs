//! Bars in the order of their starts, and on lanes on which none of them crosses another.
//!
//! The viewer's begins and ends of bars are a stack on each track: of two that overlap without one lying in the other, the
//! first end would close the wrong one. Such bars get a lane, which is a track of its own.

use std::cmp::Reverse;
use std::collections::BinaryHeap;

use rustc_hash::FxHashMap;

use super::super::timeline::Track;

/// Bars that wait until nothing can begin before them.
#[derive(Default)]
pub(super) struct Order {
    waiting: BinaryHeap<Reverse<Bar>>,
    arrived: u64,
}

/// A bar with what is written of it.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct Bar {
    pub(super) start_ns: i64,
    /// Of two with one start the longer one comes first: the other lies in it.
    pub(super) end_ns: Reverse<i64>,
    /// Then what arrived first.
    arrived: u64,
    pub(super) track: Track,
    /// The packet's event, without time and track.
    pub(super) body: Vec<u8>,
}

impl PartialOrd for Bar {
    fn partial_cmp(&self, other: &Bar) -> Option<std::cmp::Ordering> {
        Some(self.cmp(other))
    }
}

impl Ord for Bar {
    fn cmp(&self, other: &Bar) -> std::cmp::Ordering {
        (self.start_ns, self.end_ns, self.arrived).cmp(&(other.start_ns, other.end_ns, other.arrived))
    }
}

impl Order {
    /// Adds a bar.
    pub(super) fn push(&mut self, start_ns: i64, end_ns: i64, track: Track, body: Vec<u8>) {
        self.arrived += 1;
        self.waiting.push(Reverse(Bar { start_ns, end_ns: Reverse(end_ns), arrived: self.arrived, track, body }));
    }

    /// The next bar that began before this time.
    pub(super) fn pop_before(&mut self, time_ns: i64) -> Option<Bar> {
        if self.waiting.peek()?.0.start_ns >= time_ns {
            return None;
        }
        self.waiting.pop().map(|bar| bar.0)
    }
}

/// Tracks whose lanes are held before those on which nothing is open any more are let go.
const TRACKS: usize = 4096;

/// The lanes of all tracks: on each the ends of what is open, the innermost last.
pub(super) struct Lanes {
    of: FxHashMap<Track, Vec<Vec<i64>>>,
    most: usize,
}

impl Default for Lanes {
    fn default() -> Lanes {
        Lanes { of: FxHashMap::default(), most: TRACKS }
    }
}

impl Lanes {
    /// The lane of the next bar of a track.
    pub(super) fn place(&mut self, track: Track, start_ns: i64, end_ns: i64) -> usize {
        if self.of.len() >= self.most {
            // Ranges of a process come in the order of their ends: one that began long ago may follow.
            let is_open = |lanes: &[Vec<i64>]| lanes.iter().any(|ends| ends.iter().any(|end| *end > start_ns));
            self.of.retain(|track, lanes| matches!(track, Track::Spans(_)) || is_open(lanes));
            self.most = TRACKS.max(2 * self.of.len());
        }
        let lanes = self.of.entry(track).or_default();
        for lane in lanes.iter_mut() {
            while lane.last().is_some_and(|end| *end <= start_ns) {
                lane.pop();
            }
        }
        let fits = |lane: &Vec<i64>| lane.last().is_none_or(|end| end_ns <= *end);
        let place = lanes.iter().position(fits).unwrap_or_else(|| {
            lanes.push(Vec::new());
            lanes.len() - 1
        });
        lanes[place].push(end_ns);
        place
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn bars_come_in_order_the_outer_one_first() {
        let mut order = Order::default();
        for (start, end) in [(5, 6), (1, 2), (1, 9), (3, 4), (1, 2)] {
            order.push(start, end, Track::Spans(1), vec![]);
        }
        let mut popped = |before| -> Vec<(i64, i64, u64)> {
            std::iter::from_fn(|| order.pop_before(before))
                .map(|bar| (bar.start_ns, bar.end_ns.0, bar.arrived))
                .collect()
        };
        assert_eq!(popped(1), []);
        assert_eq!(popped(5), [(1, 9, 3), (1, 2, 2), (1, 2, 5), (3, 4, 4)]);
        assert_eq!(popped(i64::MAX), [(5, 6, 1)]);
    }

    #[test]
    fn bars_that_cross_have_lanes_of_their_own_and_those_that_nest_have_not() {
        let mut lanes = Lanes::default();
        let mut lane = |start, end| lanes.place(Track::Spans(1), start, end);
        let placed = [(0, 10), (2, 8), (3, 4), (8, 9), (9, 12), (10, 20), (11, 12), (12, 20), (19, 21)];
        assert_eq!(placed.map(|(start, end)| lane(start, end)), [0, 0, 0, 0, 1, 0, 0, 0, 1]);
    }
}
