//! Driver calls that load code or make contexts: what a program pays before it works, and what it still pays later.

use gputrace_collectors::schema::TableId;
use rustc_hash::FxHashSet;

use super::Pass;
use super::groups::Groups;
use super::launches::OTHER;
use super::stats::Stats;
use super::steps::{Cursor, Steps};
use crate::trace::{Rows, Want};

/// Calls of one function.
#[derive(Debug, Default)]
pub(crate) struct Calls {
    /// Their durations.
    pub(crate) api: Stats,
    /// In steady steps of usual duration: calls and their time.
    pub(crate) middle: (u64, i64),
    /// Modules, libraries, kernels and functions; else streams, events, contexts, initialisation.
    pub(crate) module: bool,
}

/// The pass.
#[derive(Debug)]
pub(crate) struct Loading {
    /// By process and function.
    pub(crate) calls: Groups<(i64, i64), Calls>,
    cursor: Cursor,
}

impl Default for Loading {
    fn default() -> Self {
        Loading { calls: Groups::new(20_000, (OTHER, OTHER)), cursor: Cursor::default() }
    }
}

impl Pass for Loading {
    fn wants(&self) -> &'static [Want] {
        &[Want { table: TableId::Api, columns: &["api_ns", "api_id", "class"] }]
    }

    fn rows(&mut self, rows: &Rows, steps: &Steps) {
        let (process, start, length) = (rows.i64("process_id"), rows.i64("start_ns"), rows.i64("api_ns"));
        let (api, class) = (rows.i64("api_id"), rows.texts("class"));
        for row in 0..rows.len {
            let calls = self.calls.at((process[row], api[row]));
            calls.api.add(length[row]);
            calls.module = class.get(row) == "module";
            if steps.place(&mut self.cursor, process[row], start[row]).is_middle() {
                calls.middle = (calls.middle.0 + 1, calls.middle.1 + length[row].max(0));
            }
        }
    }

    fn names(&self, ids: &mut FxHashSet<i64>) {
        ids.extend(self.calls.iter().map(|((_, api), _)| *api));
    }
}
