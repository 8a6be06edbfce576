//! Waits for the operating system, by function and by thread.

use gputrace_collectors::schema::TableId;
use rustc_hash::FxHashSet;

use super::Pass;
use super::groups::Groups;
use super::launches::OTHER;
use super::stats::Stats;
use super::steps::{Cursor, Steps};
use crate::trace::{Rows, Want};

/// Waits in one function.
#[derive(Debug, Default)]
pub(crate) struct Calls {
    /// Kind, as in the table: each function has one.
    pub(crate) kind: String,
    /// All.
    pub(crate) all: Stats,
    /// In steady steps.
    pub(crate) steady: u64,
    /// Bytes read or written.
    pub(crate) bytes: i64,
    /// Those that failed: most of them ran out of time.
    pub(crate) failed: u64,
}

/// The pass.
#[derive(Debug)]
pub(crate) struct OsWaits {
    /// By process and function.
    pub(crate) calls: Groups<(i64, i64), Calls>,
    /// By process and thread.
    pub(crate) threads: Groups<(i64, i32), Stats>,
    cursor: Cursor,
}

impl Default for OsWaits {
    fn default() -> Self {
        OsWaits {
            calls: Groups::new(50_000, (OTHER, OTHER)),
            threads: Groups::new(50_000, (OTHER, -1)),
            cursor: Cursor::default(),
        }
    }
}

impl Pass for OsWaits {
    fn wants(&self) -> &'static [Want] {
        &[Want { table: TableId::OsWaits, columns: &["tid", "wait_ns", "api_id", "kind", "bytes", "errno"] }]
    }

    fn rows(&mut self, rows: &Rows, steps: &Steps) {
        let (process, tid) = (rows.i64("process_id"), rows.i32_or("tid", 0));
        let (start, length, api) = (rows.i64("start_ns"), rows.i64("wait_ns"), rows.i64("api_id"));
        let (kind, bytes, errno) = (rows.texts("kind"), rows.i64("bytes"), rows.i32_or("errno", 0));
        for row in 0..rows.len {
            let calls = self.calls.at((process[row], api[row]));
            if calls.all.count == 0 {
                calls.kind = kind.get(row).to_owned();
            }
            calls.all.add(length[row]);
            calls.steady += u64::from(steps.place(&mut self.cursor, process[row], start[row]).is_steady());
            calls.bytes = calls.bytes.saturating_add(bytes[row].max(0));
            calls.failed += u64::from(errno[row] != 0);
            self.threads.at((process[row], tid[row])).add(length[row]);
        }
    }

    fn names(&self, ids: &mut FxHashSet<i64>) {
        ids.extend(self.calls.iter().map(|((_, api_id), _)| *api_id));
    }
}
