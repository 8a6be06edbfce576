//! Count, sum, extremes, deviation and quantiles of durations, in memory that does not grow with the rows.
//!
//! Quantiles are exact up to [`EXACT`] values. Beyond, values fall into buckets that are one nanosecond wide below 64
//! and an equal 1/32 of each power of two above; a quantile is the middle of its bucket, so it is off by at most
//! 1.6 %. Only the buckets between the smallest and the largest value are held: a kernel costs some hundred bytes.

/// So many values are kept as they are.
const EXACT: usize = 64;

/// What is known of a set of values.
#[derive(Clone, Debug, Default)]
pub(crate) struct Stats {
    /// Number of values.
    pub(crate) count: u64,
    /// Their sum.
    pub(crate) sum: i64,
    /// The smallest; 0 when there is none.
    pub(crate) min: i64,
    /// The largest.
    pub(crate) max: i64,
    // Whole: neither the order of the values nor that of merging sets shows in the last digit of a deviation, and the squares of
    // large values that differ little do not cancel each other.
    squares: u128,
    exact: Vec<i64>,
    buckets: Buckets,
}

impl Stats {
    /// Adds a value; a negative one counts as 0.
    #[inline]
    pub(crate) fn add(&mut self, value: i64) {
        let value = value.max(0);
        if self.count == 0 {
            (self.min, self.max) = (value, value);
        }
        self.count += 1;
        self.sum += value;
        self.min = self.min.min(value);
        self.max = self.max.max(value);
        self.squares = self.squares.saturating_add(square(value));
        if self.count > EXACT as u64 {
            self.buckets.add(value, 1);
        } else {
            self.add_exact(value);
        }
    }

    /// Adds a value that stands for so many of its kind.
    #[inline]
    pub(crate) fn add_times(&mut self, value: i64, times: u64) {
        // As long as values are kept as they are, one after another.
        let alone = times.min((EXACT as u64).saturating_sub(self.count).max(1));
        (0..alone).for_each(|_| self.add(value));
        let rest = times - alone;
        if rest > 0 {
            let value = value.max(0);
            self.count += rest;
            self.sum = self.sum.saturating_add(value.saturating_mul(rest.min(i64::MAX as u64) as i64));
            self.squares = self.squares.saturating_add(square(value).saturating_mul(rest.into()));
            self.buckets.add(value, rest);
        }
    }

    #[cold]
    fn add_exact(&mut self, value: i64) {
        self.exact.push(value);
        if self.exact.len() == EXACT {
            self.spill();
        }
    }

    fn spill(&mut self) {
        for value in std::mem::take(&mut self.exact) {
            self.buckets.add(value, 1);
        }
    }

    /// Adds all values of another set.
    pub(crate) fn merge(&mut self, other: &Stats) {
        if other.count == 0 {
            return;
        }
        if self.count == 0 {
            *self = other.clone();
            return;
        }
        self.squares = self.squares.saturating_add(other.squares);
        self.min = self.min.min(other.min);
        self.max = self.max.max(other.max);
        self.count += other.count;
        self.sum += other.sum;
        if self.count < EXACT as u64 {
            self.exact.extend_from_slice(&other.exact);
            return;
        }
        self.spill();
        for value in &other.exact {
            self.buckets.add(*value, 1);
        }
        self.buckets.merge(&other.buckets);
    }

    /// The mean; 0 when there is no value.
    pub(crate) fn mean(&self) -> f64 {
        if self.count == 0 { 0.0 } else { self.sum as f64 / self.count as f64 }
    }

    /// The standard deviation of the sample; 0 for fewer than two values.
    pub(crate) fn deviation(&self) -> f64 {
        if self.count < 2 {
            return 0.0;
        }
        // n sum x^2 - (sum x)^2, over n (n - 1).
        let (n, square_of_sum) = (u128::from(self.count), square(self.sum));
        let all = match n.checked_mul(self.squares) {
            Some(squares) => squares.saturating_sub(square_of_sum) as f64,
            None => (n as f64 * self.squares as f64 - square_of_sum as f64).max(0.0),
        };
        (all / n as f64 / (n - 1) as f64).sqrt()
    }

    /// The smallest value that at least this share of the values do not exceed.
    pub(crate) fn quantile(&self, share: f64) -> i64 {
        if self.count == 0 {
            return 0;
        }
        let rank = ((share * self.count as f64).ceil() as u64).clamp(1, self.count);
        if !self.exact.is_empty() {
            let mut sorted = self.exact.clone();
            sorted.sort_unstable();
            return sorted[(rank as usize - 1).min(sorted.len() - 1)];
        }
        self.buckets.at(rank).clamp(self.min, self.max)
    }

    /// The middle value.
    pub(crate) fn median(&self) -> i64 {
        self.quantile(0.5)
    }
}

fn square(value: i64) -> u128 {
    let value = u128::from(value.unsigned_abs());
    value * value
}

/// Counts per bucket, from the first bucket in use to the last.
#[derive(Clone, Debug, Default)]
struct Buckets {
    first: usize,
    counts: Vec<u64>,
}

impl Buckets {
    #[inline]
    fn add(&mut self, value: i64, count: u64) {
        let bucket = bucket_of(value);
        match self.counts.get_mut(bucket.wrapping_sub(self.first)) {
            Some(slot) => *slot += count,
            None => self.grow(bucket, count),
        }
    }

    #[cold]
    fn grow(&mut self, bucket: usize, count: u64) {
        if self.counts.is_empty() {
            self.first = bucket;
        } else if bucket < self.first {
            self.counts.splice(0..0, std::iter::repeat_n(0, self.first - bucket));
            self.first = bucket;
        }
        if bucket - self.first >= self.counts.len() {
            self.counts.resize(bucket - self.first + 1, 0);
        }
        self.counts[bucket - self.first] += count;
    }

