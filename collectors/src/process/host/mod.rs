//! Host memory of one process: rows of malloc's, free's and mmap's family, and which block a free ends.
//!
//! One thread allocates what another one frees, and the same address is soon used again: events are put into the order of
//! their time before blocks are looked for, as far as every ring was read. One order stays open: malloc's time is from
//! before the call, so that a block may seem to be allocated again just before another thread frees it.

mod blocks;
mod culling;
mod mapping;
mod regions;

use gputrace_abi::Class;
use gputrace_abi::event::{Event, detail};
use gputrace_abi::shed::Shed;

use super::Process;
use crate::bindings::ByHandle;
use crate::clock::Clocks;
use crate::names::Written;
use crate::tables::{BATCH_ROWS, HostAction, HostCall, Tables};
use blocks::{Block, Blocks};
use culling::Culling;
use mapping::Remapped;
use regions::Regions;

/// A malloc that was not timed may have taken its block so much later than it began.
const GRACE_NS: i64 = 100_000;
/// Blocks that another one took the place of, and that are remembered.
const MOST_DISPLACED: usize = 1 << 12;
/// Events that wait for others, at most; only a process that makes times up has more.
const MOST_WAITING: usize = 1 << 20;

/// Host memory of one process.
#[derive(Default)]
pub(super) struct HostMemory {
    /// Events whose turn has not come; `commit` holds the id of their thread.
    waiting: Vec<Event>,
    /// How many there were at most, less and less of those that are long ago.
    most_waited: usize,
    is_here: bool,
    blocks: Blocks,
    displaced: ByHandle<Displaced>,
    regions: Regions,
    remapped: Vec<Remapped>,
    /// Where rows wait, and which are left out; none where all are written.
    culling: Option<Culling>,
}

/// A block that was not seen freed before another one had its address.
struct Displaced {
    block: Block,
    /// Thread that allocated the other one, and by when it had it.
    by: i32,
    until_ns: i64,
}

impl HostMemory {
    /// An event of malloc's or free's, by the thread with this id.
    #[inline]
    pub(super) fn take(&mut self, event: &Event, tid: i32) {
        self.is_here = true;
        self.waiting.push(Event { commit: tid as u32, ..*event });
    }

    /// Whether the process had an event of these.
    pub(super) fn is_here(&self) -> bool {
        self.is_here
    }

    /// Allocations that were left out, and as many frees.
    pub(super) fn culled(&self) -> u64 {
        self.culling.as_ref().map_or(0, Culling::culled)
    }

    /// What a reader must know, a sentence each.
    pub(super) fn notes(&self) -> Vec<String> {
        let (forgotten, early) = (self.blocks.forgotten(), self.culling.as_ref().map_or(0, Culling::early));
        let forgotten = (forgotten > 0).then(|| {
            format!("too many blocks of malloc were live at once: the frees of {forgotten} have no size, age or stack")
        });
        let early = (early > 0).then(|| {
            format!(
                "--cull kept {early} allocations that it might have left out: too many lived within its time at once"
            )
        });
        forgotten.into_iter().chain(early).collect()
    }

    fn put(&mut self, call: &HostCall, tables: &mut Tables) {
        match &mut self.culling {
            None => tables.host(call),
            Some(culling) => culling.push(*call, &mut |row| tables.host(row)),
        }
    }

    fn allocate(&mut self, address: u64, block: &Block, call: &HostCall) {
        let Some(old) = self.blocks.insert(address, block) else { return };
        if self.displaced.len() >= MOST_DISPLACED {
            self.displaced.clear();
        }
        let until_ns = call.start_ns + call.api_ns.unwrap_or(GRACE_NS);
        self.displaced.insert(address, Displaced { block: old, by: call.tid, until_ns });
    }

    /// The block that a free ends.
    fn free(&mut self, address: u64, call: &HostCall) -> Option<Block> {
        if !self.displaced.is_empty()
            && let Some(old) = self.displaced.remove(&address)
            && old.by != call.tid
            && call.start_ns <= old.until_ns
        {
            return Some(old.block);
        }
        self.blocks.remove(address)
    }
}

impl Process {
    /// From now on allocations that are freed within so long become sums, where each is recorded.
    pub(crate) fn cull(&mut self, within_ns: i64) {
        if self.facts.malloc_mode == "full" {
            self.host.culling = Some(Culling::new(within_ns, self.id, self.pid));
        }
    }

    /// Makes rows of all events, whatever they wait for.
    pub(super) fn finish_host(&mut self, clocks: &Clocks, tables: &mut Tables, written: &mut Written) {
        self.settle_host(u64::MAX, clocks, tables, written);
        if let Some(culling) = &mut self.host.culling {
            culling.finish(&mut |row| {
                tables.host(row);
                tables.settle();
            });
        }
    }

