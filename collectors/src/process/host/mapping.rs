//! Rows of mmap's family: a row for each piece of a region that a call ends, and one for what it makes.

use gputrace_abi::event::Event;

use super::HostMemory;
use super::regions::Region;
use crate::tables::{HostAction, HostCall};

/// A call that was not timed may have got its memory so much later than it began.
const GRACE_NS: i64 = 100_000;
/// Regions that were mapped anew and whose end may still be told.
const MOST_REMAPPED: usize = 64;

/// A region that was mapped anew before its end was told: another thread began to map before this one gave it back.
#[derive(Debug)]
pub(super) struct Remapped {
    from: u64,
    to: u64,
    /// Thread that mapped it anew, and by when it had.
    by: i32,
    until_ns: i64,
}

impl HostMemory {
    /// The rows of memory that was mapped; the last one is `call` itself, with its action.
    pub(super) fn map(&mut self, event: &Event, call: &HostCall) -> Vec<HostCall> {
        let [from, how, _, bytes] = event.payload;
        let (protection, flags) = (how as u32, (how >> 32) as u32);
        let to = from.saturating_add(bytes);
        // No call of its own.
        let end = HostCall { api_ns: None, calls: 0, ..*call };
        let pieces = self.regions.take(from, to);
        let mut rows: Vec<HostCall> = pieces.iter().map(|piece| ended(&end, piece)).collect();
        for piece in pieces {
            // The kernel puts a region over another one only where it is told to.
            if flags & libc::MAP_FIXED as u32 == 0 {
                let until_ns = call.start_ns + call.api_ns.unwrap_or(GRACE_NS);
                self.remapped.truncate(MOST_REMAPPED - 1);
                self.remapped.insert(0, Remapped { from: piece.from, to: piece.to, by: call.tid, until_ns });
            }
        }
        let reserved = protection == libc::PROT_NONE as u32;
        self.regions.insert(Region { from, to, start_ns: call.start_ns, reserved, stack_id: call.stack_id });
        let (action, weight_bytes) = match reserved {
            true => (HostAction::Reserve, 0.0),
            false => (HostAction::Map, bytes as f64),
        };
        rows.push(HostCall { action, weight_bytes, ..*call });
        rows
    }

    /// The rows of memory that was given back.
    pub(super) fn unmap(&mut self, event: &Event, call: &HostCall) -> Vec<HostCall> {
        let [from, _, _, bytes] = event.payload;
        let to = from.saturating_add(bytes);
        let late = |remapped: &Remapped| {
            remapped.by != call.tid && call.start_ns <= remapped.until_ns && remapped.from <= from && to <= remapped.to
        };
        let pieces = match self.remapped.iter().position(late) {
            Some(at) => {
                self.remapped.remove(at);
                Vec::new()
            }
            None => self.regions.take(from, to),
        };
        if pieces.is_empty() {
            return vec![HostCall { action: HostAction::Unmap, weight_bytes: 0.0, ..*call }];
        }
        let mut rows: Vec<HostCall> = pieces.iter().map(|piece| ended(call, piece)).collect();
        rows.iter_mut().skip(1).for_each(|row| (row.calls, row.api_ns) = (0, None));
        rows
    }
}

/// The row of a piece that a call ended.
fn ended(call: &HostCall, piece: &Region) -> HostCall {
    HostCall {
        action: HostAction::Unmap,
        address: piece.from as i64,
        bytes: piece.bytes() as i64,
        weight_bytes: if piece.reserved { 0.0 } else { piece.bytes() as f64 },
        stack_id: piece.stack_id,
        age_ns: Some((call.start_ns - piece.start_ns).max(0)),
        ..*call
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const FIXED: u64 = (libc::MAP_FIXED as u64) << 32;
    const WRITE: u64 = libc::PROT_WRITE as u64;

    /// Action, address, bytes, weight, age and calls of the rows.
    type Row = (HostAction, i64, i64, i64, Option<i64>, i64);

    fn rows(host: &mut HostMemory, (tid, start_ns): (i32, i64), payload: [u64; 4], maps: bool) -> Vec<Row> {
        let (address, bytes) = (payload[0] as i64, payload[3] as i64);
        let call = HostCall { tid, start_ns, address, bytes, calls: 1, ..HostCall::default() };
        let event = Event { payload, ..Event::default() };
        let rows = if maps { host.map(&event, &call) } else { host.unmap(&event, &call) };
        rows.iter().map(|c| (c.action, c.address, c.bytes, c.weight_bytes as i64, c.age_ns, c.calls)).collect()
    }

    use HostAction::{Map, Reserve, Unmap};

    #[test]
    fn a_reservation_gives_way_to_memory_and_only_memory_has_weight() {
        let mut host = HostMemory::default();
        assert_eq!(rows(&mut host, (1, 0), [100, 0, 0, 50], true), [(Reserve, 100, 50, 0, None, 1)]);
        let committed = rows(&mut host, (1, 10), [110, WRITE | FIXED, 0, 10], true);
        assert_eq!(committed, [(Unmap, 110, 10, 0, Some(10), 0), (Map, 110, 10, 10, None, 1)]);
        let ended = rows(&mut host, (1, 30), [100, 0, 0, 50], false);
        let pieces =
            [(Unmap, 100, 10, 0, Some(30), 1), (Unmap, 110, 10, 10, Some(20), 0), (Unmap, 120, 30, 0, Some(30), 0)];
        assert_eq!(ended, pieces);
        assert_eq!(rows(&mut host, (1, 40), [100, 0, 0, 50], false), [(Unmap, 100, 50, 0, None, 1)]);
    }

    #[test]
    fn memory_that_was_mapped_anew_before_its_end_was_told_ends_once() {
        let mut host = HostMemory::default();
        rows(&mut host, (1, 0), [100, WRITE, 0, 50], true);
        // Thread 2 began to map before thread 1 gave back.
        let anew = rows(&mut host, (2, 10), [100, WRITE, 0, 50], true);
        assert_eq!(anew, [(Unmap, 100, 50, 50, Some(10), 0), (Map, 100, 50, 50, None, 1)]);
        assert_eq!(rows(&mut host, (1, 12), [100, 0, 0, 50], false), [(Unmap, 100, 50, 0, None, 1)]);
        assert_eq!(rows(&mut host, (1, 13), [100, 0, 0, 50], false), [(Unmap, 100, 50, 50, Some(3), 1)]);
    }
}