    fn merge(&mut self, other: &Buckets) {
        for (index, count) in other.counts.iter().enumerate().filter(|(_, count)| **count > 0) {
            self.add(middle_of(other.first + index), *count);
        }
    }

    fn at(&self, rank: u64) -> i64 {
        let mut seen = 0;
        for (index, count) in self.counts.iter().enumerate() {
            seen += count;
            if seen >= rank {
                return middle_of(self.first + index);
            }
        }
        i64::MAX
    }
}

#[inline]
fn bucket_of(value: i64) -> usize {
    let value = value.max(0) as u64;
    if value < 64 {
        return value as usize;
    }
    let exponent = 63 - value.leading_zeros() as usize;
    64 + (exponent - 6) * 32 + ((value >> (exponent - 5)) & 31) as usize
}

fn middle_of(bucket: usize) -> i64 {
    if bucket < 64 {
        return bucket as i64;
    }
    let (exponent, part) = (6 + (bucket - 64) / 32, (bucket - 64) as u64 % 32);
    let width = 1u64 << (exponent - 5);
    ((1u64 << exponent) + part * width + width / 2) as i64
}

#[cfg(test)]
mod tests {
    use super::*;

    fn of(values: impl IntoIterator<Item = i64>) -> Stats {
        let mut stats = Stats::default();
        values.into_iter().for_each(|v| stats.add(v));
        stats
    }

    #[test]
    fn few_values_are_exact() {
        let stats = of([4000, 2000, 1000, 3000]);
        assert_eq!((stats.count, stats.sum, stats.min, stats.max), (4, 10_000, 1000, 4000));
        assert_eq!((stats.median(), stats.quantile(0.99), stats.quantile(0.0)), (2000, 4000, 1000));
        assert!((stats.deviation() - 1290.994).abs() < 0.001);
        assert_eq!(of([]).median(), 0);
        assert_eq!(of([7]).deviation(), 0.0);
    }

    #[test]
    fn a_deviation_is_the_same_to_its_last_digit_in_whatever_order_sets_are_merged() {
        let part = |from: i64| of((0..977).map(|i| (i * 7919 + from) % 65_537 * 1_009 + 3));
        let parts: Vec<Stats> = (0..9).map(|n| part(n * 4_099)).collect();
        let merged = |order: &mut dyn Iterator<Item = &Stats>| {
            let mut all = Stats::default();
            order.for_each(|part| all.merge(part));
            all.deviation().to_bits()
        };
        let forth = merged(&mut parts.iter());
        assert_eq!([merged(&mut parts.iter().rev()), merged(&mut parts[4..].iter().chain(&parts[..4]))], [forth; 2]);
        // Large values that differ little, and the largest.
        let near = |base: i64| of([base, base + 2, base + 4]).deviation();
        assert_eq!([near(0), near(1 << 40), near(1 << 60)], [2.0; 3]);
        assert!(of([0, i64::MAX / 4, i64::MAX / 2]).deviation().is_finite());
    }

    #[test]
    fn quantiles_of_many_values_are_within_two_percent() {
        let stats = of((0..100_000).map(|i| i * i % 1_000_003));
        let mut sorted: Vec<i64> = (0..100_000).map(|i| i * i % 1_000_003).collect();
        sorted.sort_unstable();
        for share in [0.01, 0.1, 0.5, 0.9, 0.99, 1.0] {
            let exact = sorted[((share * 100_000.0_f64).ceil() as usize).max(1) - 1] as f64;
            let off = (stats.quantile(share) as f64 - exact).abs() / exact;
            assert!(off <= 0.016, "{share}: off by {off}");
        }
    }

    #[test]
    fn a_value_that_stands_for_many_is_as_many() {
        for first in [0, 3, 63, 64, 200] {
            let values = (0..first).map(|i| i * 13 % 7_001);
            let (mut at_once, mut one_by_one) = (of(values.clone()), of(values));
            for (value, times) in [(500, 1), (70, 64), (-3, 2), (9_000, 1_000)] {
                at_once.add_times(value, times);
                (0..times).for_each(|_| one_by_one.add(value));
            }
            let all = |s: &Stats| (s.count, s.sum, s.min, s.max, s.median(), s.quantile(0.9), s.deviation().to_bits());
            assert_eq!(all(&at_once), all(&one_by_one), "{first}");
        }
    }

    #[test]
    fn every_value_falls_into_the_bucket_whose_middle_is_near() {
        for value in (0..62).flat_map(|e| [1i64 << e, (1 << e) + (1 << e) / 3, (1i64 << e) - 1]).chain([i64::MAX]) {
            let off = (middle_of(bucket_of(value)) - value).abs() as f64;
            assert!(off <= value as f64 / 64.0 + 0.5, "{value} is off by {off}");
        }
    }

    #[test]
    fn a_merged_set_is_the_set_of_all() {
        for (a, b) in [(0..10, 10..20), (0..1000, 5..30), (7..30, 0..4000), (0..40, 0..40)] {
            let mut merged = of(a.clone().map(|i| i * 977 % 4001 + 1_000_000));
            merged.merge(&of(b.clone().map(|i| i * 31 % 700)));
            let all = of(a.map(|i| i * 977 % 4001 + 1_000_000).chain(b.map(|i| i * 31 % 700)));
            assert_eq!((merged.count, merged.sum, merged.min, merged.max), (all.count, all.sum, all.min, all.max));
            assert_eq!(merged.median(), all.median());
            assert!((merged.deviation() / all.deviation() - 1.0).abs() < 1e-6);
        }
    }
}
