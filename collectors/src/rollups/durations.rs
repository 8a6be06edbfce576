//! How often which duration came: a histogram whose buckets grow with what they hold, four to each power of two.

use std::fmt::Write;

use serde::{Deserialize, Serialize};

/// Buckets of a power of two: a duration is known to 25 %, from 12.5 % below the bucket's middle to 12.5 % above.
const PARTS: u32 = 4;
/// Durations below have a bucket each.
const SMALLEST: u64 = PARTS as u64;
/// Buckets that a duration may lie in.
pub(crate) const BUCKETS: usize = (PARTS * u64::BITS - PARTS) as usize;

/// A histogram of durations in ns.
///
/// Bucket b of 4 or more holds those from 2^(b / 4 + 1) x (1 + b mod 4 / 4) to the begin of bucket b + 1, in whole numbers;
/// buckets 0 to 3 hold 0 to 3 ns. Its text is `BUCKET:COUNT` for each that is not empty, in their order, separated by spaces.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(from = "String", into = "String")]
pub struct Durations {
    /// Bucket and count, in the order in which they came first: few, and the same ones again and again.
    counts: Vec<(u16, u64)>,
}

impl Durations {
    /// The bucket of a duration.
    pub(crate) fn bucket(ns: u64) -> u16 {
        if ns < SMALLEST {
            return ns as u16;
        }
        let power = ns.ilog2();
        let part = (ns >> (power - PARTS.ilog2())) as u32 - PARTS;
        ((power - 1) * PARTS + part) as u16
    }

    /// Where a bucket begins, in ns.
    fn begin_ns(bucket: u16) -> u64 {
        let bucket = u32::from(bucket);
        if bucket < PARTS {
            return bucket.into();
        }
        let part = u64::from(bucket % PARTS + PARTS);
        part.checked_shl(bucket / PARTS + 1 - PARTS.ilog2()).filter(|ns| *ns >= part).unwrap_or(u64::MAX)
    }

    /// Those of so many in each bucket.
    pub(crate) fn of(counts: &[u64]) -> Durations {
        let counts = (0..).zip(counts).filter(|(_, count)| **count > 0).map(|(bucket, count)| (bucket, *count));
        Durations { counts: counts.collect() }
    }

    /// The buckets that are not empty, shortest first: where each ends, ns, and how many are in it.
    pub fn buckets(&self) -> Vec<(u64, u64)> {
        let mut sorted = self.counts.clone();
        sorted.sort_unstable();
        sorted.into_iter().map(|(bucket, count)| (Durations::begin_ns(bucket.saturating_add(1)), count)).collect()
    }

    /// Adds a duration.
    #[inline]
    pub(crate) fn add(&mut self, ns: u64) {
        self.add_to(Durations::bucket(ns), 1);
    }

    #[inline]
    fn add_to(&mut self, bucket: u16, count: u64) {
        match self.counts.iter_mut().find(|(of, _)| *of == bucket) {
            Some((_, n)) => *n = n.saturating_add(count),
            None => self.counts.push((bucket, count)),
        }
    }

    /// Adds all of another.
    pub fn merge(&mut self, other: &Durations) {
        for (bucket, count) in &other.counts {
            self.add_to(*bucket, *count);
        }
    }

    /// Empty again, with its memory.
    pub(crate) fn clear(&mut self) {
        self.counts.clear();
    }

    /// How many there are.
    pub fn count(&self) -> u64 {
        self.counts.iter().fold(0, |all, (_, n)| all.saturating_add(*n))
    }

    /// The duration, in ns, that this share (0 to 1) of all is not longer than: the middle of its bucket. None without any.
    pub fn quantile_ns(&self, share: f64) -> Option<f64> {
        let mut sorted = self.counts.clone();
        sorted.sort_unstable();
        let rank = ((share * self.count() as f64).ceil() as u64).max(1);
        let mut seen = 0u64;
        let (bucket, _) = sorted.iter().find(|(_, n)| {
            seen = seen.saturating_add(*n);
            seen >= rank
        })?;
        let (from, to) = (Durations::begin_ns(*bucket), Durations::begin_ns(bucket.saturating_add(1)));
        // A bucket of one whole number holds nothing but that.
        Some(if to - from <= 1 { from as f64 } else { (from as f64 + to as f64) / 2.0 })
    }

