//! How many launches lie between windows for each that lies in one, while there were windows.

use rustc_hash::FxHashMap;

use crate::trace::Rows;

/// The windows of a process: when the first began, when the last ended, and how long they were in all.
#[derive(Clone, Copy, Debug)]
struct Windows {
    from: i64,
    to: i64,
    ns: i64,
}

/// By process.
#[derive(Debug, Default)]
pub(super) struct Beside(FxHashMap<i64, Windows>);

impl Beside {
    /// Adds rows of `gpu_windows`.
    pub(super) fn add(&mut self, rows: &Rows) {
        let (process, start, length) = (rows.i64("process_id"), rows.i64("start_ns"), rows.i64("window_ns"));
        for row in 0..rows.len {
            let (from, ns) = (start[row], length[row].max(0));
            let own = self.0.entry(process[row]).or_insert(Windows { from, to: from, ns: 0 });
            (own.from, own.to, own.ns) = (own.from.min(from), own.to.max(from.saturating_add(ns)), own.ns + ns);
        }
    }

    /// Time beside windows, in parts of the time in them; 0 of a process without any.
    pub(super) fn of(&self, process_id: i64) -> f64 {
        let beside = |own: &Windows| (own.to - own.from - own.ns).max(0) as f64 / own.ns.max(1) as f64;
        self.0.get(&process_id).map_or(0.0, beside)
    }
}
