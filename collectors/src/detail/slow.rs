//! Waits that took far longer than waits of their function do: a moment worth keeping, where somebody asked for it.
//!
//! Each function of each process has a histogram of how long its waits took, four buckets for each power of two. A wait is slow when
//! it took so many times the 99th percentile of those before its batch, a millisecond at least; the first ones only count.

use std::collections::HashMap;

use super::failures::Noted;
use super::split::{Part, Texts, numbers};
use crate::schema::TableId;

/// Waits after which it is known how long they take.
const ENOUGH: u64 = 200;
/// What takes less is nothing that anybody would look for.
const LEAST_NS: i64 = 1_000_000;
/// Functions of processes that are followed.
const MOST_KNOWN: usize = 4096;
/// Buckets of a power of two, and of all.
const FINE: u32 = 4;
const BUCKETS: usize = 64 * FINE as usize;

/// How long waits took.
pub(super) struct Slow {
    times: i64,
    known: HashMap<(i64, i64), Waits>,
}

struct Waits {
    buckets: Box<[u64; BUCKETS]>,
    count: u64,
    /// The longest that is usual, as of the batch before.
    usual_ns: Option<i64>,
}

fn bucket(ns: i64) -> usize {
    let ns = ns.max(1) as u64;
    let power = ns.ilog2();
    // The two bits below the highest one.
    let fine = if power < 2 { 0 } else { (ns >> (power - 2)) as u32 & (FINE - 1) };
    (power * FINE + fine) as usize
}

/// Where a bucket ends.
fn end_of(bucket: usize) -> i64 {
    let (power, fine) = (bucket as u32 / FINE, bucket as u32 % FINE);
    let end = (1_u128 << power) * u128::from(FINE + fine + 1) / u128::from(FINE);
    i64::try_from(end).unwrap_or(i64::MAX)
}

impl Waits {
    const NONE: fn() -> Waits = || Waits { buckets: Box::new([0; BUCKETS]), count: 0, usual_ns: None };

    fn look(&mut self) {
        let mut above = self.count / 100;
        let last = self.buckets.iter().enumerate().rev().find(|(_, count)| {
            let found = **count > above;
            above = above.saturating_sub(**count);
            found
        });
        self.usual_ns = last.filter(|_| self.count >= ENOUGH).map(|(bucket, _)| end_of(bucket));
    }
}

impl Slow {
    /// Waits of so many times the usual are slow.
    pub(super) fn new(times: u32) -> Slow {
        Slow { times: times.into(), known: HashMap::new() }
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
            let of = self.known.entry(key).or_insert_with(Waits::NONE);
            of.count += 1;
            of.buckets[bucket(ns)] += 1;
            let Some(usual_ns) = of.usual_ns.filter(|usual| ns >= LEAST_NS && ns / self.times > *usual) else {
                continue;
            };
            if slowest.as_ref().is_none_or(|(longest, _)| ns > *longest) {
                let us = |ns: i64| ns / 1000;
                let why = format!("{} took {} us, where {} us are usual", name(key.1), us(ns), us(usual_ns));
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
    fn buckets_hold_what_they_say() {
        // Below four there are no two bits below the highest one.
        for ns in (0..200).map(|n| 1.2_f64.powi(n) as i64).filter(|ns| *ns >= 4) {
            let bucket = bucket(ns);
            assert!(bucket < BUCKETS && (end_of(bucket - 1)..end_of(bucket)).contains(&ns), "{ns}: {bucket}");
        }
        assert!([i64::MIN, 0, 1, 3].iter().all(|ns| bucket(*ns) < bucket(4)) && bucket(i64::MAX) < BUCKETS);
    }

    #[test]
    fn one_wait_in_a_hundred_may_be_longer_than_usual() {
        let mut waits = Waits::NONE();
        for (ns, count) in [(1000, 990), (50_000, 10)] {
            waits.count += count;
            waits.buckets[bucket(ns)] += count;
        }
        waits.look();
        assert_eq!(waits.usual_ns, Some(end_of(bucket(1000))));
        (waits.count, waits.buckets[bucket(50_000)]) = (1001, 11);
        waits.look();
        assert_eq!(waits.usual_ns, Some(end_of(bucket(50_000))));
        waits.count = 100;
        waits.look();
        assert_eq!(waits.usual_ns, None, "nobody knows yet");
    }
}
