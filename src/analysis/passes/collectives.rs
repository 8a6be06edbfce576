//! Calls of NCCL: how many, how much, how long on the host; and kernels, which tell of calls that nobody saw.

use gputrace_collectors::results::has_failed;
use gputrace_collectors::schema::TableId;
use rustc_hash::{FxHashMap, FxHashSet};

use super::Pass;
use super::groups::Groups;
use super::launches::OTHER;
use super::stats::Stats;
use super::steps::{Cursor, Steps};
use crate::trace::{NO_NAME, Rows, Want};

/// What a call of NCCL was.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub(crate) enum Kind {
    /// All ranks take part.
    Collective,
    /// Two ranks take part.
    PointToPoint,
    /// A group begins, or ends and does its work.
    Group,
    /// A communicator is made, changed or ended.
    Communicator,
    /// Memory is taken, registered or given back.
    Memory,
    /// Of a newer version.
    #[default]
    Unknown,
}

impl Kind {
    const ALL: [(&'static str, Kind); 5] = [
        ("collective", Kind::Collective),
        ("point_to_point", Kind::PointToPoint),
        ("group", Kind::Group),
        ("communicator", Kind::Communicator),
        ("memory", Kind::Memory),
    ];

    fn of(text: &str) -> Kind {
        Kind::ALL.iter().find(|(name, _)| *name == text).map_or(Kind::Unknown, |(_, kind)| *kind)
    }

    /// As the table has it.
    pub(crate) fn text(self) -> &'static str {
        Kind::ALL.iter().find(|(_, kind)| *kind == self).map_or("unknown", |(name, _)| *name)
    }

    /// Whether it moves data between ranks.
    pub(crate) fn communicates(self) -> bool {
        matches!(self, Kind::Collective | Kind::PointToPoint)
    }
}

/// Which calls are summed together.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(crate) struct Key {
    /// Process.
    pub(crate) process_id: i64,
    /// What they were.
    pub(crate) kind: Kind,
    /// Function.
    pub(crate) api_id: i64,
    /// Number of the communicator in its process; 0 for none.
    pub(crate) communicator: i32,
}

/// Calls with one key.
#[derive(Debug, Default)]
pub(crate) struct Calls {
    /// Their durations on the host.
    pub(crate) api: Stats,
    /// Their bytes.
    pub(crate) bytes: i64,
    /// In groups, whose end does the work.
    pub(crate) grouped: u64,
    /// Under stream capture.
    pub(crate) captured: u64,
    /// That failed.
    pub(crate) failed: u64,
    /// In steady steps.
    pub(crate) steady: u64,
}

/// The pass.
#[derive(Debug)]
pub(crate) struct Collectives {
    /// Calls.
    pub(crate) calls: Groups<Key, Calls>,
    /// Rank and number of ranks of each communicator, by process and number; -1: not known.
    pub(crate) communicators: FxHashMap<(i64, i32), (i32, i32)>,
    /// What each has in common on all its ranks; 0 where that is not known.
    pub(crate) unique: FxHashMap<(i64, i32), i64>,
    /// Launches by process and kernel.
    kernels: Groups<(i64, i64), u64>,
    cursor: Cursor,
}

/// Communicators that are kept.
const COMMUNICATORS: usize = 100_000;

impl Default for Collectives {
    fn default() -> Self {
        let other = Key { process_id: OTHER, kind: Kind::Unknown, api_id: OTHER, communicator: 0 };
        Collectives {
            calls: Groups::new(20_000, other),
            communicators: FxHashMap::default(),
            unique: FxHashMap::default(),
            kernels: Groups::new(20_000, (OTHER, OTHER)),
            cursor: Cursor::default(),
        }
    }
}

impl Collectives {
    /// Launches of kernels, by process and name.
    pub(crate) fn kernels(&self) -> impl Iterator<Item = (i64, i64, u64)> {
        self.kernels.iter().map(|((process, name), count)| (*process, *name, *count))
    }

    fn communicators(&mut self, rows: &Rows) {
        let (process, number) = (rows.i64("process_id"), rows.i32_or("communicator", 0));
        let (rank, ranks) = (rows.i32_or("rank", -1), rows.i32_or("ranks", -1));
        let unique = rows.i64("unique_id");
        for row in 0..rows.len {
            if self.communicators.len() < COMMUNICATORS {
                self.communicators.insert((process[row], number[row]), (rank[row], ranks[row]));
                self.unique.insert((process[row], number[row]), unique[row]);
            }
        }
    }

    fn launches(&mut self, rows: &Rows) {
        let (process, name) = (rows.i64("process_id"), rows.i64_or("name_id", NO_NAME));
        for row in (0..rows.len).filter(|row| name[*row] != NO_NAME) {
            *self.kernels.at((process[row], name[row])) += 1;
        }
    }
}

impl Pass for Collectives {
    fn wants(&self) -> &'static [Want] {
        &[
            Want {
                table: TableId::Collectives,
                columns: &["api_ns", "api_id", "kind", "communicator", "bytes", "in_group", "captured", "result"],
            },
            Want { table: TableId::Communicators, columns: &["communicator", "unique_id", "rank", "ranks"] },
            Want { table: TableId::Launches, columns: &["name_id"] },
        ]
    }

    fn rows(&mut self, rows: &Rows, steps: &Steps) {
        match rows.table {
            TableId::Communicators => return self.communicators(rows),
            TableId::Launches => return self.launches(rows),
            _ => {}
        }
        let (process, start, length) = (rows.i64("process_id"), rows.i64("start_ns"), rows.i64("api_ns"));
        let (api, kind, bytes) = (rows.i64("api_id"), rows.texts("kind"), rows.i64("bytes"));
        let (communicator, result) = (rows.i32_or("communicator", 0), rows.i32_or("result", 0));
        let (grouped, captured) = (rows.flags("in_group"), rows.flags("captured"));
        for row in 0..rows.len {
            let kind = Kind::of(kind.get(row));
            // Other calls are of their function alone: a program may make thousands of communicators.
            let communicator = if kind.communicates() { communicator[row] } else { 0 };
            let key = Key { process_id: process[row], kind, api_id: api[row], communicator };
            let calls = self.calls.at(key);
            calls.api.add(length[row].max(0));
            calls.bytes = calls.bytes.saturating_add(bytes[row].max(0));
            calls.grouped += u64::from(grouped.get(row));
            calls.captured += u64::from(captured.get(row));
            calls.failed += u64::from(has_failed(result[row], true));
            calls.steady += u64::from(steps.place(&mut self.cursor, process[row], start[row]).is_steady());
        }
    }

    fn names(&self, ids: &mut FxHashSet<i64>) {
        ids.extend(self.calls.iter().map(|(key, _)| key.api_id));
        ids.extend(self.kernels.iter().map(|((_, name), _)| *name));
    }
}
