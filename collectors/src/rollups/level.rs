//! Sums of periods of one length: two that are open, by time, and those that are over.
//!
//! Events of one thread come in the order of their time, those of different threads as far out of it as the collector lags
//! behind; and a call is known when it is over, which may be long after its begin. So the newest period and the one before
//! are open, and what is older makes one more row of its period.

use std::collections::BTreeMap;

use rustc_hash::FxHashMap;

use super::{Durations, Folded, Kind};
use crate::schema::MOST_BYTES;

/// Keys of a period; what further ones would have counts for its process and class alone.
pub(crate) const MOST_KEYS: usize = 4096;
/// Rows of periods that are long over, at most; further ones count for their class alone.
const MOST_LATE: usize = 1024;

/// What is told apart.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub(crate) struct Key {
    pub(crate) process_id: i64,
    pub(crate) pid: i32,
    pub(crate) kind: Kind,
    pub(crate) api_id: Option<i64>,
    pub(crate) name_id: Option<i64>,
    pub(crate) stack_id: Option<i64>,
    pub(crate) context: i32,
    pub(crate) device: Option<i32>,
    pub(crate) stream: Option<i64>,
}

impl Key {
    /// A process's class, and nothing more.
    pub(crate) fn new(process_id: i64, pid: i32, kind: Kind) -> Key {
        Key {
            process_id,
            pid,
            kind,
            api_id: None,
            name_id: None,
            stack_id: None,
            context: 0,
            device: None,
            stream: None,
        }
    }
}

/// The sums of a key in a period.
#[derive(Clone, Debug, Default)]
pub(crate) struct Stats {
    pub(crate) events: u64,
    pub(crate) errors: u64,
    /// Events whose duration is known, and these.
    pub(crate) timed: u64,
    pub(crate) total_ns: i64,
    pub(crate) least_ns: i64,
    pub(crate) most_ns: i64,
    pub(crate) bytes: i64,
    pub(crate) durations: Durations,
}

impl Stats {
    #[inline]
    fn add(&mut self, folded: &Folded) {
        self.events = self.events.saturating_add(folded.events);
        self.errors += u64::from(folded.failed);
        // Calls may be given sizes that no memory has: sums of these are still no damage to readers.
        self.bytes = self.bytes.saturating_add(folded.bytes).min(MOST_BYTES);
        if let Some(ns) = folded.took_ns {
            (self.least_ns, self.most_ns) = match self.timed {
                0 => (ns, ns),
                _ => (self.least_ns.min(ns), self.most_ns.max(ns)),
            };
            self.timed += 1;
            self.total_ns = self.total_ns.saturating_add(ns);
            self.durations.add(ns.max(0) as u64);
        }
    }

    fn is_empty(&self) -> bool {
        self.events == 0
    }

    /// What it is, and nothing in its place but the memory.
    fn empty(&mut self) -> Stats {
        let full = self.clone();
        let mut durations = std::mem::take(&mut self.durations);
        durations.clear();
        *self = Stats { durations, ..Stats::default() };
        full
    }
}

/// Sums of a period that is over.
#[derive(Clone, Debug)]
pub(crate) struct Row {
    pub(crate) key: Key,
    pub(crate) start_ns: i64,
    pub(crate) stats: Stats,
}

struct Slot {
    key: Key,
    /// Place of the one that followed it the last time: a loop has its keys in one order time after time.
    next: usize,
    /// Of the open periods: the one with an even number, and the other.
    stats: [Stats; 2],
}

/// The sums of all periods of one length.
pub(crate) struct Level {
    pub(crate) period_ns: i64,
    places: FxHashMap<Key, usize>,
    slots: Vec<Slot>,
    /// Place of the last event's key: calls come in rows.
    last: usize,
    /// Numbers of the open periods, the even one first.
    open: [Option<i64>; 2],
    /// The period of the last event: its number, and when it begins.
    latest: (i64, i64),
    late: BTreeMap<(i64, Key), Stats>,
    over: Vec<Row>,
}

impl Level {
    pub(super) fn new(period_ns: i64) -> Level {
        Level {
            period_ns: period_ns.max(1),
            places: FxHashMap::default(),
            slots: Vec::new(),
            last: 0,
            open: [None; 2],
            latest: (0, 0),
            late: BTreeMap::new(),
            over: Vec::new(),
        }
    }

