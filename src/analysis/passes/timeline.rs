//! A quantity over time in a fixed number of bins, however long the run is.

/// Bins that are kept; the width doubles when they do not reach.
const BINS: usize = 256;
/// Width at first: a millisecond.
const WIDTH_NS: i64 = 1_000_000;

/// The largest value in each bin of time.
#[derive(Clone, Debug, Default)]
pub(crate) struct Timeline {
    first_ns: Option<i64>,
    doublings: u32,
    /// Largest value, and the value at the end of the bin; `None` where nothing changed.
    bins: Vec<Option<(i64, i64)>>,
}

impl Timeline {
    /// Notes that the quantity has this value from `at` on.
    pub(crate) fn set(&mut self, at: i64, value: i64) {
        let first = *self.first_ns.get_or_insert(at);
        let mut bin = (at - first).max(0) / self.width_ns();
        while bin >= BINS as i64 {
            self.bins = self.bins.chunks(2).map(joined).collect();
            self.doublings += 1;
            bin /= 2;
        }
        let bin = bin as usize;
        if bin >= self.bins.len() {
            self.bins.resize(bin + 1, None);
        }
        let (most, _) = self.bins[bin].unwrap_or((value, value));
        self.bins[bin] = Some((most.max(value), value));
    }

    /// When its first value was set.
    pub(crate) fn first_ns(&self) -> Option<i64> {
        self.first_ns
    }

    /// Width of a bin.
    fn width_ns(&self) -> i64 {
        WIDTH_NS << self.doublings
    }

    /// The largest value in each of at most `points` equal spans, with the begin of the span since the first value.
    pub(crate) fn points(&self, points: usize) -> Vec<(i64, i64)> {
        let width = self.bins.len().div_ceil(points.max(1)).max(1);
        let mut before = 0;
        let span = |(index, bins): (usize, &[Option<(i64, i64)>])| {
            let mut most = before;
            for (top, last) in bins.iter().flatten() {
                most = most.max(*top);
                before = *last;
            }
            ((index * width) as i64 * self.width_ns(), most)
        };
        self.bins.chunks(width).enumerate().map(span).collect()
    }
}

fn joined(pair: &[Option<(i64, i64)>]) -> Option<(i64, i64)> {
    pair.iter().flatten().copied().reduce(|(a, _), (b, last)| (a.max(b), last))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_long_run_keeps_its_peaks_in_as_many_bins() {
        let mut line = Timeline::default();
        for second in 0..1000i64 {
            line.set(second * 1_000_000_000, if second == 700 { 9 } else { second % 3 });
        }
        assert!(line.bins.len() <= BINS);
        let points = line.points(10);
        assert!(points.len() <= 10);
        assert_eq!(points.iter().map(|p| p.1).max(), Some(9));
        assert!(points.iter().any(|(at, v)| *v == 9 && (600..=700).contains(&(at / 1_000_000_000))));
    }

    #[test]
    fn a_value_lasts_until_the_next_one() {
        let mut line = Timeline::default();
        line.set(0, 5);
        line.set(9 * WIDTH_NS, 1);
        assert_eq!(line.points(10).iter().map(|p| p.1).collect::<Vec<_>>(), [5, 5, 5, 5, 5, 5, 5, 5, 5, 5]);
        assert_eq!(Timeline::default().points(10), []);
    }
}
