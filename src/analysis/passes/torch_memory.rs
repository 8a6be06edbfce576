//! What PyTorch's caching allocator did and held, from its memory snapshot.
//!
//! The history is a ring: its front may be missing, and then it does not say what was live when it begins. What is held at
//! its end is known in full, so sums are kept from an unknown begin, as differences, and that begin is what remains at the
//! end. A block that was taken before the history and given back in it was live until then; its line is not known.

use gputrace_collectors::schema::TableId;
use rustc_hash::FxHashMap;

use crate::trace::{NO_STACK, Rows, Want};

/// Blocks and their bytes.
pub(crate) type Blocks = (i64, i64);

/// A quantity that is known as differences: where it is now, and the most that it was.
#[derive(Clone, Copy, Debug, Default)]
struct Course {
    now: i64,
    most: i64,
    most_ns: Option<i64>,
}

impl Course {
    /// Whether it is more than ever.
    fn add(&mut self, at: i64, bytes: i64) -> bool {
        self.now += bytes;
        let more = self.now > self.most;
        if more {
            (self.most, self.most_ns) = (self.now, Some(at));
        }
        more
    }
}

/// Memory of one device in one process.
#[derive(Debug, Default)]
pub(crate) struct Device {
    /// Whether there is a history.
    pub(crate) history: bool,
    /// Begin of the history.
    pub(crate) from_ns: i64,
    /// What the allocator has from the driver, at the end.
    pub(crate) reserved_bytes: i64,
    /// Blocks that tensors have, at the end.
    pub(crate) allocated: Blocks,
    /// Free blocks in segments that are used too: nothing larger fits in, and they cannot be given back.
    pub(crate) fragmented_bytes: i64,
    /// The largest free block.
    pub(crate) largest_free_bytes: i64,
    /// Allocations that failed, and the most that one asked for.
    pub(crate) failed: Blocks,
    /// What was live at the end, by stack.
    pub(crate) at_end: FxHashMap<i64, Blocks>,
    /// The same when most was live; [`NO_STACK`] also stands for what was taken before the history.
    pub(crate) at_peak: FxHashMap<i64, Blocks>,
    /// What was asked for and live, and what was reserved.
    live: Course,
    reserved: Course,
    requested_bytes: i64,
    /// Blocks of the history that are live: bytes and stack, by address.
    blocks: FxHashMap<i64, (i64, i64)>,
    by_stack: FxHashMap<i64, Blocks>,
    /// Whether there was never more than now.
    at_most: bool,
    /// Of segments bytes, and bytes that are free, by address.
    segments: FxHashMap<i64, (i64, i64)>,
}

impl Device {
    /// The most that tensors had asked for at once, and when, since the history's begin.
    pub(crate) fn peak(&self) -> Option<(i64, i64)> {
        let begin = self.requested_bytes - self.live.now;
        let at = self.live.most_ns.unwrap_or(self.from_ns);
        self.history.then(|| (begin + self.live.most, (at - self.from_ns).max(0)))
    }

    /// The most that the allocator had from the driver.
    pub(crate) fn peak_reserved_bytes(&self) -> Option<i64> {
        self.history.then(|| self.reserved_bytes - self.reserved.now + self.reserved.most)
    }

    fn event(&mut self, action: &str, at: i64, address: i64, bytes: i64, stack: i64) {
        if !self.history {
            (self.history, self.from_ns) = (true, at);
        }
        match action {
            "alloc" => {
                self.blocks.insert(address, (bytes, stack));
                add(&mut self.by_stack, stack, (1, bytes));
                self.at_most |= self.live.add(at, bytes);
            }
            "free_requested" => {
                self.keep_peak();
                let known = self.blocks.remove(&address);
                let (bytes, stack) = known.unwrap_or((bytes, NO_STACK));
                if known.is_some() {
                    add(&mut self.by_stack, stack, (-1, -bytes));
                }
                self.live.add(at, -bytes);
            }
            "segment_alloc" | "segment_map" => drop(self.reserved.add(at, bytes)),
            "segment_free" | "segment_unmap" => drop(self.reserved.add(at, -bytes)),
            "oom" => self.failed = (self.failed.0 + 1, self.failed.1.max(bytes)),
            _ => {}
        }
    }

    /// Keeps what is live while there was never more. On the way up that would be done too often.
    fn keep_peak(&mut self) {
        if std::mem::take(&mut self.at_most) {
            self.at_peak.clone_from(&self.by_stack);
        }
    }

    fn held(&mut self, action: &str, row: Held) {
        self.keep_peak();
        match action {
            "segment" => {
                self.reserved_bytes += row.bytes;
                self.segments.entry(row.address).or_default().0 += row.bytes;
            }
            "active" => {
                self.allocated = (self.allocated.0 + 1, self.allocated.1 + row.bytes);
                self.requested_bytes += row.requested_bytes;
                add(&mut self.at_end, row.stack, (1, row.requested_bytes));
                // Taken before the history: it was live all the time.
                if self.history && !self.blocks.contains_key(&row.address) {
                    add(&mut self.at_peak, row.stack, (1, row.requested_bytes));
                }
            }
            "inactive" => {
                self.segments.entry(row.segment).or_default().1 += row.bytes;
                self.largest_free_bytes = self.largest_free_bytes.max(row.bytes);
            }
            _ => {}
        }
    }

