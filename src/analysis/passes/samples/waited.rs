//! When the host had waited for a device's last work: launches that were timed by chance do not tell when it ended.

use std::collections::VecDeque;

use rustc_hash::FxHashMap;

use crate::trace::Rows;

/// Waits that took so long had something to wait for until they ended; of a shorter one nobody knows how long before it the work was done.
const LONG_NS: i64 = 20_000;
/// Ends of waits that are kept of a device: what comes after its last launch is few.
const KEPT: usize = 64;

/// The latest ends of waits by process and device, in the order of their time.
#[derive(Debug, Default)]
pub(super) struct Waited(FxHashMap<(i64, i32), VecDeque<i64>>);

impl Waited {
    /// Adds rows of `syncs`.
    pub(super) fn add(&mut self, rows: &Rows) {
        let (process, device) = (rows.i64("process_id"), rows.i32_or("device", -1));
        let (start, length) = (rows.i64("start_ns"), rows.i64("api_ns"));
        let (kind, pending) = (rows.texts("kind"), rows.i32_or("pending_streams", 0));
        for row in (0..rows.len).filter(|row| pending[*row] > 0 && length[*row] >= LONG_NS) {
            if !matches!(kind.get(row), "context" | "stream" | "event") {
                continue;
            }
            let ends = self.0.entry((process[row], device[row])).or_default();
            let end = start[row].saturating_add(length[row]);
            let place = ends.partition_point(|known| *known <= end);
            if place > 0 || ends.len() < KEPT {
                ends.insert(place, end);
                if ends.len() > KEPT {
                    ends.pop_front();
                }
            }
        }
    }

    /// The end of the first wait that ended after this moment.
    pub(super) fn after(&self, process_id: i64, device: i32, ns: i64) -> Option<i64> {
        self.0.get(&(process_id, device))?.iter().copied().find(|end| *end > ns)
    }
}
