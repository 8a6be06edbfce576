//! Memory taken from the driver: what is live, its peak, what was never given back, what the calls cost.
//!
//! Blocks are matched by process and address. An address is given back somewhere inside the call that frees it and taken
//! inside the call that allocates it, so a free counts from its beginning and an allocation from its end: another thread
//! may get an address before the call that freed it returns. Rows of different threads may come slightly out of order, so
//! a free that comes before its allocation is remembered and meets it. The memory needed is in proportion to the blocks
//! that the program holds.
//!
//! Of a part of a trace what was taken before is live when it begins; what the calls cost, and how many they are, is of the part.

use std::cmp::Reverse;
use std::collections::BinaryHeap;

use gputrace_collectors::names::{NameKind, id};
use gputrace_collectors::schema::TableId;
use rustc_hash::{FxHashMap, FxHashSet};

use super::Pass;
use super::groups::Groups;
use super::launches::OTHER;
use super::pinned::Pinned;
use super::stats::Stats;
use super::steps::{Cursor, Steps};
use super::timeline::Timeline;
use super::torch_memory::TorchMemory;
use crate::trace::{Filter, NO_NAME, NO_STACK, Parts, PartsOf, Rows, Trace, Want};

/// Kinds of memory, in the order of reports; the last is for kinds that this version does not know.
pub(crate) const KINDS: [&str; 8] =
    ["device", "async", "managed", "virtual", "array", "pinned", "registered", "unknown"];

/// Whether a kind lies on the host and not on the device.
pub(crate) fn on_host(kind: usize) -> bool {
    matches!(KINDS[kind], PINNED | "registered")
}

/// Host memory that the driver gives; registered memory is the program's own.
const PINNED: &str = "pinned";

/// Free calls that are remembered because their allocation has not come yet.
const EARLY: usize = 65_536;

/// Blocks and bytes of each kind.
pub(crate) type ByKind = [(u64, i64); KINDS.len()];

/// A block: its kind, bytes, and whose call took it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
struct Block {
    kind: usize,
    bytes: i64,
    stack_id: i64,
}

/// An allocation: its end, and where its block is.
type Begun = (i64, (bool, i64), Block);

/// Memory of one process.
#[derive(Debug, Default)]
pub(crate) struct ProcessMemory {
    /// What is live now, and after the last row: what was never given back.
    pub(crate) live: ByKind,
    /// Most bytes that were live on the device at once.
    pub(crate) peak_bytes: i64,
    /// When that was.
    pub(crate) peak_at_ns: i64,
    /// What was live then.
    pub(crate) at_peak: ByKind,
    /// Live bytes on the device over time.
    pub(crate) line: Timeline,
    /// Allocations that failed.
    pub(crate) failed: u64,
    /// Frees of blocks whose allocation is not in the trace.
    pub(crate) unknown_frees: u64,
    /// What of it was pinned on the host.
    pub(crate) pinned: Pinned,
    blocks: FxHashMap<(bool, i64), Block>,
    /// Allocations that began before the last row and end after its beginning, the next to end on top.
    begun: BinaryHeap<Reverse<Begun>>,
    early: FxHashMap<(bool, i64), i64>,
    device_bytes: i64,
    parts: Option<Parts>,
}

/// Calls of one function.
#[derive(Debug, Default)]
pub(crate) struct Calls {
    /// Their durations.
    pub(crate) api: Stats,
    /// Bytes taken.
    pub(crate) bytes: i64,
    /// In steady steps: calls and their time.
    pub(crate) steady: (u64, i64),
    /// In steady steps of usual duration: calls and their time.
    pub(crate) middle: (u64, i64),
}

/// The pass.
#[derive(Debug)]
pub(crate) struct DeviceMemory {
    /// By process.
    pub(crate) processes: Groups<i64, ProcessMemory>,
    /// By process, whether it allocates, kind and function.
    pub(crate) calls: Groups<(i64, bool, usize, i64), Calls>,
    /// Blocks and bytes taken, by process and label, of what the program gives one.
    pub(crate) labels: Groups<(i64, i64), (u64, i64)>,
    /// What PyTorch's allocator made of it.
    pub(crate) torch: TorchMemory,
    /// Mappings of physical memory: they take no memory of their own.
    mappings: [i64; 2],
    cursor: Cursor,
    parts: PartsOf,
}

impl Default for DeviceMemory {
    fn default() -> Self {
        DeviceMemory {
            processes: Groups::default(),
            calls: Groups::new(10_000, (OTHER, true, KINDS.len() - 1, OTHER)),
            labels: Groups::new(10_000, (OTHER, OTHER)),
            torch: TorchMemory::default(),
            mappings: ["cuMemMap", "cuMemUnmap"].map(|name| id(NameKind::Api, name)),
            cursor: Cursor::default(),
            parts: PartsOf::default(),
        }
    }
}

impl DeviceMemory {
    /// Of what is kept of a trace.
    pub(crate) fn new(trace: &Trace, filter: &Filter) -> DeviceMemory {
        DeviceMemory { parts: PartsOf::new(trace, filter), ..DeviceMemory::default() }
    }

