//! Rollups: every event, before anything is left out of the single ones, added up by what it was and when.
//!
//! Two tables of sums: `rollups` of short periods by function and stream, `rollup_names` of longer ones by kernel, range and
//! line as well. The sum of `events` of each, by process and class, is what the manifest's accounts say was kept, dropped
//! and sampled out: what has no event of its own (launches that a budget leaves out, mallocs between samples, what found no
//! room) is added as a count without a time.
//!
//! **Bounded.** A table holds so many keys of a period (`level::MOST_KEYS`); what is beyond them is summed up by class alone.

mod durations;
mod level;

use std::time::Duration;

use gputrace_abi::Class;

use crate::schema::TableId;

pub(crate) use durations::BUCKETS;
pub use durations::Durations;
pub(crate) use level::{Key, Level, Row};

/// Periods of `rollup_names` are so many times as long as those of `rollups`: names and lines are many, and each has a row.
const NAMED_PERIODS: u32 = 60;

/// How many kinds there are.
pub(crate) const KINDS: usize = Kind::CLASSES as usize + 2;

/// What a row of rollups is about: the class of an event, or work of the GPU. The place of its text.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub(crate) struct Kind(pub(crate) u8);

impl Kind {
    /// A kernel that ran.
    pub(crate) const KERNEL: Kind = Kind(Kind::CLASSES);
    /// A copy or set that a GPU made.
    pub(crate) const DEVICE_COPY: Kind = Kind(Kind::CLASSES + 1);
    const CLASSES: u8 = gputrace_abi::layout::CLASSES as u8;

    pub(crate) fn of(class: Class) -> Kind {
        Kind(class as u8)
    }

    /// Its text.
    pub(crate) fn text(self) -> &'static str {
        match self {
            Kind::KERNEL => "kernel",
            Kind::DEVICE_COPY => "device_copy",
            Kind(class) => Class::from_u8(class).map_or("", Class::name),
        }
    }

    /// The texts of all.
    pub(crate) fn texts() -> Vec<&'static str> {
        (0..KINDS as u8).map(|kind| Kind(kind).text()).collect()
    }
}

/// One event, or several of one row.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Folded {
    pub(crate) key: Key,
    pub(crate) start_ns: i64,
    /// How long it took, where that is known.
    pub(crate) took_ns: Option<i64>,
    pub(crate) events: u64,
    pub(crate) bytes: i64,
    pub(crate) failed: bool,
}

/// How long the periods are that a row of this table is of; none: it holds no sums. `rollup`: how long the short ones are.
pub(crate) fn period(table: TableId, rollup: Option<Duration>) -> Option<Duration> {
    match table {
        TableId::Rollups => rollup,
        TableId::RollupNames => Some(rollup?.saturating_mul(NAMED_PERIODS)),
        _ => None,
    }
}

/// The sums on their way into the tables.
pub(crate) struct Rollups {
    pub(crate) fine: Level,
    pub(crate) named: Level,
}

impl Rollups {
    /// With short periods of such a length.
    pub(crate) fn new(period: Duration) -> Rollups {
        let level = |period: Duration| Level::new(i64::try_from(period.as_nanos()).unwrap_or(i64::MAX));
        Rollups { fine: level(period), named: level(period.saturating_mul(NAMED_PERIODS)) }
    }

    /// Adds one.
    #[inline]
    pub(crate) fn fold(&mut self, folded: &Folded) {
        let key = Key { name_id: None, stack_id: None, ..folded.key };
        self.fine.fold(&Folded { key, ..*folded });
        self.named.fold(folded);
    }

    /// Ends the periods in which nothing is to be expected any more; at the end, all.
    pub(crate) fn settle(&mut self, now_ns: i64, all: bool) {
        self.fine.settle(now_ns, all);
        self.named.settle(now_ns, all);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_class_has_its_text() {
        let texts = Kind::texts();
        assert_eq!(texts[Kind::of(Class::Launch).0 as usize], "launch");
        assert_eq!(texts[Kind::KERNEL.0 as usize], "kernel");
        assert_eq!(texts[Kind::DEVICE_COPY.0 as usize], "device_copy");
    }

    #[test]
    fn names_and_lines_are_told_apart_in_the_longer_periods_only() {
        let mut rollups = Rollups::new(Duration::from_secs(1));
        for name in [1, 2, 1] {
            let key = Key { name_id: Some(name), ..Key::new(1, 7, Kind::of(Class::Launch)) };
            rollups.fold(&Folded { key, start_ns: 5, took_ns: Some(3), events: 1, bytes: 0, failed: false });
        }
        rollups.settle(0, true);
        let events = |level: &mut Level| level.take().iter().map(|row| row.stats.events).collect::<Vec<_>>();
        assert_eq!(events(&mut rollups.fine), [3]);
        assert_eq!(events(&mut rollups.named), [2, 1]);
    }
}
