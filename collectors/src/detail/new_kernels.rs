//! Kernels that a process launches for the first time, long after it has settled: a moment worth keeping, where somebody asked for it.
//!
//! A program that starts launches nothing but kernels that are new, and one that begins to validate launches a handful. A kernel is a
//! moment when its process has launched others, and none that was new, for as long as was asked for: of a handful the first one.

use std::collections::{HashMap, HashSet};
use std::time::Duration;

use arrow::array::AsArray;
use arrow::datatypes::{Int32Type, Int64Type};

use super::failures::Noted;
use super::split::{Part, names, numbers};
use crate::demangle::full_name;
use crate::names::NameKind;
use crate::schema::TableId;
use crate::summed::Among;
use crate::writer::Message;

/// Kernels of processes that are followed, and names.
const MOST_KNOWN: usize = 1 << 16;
/// Characters of a name that are told.
const MOST_TOLD: usize = 100;

/// Which kernels were launched.
pub(super) struct NewKernels {
    /// None: nobody asks. Names are learnt all the same, for they are told once.
    settled_ns: Option<i64>,
    names: HashMap<i64, String>,
    known: HashSet<(i64, i64)>,
    /// When each process launched last what was new.
    newest: HashMap<i64, i64>,
}

impl NewKernels {
    /// What is new after so long is a moment.
    pub(super) fn new(settled: Option<Duration>) -> NewKernels {
        let mut kernels =
            NewKernels { settled_ns: None, names: HashMap::new(), known: HashSet::new(), newest: HashMap::new() };
        kernels.ask(settled);
        kernels
    }

    /// The same from now on; which kernels are new is learnt from then on, where nobody asked before.
    pub(super) fn ask(&mut self, settled: Option<Duration>) {
        self.settled_ns = settled.map(|time| i64::try_from(time.as_nanos()).unwrap_or(i64::MAX));
        if settled.is_none() {
            (self.known, self.newest) = (HashSet::new(), HashMap::new());
        }
    }

    /// Learns the names of kernels.
    pub(super) fn learn(&mut self, message: &Message) {
        let Message::Rows(TableId::Names, rows, _) = message else { return };
        let room = MOST_KNOWN.saturating_sub(self.names.len());
        self.names.extend(names(rows, NameKind::Kernel).map(|(id, name)| (id, name.to_owned())).take(room));
    }

    /// Forgets processes that have ended.
    pub(super) fn forget(&mut self, among: &Among) {
        self.known.retain(|(process, _)| !among.holds(*process));
        self.newest.retain(|process, _| !among.holds(*process));
    }

    /// The first kernel of a batch that its process launched so late for the first time.
    pub(super) fn first_of(&mut self, part: &Part) -> Option<Noted> {
        let settled_ns = self.settled_ns?;
        // Those of a graph show where they ran.
        if !matches!(part.table(), TableId::Launches | TableId::Kernels | TableId::Dispatches) {
            return None;
        }
        let rows = part.rows();
        let (processes, starts) = (numbers(rows, "process_id"), numbers(rows, "start_ns"));
        let named = rows.column_by_name("name_id")?.as_primitive_opt::<Int64Type>()?;
        let mut first: Option<Noted> = None;
        for (row, id) in named.iter().enumerate() {
            let Some(id) = id else { continue };
            let (process, at_ns) = (*processes.get(row)?, *starts.get(row)?);
            if self.known.len() >= MOST_KNOWN || !self.known.insert((process, id)) {
                continue;
            }
            let newest_ns = self.newest.entry(process).or_insert(at_ns);
            let quiet_ns = at_ns.saturating_sub(*newest_ns);
            *newest_ns = at_ns.max(*newest_ns);
            if quiet_ns >= settled_ns && first.as_ref().is_none_or(|first| at_ns < first.at_ns) {
                let pid = rows.column_by_name("pid").and_then(|column| column.as_primitive_opt::<Int32Type>());
                let pid = pid.map_or(0, |pids| pids.value(row));
                let name = self.names.get(&id).map_or("a kernel".to_owned(), |name| full_name(name));
                let name: String = name.chars().take(MOST_TOLD).collect();
                let s = quiet_ns as f64 / 1e9;
                let why =
                    format!("process {pid} launched {name} for the first time, after {s:.1} s without a new kernel");
                first = Some(Noted { at_ns, why });
            }
        }
        first
    }
}
