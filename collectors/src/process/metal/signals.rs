//! Values of events that queues signal: who waits for one waits for the work before the signal of that value, not of the last one.

use super::recent::Recent;

/// Events that are followed, and values of one. Who waits for an older value has long been served.
const MOST_EVENTS: usize = 1 << 12;
const MOST_VALUES: usize = 16;

/// By event, the values that were given to it, in the order of their commits.
#[derive(Debug)]
pub(super) struct Signals(Recent<Vec<u64>>);

impl Default for Signals {
    fn default() -> Signals {
        Signals(Recent::new(MOST_EVENTS))
    }
}

impl Signals {
    /// A queue gives this value to an event: what stands for it among events of one value.
    pub(super) fn give(&mut self, event: u64, value: u64) -> u64 {
        let values = self.0.get_or_default(event);
        if values.len() >= MOST_VALUES {
            values.remove(0);
        }
        values.push(value);
        one(event, value)
    }

    /// What somebody waits for who waits for this value: the first signal that is enough, or the last one where none is yet.
    pub(super) fn awaited(&self, event: u64, value: u64) -> u64 {
        let values = self.0.get(event).map_or(&[][..], Vec::as_slice);
        let enough = values.iter().find(|given| **given >= value);
        enough.or(values.last()).map_or(event, |given| one(event, *given))
    }
}

/// An event of one value, beside addresses of objects.
fn one(event: u64, value: u64) -> u64 {
    // Fibonacci hashing: 2 to the 64 over the golden ratio.
    event ^ value.wrapping_mul(0x9e37_79b9_7f4a_7c15) ^ 1 << 63
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_wait_is_for_the_first_signal_that_is_enough() {
        let mut signals = Signals::default();
        assert_eq!(signals.awaited(0xe0, 1), 0xe0, "none is known");
        let [first, second] = [1, 4].map(|value| signals.give(0xe0, value));
        let awaited = [1, 2, 4, 9].map(|value| signals.awaited(0xe0, value));
        assert_eq!(awaited, [first, second, second, second]);
        for value in 5..100 {
            signals.give(0xe0, value);
        }
        assert_eq!(signals.awaited(0xe0, 99), one(0xe0, 99));
    }
}
