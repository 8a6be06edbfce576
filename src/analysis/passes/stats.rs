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
    // Deviations from the first value: the squares of large values that differ little would cancel each other.
    shift: i64,
    squares: f64,
    exact: Vec<i64>,
    buckets: Buckets,
}

impl Stats {
    /// Adds a value; a negative one counts as 0.
    #[inline]
    pub(crate) fn add(&mut self, value: i64) {
        let value = value.max(0);
        if self.count == 0 {
            (self.min, self.max, self.shift) = (value, value, value);
        }
        self.count += 1;
        self.sum += value;
        self.min = self.min.min(value);
        self.max = self.max.max(value);
        let off = (value - self.shift) as f64;
        self.squares += off * off;
        if self.count > EXACT as u64 {
            self.buckets.add(value, 1);
        } else {
            self.add_exact(value);
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
        // Squares about another point: sum (x - a)^2 = sum (x - b)^2 + 2 (b - a) sum (x - b) + n (b - a)^2.
        let move_by = (other.shift - self.shift) as f64;
        let other_sum = other.sum as f64 - other.count as f64 * other.shift as f64;
        self.squares += other.squares + 2.0 * move_by * other_sum + other.count as f64 * move_by * move_by;
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
        let n = self.count as f64;
        let off = self.mean() - self.shift as f64;
        ((self.squares - n * off * off).max(0.0) / (n - 1.0)).sqrt()
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
