//! What streams took over from others, because they were made to wait for events of these.
//!
//! Of each stream that waits for others, their work that was pending then. What has been waited for since is thrown
//! out when the next is added.

use std::cmp::Reverse;
use std::collections::BTreeMap;

use super::{StreamId, Work};

/// Streams that took something over, and from how many others each.
const MOST_STREAMS: usize = 1 << 10;
const MOST_WORKS: usize = 64;

/// A stream in its context.
type Key = (u16, StreamId);

/// By the stream that waits: the work that it waits for, and since when.
#[derive(Debug, Default)]
pub(super) struct Joins(BTreeMap<Key, Vec<(Work, u64)>>);

impl Joins {
    /// Whether no stream waits for another.
    pub(super) fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    /// A stream waits for work from now on; returns of how many other streams. Work that is not `pending` is forgotten.
    pub(super) fn add(
        &mut self,
        key: Key,
        works: impl Iterator<Item = Work>,
        at: u64,
        pending: impl Fn(&Work) -> bool,
    ) -> i32 {
        let mut works = works.peekable();
        if works.peek().is_none() {
            return 0;
        }
        if self.0.len() >= MOST_STREAMS && !self.0.contains_key(&key) {
            self.0.retain(|_, known| known.iter().any(|(work, _)| pending(work)));
            if self.0.len() >= MOST_STREAMS {
                return 0;
            }
        }
        let known = self.0.entry(key).or_default();
        known.retain(|(work, _)| pending(work));
        let mut added = 0;
        for work in works {
            added += 1;
            let same = |(known, _): &(Work, u64)| (known.context, known.stream) == (work.context, work.stream);
            match known.iter().position(same) {
                Some(place) if known[place].0.until >= work.until => {}
                Some(place) => known[place] = (work, at),
                None if known.len() < MOST_WORKS => known.push((work, at)),
                None => {}
            }
        }
        added
    }

    /// The work that streams waited for before that time.
    pub(super) fn of(&self, streams: impl Iterator<Item = Key>, at: u64) -> Vec<Work> {
        once(streams.filter_map(|key| self.0.get(&key)).flat_map(|works| before(works, at)).collect())
    }

    /// The same of all streams of a context.
    pub(super) fn of_context(&self, context: u16, at: u64) -> Vec<Work> {
        let streams = self.0.range((context, StreamId(0))..=(context, StreamId(u64::MAX)));
        once(streams.flat_map(|(_, works)| before(works, at)).collect())
    }

    /// A stream is a new one.
    pub(super) fn forget(&mut self, context: u16, id: StreamId) {
        self.0.remove(&(context, id));
    }

    #[cfg(test)]
    pub(super) fn is_bounded(&self) -> bool {
        self.0.len() <= MOST_STREAMS && self.0.values().all(|works| works.len() <= MOST_WORKS)
    }
}

/// Of each stream the youngest work, which covers the others.
fn once(mut works: Vec<Work>) -> Vec<Work> {
    works.sort_by_key(|work| (work.context, work.stream, Reverse(work.until)));
    works.dedup_by_key(|work| (work.context, work.stream));
    works
}

fn before(works: &[(Work, u64)], at: u64) -> impl Iterator<Item = Work> + '_ {
    works.iter().filter(move |(_, since)| *since < at).map(|(work, _)| *work)
}