    /// Ids of the stacks that took pinned memory, and of those behind PyTorch's.
    pub(crate) fn stacks(&self) -> FxHashSet<i64> {
        let pinned = self.processes.iter().flat_map(|(_, memory)| memory.pinned.stacks.iter().map(|(id, _)| *id));
        self.torch.stacks().chain(pinned.filter(|id| *id >= 0)).collect()
    }
}

impl ProcessMemory {
    fn parts(&mut self) -> &mut Parts {
        self.parts.get_or_insert_default()
    }

    /// What is live when a part begins may be the most that is live in it.
    fn begin(&mut self, at: i64) {
        while let Some(begin) = self.parts().begin(at) {
            self.changed(begin);
            if self.pinned.live_bytes > 0 {
                self.pinned.changed(begin);
            }
        }
    }

    /// Live memory on the device is another one from then on.
    fn changed(&mut self, at: i64) {
        if !self.parts().hold(at) {
            return;
        }
        if self.device_bytes > self.peak_bytes {
            (self.peak_bytes, self.peak_at_ns, self.at_peak) = (self.device_bytes, at, self.live);
        }
        self.line.set(at, self.device_bytes);
    }

    /// Takes in the allocations that had ended at this time.
    fn until(&mut self, at: i64) {
        while let Some(Reverse((end, key, block))) = self.begun.peek().copied().filter(|next| next.0.0 <= at) {
            self.begun.pop();
            self.alloc(end, key, block);
        }
    }

    fn alloc(&mut self, at: i64, key: (bool, i64), block: Block) {
        if self.parts().are_over(at) {
            return;
        }
        self.begin(at);
        if self.early.get(&key).is_some_and(|freed| at <= *freed) {
            self.early.remove(&key);
            return;
        }
        // An address that is taken again was freed by a call that is not in the trace.
        if let Some(old) = self.blocks.insert(key, block) {
            self.remove(at, old);
        }
        self.live[block.kind].0 += 1;
        self.live[block.kind].1 += block.bytes;
        self.take(at, block, 1);
    }

    fn free(&mut self, at: i64, key: (bool, i64)) {
        if self.parts().are_over(at) {
            return;
        }
        self.begin(at);
        match self.blocks.remove(&key) {
            Some(block) => self.remove(at, block),
            // Freeing nothing is allowed and does nothing.
            None if key.1 == 0 => {}
            None => {
                self.unknown_frees += u64::from(self.parts().hold(at));
                if self.early.len() < EARLY {
                    self.early.insert(key, at);
                }
            }
        }
    }

    fn remove(&mut self, at: i64, block: Block) {
        self.live[block.kind].0 -= 1;
        self.live[block.kind].1 -= block.bytes;
        self.take(at, block, -1);
    }

    /// A block is live on the device or pinned on the host from now on, or no longer (-1).
    fn take(&mut self, at: i64, block: Block, sign: i64) {
        if KINDS[block.kind] == PINNED {
            self.pinned.change(block.stack_id, block.bytes, sign);
            if self.parts().hold(at) {
                self.pinned.changed(at);
            }
        } else if !on_host(block.kind) {
            self.device_bytes += sign * block.bytes;
            self.changed(at);
        }
    }
}

/// A call.
struct Call {
    process_id: i64,
    is_alloc: bool,
    kind: usize,
    api_id: i64,
    ns: i64,
    bytes: i64,
    stack_id: i64,
    failed: bool,
}

/// The memory of a process.
fn memory<'m>(
    processes: &'m mut Groups<i64, ProcessMemory>,
    parts: &PartsOf,
    process_id: i64,
) -> &'m mut ProcessMemory {
    let memory = processes.at(process_id);
    memory.parts.get_or_insert_with(|| parts.of(process_id));
    memory
}

impl DeviceMemory {
    /// Counts a call that is kept.
    fn called(&mut self, call: &Call, at: i64, label: i64, steps: &Steps) {
        let Call { process_id, is_alloc, ns, bytes, .. } = *call;
        let calls = self.calls.at((process_id, is_alloc, call.kind, call.api_id));
        calls.api.add(ns);
        calls.bytes += if call.failed { 0 } else { bytes };
        let place = steps.place(&mut self.cursor, process_id, at);
        let add = |to: &mut (u64, i64)| *to = (to.0 + 1, to.1 + ns);
        if place.is_steady() {
            add(&mut calls.steady);
        }
        if place.is_middle() {
            add(&mut calls.middle);
        }
        let memory = memory(&mut self.processes, &self.parts, process_id);
        if is_alloc && !call.failed && KINDS[call.kind] == PINNED {
            memory.pinned.called(call.stack_id, bytes, ns);
        }
        if call.failed {
            memory.failed += u64::from(is_alloc);
        } else if is_alloc && label != NO_NAME && !self.mappings.contains(&call.api_id) {
            let taken = self.labels.at((process_id, label));
            *taken = (taken.0 + 1, taken.1 + bytes);
        }
    }
}