    /// Makes rows of the events up to that time. No earlier one comes later.
    pub(super) fn settle_host(&mut self, horizon: u64, clocks: &Clocks, tables: &mut Tables, written: &mut Written) {
        if self.host.waiting.is_empty() {
            return;
        }
        let mut waiting = std::mem::take(&mut self.host.waiting);
        waiting.sort_by_key(|event| event.start);
        let mut ready = waiting.partition_point(|event| event.start <= horizon);
        if waiting.len() - ready > MOST_WAITING {
            ready = waiting.len();
        }
        for part in waiting[..ready].chunks(BATCH_ROWS) {
            for event in part {
                self.host_event(event, clocks, tables, written);
            }
            tables.settle();
        }
        waiting.drain(..ready);
        // A burst must not keep its memory for ever, and to give it back and take it again each time costs more than to use it.
        self.host.most_waited = (ready + waiting.len()).max(self.host.most_waited - self.host.most_waited / 8);
        if waiting.capacity() > 4 * self.host.most_waited.max(1 << 14) {
            waiting.shrink_to(2 * self.host.most_waited);
        }
        self.host.waiting = waiting;
    }

    #[inline]
    fn host_event(&mut self, event: &Event, clocks: &Clocks, tables: &mut Tables, written: &mut Written) {
        let Some(hook) = self.intake.hooks.get(usize::from(event.hook)) else { return };
        let [address, rarer, stack, bytes] = event.payload;
        let timed = event.end != event.start;
        let mut call = HostCall {
            start_ns: clocks.ns(self.clock, event.start),
            api_ns: timed.then(|| clocks.span_ns(self.clock, event.start, event.end)),
            process_id: self.id,
            pid: self.pid,
            tid: event.commit as i32,
            api_id: hook.api_id,
            address: address as i64,
            bytes: bytes as i64,
            calls: 1,
            ..HostCall::default()
        };
        let maps = hook.detail == detail::MAP;
        if hook.class == Class::HostFree {
            call.action = HostAction::Free;
            if maps {
                return self.host.unmap(event, &call).iter().for_each(|row| self.host.put(row, tables));
            }
            if let Some(block) = self.host.free(address, &call) {
                (call.bytes, call.weight_bytes) = (block.bytes as i64, self.weight(&block));
                call.stack_id = block.stack_id;
                call.age_ns = Some((call.start_ns - block.start_ns).max(0));
                if let Some(culling) = &mut self.host.culling
                    && culling.frees(&call, &block, &mut |row| tables.host(row))
                {
                    return;
                }
            }
        } else {
            call.stack_id = self.intake.stacks.by_key(stack, tables, written);
            if maps {
                return self.host.map(event, &call).iter().for_each(|row| self.host.put(row, tables));
            }
            let rarer = rarer.min(Shed::MOST.into()) as u8;
            let block = Block { start_ns: call.start_ns, bytes, rarer, stack_id: call.stack_id };
            call.weight_bytes = self.weight(&block);
            self.host.allocate(address, &block, &call);
        }
        self.host.put(&call, tables);
    }

    /// Bytes of allocation that a recorded block stands for.
    fn weight(&self, block: &Block) -> f64 {
        match block.rarer {
            0 => weight(block.bytes, self.facts.sample_bytes),
            // Samples lay further apart by so many powers of two, to keep to a budget.
            rarer => weight(block.bytes, self.facts.sample_bytes * f64::from(rarer).exp2()),
        }
    }
}

/// Bytes of allocation that a recorded block of this size stands for, where samples have this mean distance.
///
/// A block of `s` bytes is recorded with probability 1 - exp(-s / mean), so sums of s / (1 - exp(-s / mean)) are
/// right on average. An empty block has no probability, and weight 0.
fn weight(bytes: u64, mean: f64) -> f64 {
    let bytes = bytes as f64;
    if mean <= 0.0 || bytes <= 0.0 {
        return bytes;
    }
    bytes / -(-bytes / mean).exp_m1()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn weights_make_sampled_sums_right() {
        // A large block is always recorded and stands for itself; a small one stands for about the mean distance.
        assert!((weight(1 << 30, 524_288.0) - (1u64 << 30) as f64).abs() < 1.0);
        assert!((weight(16, 524_288.0) - 524_296.0).abs() < 1.0);
        assert_eq!((weight(100, 0.0), weight(0, 524_288.0)), (100.0, 0.0));
    }

    #[test]
    fn a_free_ends_the_block_of_its_time_though_the_address_was_in_use_again() {
        let block = |bytes| Block { bytes, ..Block::default() };
        let call = |tid, start_ns| HostCall { tid, start_ns, ..HostCall::default() };
        let mut host = HostMemory::default();
        // Thread 2 began to allocate, thread 1 freed, thread 2 got that block.
        host.allocate(16, &block(1), &call(1, 0));
        host.allocate(16, &block(2), &call(2, 1_000));
        assert_eq!(host.free(16, &call(1, 1_500)), Some(block(1)));
        assert_eq!(host.free(16, &call(1, 1_600)), Some(block(2)));
        assert_eq!(host.free(16, &call(1, 1_700)), None);
        // The free of the first was lost: whoever allocated the second frees it, and so does anybody later.
        for (tid, start_ns) in [(2, 1_500), (1, 1_000_000)] {
            host.allocate(16, &block(1), &call(1, 0));
            host.allocate(16, &block(2), &call(2, 1_000));
            assert_eq!(host.free(16, &call(tid, start_ns)), Some(block(2)));
            assert_eq!(host.free(16, &call(tid, start_ns)), None);
        }
    }
}