    /// Where the bucket of the longest ends, in ns, but for so many longer ones. None where there are no more than these.
    pub(crate) fn longest_but(&self, longer: u64) -> Option<i64> {
        let mut sorted = self.counts.clone();
        sorted.sort_unstable();
        let mut left = longer;
        let found = sorted.iter().rev().find(|(_, count)| {
            let found = *count > left;
            left = left.saturating_sub(*count);
            found
        });
        found.map(|(bucket, _)| i64::try_from(Durations::begin_ns(bucket.saturating_add(1))).unwrap_or(i64::MAX))
    }

    /// Its text.
    pub(crate) fn text(&self) -> String {
        let mut sorted = self.counts.clone();
        sorted.sort_unstable();
        let mut text = String::with_capacity(sorted.len() * 6);
        for (bucket, count) in sorted {
            let space = if text.is_empty() { "" } else { " " };
            let _ = write!(text, "{space}{bucket}:{count}");
        }
        text
    }

    /// The histogram of a text; what is none of its parts is left out.
    pub fn parse(text: &str) -> Durations {
        let mut durations = Durations::default();
        for part in text.split(' ') {
            if let Some((bucket, count)) = part.split_once(':')
                && let (Ok(bucket), Ok(count)) = (bucket.parse(), count.parse())
            {
                durations.add_to(bucket, count);
            }
        }
        durations
    }
}

impl From<String> for Durations {
    fn from(text: String) -> Durations {
        Durations::parse(&text)
    }
}

impl From<Durations> for String {
    fn from(durations: Durations) -> String {
        durations.text()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn buckets_are_those_that_were_counted_and_end_where_the_next_begins() {
        let mut counts = [0; BUCKETS];
        [3, 7000, 7001, u64::MAX].into_iter().for_each(|ns| counts[usize::from(Durations::bucket(ns))] += 1);
        let durations = Durations::of(&counts);
        assert_eq!(durations.buckets(), [(4, 1), (7168, 2), (u64::MAX, 1)]);
        assert_eq!(usize::from(Durations::bucket(u64::MAX)), BUCKETS - 1);
    }

    #[test]
    fn each_duration_lies_in_its_bucket_and_buckets_follow_each_other() {
        for ns in (0..5000).chain([1 << 20, (1 << 40) + 12345, u64::MAX]) {
            let bucket = Durations::bucket(ns);
            let (from, to) = (Durations::begin_ns(bucket), Durations::begin_ns(bucket + 1));
            assert!(from <= ns && (ns < to || to == u64::MAX), "{ns}: bucket {bucket} is {from} to {to}");
            assert!(bucket < 8 || (to - from) as f64 <= 0.26 * from as f64, "{ns}: {from} to {to}");
        }
    }

    #[test]
    fn quantiles_are_those_of_the_durations_within_a_bucket() {
        let mut durations = Durations::default();
        (1..=1000).for_each(|n| durations.add(n * 100));
        for (share, exact) in [(0.5, 50_000.0), (0.99, 99_000.0), (1.0, 100_000.0), (0.0, 100.0)] {
            let found = durations.quantile_ns(share).unwrap();
            assert!((found / exact - 1.0).abs() < 0.15, "{share}: {found}, in truth {exact}");
        }
        assert_eq!(Durations::default().quantile_ns(0.5), None);
    }

    #[test]
    fn the_longest_are_those_beyond_which_so_many_lie() {
        let mut durations = Durations::default();
        [3, 1000, 1001, 90_000].into_iter().for_each(|ns| durations.add(ns));
        let found: Vec<_> = (0..5).map(|longer| durations.longest_but(longer)).collect();
        assert_eq!(found, [Some(98_304), Some(1024), Some(1024), Some(4), None]);
        durations.add(u64::MAX);
        assert_eq!(durations.longest_but(0), Some(i64::MAX));
    }

    #[test]
    fn a_text_is_read_as_what_was_written_and_noise_as_nothing() {
        let mut durations = Durations::default();
        [7000, 3, 7001, 90].into_iter().for_each(|ns| durations.add(ns));
        let text = durations.text();
        assert_eq!(Durations::parse(&text).text(), text);
        assert_eq!(Durations::parse(&text).count(), 4);
        assert_eq!(Durations::parse("x 5: :7 70000:1 -1:2 3:99999999999999999999"), Durations::default());
        assert!(Durations::parse("65535:18446744073709551615 65535:2").quantile_ns(0.9).is_some());
    }
}
