//! Sums of one kind of event in one process: an addition each, whatever the event's duration is.

use crate::rollups::{BUCKETS, Durations, Folded, KINDS, Kind};
use crate::schema::MOST_BYTES;

/// Sums of one kind.
#[derive(Clone, Default)]
pub(super) struct Sum {
    events: u64,
    failed: u64,
    bytes: i64,
    timed: u64,
    total_ns: i64,
    waited_ns: i64,
    /// Durations by their bucket; made with the first.
    durations: Option<Box<[u64; BUCKETS]>>,
}

impl Sum {
    #[inline]
    fn add(&mut self, folded: &Folded) {
        self.events = self.events.saturating_add(folded.events);
        self.failed += u64::from(folded.failed);
        self.bytes = self.bytes.saturating_add(folded.bytes).min(MOST_BYTES);
        if let Some(ns) = folded.took_ns {
            self.timed += 1;
            self.total_ns = self.total_ns.saturating_add(ns);
            let durations = self.durations.get_or_insert_with(|| Box::new([0; BUCKETS]));
            if let Some(count) = durations.get_mut(usize::from(Durations::bucket(ns.max(0) as u64))) {
                *count += 1;
            }
        }
    }

    fn merge(&mut self, other: &Sum) {
        self.events = self.events.saturating_add(other.events);
        self.failed += other.failed;
        self.bytes = self.bytes.saturating_add(other.bytes).min(MOST_BYTES);
        self.timed += other.timed;
        self.total_ns = self.total_ns.saturating_add(other.total_ns);
        self.waited_ns = self.waited_ns.saturating_add(other.waited_ns);
        if let Some(more) = &other.durations {
            let durations = self.durations.get_or_insert_with(|| Box::new([0; BUCKETS]));
            durations.iter_mut().zip(more.iter()).for_each(|(count, more)| *count += more);
        }
    }

    fn describe(&self) -> super::snapshot::Kind {
        super::snapshot::Kind {
            events: self.events,
            failed: self.failed,
            bytes: self.bytes,
            timed: self.timed,
            total_ns: self.total_ns,
            waited_ns: self.waited_ns,
            durations: self.durations.as_ref().map(|counts| Durations::of(&counts[..])).unwrap_or_default(),
            ..super::snapshot::Kind::default()
        }
    }
}

/// Sums by kind.
#[derive(Clone, Default)]
pub(super) struct ByKind([Sum; KINDS]);

impl ByKind {
    #[inline]
    pub(super) fn add(&mut self, folded: &Folded) {
        if let Some(sum) = self.0.get_mut(usize::from(folded.key.kind.0)) {
            sum.add(folded);
        }
    }

    /// Time of calls of a kind was waiting.
    pub(super) fn waited(&mut self, kind: Kind, ns: i64) {
        if let Some(sum) = self.0.get_mut(usize::from(kind.0)) {
            sum.waited_ns = sum.waited_ns.saturating_add(ns);
        }
    }

    pub(super) fn merge(&mut self, other: &ByKind) {
        self.0.iter_mut().zip(&other.0).for_each(|(sum, more)| sum.merge(more));
    }

    /// Those that came.
    pub(super) fn describe(&self, into: &mut super::snapshot::Sums) {
        for (kind, sum) in self.0.iter().enumerate().filter(|(_, sum)| sum.events > 0) {
            into.kinds.entry(Kind(kind as u8).text().into()).or_default().add(&sum.describe());
        }
    }
}
