//! A quantity over time in a fixed number of bins, however long the run is: its largest values ([`Timeline`]), or how much of it
//! passes ([`Flow`]).

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

/// How much passes in each bin of time: of what takes from one moment to another, such as a copy's bytes, each bin has its share.
#[derive(Clone, Debug, Default)]
pub(crate) struct Flow {
    doublings: u32,
    bins: Vec<i64>,
}

impl Flow {
    /// So much passes, evenly, from one time to another since the begin; at once where these are one.
    pub(crate) fn add(&mut self, (from, to): (i64, i64), amount: i64) {
        let (from, to) = (from.max(0), to.max(from).max(0));
        while to / self.width_ns() >= BINS as i64 {
            self.bins = self.bins.chunks(2).map(|pair| pair.iter().sum()).collect();
            self.doublings += 1;
        }
        let width = self.width_ns();
        let (first, last) = ((from / width) as usize, (to / width) as usize);
        if last >= self.bins.len() {
            self.bins.resize(last + 1, 0);
        }
        // What has passed by a time is rounded, and not what passes in a bin: so it does not matter how wide bins are.
        let passed = |at: i64| match to - from {
            0 => amount,
            length => (i128::from(amount) * i128::from(at.min(to) - from) / i128::from(length)) as i64,
        };
        let mut before = 0;
        for bin in first..=last {
            let by_now = passed((bin as i64 + 1) * width);
            self.bins[bin] += by_now - before;
            before = by_now;
        }
    }

    /// Begin, length and amount of each of at most `points` equal spans; of the last one what is in it so far.
    pub(crate) fn points(&self, points: usize) -> impl Iterator<Item = (i64, i64, i64)> {
        let bins = self.bins.len().div_ceil(points.max(1)).max(1);
        let width = bins as i64 * self.width_ns();
        self.bins.chunks(bins).enumerate().map(move |(at, part)| (at as i64 * width, width, part.iter().sum()))
    }

    fn width_ns(&self) -> i64 {
        WIDTH_NS << self.doublings
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_passes_is_shared_out_and_nothing_of_it_is_lost_however_wide_the_bins_are() {
        let mut flow = Flow::default();
        flow.add((WIDTH_NS / 2, 2 * WIDTH_NS + WIDTH_NS / 2), 1001);
        flow.add((WIDTH_NS, WIDTH_NS), 7);
        let amounts = |flow: &Flow| flow.points(BINS).map(|(.., amount)| amount).collect::<Vec<_>>();
        assert_eq!(amounts(&flow), [250, 500 + 7, 251]);
        // The same in another order, where the bins were wide already.
        let mut other = Flow::default();
        for of in [&mut flow, &mut other] {
            of.add((900 * WIDTH_NS, 901 * WIDTH_NS), 5);
        }
        other.add((WIDTH_NS, WIDTH_NS), 7);
        other.add((WIDTH_NS / 2, 2 * WIDTH_NS + WIDTH_NS / 2), 1001);
        assert_eq!(amounts(&flow), amounts(&other));
        assert_eq!((amounts(&flow)[0], amounts(&flow).iter().sum::<i64>()), (1008, 1013));
        let spans: Vec<_> = flow.points(10).collect();
        assert!(spans.len() <= 10 && spans.windows(2).all(|two| two[0].0 + two[0].1 == two[1].0), "{spans:?}");
    }

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
