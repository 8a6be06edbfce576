//! Waits that took far longer than waits of their function do: a moment worth keeping, where somebody asked for it.
//!
//! Each function of each process has a histogram of how long its waits took. A wait is slow when
//! it took so many times the 99th percentile of those before its batch, a millisecond at least; the first ones only count.

use std::collections::HashMap;

use super::failures::Noted;
use super::split::{Part, Texts, numbers};
use crate::rollups::Durations;
use crate::schema::TableId;
use crate::summed::Among;

/// Waits after which it is known how long they take.
const ENOUGH: u64 = 200;
/// What takes less is nothing that anybody would look for.
const LEAST_NS: i64 = 1_000_000;
/// Functions of processes that are followed.
const MOST_KNOWN: usize = 4096;

/// How long waits took.
pub(super) struct Slow {
    times: i64,
    known: HashMap<(i64, i64), Waits>,
}

#[derive(Default)]
struct Waits {
    durations: Durations,
    /// The longest that is usual, as of the batch before.
    usual_ns: Option<i64>,
}

impl Waits {
    fn look(&mut self) {
        let count = self.durations.count();
        self.usual_ns = self.durations.longest_but(count / 100).filter(|_| count >= ENOUGH);
    }
}

impl Slow {
    /// Waits of so many times the usual are slow.
    pub(super) fn new(times: u32) -> Slow {
        Slow { times: times.into(), known: HashMap::new() }
    }

    /// Forgets processes that have ended.
    pub(super) fn forget(&mut self, among: &Among) {
        self.known.retain(|(process, _), _| !among.holds(*process));
    }

    /// The slowest wait of a batch, if it was slow; `name` tells a function's.
    pub(super) fn slowest_of(&mut self, part: &Part, name: impl Fn(i64) -> String) -> Option<Noted> {
        if part.table() != TableId::Syncs {
            return None;
        }
        let rows = part.rows();
        let column = |name| numbers(rows, name);
        let (processes, functions) = (column("process_id"), column("api_id"));
        let (starts, lengths, kinds) = (column("start_ns"), column("api_ns"), Texts::of(rows, "kind")?);
        self.known.values_mut().for_each(Waits::look);
        let mut slowest: Option<(i64, Noted)> = None;
        for row in 0..rows.num_rows() {
            let key = (*processes.get(row)?, *functions.get(row)?);
            let waits = matches!(kinds.get(row), "context" | "stream" | "event");
            if !waits || self.known.len() >= MOST_KNOWN && !self.known.contains_key(&key) {
                continue;
            }
            let (start_ns, ns) = (*starts.get(row)?, *lengths.get(row)?);
            let of = self.known.entry(key).or_default();
            of.durations.add(ns.max(0) as u64);
            let Some(usual_ns) = of.usual_ns.filter(|usual| ns >= LEAST_NS && ns / self.times > *usual) else {
                continue;
            };
            if slowest.as_ref().is_none_or(|(longest, _)| ns > *longest) {
                let us = |ns: i64| ns / 1000;
                let why = format!("{} took {} us, where about {} us are usual", name(key.1), us(ns), us(usual_ns));
                slowest = Some((ns, Noted { at_ns: start_ns.saturating_add(ns), why }));
            }
        }
        slowest.map(|(_, noted)| noted)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn one_wait_in_a_hundred_may_be_longer_than_usual() {
        let of = |all: &[(u64, usize)]| {
            let mut waits = Waits::default();
            all.iter().for_each(|(ns, count)| (0..*count).for_each(|_| waits.durations.add(*ns)));
            waits.look();
            waits.usual_ns
        };
        let end_of = |ns| of(&[(ns, 1000)]).unwrap();
        assert!((1001..=1280).contains(&end_of(1000)) && (50_001..=65_536).contains(&end_of(50_000)));
        assert_eq!(of(&[(1000, 990), (50_000, 10)]), Some(end_of(1000)));
        assert_eq!(of(&[(1000, 990), (50_000, 11)]), Some(end_of(50_000)));
        assert_eq!(of(&[(1000, 90), (50_000, 10)]), None, "nobody knows yet");
    }
}