    #[inline]
    pub(crate) fn fold(&mut self, folded: &Folded) {
        let period = self.period_of(folded.start_ns);
        let parity = (period & 1) as usize;
        match self.open[parity] {
            Some(open) if open == period => {}
            Some(open) if open > period => return self.fold_late(period, folded),
            was => {
                if was.is_some() {
                    self.close(parity);
                }
                self.open[parity] = Some(period);
            }
        }
        let place = self.place(&folded.key);
        if let Some(slot) = self.slots.get_mut(place) {
            slot.stats[parity].add(folded);
        }
    }

    /// The number of the period of a time. Most events are of one, and a division takes as long as all else here.
    #[inline]
    fn period_of(&mut self, at_ns: i64) -> i64 {
        let (period, begin_ns) = self.latest;
        if at_ns.wrapping_sub(begin_ns) as u64 >= self.period_ns as u64 {
            let period = at_ns.div_euclid(self.period_ns);
            self.latest = (period, period.saturating_mul(self.period_ns));
            return period;
        }
        period
    }

    #[inline]
    fn place(&mut self, key: &Key) -> usize {
        let is = |place: usize| self.slots.get(place).is_some_and(|slot| slot.key == *key);
        if is(self.last) {
            return self.last;
        }
        let next = self.slots.get(self.last).map_or(0, |slot| slot.next);
        self.last = if is(next) { next } else { self.follow(key) };
        self.last
    }

    /// Looks a key up, and notes that it follows the last one.
    fn follow(&mut self, key: &Key) -> usize {
        let place = self.places.get(key).copied().unwrap_or_else(|| self.add(*key));
        if let Some(slot) = self.slots.get_mut(self.last) {
            slot.next = place;
        }
        place
    }

    fn add(&mut self, key: Key) -> usize {
        let plain = Key::new(key.process_id, key.pid, key.kind);
        // Each process and class has its place at last, however many there are: processes are bounded elsewhere.
        let key = if self.slots.len() < MOST_KEYS { key } else { plain };
        let slots = &mut self.slots;
        *self.places.entry(key).or_insert_with(|| {
            slots.push(Slot { key, next: 0, stats: Default::default() });
            slots.len() - 1
        })
    }

    fn fold_late(&mut self, period: i64, folded: &Folded) {
        let plain = Key::new(folded.key.process_id, folded.key.pid, folded.key.kind);
        let key = if self.late.len() < MOST_LATE { folded.key } else { plain };
        self.late.entry((period, key)).or_default().add(folded);
    }

    /// Ends the open period of a parity.
    fn close(&mut self, parity: usize) {
        let Some(period) = self.open[parity].take() else { return };
        let start_ns = period.saturating_mul(self.period_ns);
        let full = self.slots.iter_mut().filter(|slot| !slot.stats[parity].is_empty());
        self.over.extend(full.map(|slot| Row { key: slot.key, start_ns, stats: slot.stats[parity].empty() }));
        // Keys of what is over for good must not stand in the way of others.
        if self.slots.len() > MOST_KEYS / 2 {
            self.slots.retain(|slot| slot.stats.iter().any(|stats| !stats.is_empty()));
            self.slots.iter_mut().for_each(|slot| slot.next = 0);
            self.places = self.slots.iter().enumerate().map(|(place, slot)| (slot.key, place)).collect();
            self.last = 0;
        }
    }

    /// Ends periods that were over one period ago; all of them where nothing more comes.
    pub(super) fn settle(&mut self, now_ns: i64, all: bool) {
        let due = now_ns.div_euclid(self.period_ns) - 2;
        let mut parities = [0, 1];
        parities.sort_by_key(|parity| self.open[*parity]);
        for parity in parities {
            if self.open[parity].is_some_and(|period| all || period <= due) {
                self.close(parity);
            }
        }
        for ((period, key), stats) in std::mem::take(&mut self.late) {
            self.over.push(Row { key, start_ns: period.saturating_mul(self.period_ns), stats });
        }
    }

