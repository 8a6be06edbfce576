//! Sums of calls of the allocator: amounts, times, and memory from the kernel.

/// A call of the allocator that takes longer had to wait: for a lock, or for the kernel.
pub(crate) const SLOW_NS: i64 = 10_000;

/// Blocks and their bytes, estimated.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub(crate) struct Amount {
    /// Blocks, or calls.
    pub(crate) blocks: f64,
    /// Bytes.
    pub(crate) bytes: f64,
    /// Variance of the bytes.
    pub(crate) variance: f64,
}

/// Calls that were timed.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Timed {
    /// Rows.
    pub(crate) rows: u64,
    /// Calls that they stand for.
    pub(crate) calls: f64,
    /// The time of these.
    pub(crate) ns: f64,
    /// Its parts, squared.
    squares: f64,
}

/// Calls of one kind: allocations or frees.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Calls {
    /// All.
    pub(crate) calls: f64,
    /// Those that were timed.
    pub(crate) timed: Timed,
    /// Of these the ones above [`SLOW_NS`].
    pub(crate) slow: Timed,
}

/// Memory that came from the kernel.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Mapped {
    /// Calls.
    pub(crate) calls: u64,
    /// Bytes mapped, and reserved without memory.
    pub(crate) bytes: [f64; 2],
    /// What of these is not unmapped yet.
    pub(crate) live: [f64; 2],
}

/// When the first row of a process was that is looked at.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct First(Option<i64>);

impl First {
    /// A row of malloc's. Rows are in the order in which calls ended: one that comes later may have begun earlier.
    pub(crate) fn note(&mut self, at: i64) {
        self.0 = Some(self.0.map_or(at, |first| first.min(at)));
    }

    /// Whether a block that is freed at that time, and so old, is among what is live: what was allocated before the first row, or is not
    /// known at all, is not.
    pub(crate) fn is_live(self, at: i64, age: i64, freed: Amount) -> bool {
        match age {
            0.. => self.0.is_none_or(|first| at.saturating_sub(age) >= first),
            _ => freed.bytes > 0.0,
        }
    }
}

impl Amount {
    /// What a row stands for: `bytes` is of one block, `weight` of all, and `calls` is what the row itself says.
    pub(crate) fn of(bytes: i64, weight: f64, calls: i64) -> Amount {
        let (each, calls) = (bytes.max(0) as f64, calls.max(1) as f64);
        let weight = if weight.is_finite() { weight.max(0.0) } else { 0.0 };
        let sampled = calls == 1.0 && weight > each && each > 0.0;
        let (blocks, variance) = if sampled { (weight / each, weight * (weight - each)) } else { (calls, 0.0) };
        Amount { blocks, bytes: weight, variance }
    }

    /// More of it.
    pub(crate) fn add(&mut self, more: Amount) {
        self.blocks += more.blocks;
        self.bytes += more.bytes;
        self.variance += more.variance;
    }

    /// Less of it.
    pub(super) fn remove(&mut self, less: Amount) {
        self.blocks -= less.blocks;
        self.bytes -= less.bytes;
        self.variance -= less.variance;
    }

    /// Variance of the blocks, where this is what one row stands for.
    pub(crate) fn blocks_variance(&self) -> f64 {
        if self.variance > 0.0 { self.blocks * (self.blocks - 1.0) } else { 0.0 }
    }

    /// Samples of one size that have this error, in proportion: about those that are live. None where it is exact.
    pub(crate) fn samples(&self) -> Option<f64> {
        (self.variance > 1.0).then(|| self.bytes.max(0.0).powi(2) / self.variance)
    }

    /// Two standard deviations of the bytes.
    pub(crate) fn error_bytes(&self) -> f64 {
        2.0 * self.variance.max(0.0).sqrt()
    }
}

impl Timed {
    fn merge(&mut self, other: Timed) {
        self.rows += other.rows;
        self.calls += other.calls;
        self.ns += other.ns;
        self.squares += other.squares;
    }

    fn add(&mut self, calls: f64, ns: f64) {
        self.rows += 1;
        self.calls += calls;
        self.ns += calls * ns;
        self.squares += (calls * ns).powi(2);
    }
}

