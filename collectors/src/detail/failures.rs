//! Calls that returned an error for the first time: a moment worth keeping.
//!
//! Each result counts once in a process. Libraries ask for what is not there while they start, and programs that catch an error
//! make it again and again; the one that matters may come after it, and has a code of its own.

use std::collections::{HashMap, HashSet};

use arrow::array::AsArray;
use arrow::datatypes::Int32Type;

use super::split::{Part, names, numbers};
use crate::names::NameKind;
use crate::results::{self, DEINITIALIZED, has_failed, is_sticky};
use crate::schema::TableId;
use crate::summed::Among;
use crate::writer::Message;

/// Results that are remembered.
const MOST_KNOWN: usize = 1 << 16;

/// A call worth keeping.
pub(super) struct Noted {
    /// When it returned.
    pub(super) at_ns: i64,
    pub(super) why: String,
}

/// What failed before, and what functions are called.
#[derive(Default)]
pub(super) struct Failures {
    known: HashSet<(i64, bool, i32)>,
    names: HashMap<i64, String>,
}

impl Failures {
    /// Learns the names of functions.
    pub(super) fn learn(&mut self, message: &Message) {
        let Message::Rows(TableId::Names, rows, _) = message else { return };
        self.names.extend(names(rows, NameKind::Api).map(|(id, name)| (id, name.to_owned())));
    }

    /// Forgets processes that have ended.
    pub(super) fn forget(&mut self, among: &Among) {
        self.known.retain(|(process, ..)| !among.holds(*process));
    }

    /// What a function is called.
    pub(super) fn name(&self, api_id: i64) -> String {
        self.names.get(&api_id).map_or("a call", String::as_str).to_owned()
    }

    /// The first call of a batch whose result its process never had before.
    pub(super) fn first_of(&mut self, part: &Part) -> Option<Noted> {
        let rows = part.rows();
        let results = rows.column_by_name("result")?.as_primitive_opt::<Int32Type>()?.values();
        let nccl = part.table() == TableId::Collectives;
        let column = |name| numbers(rows, name);
        let (processes, starts, lengths) = (column("process_id"), column("start_ns"), column("api_ns"));
        let mut first: Option<Noted> = None;
        // Every program with a context of its own ends with calls of a driver that has gone.
        let counts = |result: i32| has_failed(result, nccl) && (nccl || result != DEINITIALIZED);
        for (row, result) in results.iter().enumerate().filter(|(_, result)| counts(**result)) {
            let process_id = *processes.get(row)?;
            if self.known.len() >= MOST_KNOWN || !self.known.insert((process_id, nccl, *result)) {
                continue;
            }
            let at_ns = starts.get(row)?.saturating_add(*lengths.get(row)?);
            if first.as_ref().is_none_or(|first| at_ns < first.at_ns) {
                let name = column("api_id").get(row).map_or_else(String::new, |id| self.name(*id));
                let pid = rows.column_by_name("pid")?.as_primitive_opt::<Int32Type>()?.value(row);
                let called = results::name(*result, name.starts_with('['), nccl);
                let stays =
                    if is_sticky(*result, nccl) { ", which stays: every later call of its context fails" } else { "" };
                first =
                    Some(Noted { at_ns, why: format!("{name} returned {result} ({called}{stays}) in process {pid}") });
            }
        }
        first
    }
}