    /// Rows of the periods that are over, since the last call.
    pub(crate) fn take(&mut self) -> Vec<Row> {
        std::mem::take(&mut self.over)
    }

    /// Rows of the open periods as they are.
    pub(crate) fn open(&self) -> impl Iterator<Item = Row> {
        self.slots.iter().flat_map(|slot| {
            self.open.iter().zip(&slot.stats).filter(|(_, stats)| !stats.is_empty()).filter_map(|(open, stats)| {
                let start_ns = (*open)?.saturating_mul(self.period_ns);
                Some(Row { key: slot.key, start_ns, stats: stats.clone() })
            })
        })
    }
}

#[cfg(test)]
mod tests {
    use gputrace_abi::Class;

    use super::*;

    fn event(start_ns: i64, stream: i64) -> Folded {
        let key = Key { stream: Some(stream), ..Key::new(1, 7, Kind::of(Class::Launch)) };
        Folded { key, start_ns, took_ns: Some(start_ns % 7), events: 1, bytes: 2, failed: start_ns % 5 == 0 }
    }

    fn rows(level: &mut Level) -> Vec<(i64, Option<i64>, u64)> {
        level.take().iter().map(|row| (row.start_ns, row.key.stream, row.stats.events)).collect()
    }

    #[test]
    fn sums_of_a_period_come_when_the_one_after_the_next_begins() {
        let mut level = Level::new(10);
        for at in [1, 12, 3, 19] {
            level.fold(&event(at, 0));
        }
        assert_eq!(rows(&mut level), []);
        assert_eq!(level.open().map(|row| (row.start_ns, row.stats.events)).collect::<Vec<_>>(), [(0, 2), (10, 2)]);
        level.fold(&event(20, 0));
        assert_eq!(rows(&mut level), [(0, Some(0), 2)]);
        level.settle(39, false);
        assert_eq!(rows(&mut level), [(10, Some(0), 2)]);
        level.settle(0, true);
        assert_eq!(rows(&mut level), [(20, Some(0), 1)]);
    }

    #[test]
    fn what_comes_late_is_one_more_row_of_its_period() {
        let mut level = Level::new(10);
        for at in [31, 5, 42, 6, -3] {
            level.fold(&event(at, 0));
        }
        level.settle(0, true);
        let mut found = rows(&mut level);
        found.sort_unstable();
        assert_eq!(found, [(-10, Some(0), 1), (0, Some(0), 1), (0, Some(0), 1), (30, Some(0), 1), (40, Some(0), 1)]);
    }

    #[test]
    fn sums_say_what_was_longest_and_what_failed() {
        let mut level = Level::new(100);
        [5, 20, 34].iter().for_each(|at| level.fold(&event(*at, 0)));
        level.settle(0, true);
        let stats = &level.take()[0].stats;
        assert_eq!((stats.timed, stats.total_ns, stats.least_ns, stats.most_ns), (3, 5 + 6 + 6, 5, 6));
        assert_eq!((stats.errors, stats.bytes, stats.durations.count()), (2, 6, 3));
    }

    #[test]
    fn sums_of_sizes_that_no_memory_has_are_no_damage() {
        let mut level = Level::new(100);
        (0..3).for_each(|at| level.fold(&Folded { bytes: MOST_BYTES, ..event(at, 0) }));
        level.settle(0, true);
        assert_eq!(level.take()[0].stats.bytes, MOST_BYTES);
    }

    #[test]
    fn more_keys_than_there_is_room_for_lose_their_names_and_no_event() {
        let mut level = Level::new(1000);
        let most = MOST_KEYS as i64;
        for n in 0..2 * most {
            level.fold(&event(1, n));
        }
        assert!(level.slots.len() <= MOST_KEYS + 1);
        level.settle(0, true);
        let found = rows(&mut level);
        assert_eq!(found.iter().map(|(_, _, events)| events).sum::<u64>(), 2 * MOST_KEYS as u64);
        assert_eq!(found.last(), Some(&(0, None, MOST_KEYS as u64)));
        // There is room again.
        level.fold(&event(1001, 9 * most));
        level.settle(0, true);
        assert_eq!(rows(&mut level), [(1000, Some(9 * most), 1)]);
    }
}
