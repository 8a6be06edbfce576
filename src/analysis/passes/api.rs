//! Every driver call by process, thread and function, and those that did not succeed by their result.

use gputrace_collectors::schema::TableId;
use rustc_hash::FxHashSet;

use super::Pass;
use super::groups::Groups;
use super::launches::OTHER;
use super::stats::Stats;
use super::steps::Steps;
use crate::trace::{NO_STACK, Rows, Want};

/// Which calls are counted together.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(crate) struct Key {
    /// Process.
    pub(crate) process_id: i64,
    /// Thread.
    pub(crate) tid: i32,
    /// Function.
    pub(crate) api_id: i64,
    /// The table in which its calls stand.
    pub(crate) table: TableId,
}

/// Which results are counted together.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub(crate) struct Failed {
    /// Process.
    pub(crate) process_id: i64,
    /// Function.
    pub(crate) api_id: i64,
    /// Whether it is a function of NCCL, whose codes differ from the driver's.
    pub(crate) nccl: bool,
    /// Result.
    pub(crate) result: i32,
}

/// Calls with one result.
#[derive(Debug, Default)]
pub(crate) struct Results {
    /// Calls.
    pub(crate) calls: u64,
    /// When the first began.
    pub(crate) first_ns: i64,
    /// Stack of the first that has one, and when that began.
    pub(crate) first_stack: Option<i64>,
    stack_ns: i64,
}

/// The pass.
#[derive(Debug)]
pub(crate) struct Api {
    /// Durations.
    pub(crate) calls: Groups<Key, Stats>,
    /// Results other than 0.
    pub(crate) results: Groups<Failed, Results>,
}

impl Default for Api {
    fn default() -> Self {
        let other = Key { process_id: OTHER, tid: 0, api_id: OTHER, table: TableId::Api };
        let failed = Failed { process_id: OTHER, api_id: OTHER, nccl: false, result: -1 };
        Api { calls: Groups::new(20_000, other), results: Groups::new(10_000, failed) }
    }
}

impl Api {
    /// Stacks of the first calls that failed.
    pub(crate) fn stacks(&self) -> impl Iterator<Item = i64> {
        self.results.iter().filter_map(|(_, results)| results.first_stack)
    }
}

impl Pass for Api {
    fn wants(&self) -> &'static [Want] {
        const COLUMNS: &[&str] = &["tid", "api_ns", "api_id", "result", "stack_id"];
        &[
            Want { table: TableId::Launches, columns: COLUMNS },
            Want { table: TableId::Syncs, columns: COLUMNS },
            Want { table: TableId::Transfers, columns: COLUMNS },
            Want { table: TableId::DeviceMemory, columns: COLUMNS },
            Want { table: TableId::Api, columns: COLUMNS },
            Want { table: TableId::Collectives, columns: COLUMNS },
        ]
    }

    fn rows(&mut self, rows: &Rows, _: &Steps) {
        let table = rows.table;
        let (process, tid, start) = (rows.i64("process_id"), rows.i32_or("tid", 0), rows.i64("start_ns"));
        let (api, length, result) = (rows.i64("api_id"), rows.i64("api_ns"), rows.i32_or("result", 0));
        let stack = rows.i64_or("stack_id", NO_STACK);
        for row in 0..rows.len {
            let (process_id, api_id, at) = (process[row], api[row], start[row]);
            self.calls.at(Key { process_id, tid: tid[row], api_id, table }).add(length[row]);
            if result[row] != 0 {
                let nccl = table == TableId::Collectives;
                let results = self.results.at(Failed { process_id, api_id, nccl, result: result[row] });
                results.first_ns = if results.calls > 0 { results.first_ns.min(at) } else { at };
                results.calls += 1;
                if stack[row] != NO_STACK && (results.first_stack.is_none() || at < results.stack_ns) {
                    (results.first_stack, results.stack_ns) = (Some(stack[row]), at);
                }
            }
        }
    }

    fn names(&self, ids: &mut FxHashSet<i64>) {
        ids.extend(self.calls.iter().map(|(key, _)| key.api_id));
    }
}
