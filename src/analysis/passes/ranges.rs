//! Ranges that the program named, by name.

use std::sync::Arc;

use gputrace_collectors::schema::TableId;
use rustc_hash::FxHashSet;

use super::Pass;
use super::folds::Folds;
use super::groups::Groups;
use super::launches::OTHER;
use super::stats::Stats;
use super::steps::{Cursor, Steps};
use crate::trace::{NO_NAME, Rows, Want};

/// What a range is.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub(crate) enum Kind {
    /// Pushed and popped by one thread.
    PushPop,
    /// Started and ended, by whichever threads.
    StartEnd,
    /// A moment.
    Mark,
}

impl Kind {
    fn of(text: &str) -> Kind {
        match text {
            "mark" => Kind::Mark,
            "start_end" => Kind::StartEnd,
            _ => Kind::PushPop,
        }
    }

    /// As in the table.
    pub(crate) fn text(self) -> &'static str {
        match self {
            Kind::PushPop => "push_pop",
            Kind::StartEnd => "start_end",
            Kind::Mark => "mark",
        }
    }
}

/// Which ranges are counted together.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(crate) struct Key {
    /// Process.
    pub(crate) process_id: i64,
    /// Domain; [`NO_NAME`] for the default one.
    pub(crate) domain_id: i64,
    /// Name; [`NO_NAME`] for none.
    pub(crate) name_id: i64,
    /// Pattern of the name where it is one of many ([`Folds`]); the name is [`NO_NAME`] then.
    pub(crate) pattern: Option<u32>,
    /// What they are.
    pub(crate) kind: Kind,
}

/// Ranges of one key.
#[derive(Clone, Debug, Default)]
pub(crate) struct Named {
    /// Durations of those that ended; marks have none.
    pub(crate) durations: Stats,
    /// Ranges and marks.
    pub(crate) count: u64,
    /// Ranges without an end in the trace.
    pub(crate) open: u64,
    /// Those in steady steps.
    pub(crate) steady: u64,
}

impl Named {
    /// Adds those of another key.
    pub(crate) fn merge(&mut self, other: &Named) {
        self.durations.merge(&other.durations);
        self.count += other.count;
        self.open += other.open;
        self.steady += other.steady;
    }
}

/// The pass.
#[derive(Debug)]
pub(crate) struct Ranges {
    /// By process, domain, name and kind.
    pub(crate) named: Groups<Key, Named>,
    /// Names that are too many to be counted one by one.
    pub(crate) folds: Arc<Folds>,
    cursor: Cursor,
}

impl Default for Ranges {
    fn default() -> Self {
        let other = Key { process_id: OTHER, domain_id: NO_NAME, name_id: OTHER, pattern: None, kind: Kind::PushPop };
        Ranges { named: Groups::new(20_000, other), folds: Arc::default(), cursor: Cursor::default() }
    }
}

impl Ranges {
    /// With these names of the trace that belong together.
    pub(crate) fn new(folds: Arc<Folds>) -> Ranges {
        Ranges { folds, ..Ranges::default() }
    }
}

impl Pass for Ranges {
    fn wants(&self) -> &'static [Want] {
        &[Want { table: TableId::Ranges, columns: &["end_ns", "kind", "name_id", "domain_id"] }]
    }

    fn rows(&mut self, rows: &Rows, steps: &Steps) {
        let (process, start, end) = (rows.i64("process_id"), rows.i64("start_ns"), rows.i64_or("end_ns", OPEN));
        let (name, domain) = (rows.i64_or("name_id", NO_NAME), rows.i64_or("domain_id", NO_NAME));
        let kind = rows.texts("kind");
        for row in 0..rows.len {
            let kind = Kind::of(kind.get(row));
            let pattern = self.folds.of(name[row]);
            let name_id = if pattern.is_some() { NO_NAME } else { name[row] };
            let key = Key { process_id: process[row], domain_id: domain[row], name_id, pattern, kind };
            let named = self.named.at(key);
            named.count += 1;
            named.steady += u64::from(steps.place(&mut self.cursor, process[row], start[row]).is_steady());
            match end[row] {
                OPEN => named.open += 1,
                end if kind != Kind::Mark => named.durations.add(end - start[row]),
                _ => {}
            }
        }
    }

    fn names(&self, ids: &mut FxHashSet<i64>) {
        ids.extend(self.named.iter().flat_map(|(key, _)| [key.name_id, key.domain_id]));
    }
}

/// Stands for an end that is not in the trace.
const OPEN: i64 = i64::MIN;
