//! Calls of NCCL, as PyTorch would have told them: the arguments of a `record_param_comms`.
//!
//! A trace that was imported has both the call and the range of the operator that told it: only the call is written then, and
//! brings the range with it when it is read again.

use std::io;

use gputrace_collectors::schema::{IMPORTED_ONLY, TableId};
use rustc_hash::FxHashMap;

use super::output::quoted;
use crate::import::{OPERATOR, Told};
use crate::spilled::Numbers;
use crate::trace::{Filter, Rows, Trace, Want};

/// What is read of each call.
pub(super) const WANT: Want = Want {
    table: TableId::Collectives,
    columns: &["api_ns", "pid", "tid", "api_id", "kind", "communicator", "count", "data_type", "bytes", IMPORTED_ONLY],
};

/// What is known of a communicator: its identity on all ranks, the own rank, and how many there are.
#[derive(Clone, Copy, Default)]
struct Group {
    unique_id: i64,
    rank: i32,
    ranks: i32,
}

/// The communicators, and which ranges stand for calls.
pub(super) struct Collectives {
    /// By process and number.
    groups: FxHashMap<(i64, i32), Group>,
    /// Process, thread and begin of each call.
    told: Numbers,
}

impl Collectives {
    pub(super) fn read(trace: &Trace) -> io::Result<Collectives> {
        let (mut groups, mut told, mut done) = (FxHashMap::default(), Numbers::default(), Ok(()));
        let wants = [
            Want { table: TableId::Communicators, columns: &["communicator", "unique_id", "rank", "ranks"] },
            Want { table: TableId::Collectives, columns: &["tid", "kind"] },
        ];
        trace.scan(&wants, &Filter::default(), &mut |rows| {
            let (process, start) = (rows.i64("process_id"), rows.i64("start_ns"));
            if rows.table == TableId::Collectives {
                let tid = rows.i32_or("tid", 0);
                for row in calls(rows) {
                    if done.is_ok() {
                        done = told.of(&(process[row], tid[row], start[row])).map(drop);
                    }
                }
                return;
            }
            let (number, unique) = (rows.i32_or("communicator", 0), rows.i64_or("unique_id", 0));
            let (rank, ranks) = (rows.i32_or("rank", -1), rows.i32_or("ranks", 0));
            groups.extend((0..rows.len).map(|row| {
                let group = Group { unique_id: unique[row], rank: rank[row], ranks: ranks[row] };
                ((process[row], number[row]), group)
            }));
        });
        done.map(|()| Collectives { groups, told })
    }

    /// Whether a range is only the operator around a call that is written itself. Names are as JSON has them.
    pub(super) fn tells(&self, name: &str, process_id: i64, tid: i32, start_ns: i64) -> io::Result<bool> {
        Ok(name.trim_matches('"') == OPERATOR && self.told.has(&(process_id, tid, start_ns))?)
    }

    /// Gives the arguments of the call in a row, without the braces around them; asked with the row and the function.
    pub(super) fn arguments<'a>(&'a self, rows: &'a Rows) -> impl Fn(usize, &str) -> String + 'a {
        let (count, bytes, process) = (rows.i64("count"), rows.i64("bytes"), rows.i64("process_id"));
        let (number, data_type) = (rows.i32_or("communicator", 0), rows.texts("data_type"));
        move |row, function| {
            let group = self.groups.get(&(process[row], number[row])).copied().unwrap_or_default();
            let told = Told::of(function, data_type.get(row), count[row], group.ranks);
            let mut text = format!(
                r#""Collective name":{},"dtype":{},"In msg nelems":{},"Out msg nelems":{}"#,
                quoted(told.name),
                quoted(told.data_type),
                told.elements_in,
                told.elements_out
            );
            // What PyTorch has no words for.
            text +=
                &format!(r#","NCCL call":{},"bytes":{},"communicator":{}"#, quoted(function), bytes[row], number[row]);
            if number[row] != 0 {
                text += &format!(r#","Process Group Name":"{}","communicator id":"{}""#, number[row], group.unique_id);
            }
            if group.ranks > 0 {
                text += &format!(r#","Group size":{},"communicator rank":{}"#, group.ranks, group.rank);
            }
            text
        }
    }
}

/// The rows that move data; what begins and ends groups and communicators has no operator.
pub(super) fn calls(rows: &Rows) -> impl Iterator<Item = usize> {
    let kind = rows.texts("kind");
    (0..rows.len).filter(move |row| matches!(kind.get(*row), "collective" | "point_to_point"))
}
