//! Time that intervals cover, for intervals that come in the order of their begin.

/// A union that grows to the right.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Cover {
    /// Up to here everything was looked at.
    pub(crate) end: i64,
    /// Time covered.
    pub(crate) total_ns: i64,
}

impl Default for Cover {
    fn default() -> Cover {
        Cover { end: i64::MIN, total_ns: 0 }
    }
}

impl Cover {
    /// Adds an interval; the part of it that nothing had covered.
    #[inline]
    pub(crate) fn add(&mut self, start: i64, end: i64) -> Option<(i64, i64)> {
        let start = start.max(self.end);
        if end <= start {
            // An empty one still tells how far the time is known.
            self.end = self.end.max(end);
            return None;
        }
        self.total_ns += end - start;
        self.end = end;
        Some((start, end))
    }
}

/// Time of a device in a fixed number of bins, however long the run is.
#[derive(Clone, Debug, Default)]
pub(crate) struct Bins {
    first_ns: i64,
    doublings: u32,
    bins: Vec<i64>,
    /// The bin of the last span, and from when to when it is: the next one mostly lies there too, and dividing takes long.
    last: (usize, i64, i64),
}

const BINS: usize = 4096;
/// Width at first: 100 us.
const WIDTH_NS: i64 = 100_000;

impl Bins {
    fn width_ns(&self) -> i64 {
        WIDTH_NS << self.doublings
    }

    /// Has the time begin here.
    pub(super) fn begin(&mut self, first_ns: i64) {
        self.first_ns = first_ns;
        self.bins.push(0);
    }

    /// Adds a span of time.
    pub(crate) fn add(&mut self, mut start: i64, end: i64) {
        if self.bins.is_empty() {
            self.first_ns = start;
        }
        start = start.max(self.first_ns);
        while end - self.first_ns > self.width_ns() * BINS as i64 {
            self.bins = self.bins.chunks(2).map(|pair| pair.iter().sum()).collect();
            self.doublings += 1;
            self.last = (0, 0, 0);
        }
        while start < end {
            if start < self.last.1 || self.last.2 <= start {
                let bin = (start - self.first_ns) / self.width_ns();
                let from = self.first_ns + bin * self.width_ns();
                self.last = (bin as usize, from, from + self.width_ns());
                self.bins.resize(self.bins.len().max(bin as usize + 1), 0);
            }
            let (bin, _, to) = self.last;
            self.bins[bin] += to.min(end) - start;
            start = to.min(end);
        }
    }

    /// The time from the first one to `last` in equal parts: begin of each since the first, and time in it. A bin that lies
    /// in two parts is shared out evenly, so each is exact to a bin, 1/136 of a part at worst.
    pub(crate) fn parts(&self, parts: usize, last: i64) -> Vec<(i64, f64)> {
        // Of nothing no beginning is known either.
        if self.bins.is_empty() {
            return Vec::new();
        }
        let whole = (last - self.first_ns).max(1) as f64;
        let part = whole / parts.max(1) as f64;
        let mut sums = vec![0.0; parts.max(1)];
        for (bin, ns) in self.bins.iter().enumerate().filter(|(_, ns)| **ns > 0) {
            let begin = (bin as i64 * self.width_ns()) as f64;
            let end = (begin + self.width_ns() as f64).min(whole);
            let mut at = begin;
            while at < end {
                let index = ((at / part) as usize).min(sums.len() - 1);
                let edge = if index + 1 == sums.len() { end } else { ((index + 1) as f64 * part).min(end) };
                sums[index] += *ns as f64 * (edge - at) / (end - begin);
                if edge <= at {
                    break;
                }
                at = edge;
            }
        }
        sums.into_iter().enumerate().map(|(index, ns)| ((index as f64 * part) as i64, ns)).collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_what_nothing_covered_is_added() {
        let mut cover = Cover::default();
        assert_eq!(cover.add(10, 20), Some((10, 20)));
        assert_eq!(cover.add(12, 18), None);
        assert_eq!(cover.add(15, 30), Some((20, 30)));
        assert_eq!(cover.add(40, 40), None);
        assert_eq!(cover.add(35, 45), Some((40, 45)), "an empty one settles what lies before it");
        assert_eq!(cover.total_ns, 25);
    }

    #[test]
    fn of_nothing_there_are_no_parts() {
        assert!(Bins::default().parts(10, 1_735_775_620_000_000_000).is_empty());
    }

    #[test]
    fn a_long_run_keeps_its_time_in_as_many_bins() {
        let mut bins = Bins::default();
        for second in 0..1000i64 {
            bins.add(second * 1_000_000_000, second * 1_000_000_000 + 250_000_000);
        }
        assert!(bins.bins.len() <= BINS);
        assert_eq!(bins.bins.iter().sum::<i64>(), 250_000_000_000);
        let parts = bins.parts(10, 1_000_000_000_000);
        let sum: f64 = parts.iter().map(|(_, ns)| ns).sum();
        assert!((sum - 250e9).abs() < 1.0, "{sum}");
        assert!(parts.iter().all(|(_, ns)| (*ns - 25e9).abs() < 0.5e9), "{parts:?}");
    }
}
