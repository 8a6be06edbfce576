//! Memory that a process got from the kernel: regions by address, which are cut where a part of them is given back or mapped
//! anew.
//!
//! What libc maps for itself goes past the hooks, and regions may end unseen: a region that appears where one is known
//! ends that one.

use std::collections::BTreeMap;

/// Regions that are remembered; those beyond it end without an age.
const MOST: usize = 1 << 20;

/// A region, or a piece of one.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Region {
    pub(crate) from: u64,
    /// The first address behind it.
    pub(crate) to: u64,
    pub(crate) start_ns: i64,
    /// Addresses without memory.
    pub(crate) reserved: bool,
    /// Stack of the call that made it.
    pub(crate) stack_id: Option<i64>,
}

impl Region {
    pub(crate) fn bytes(&self) -> u64 {
        self.to - self.from
    }
}

/// Regions by their first address; none lies over another.
#[derive(Debug, Default)]
pub(crate) struct Regions(BTreeMap<u64, Region>);

impl Regions {
    /// A region was made, where there is room for it. What was there must have been taken out.
    pub(crate) fn insert(&mut self, region: Region) {
        if region.from < region.to && self.0.len() < MOST {
            self.0.insert(region.from, region);
        }
    }

    /// Takes out what lies between two addresses: the pieces, in the order of their addresses.
    pub(crate) fn take(&mut self, from: u64, to: u64) -> Vec<Region> {
        let before = self.0.range(..from).next_back().map(|(_, region)| *region);
        let mut touched: Vec<Region> = before.into_iter().filter(|region| region.to > from).collect();
        if from < to {
            touched.extend(self.0.range(from..to).map(|(_, region)| *region));
        } else {
            touched.clear();
        }
        for region in &mut touched {
            self.0.remove(&region.from);
            if region.from < from {
                self.0.insert(region.from, Region { to: from, ..*region });
                region.from = from;
            }
            if region.to > to {
                self.0.insert(to, Region { from: to, ..*region });
                region.to = to;
            }
        }
        touched
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn region(from: u64, to: u64) -> Region {
        Region { from, to, start_ns: from as i64, ..Region::default() }
    }

    fn all(regions: &Regions) -> Vec<(u64, u64)> {
        regions.0.values().map(|region| (region.from, region.to)).collect()
    }

    #[test]
    fn a_hole_leaves_what_lies_around_it() {
        let mut regions = Regions::default();
        regions.insert(region(10, 20));
        let piece = Region { from: 13, to: 15, ..region(10, 20) };
        assert_eq!(regions.take(13, 15), [piece]);
        assert_eq!(all(&regions), [(10, 13), (15, 20)]);
        assert_eq!(regions.take(13, 15), []);
    }

    #[test]
    fn one_call_may_end_pieces_of_several() {
        let mut regions = Regions::default();
        for (from, to) in [(0, 10), (10, 20), (30, 40)] {
            regions.insert(region(from, to));
        }
        let pieces = [Region { from: 5, ..region(0, 10) }, region(10, 20), Region { to: 31, ..region(30, 40) }];
        assert_eq!(regions.take(5, 31), pieces);
        assert_eq!(all(&regions), [(0, 5), (31, 40)]);
        assert_eq!(regions.take(0, u64::MAX).len(), 2);
        assert_eq!(all(&regions), []);
    }

    #[test]
    fn nothing_has_no_pieces() {
        let mut regions = Regions::default();
        regions.insert(region(10, 20));
        regions.insert(region(30, 30));
        assert_eq!((regions.take(15, 15), regions.take(15, 3)), (vec![], vec![]));
        assert_eq!(all(&regions), [(10, 20)]);
    }
}
