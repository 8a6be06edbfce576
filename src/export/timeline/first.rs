//! Which bars and values begin first, where no more than so many are asked for.
//!
//! Rows come table by table and launcher by launcher, so those that come first are not those that began first. One read looks at all of them and keeps the
//! times of the first ones, 24 bytes each; the second one writes those. A bar whose other end is not among them has no arrow.

use std::collections::BinaryHeap;
use std::io;

use rustc_hash::FxHashSet;

use super::{Flow, Sample, Sink, Slice};
use crate::render::{duration, number};

/// The first ones.
#[derive(Debug)]
pub(in crate::export) struct First {
    /// The last of them: when it began, and as which it came.
    last: (i64, u64),
    /// Calls of which both ends are among them.
    joined: FxHashSet<u64>,
    /// All that there are.
    pub(in crate::export) all: u64,
    /// Those that are not among them.
    pub(in crate::export) left_out: u64,
    /// When the first of these began, ns since the epoch.
    pub(in crate::export) left_out_from_ns: i64,
}

impl First {
    /// Whether the one that comes as this is among them.
    pub(super) fn has(&self, start_ns: i64, place: u64) -> bool {
        (start_ns, place) <= self.last
    }

    /// A flow of which both ends are among them, else none.
    pub(super) fn flow(&self, flow: Flow) -> Flow {
        if call_of(flow).is_some_and(|(call, _)| self.joined.contains(&call)) { flow } else { Flow::None }
    }

    /// `5 of 12 events are left out (--max-events), the first of them 1.00 s after the begin`
    pub(in crate::export) fn text(&self, began_ns: i64) -> String {
        let after = duration(self.left_out_from_ns.saturating_sub(began_ns).max(0) as f64);
        let [out, all] = [self.left_out, self.all].map(|events| number(events as f64));
        format!("{out} of {all} events are left out (--max-events), the first of them {after} after the begin")
    }
}

/// Looks for them.
pub(super) struct Finder {
    most: usize,
    /// When each began, as which it came, and its flow; the last of them on top.
    kept: BinaryHeap<(i64, u64, u64)>,
    all: u64,
    left_out_from_ns: i64,
}

impl Finder {
    pub(super) fn new(most: u64) -> Finder {
        let most = usize::try_from(most).unwrap_or(usize::MAX);
        Finder { most, kept: BinaryHeap::new(), all: 0, left_out_from_ns: i64::MAX }
    }

    fn add(&mut self, start_ns: i64, flow: u64) {
        let new = (start_ns, self.all, flow);
        self.all += 1;
        if self.kept.len() < self.most {
            self.kept.push(new);
            return;
        }
        let out = match self.kept.peek_mut() {
            Some(mut last) if new < *last => std::mem::replace(&mut *last, new),
            _ => new,
        };
        self.left_out_from_ns = self.left_out_from_ns.min(out.0);
    }

    /// None: there are no more than were asked for.
    pub(super) fn found(self) -> Option<First> {
        let last = self.kept.peek().map(|(start_ns, place, _)| (*start_ns, *place))?;
        let left_out = self.all - self.kept.len() as u64;
        let ends: FxHashSet<u64> = self.kept.iter().map(|of| of.2).filter(|flow| flow & 1 == 1).collect();
        let begins = self.kept.iter().map(|of| of.2).filter(|flow| flow & 1 == 0 && ends.contains(&(flow | 1)));
        let joined = begins.map(|flow| flow >> 1).collect();
        let of = First { last, joined, all: self.all, left_out, left_out_from_ns: self.left_out_from_ns };
        Some(of).filter(|of| of.left_out > 0)
    }
}

impl Sink for Finder {
    fn reached(&mut self, _start_ns: i64) -> io::Result<()> {
        Ok(())
    }

    fn slice(&mut self, slice: &Slice<'_>) -> io::Result<()> {
        let flow = call_of(slice.flow).map_or(0, |(call, ends)| (call << 1) | u64::from(ends));
        self.add(slice.start_ns, flow);
        Ok(())
    }

    fn sample(&mut self, sample: &Sample<'_>) -> io::Result<()> {
        self.add(sample.start_ns, 0);
        Ok(())
    }

    fn held(&mut self, _: &Sample<'_>) -> io::Result<()> {
        Ok(())
    }
}

/// Writes nothing down, for who counts.
pub(super) struct Nobody;

impl Sink for Nobody {
    fn reached(&mut self, _start_ns: i64) -> io::Result<()> {
        Ok(())
    }

    fn slice(&mut self, _: &Slice<'_>) -> io::Result<()> {
        Ok(())
    }

    fn sample(&mut self, _: &Sample<'_>) -> io::Result<()> {
        Ok(())
    }
}

/// A number for the call of a flow, and whether it is the end of one. Two calls of one number would be joined, of one in 2^63.
fn call_of(flow: Flow) -> Option<(u64, bool)> {
    let mixed = |process: i64, call: i64| {
        let mut of =
            (process as u64).wrapping_mul(0x9e37_79b9_7f4a_7c15) ^ (call as u64).wrapping_mul(0xd6e8_feb8_6659_fd93);
        of = (of ^ (of >> 32)).wrapping_mul(0xd6e8_feb8_6659_fd93);
        // 0 stands for none.
        ((of ^ (of >> 29)) >> 1) | (1 << 62)
    };
    match flow {
        Flow::None => None,
        Flow::Begins(process, call) => Some((mixed(process, call), false)),
        Flow::Ends(process, call) => Some((mixed(process, call), true)),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_first_ones_are_found_in_whatever_order_they_come() {
        let starts = [5, 1, 9, 1, 3, 3, 7];
        for most in 1..=starts.len() {
            let mut finder = Finder::new(most as u64);
            starts.iter().for_each(|start| finder.add(*start, 0));
            let found = finder.found();
            let mut order: Vec<(i64, u64)> = starts.iter().copied().zip(0..).collect();
            order.sort_unstable();
            let Some(first) = found else {
                assert_eq!(most, starts.len());
                continue;
            };
            let has = |(start, place): &(i64, u64)| first.has(*start, *place);
            assert!(order[..most].iter().all(has) && !order[most..].iter().any(has), "{most}");
            assert_eq!(
                (first.left_out, first.left_out_from_ns),
                ((starts.len() - most) as u64, order[most].0),
                "{most}"
            );
        }
    }

    #[test]
    fn arrows_have_both_ends_or_none() {
        let mut finder = Finder::new(4);
        let flows = [Flow::Begins(1, 7), Flow::Begins(1, 8), Flow::Ends(1, 7), Flow::Ends(2, 8), Flow::Ends(1, 8)];
        for (start, flow) in (0..).zip(flows) {
            let (call, ends) = call_of(flow).unwrap();
            finder.add(start, (call << 1) | u64::from(ends));
        }
        let first = finder.found().unwrap();
        let kept = flows.map(|flow| first.flow(flow));
        assert_eq!(kept, [flows[0], Flow::None, flows[2], Flow::None, Flow::None]);
        assert_eq!(first.flow(Flow::None), Flow::None);
    }
}