    fn end(&mut self) {
        self.fragmented_bytes = self.segments.values().filter(|(all, free)| free < all).map(|(_, free)| free).sum();
        let Some((peak, _)) = self.peak() else { return };
        let known: i64 = self.at_peak.values().map(|(_, bytes)| bytes).sum();
        if peak > known {
            add(&mut self.at_peak, NO_STACK, (0, peak - known));
        }
        self.at_peak.retain(|_, (_, bytes)| *bytes > 0);
    }
}

/// A segment or block of the state.
struct Held {
    address: i64,
    segment: i64,
    bytes: i64,
    requested_bytes: i64,
    stack: i64,
}

fn add(sums: &mut FxHashMap<i64, Blocks>, stack: i64, more: Blocks) {
    let sum = sums.entry(stack).or_default();
    *sum = (sum.0 + more.0, sum.1 + more.1);
}

/// Of all processes and devices.
#[derive(Debug, Default)]
pub(crate) struct TorchMemory {
    /// By process and ordinal.
    pub(crate) devices: FxHashMap<(i64, i32), Device>,
}

impl TorchMemory {
    /// The columns that it reads.
    pub(crate) const WANT: Want = Want {
        table: TableId::TorchMemory,
        columns: &["device", "action", "address", "segment", "bytes", "requested_bytes", "stack_id"],
    };

    /// Takes rows in: those of a history in the order of their time, then what was held.
    pub(crate) fn rows(&mut self, rows: &Rows) {
        let (process, start, device) = (rows.i64("process_id"), rows.i64("start_ns"), rows.i32_or("device", 0));
        let (action, address, segment) = (rows.texts("action"), rows.i64("address"), rows.i64("segment"));
        let (bytes, requested) = (rows.i64("bytes"), rows.i64_or("requested_bytes", -1));
        let stack = rows.i64_or("stack_id", NO_STACK);
        for row in 0..rows.len {
            let memory = self.devices.entry((process[row], device[row])).or_default();
            let (action, bytes) = (action.get(row), bytes[row].max(0));
            if matches!(action, "segment" | "active" | "pending_free" | "inactive") {
                let requested_bytes = if requested[row] < 0 { bytes } else { requested[row] };
                let (address, segment, stack) = (address[row], segment[row], stack[row]);
                memory.held(action, Held { address, segment, bytes, requested_bytes, stack });
            } else {
                memory.event(action, start[row], address[row], bytes, stack[row]);
            }
        }
    }

    /// No row will come any more.
    pub(crate) fn end(&mut self) {
        self.devices.values_mut().for_each(Device::end);
    }

    /// Stacks that a report on it names.
    pub(crate) fn stacks(&self) -> impl Iterator<Item = i64> {
        self.devices.values().flat_map(|device| device.at_end.keys().chain(device.at_peak.keys()).copied())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn held(address: i64, segment: i64, bytes: i64, stack: i64) -> Held {
        Held { address, segment, bytes, requested_bytes: bytes, stack }
    }

    #[test]
    fn a_history_whose_front_is_missing_has_the_peak_that_its_end_tells() {
        let mut device = Device::default();
        // 0x10 was taken before and stays; 0x20 was taken before and is given back; 0x30 comes and stays.
        device.event("segment_free", 5, 0x9000, 1000, 1);
        device.event("alloc", 10, 0x30, 300, 3);
        device.event("free_requested", 20, 0x20, 200, 9);
        device.event("alloc", 30, 0x40, 40, 4);
        device.event("free_requested", 40, 0x40, 40, 9);
        device.event("oom", 50, 0, 7777, 1);
        device.held("segment", held(0x10, 0, 1000, NO_STACK));
        device.held("active", held(0x10, 0x10, 100, 1));
        device.held("active", held(0x30, 0x10, 300, 3));
        device.held("inactive", held(0x40, 0x10, 600, NO_STACK));
        device.held("segment", held(0x5000, 0, 64, NO_STACK));
        device.held("inactive", held(0x5000, 0x5000, 64, NO_STACK));
        device.end();
        assert_eq!(device.peak(), Some((600, 5)), "100 + 200 of before, and 300");
        let mut at_peak: Vec<_> = device.at_peak.iter().map(|(stack, blocks)| (*stack, *blocks)).collect();
        at_peak.sort_unstable();
        assert_eq!(at_peak, [(NO_STACK, (0, 200)), (1, (1, 100)), (3, (1, 300))]);
        assert_eq!((device.reserved_bytes, device.peak_reserved_bytes()), (1064, Some(2064)));
        assert_eq!((device.fragmented_bytes, device.largest_free_bytes), (600, 600), "a free segment is no fragment");
        assert_eq!((device.allocated, device.failed), ((2, 400), (1, 7777)));
    }

    #[test]
    fn without_a_history_only_the_end_is_known() {
        let mut device = Device::default();
        device.held("segment", held(0x10, 0, 1000, NO_STACK));
        device.held("active", held(0x10, 0x10, 100, NO_STACK));
        device.end();
        assert_eq!((device.peak(), device.peak_reserved_bytes(), device.allocated), (None, None, (1, 100)));
        assert!(device.at_peak.is_empty());
    }
}
