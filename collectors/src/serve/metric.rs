//! A metric with its values at one moment, before it is written in any format.

use std::borrow::Cow;
use std::sync::Arc;

/// What a metric's values mean.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Kind {
    /// Only grows, as long as one collector lives. The name ends in `_total`.
    Counter,
    /// A value as it is now.
    Gauge,
    /// How often which duration came. The unit is seconds.
    Histogram,
    /// Always 1: its labels tell something. The name ends in `_info`.
    Info,
}

/// Names and values of labels. Values of one process share theirs.
pub(crate) type Labels = Vec<(&'static str, Arc<str>)>;

/// A metric and all its values.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct Family {
    pub(crate) name: Cow<'static, str>,
    pub(crate) kind: Kind,
    /// Unit that the name ends with, but for `_total`; empty where it counts things.
    pub(crate) unit: &'static str,
    pub(crate) help: Cow<'static, str>,
    pub(crate) points: Vec<Point>,
}

/// One value.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct Point {
    pub(crate) labels: Labels,
    pub(crate) value: Value,
}

#[derive(Clone, Debug, PartialEq)]
pub(crate) enum Value {
    Number(f64),
    Histogram(Box<Histogram>),
}

/// Ends of a histogram's buckets, ns: powers of two, which are ends of [`crate::rollups::Durations`]' buckets, so that each count is
/// exact. Launches take some microseconds, waits up to seconds.
pub(crate) const ENDS_NS: [u64; 18] = [
    1 << 9,
    1 << 10,
    1 << 11,
    1 << 12,
    1 << 13,
    1 << 14,
    1 << 15,
    1 << 16,
    1 << 17,
    1 << 19,
    1 << 21,
    1 << 23,
    1 << 25,
    1 << 27,
    1 << 29,
    1 << 31,
    1 << 33,
    1 << 35,
];

/// Durations.
#[derive(Clone, Debug, Default, PartialEq)]
pub(crate) struct Histogram {
    /// By bucket of [`ENDS_NS`]; one more for those that are longer.
    pub(crate) counts: [u64; ENDS_NS.len() + 1],
    pub(crate) sum_seconds: f64,
}

impl Histogram {
    /// Adds so many of which none is as long as `end_ns`.
    pub(crate) fn add(&mut self, end_ns: u64, count: u64) {
        let place = ENDS_NS.partition_point(|end| *end < end_ns);
        self.counts[place] = self.counts[place].saturating_add(count);
    }

    /// How many there are.
    pub(crate) fn count(&self) -> u64 {
        self.counts.iter().fold(0, |all, count| all.saturating_add(*count))
    }

    /// How many are shorter than each end, in seconds, and then all.
    pub(crate) fn cumulative(&self) -> impl Iterator<Item = (f64, u64)> {
        let ends = ENDS_NS.iter().map(|end| *end as f64 / 1e9).chain([f64::INFINITY]);
        ends.zip(self.counts.iter().scan(0u64, |all, count| {
            *all = all.saturating_add(*count);
            Some(*all)
        }))
    }
}

impl Family {
    /// A metric without values yet.
    pub(crate) fn new(
        name: impl Into<Cow<'static, str>>,
        kind: Kind,
        unit: &'static str,
        help: impl Into<Cow<'static, str>>,
    ) -> Family {
        Family { name: name.into(), kind, unit, help: help.into(), points: Vec::new() }
    }

    /// Adds a value.
    pub(crate) fn add(&mut self, labels: Labels, value: f64) {
        self.points.push(Point { labels, value: Value::Number(value) });
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_bucket_holds_what_is_shorter_than_its_end() {
        let mut histogram = Histogram::default();
        for (end_ns, count) in [(1, 1), (512, 2), (513, 4), (1024, 8), (1 << 35, 16), (u64::MAX, 32)] {
            histogram.add(end_ns, count);
        }
        assert_eq!(
            (histogram.counts[0], histogram.counts[1], histogram.counts[17], histogram.counts[18]),
            (3, 12, 16, 32)
        );
        let all: Vec<_> = histogram.cumulative().collect();
        assert_eq!((all[0], all[1], all[18]), ((5.12e-7, 3), (1.024e-6, 15), (f64::INFINITY, 63)));
        assert_eq!(histogram.count(), 63);
    }
}