impl Calls {
    /// More calls; `ns` is negative where they were not timed.
    pub(super) fn add(&mut self, calls: f64, ns: i64) {
        self.calls += calls;
        if ns >= 0 {
            self.timed.add(calls, ns as f64);
            if ns > SLOW_NS {
                self.slow.add(calls, ns as f64);
            }
        }
    }

    /// Those of another one too.
    pub(super) fn merge(&mut self, other: Calls) {
        self.calls += other.calls;
        self.timed.merge(other.timed);
        self.slow.merge(other.slow);
    }

    /// How many calls one that was timed stands for.
    fn scale(&self) -> f64 {
        if self.timed.calls > 0.0 { self.calls / self.timed.calls } else { 0.0 }
    }

    /// Time in all calls, estimated.
    pub(crate) fn ns(&self) -> f64 {
        self.scale() * self.timed.ns
    }

    /// Variance of that estimate: a few calls that were timed stand for many, and one of them may have been stopped.
    pub(crate) fn variance(&self) -> f64 {
        let drawn = 1.0 - self.timed.rows as f64 / self.calls.max(1.0);
        self.scale().powi(2) * self.timed.squares * drawn.max(0.0)
    }

    /// Calls above [`SLOW_NS`] and the time in them, estimated.
    pub(crate) fn slow(&self) -> (f64, f64) {
        (self.scale() * self.slow.calls, self.scale() * self.slow.ns)
    }
}

impl Mapped {
    /// Memory, or addresses alone; of what is not kept only that it is not unmapped yet.
    pub(super) fn map(&mut self, reserved: bool, bytes: f64, is_kept: bool) {
        if is_kept {
            self.calls += 1;
            self.bytes[usize::from(reserved)] += bytes;
        }
        self.live[usize::from(reserved)] += bytes;
    }

    /// That of another one too.
    pub(super) fn merge(&mut self, other: Mapped) {
        self.calls += other.calls;
        self.bytes.iter_mut().zip(other.bytes).for_each(|(own, others)| *own += others);
        self.live.iter_mut().zip(other.live).for_each(|(own, others)| *own += others);
    }

    /// The same, given back.
    pub(super) fn unmap(&mut self, reserved: bool, bytes: f64) {
        self.live[usize::from(reserved)] -= bytes;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_sample_stands_for_its_weight_and_a_row_of_many_for_its_calls() {
        let sample = Amount::of(1000, 500_000.0, 1);
        assert_eq!((sample.blocks, sample.bytes), (500.0, 500_000.0));
        assert!((sample.error_bytes() - 2.0 * 499_499.7).abs() < 1.0);
        assert_eq!(sample.blocks_variance(), 500.0 * 499.0);
        let mut samples = Amount::default();
        (0..7).for_each(|_| samples.add(sample));
        assert_eq!(samples.samples().map(f64::round), Some(7.0));
        assert_eq!(Amount::of(1000, 1000.0, 1).samples(), None);
        assert_eq!(Amount::of(1000, 1000.0, 1), Amount { blocks: 1.0, bytes: 1000.0, variance: 0.0 });
        assert_eq!(Amount::of(0, 0.0, 1), Amount { blocks: 1.0, bytes: 0.0, variance: 0.0 });
        // Of culled blocks the size is a mean, rounded.
        assert_eq!(Amount::of(33, 100.0, 3), Amount { blocks: 3.0, bytes: 100.0, variance: 0.0 });
        assert_eq!(Amount::of(i64::MIN, f64::NAN, i64::MIN), Amount { blocks: 1.0, ..Amount::default() });
    }

    #[test]
    fn calls_that_were_timed_stand_for_the_others() {
        let mut calls = Calls::default();
        (0..63).for_each(|_| calls.add(1.0, -1));
        calls.add(1.0, 20_000);
        assert_eq!((calls.ns(), calls.slow()), (64.0 * 20_000.0, (64.0, 64.0 * 20_000.0)));
        // A sample stands for as many calls as there were of its size.
        let mut samples = Calls::default();
        samples.add(500.0, 30);
        samples.add(1.0, 11_000);
        assert_eq!((samples.ns(), samples.slow()), (26_000.0, (1.0, 11_000.0)));
        assert_eq!(Calls::default().ns(), 0.0);
    }
}
