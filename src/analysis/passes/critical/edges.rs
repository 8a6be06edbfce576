//! Begins and ends of calls in the order of time.
//!
//! Each table's calls come nearly in the order of their begin, so the tables' queues are merged as they are replayed; of the
//! calls that have begun only those that are not over yet are held beside them. Nothing is sorted as a whole.

use std::collections::VecDeque;

use gputrace_collectors::schema::TableId;

use super::host::Call;

/// The tables that hold calls.
const TABLES: [TableId; 7] = [
    TableId::Launches,
    TableId::Transfers,
    TableId::Syncs,
    TableId::DeviceMemory,
    TableId::Api,
    TableId::Collectives,
    TableId::OsWaits,
];

/// A call of a process.
#[derive(Clone, Copy, Debug)]
pub(super) struct Made {
    pub(super) process_id: i64,
    pub(super) call: Call,
}

impl Made {
    /// At one moment the order must not depend on which table came first.
    fn place(&self) -> (i64, i64, i32, i64, i64, Option<i64>) {
        let call = &self.call;
        (call.start, self.process_id, call.tid, call.end, call.api_id, call.cause())
    }

    fn place_of_end(&self) -> (i64, i64, i32, i64, Option<i64>, i64) {
        let call = &self.call;
        (call.end, self.process_id, call.tid, call.api_id, call.cause(), call.start)
    }
}

/// What happens next.
pub(super) enum Edge {
    Begin(Made),
    End(Made),
}

impl Edge {
    pub(super) fn at(&self) -> i64 {
        match self {
            Edge::Begin(made) => made.call.start,
            Edge::End(made) => made.call.end,
        }
    }
}

/// Calls that were not replayed yet.
#[derive(Debug)]
pub(super) struct Edges {
    /// Calls that have not begun, by table.
    tables: [VecDeque<Made>; TABLES.len()],
    /// When the first of each table begins; later than anything where there is none.
    begins: [i64; TABLES.len()],
    /// Whether a call came after one that begins later, by table.
    unsorted: [bool; TABLES.len()],
    /// Calls that have begun, the one that ends first last.
    open: Vec<Made>,
}

/// The place of a table's queue.
pub(super) fn queue_of(table: TableId) -> Option<usize> {
    TABLES.iter().position(|of| *of == table)
}

impl Default for Edges {
    fn default() -> Edges {
        Edges {
            tables: Default::default(),
            begins: [i64::MAX; TABLES.len()],
            unsorted: [false; TABLES.len()],
            open: Vec::new(),
        }
    }
}

impl Edges {
    /// Adds a call of the table with this queue.
    #[inline]
    pub(super) fn push(&mut self, queue: usize, made: Made) {
        let calls = &mut self.tables[queue];
        let is_late = |last: &Made| last.call.start >= made.call.start && last.place() > made.place();
        self.unsorted[queue] |= calls.back().is_some_and(is_late);
        calls.push_back(made);
        self.begins[queue] = self.begins[queue].min(made.call.start);
    }

    /// The next begin or end, if it is before this time: an end before a begin at the same moment.
    #[inline]
    pub(super) fn next(&mut self, before: i64) -> Option<Edge> {
        self.sort();
        let begins = self.begins.iter().copied().fold(i64::MAX, i64::min);
        let ends = self.open.last().map_or(i64::MAX, |made| made.call.end);
        if begins.min(ends) >= before {
            return None;
        }
        if ends <= begins {
            return self.open.pop().map(Edge::End);
        }
        let queue = self.first_at(begins)?;
        let made = self.tables[queue].pop_front()?;
        self.begins[queue] = self.tables[queue].front().map_or(i64::MAX, |made| made.call.start);
        let ends_later = |open: &Made| open.place_of_end() >= made.place_of_end();
        let place = self.open.iter().rposition(ends_later).map_or(0, |place| place + 1);
        self.open.insert(place, made);
        Some(Edge::Begin(made))
    }

    /// Puts those in order that came out of it: a pass over busy threads writes one thread's calls after the other's, and to look for
    /// the place of each took the square of their number.
    #[inline]
    fn sort(&mut self) {
        for (calls, unsorted) in self.tables.iter_mut().zip(&mut self.unsorted) {
            if std::mem::take(unsorted) {
                calls.make_contiguous().sort_by_key(Made::place);
            }
        }
    }

    /// The queue whose first call begins then; of several the one whose call comes first.
    #[inline]
    fn first_at(&self, begins: i64) -> Option<usize> {
        let mut at = (0..TABLES.len()).filter(|queue| self.begins[*queue] == begins);
        let first = at.next()?;
        let place = |queue: usize| self.tables[queue].front().map(Made::place);
        Some(at.fold(first, |first, other| if place(other) < place(first) { other } else { first }))
    }
}
