//! How long launches of a kind take, and how well that is known.

use super::{Kind, Launched};

/// How much the times of a kind differ, of their mean, where too few were timed to say; that weighs as much as [`WEIGHT`] times do.
const SPREAD: f64 = 0.5;
const WEIGHT: f64 = 2.0;

/// The mean of some times, and their variance, as far as it is known.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Mean {
    pub(super) timed: u64,
    pub(super) sum_ns: f64,
    pub(super) squares: f64,
}

impl Mean {
    /// Of one time.
    pub(super) fn one(ns: f64) -> Mean {
        Mean { timed: 1, sum_ns: ns, squares: ns * ns }
    }

    pub(super) fn add(&mut self, of: &Mean) {
        self.timed += of.timed;
        self.sum_ns += of.sum_ns;
        self.squares += of.squares;
    }

    pub(super) fn ns(&self) -> f64 {
        self.sum_ns / self.timed.max(1) as f64
    }

    /// Squares of what the times are off their mean, summed.
    fn deviations(&self) -> f64 {
        (self.squares - self.sum_ns * self.ns()).max(0.0)
    }

    /// Of a single time; of few, as if times of a kind differed by so much of their mean.
    pub(super) fn variance(&self, spread: f64) -> f64 {
        let free = self.timed.saturating_sub(1) as f64;
        (self.deviations() + WEIGHT * (spread * self.ns()).powi(2)) / (free + WEIGHT)
    }
}

/// How much the times of a kind differ, of their mean: as kinds do of which several were timed.
pub(super) fn spread(kinds: &[(Kind, Launched)]) -> f64 {
    let (mut free, mut squares) = (WEIGHT, WEIGHT * SPREAD * SPREAD);
    for mean in kinds.iter().map(|(_, launched)| launched.known()).filter(|mean| mean.timed > 1 && mean.sum_ns > 0.0) {
        free += mean.timed as f64 - 1.0;
        squares += mean.deviations() / (mean.ns() * mean.ns());
    }
    (squares / free).sqrt()
}
