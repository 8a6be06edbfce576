//! The account of one class of calls in one process, as the manifest has it: every call that began went somewhere.

use serde::{Deserialize, Serialize};

/// Where the calls of one class in one process went.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Count {
    /// Calls that began.
    pub seen: u64,
    /// Events in the trace.
    pub recorded: u64,
    /// Events of allocations that `--cull` left out, and of their frees: they stand in the trace as sums.
    #[serde(default, skip_serializing_if = "is_zero")]
    pub culled: u64,
    /// Events that `--detail` left out: they were read, and nothing near them was worth keeping.
    #[serde(default, skip_serializing_if = "is_zero")]
    pub left_out: u64,
    /// Events that found no room, were torn by a killed writer, or could not be stored.
    pub dropped: u64,
    /// Calls that sampling left out.
    pub sampled_out: u64,
    /// Calls that were running when the process ended.
    pub in_flight: u64,
    /// Calls that never returned to the hook: longjmp or thread cancellation.
    pub abandoned: u64,
}

impl Count {
    /// Adds those of another process.
    pub(crate) fn add(&mut self, more: &Count) {
        self.seen = self.seen.saturating_add(more.seen);
        self.recorded = self.recorded.saturating_add(more.recorded);
        self.culled = self.culled.saturating_add(more.culled);
        self.left_out = self.left_out.saturating_add(more.left_out);
        self.dropped = self.dropped.saturating_add(more.dropped);
        self.sampled_out = self.sampled_out.saturating_add(more.sampled_out);
        self.in_flight = self.in_flight.saturating_add(more.in_flight);
        self.abandoned = self.abandoned.saturating_add(more.abandoned);
    }

    /// Events that stand in the trace, each or in a sum.
    pub fn kept(&self) -> u64 {
        self.recorded + self.culled
    }

    /// So many events are not in the trace each, but in sums.
    pub(crate) fn cull(&mut self, events: u64) {
        self.culled = events.min(self.recorded);
        self.recorded -= self.culled;
    }

    /// So many of its events, and of those in sums, are not in the trace.
    pub(crate) fn leave_out(&mut self, events: u64, culled: u64) {
        let (events, culled) = (events.min(self.recorded), culled.min(self.culled));
        self.recorded -= events;
        self.culled -= culled;
        self.left_out += events + culled;
    }

    /// Of a collector that was killed: so many are in the trace of those that its account, which is a little older, says were left
    /// out.
    pub(crate) fn found_again(&self, on_disk: u64) -> u64 {
        on_disk.saturating_sub(self.kept()).min(self.left_out)
    }

    /// Whether every call that was seen is accounted for.
    pub fn is_balanced(&self) -> bool {
        self.seen == self.found()
    }

    /// Of a process that runs: calls that it counted and nobody has read yet. They wait in its ring.
    pub fn waiting(&self) -> u64 {
        self.seen.saturating_sub(self.found())
    }

    fn found(&self) -> u64 {
        self.kept() + self.left_out + self.dropped + self.sampled_out + self.in_flight + self.abandoned
    }
}

fn is_zero(count: &u64) -> bool {
    *count == 0
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_unaccounted_call_is_noticed() {
        let count = Count { seen: 3, recorded: 2, ..Count::default() };
        assert!(!count.is_balanced() && count.waiting() == 1);
        assert!(Count { abandoned: 1, ..count }.is_balanced());
    }

    #[test]
    fn what_is_left_out_was_recorded_and_is_still_accounted_for() {
        let mut count = Count { seen: 9, recorded: 6, culled: 2, dropped: 1, ..Count::default() };
        count.leave_out(4, 2);
        assert_eq!((count.recorded, count.culled, count.left_out, count.is_balanced()), (2, 0, 6, true));
    }

    #[test]
    fn what_is_culled_was_recorded_and_is_still_accounted_for() {
        let mut count = Count { seen: 9, recorded: 7, dropped: 2, ..Count::default() };
        count.cull(5);
        assert_eq!((count.recorded, count.culled, count.kept(), count.is_balanced()), (2, 5, 7, true));
    }
}