impl Pass for DeviceMemory {
    fn wants(&self) -> &'static [Want] {
        &[TorchMemory::WANT]
    }

    fn throughout(&self) -> &'static [Want] {
        const COLUMNS: &[&str] =
            &["api_ns", "api_id", "action", "kind", "address", "bytes", "label_id", "result", "stack_id"];
        &[Want { table: TableId::DeviceMemory, columns: COLUMNS }]
    }

    fn rows(&mut self, rows: &Rows, steps: &Steps) {
        if rows.table == TableId::TorchMemory {
            return self.torch.rows(rows);
        }
        let (process, start, length) = (rows.i64("process_id"), rows.i64("start_ns"), rows.i64("api_ns"));
        let (api, address, bytes) = (rows.i64("api_id"), rows.i64("address"), rows.i64("bytes"));
        let (action, kind, result) = (rows.texts("action"), rows.texts("kind"), rows.i32_or("result", 0));
        let (label, stack) = (rows.i64_or("label_id", NO_NAME), rows.i64_or("stack_id", NO_STACK));
        for row in 0..rows.len {
            if self.parts.is_gone(process[row]) {
                continue;
            }
            let (process_id, ns, bytes) = (process[row], length[row].max(0), bytes[row].max(0));
            let is_alloc = action.get(row) == "alloc";
            let kind = KINDS.iter().position(|k| *k == kind.get(row)).unwrap_or(KINDS.len() - 1);
            let (api_id, stack_id, failed) = (api[row], stack[row], result[row] != 0);
            let call = Call { process_id, is_alloc, kind, api_id, ns, bytes, stack_id, failed };
            if rows.is_kept(row) {
                self.called(&call, start[row], label[row], steps);
            }
            if call.failed || self.mappings.contains(&api[row]) {
                continue;
            }
            let memory = memory(&mut self.processes, &self.parts, process_id);
            let key = (KINDS[kind] == "virtual", address[row]);
            memory.until(start[row]);
            if is_alloc {
                memory.begun.push(Reverse((start[row] + ns, key, Block { kind, bytes, stack_id })));
            } else {
                memory.free(start[row], key);
            }
        }
    }

    fn end(&mut self, _: &Steps) {
        for memory in self.processes.values_mut() {
            memory.until(i64::MAX);
            memory.begin(i64::MAX);
        }
        self.torch.end();
    }

    fn names(&self, ids: &mut FxHashSet<i64>) {
        ids.extend(self.calls.iter().map(|((.., api), _)| *api));
        ids.extend(self.labels.iter().map(|((_, label), _)| *label));
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn block(kind: usize, bytes: i64) -> Block {
        Block { kind, bytes, stack_id: NO_STACK }
    }

    #[test]
    fn peaks_and_leaks_are_those_of_the_blocks() {
        let mut memory = ProcessMemory::default();
        memory.alloc(1, (false, 10), block(0, 100));
        memory.alloc(2, (false, 20), block(1, 50));
        memory.alloc(3, (false, 30), block(5, 7));
        memory.free(4, (false, 10));
        memory.alloc(5, (false, 40), block(0, 20));
        memory.free(6, (false, 0));
        assert_eq!((memory.peak_bytes, memory.peak_at_ns), (150, 2));
        assert_eq!((memory.at_peak[0], memory.at_peak[1]), ((1, 100), (1, 50)));
        assert_eq!((memory.live[0], memory.live[1], memory.live[5]), ((1, 20), (1, 50), (1, 7)));
        assert_eq!(memory.unknown_frees, 0);
        let pinned = &memory.pinned;
        assert_eq!((pinned.live_bytes, pinned.peak_bytes, pinned.stacks.get(&NO_STACK).unwrap().live), (7, 7, (1, 7)));
    }

    #[test]
    fn an_address_is_taken_again_before_the_call_that_freed_it_returns() {
        let mut memory = ProcessMemory::default();
        memory.begun.push(Reverse((2, (false, 10), block(0, 100))));
        // Another thread's allocation begins at 3 and ends at 9; the free from which it gets its block begins at 5.
        memory.until(3);
        memory.begun.push(Reverse((9, (false, 10), block(0, 100))));
        memory.until(5);
        memory.free(5, (false, 10));
        memory.until(i64::MAX);
        assert_eq!((memory.live[0], memory.unknown_frees, memory.peak_bytes), ((1, 100), 0, 100));
    }

    #[test]
    fn a_free_that_comes_before_its_allocation_meets_it() {
        let mut memory = ProcessMemory::default();
        memory.free(5, (false, 10));
        memory.alloc(4, (false, 10), block(0, 100));
        assert_eq!(memory.live[0], (0, 0));
        memory.alloc(6, (false, 10), block(0, 100));
        assert_eq!(memory.live[0], (1, 100));
        memory.alloc(7, (false, 10), block(0, 30));
        assert_eq!(memory.live[0], (1, 30), "the block was freed unseen");
    }
}
