//! What a process did that costs, and what it would have cost if nothing had been left out.

use super::ladder::Load;

/// What a process did so far that costs.
#[derive(Clone, Copy, Debug, Default)]
pub(in crate::process) struct Work {
    /// Events recorded or dropped, and waits too short for one.
    pub(in crate::process) events: u64,
    /// Calls of malloc's family that were only counted, and calls of functions that always are.
    pub(in crate::process) passed: u64,
    /// Stacks taken, and what they took, ns.
    pub(in crate::process) stacks: u64,
    pub(in crate::process) stacks_ns: f64,
    /// Events of malloc's family among them, where it is sampled, and how much rarer samples are now than was asked for.
    pub(in crate::process) malloc: u64,
    pub(in crate::process) rarer: u8,
    /// Events of launches among them.
    pub(in crate::process) launches: u64,
    /// What was left out, by its part: stacks, allocations without an event, launches that were only counted.
    pub(in crate::process) left_out: [u64; 3],
}

/// What each thing costs, ns.
#[derive(Clone, Copy, Debug, Default)]
pub(in crate::process) struct Prices {
    pub(in crate::process) event_ns: Option<f64>,
    pub(in crate::process) passed_ns: Option<f64>,
    /// A launch that is only counted.
    pub(in crate::process) counted_ns: Option<f64>,
}

impl Work {
    /// What it cost, ns.
    pub(in crate::process) fn cost_ns(&self, prices: &Prices) -> f64 {
        self.events as f64 * prices.event_ns.unwrap_or(0.0)
            + self.passed as f64 * prices.passed_ns.unwrap_or(0.0)
            + self.left_out[2] as f64 * prices.counted_ns.unwrap_or(0.0)
            + self.stacks_ns
    }

    /// What it would have cost in so many ns if nothing had been left out, in millionths, after what was `before`. `stack_ns`:
    /// what a stack takes.
    pub(super) fn load(&self, before: &Work, prices: &Prices, stack_ns: f64, ns: i64) -> Load {
        let part = |cost_ns: f64| cost_ns / ns.max(1) as f64 * 1e6;
        let taken_ns = self.stacks_ns - before.stacks_ns;
        let missing = self.left_out[0].saturating_sub(before.left_out[0]);
        let all_ns = self.cost_ns(prices) - before.cost_ns(prices);
        let malloc_ns = self.malloc.saturating_sub(before.malloc) as f64 * prices.event_ns.unwrap_or(0.0);
        let (event_ns, counted_ns) = (prices.event_ns.unwrap_or(0.0), prices.counted_ns.unwrap_or(0.0));
        let recorded = self.launches.saturating_sub(before.launches) as f64;
        let counted = self.left_out[2].saturating_sub(before.left_out[2]) as f64;
        let launches_ns = recorded * event_ns + counted * counted_ns;
        Load {
            fixed: part(all_ns - taken_ns - malloc_ns - launches_ns),
            stacks: part(taken_ns + missing as f64 * stack_ns),
            // As many more as samples would lie nearer to each other.
            malloc: part(malloc_ns) * f64::from(self.rarer).exp2(),
            launches: part((recorded + counted) * event_ns),
            counted: part((recorded + counted) * counted_ns),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const PRICES: Prices = Prices { event_ns: Some(30.0), passed_ns: Some(1.0), counted_ns: Some(5.0) };

    #[test]
    fn a_second_would_have_cost_as_much_whatever_was_left_out_of_it() {
        let before = Work::default();
        let whole =
            Work { events: 2_000_000, launches: 1_000_000, malloc: 640_000, stacks: 2000, stacks_ns: 1e6, ..before };
        // The same with half of the stacks, an eighth of the samples and a tenth of the launches.
        let thin = Work {
            events: 2_000_000 - 900_000 - 560_000,
            launches: 100_000,
            malloc: 80_000,
            rarer: 3,
            stacks: 1000,
            stacks_ns: 5e5,
            left_out: [1000, 0, 900_000],
            ..before
        };
        let [whole, thin] = [whole, thin].map(|work| work.load(&before, &PRICES, 500.0, 1_000_000_000));
        for (one, other) in [
            (whole.fixed, thin.fixed),
            (whole.stacks, thin.stacks),
            (whole.malloc, thin.malloc),
            (whole.launches, thin.launches),
            (whole.counted, thin.counted),
        ] {
            assert!((one - other).abs() < 1e-6 * one.abs(), "{whole:?} {thin:?}");
        }
        assert!((whole.fixed - 360_000.0 * 30e-3).abs() < 1e-3, "{whole:?}");
    }
}
