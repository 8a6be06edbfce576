//! Host memory of one process: rows of malloc's, free's and mmap's family, and which block a free ends.
//!
//! One thread allocates what another one frees, and the same address is soon used again: events are put into the order of
//! their time before blocks are looked for, as far as every ring was read. That time is the end of a call that allocates,
//! when it has its block, and the start of one that frees, which still has it: so two owners never overlap.

mod blocks;
mod culling;
mod mapping;
pub(super) mod pending;
mod regions;

use gputrace_abi::Class;
use gputrace_abi::event::{Event, detail};
use gputrace_abi::pending::late_thread;
use gputrace_abi::shed::Shed;

use super::Process;
use super::resolve::size;
use crate::clock::Clocks;
use crate::names::Written;
use crate::tables::{BATCH_ROWS, HostAction, HostCall, Tables};
use blocks::{Block, Blocks};
use culling::Culling;
use mapping::Remapped;
use pending::Pending;
use regions::Regions;

/// Events that wait for others, at most; only a process that makes times up has more.
const MOST_WAITING: usize = 1 << 20;

/// Host memory of one process.
#[derive(Default)]
pub(super) struct HostMemory {
    /// Events whose turn has not come; `commit` holds the id of their thread.
    waiting: Vec<Event>,
    /// Time of the one that came last, and whether one has come before an earlier one.
    latest: u64,
    is_mixed: bool,
    /// How many there were at most, less and less of those that are long ago.
    most_waited: usize,
    is_here: bool,
    blocks: Blocks,
    /// Blocks whose place another one has, though nobody was seen to free them: where that comes right behind, it is theirs.
    displaced: Vec<Displaced>,
    regions: Regions,
    remapped: Vec<Remapped>,
    /// Where rows wait, and which are left out; none where all are written.
    culling: Option<Culling>,
    /// Blocks of which nothing was told yet.
    pub(super) pending: Pending,
}

/// A free by another thread that comes so short a time behind the allocation that has its block: a clock is read before what stands before
/// it is done, by as much as a processor looks ahead.
const AHEAD_NS: i64 = 5_000;

/// A block that was live when its address was given to another one.
struct Displaced {
    address: u64,
    block: Block,
    /// When that was, and to whose thread.
    at_ns: i64,
    tid: i32,
}

impl HostMemory {
    /// An event of malloc's or free's, by the thread with this id.
    #[inline]
    pub(super) fn take(&mut self, event: &Event, class: Class, tid: i32) {
        self.is_here = true;
        let at = time(event, class);
        self.is_mixed |= at < self.latest;
        self.latest = at;
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

    /// The block that a call frees.
    #[inline]
    fn freed(&mut self, address: u64, call: &HostCall) -> Option<Block> {
        if !self.displaced.is_empty()
            && let Some(block) = self.displaced_by(address, call)
        {
            return Some(block);
        }
        self.blocks.remove(address)
    }

    #[cold]
    fn displaced_by(&mut self, address: u64, call: &HostCall) -> Option<Block> {
        self.displaced.retain(|old| call.start_ns.saturating_sub(old.at_ns) <= AHEAD_NS);
        let place = self.displaced.iter().position(|old| old.address == address && old.tid != call.tid)?;
        Some(self.displaced.swap_remove(place).block)
    }

    fn put(&mut self, call: &HostCall, was_late: bool, tables: &mut Tables) {
        match &mut self.culling {
            None => tables.host(call),
            Some(culling) => culling.push(*call, was_late, &mut |row| tables.host(row)),
        }
    }
}

/// By which an event has its place among those of all threads, in ticks.
fn time(event: &Event, class: Class) -> u64 {
    if class == Class::HostFree { event.start } else { event.end }
}

/// Times and places of events in the order of their times: an event is four times as large.
fn in_order(events: &[Event], time: impl Fn(&Event) -> u64) -> Vec<(u64, u32)> {
    let mut order: Vec<(u64, u32)> = events.iter().map(time).zip(0..).collect();
    order.sort_by_key(|(at, _)| *at);
    order
}

impl Process {
    /// From now on allocations that are freed within so long become sums, where each is recorded.
    pub(crate) fn cull(&mut self, within_ns: i64) {
        if self.facts.malloc_mode == "full" {
            let late_ns = if self.segment.view().pending().is_some() { pending::LATE_NS } else { 0 };
            self.host.culling = Some(Culling::new(within_ns, late_ns, self.id, self.pid));
        }
    }

    /// Makes rows of all events, whatever they wait for.
    pub(super) fn finish_host(&mut self, now_ns: i64, clocks: &Clocks, tables: &mut Tables, written: &mut Written) {
        self.settle_host(u64::MAX, clocks, tables, written);
        self.give_orphans_up(i64::MAX, tables);
        if let Some(culling) = &mut self.host.culling {
            culling.finish(now_ns, &mut |row| {
                tables.host(row);
                tables.settle();
            });
        }
    }

    /// Makes rows of the events up to that time. No earlier one comes later.
    pub(super) fn settle_host(&mut self, horizon: u64, clocks: &Clocks, tables: &mut Tables, written: &mut Written) {
        self.name_pending(tables, written);
        if horizon < u64::MAX {
            self.give_orphans_up(clocks.ns(self.clock, horizon), tables);
        }
        if self.host.waiting.is_empty() {
            if let Some(culling) = self.host.culling.as_mut().filter(|_| (1..u64::MAX).contains(&horizon)) {
                culling.advance(clocks.ns(self.clock, horizon), &mut |row| tables.host(row));
            }
            return;
        }
        let mut waiting = std::mem::take(&mut self.host.waiting);
        let hooks = &self.intake.hooks;
        let time = |event: &Event| {
            let class = hooks.get(usize::from(event.hook)).map_or(Class::HostAlloc, |hook| hook.class);
            time(event, class)
        };
        // Those of one thread come in order, but for what found no room in its ring.
        let order = std::mem::take(&mut self.host.is_mixed).then(|| in_order(&waiting, time));
        let count = |ready: usize| if waiting.len() - ready > MOST_WAITING { waiting.len() } else { ready };
        let ready = match &order {
            Some(order) => count(order.partition_point(|(at, _)| *at <= horizon)),
            None => count(waiting.partition_point(|event| time(event) <= horizon)),
        };
        for from in (0..ready).step_by(BATCH_ROWS) {
            let part = from..ready.min(from + BATCH_ROWS);
            match &order {
                Some(order) => {
                    let part = order[part].iter().map(|(_, place)| &waiting[*place as usize]);
                    part.for_each(|event| self.host_event(event, clocks, tables, written));
                }
                None => waiting[part].iter().for_each(|event| self.host_event(event, clocks, tables, written)),
            }
            tables.settle();
        }
        match order {
            Some(order) => {
                waiting = order[ready..].iter().map(|(_, place)| waiting[*place as usize]).collect();
                self.host.latest = order.last().map_or(0, |(at, _)| *at);
            }
            None => drop(waiting.drain(..ready)),
        }
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
        // An allocator may give a block for more than there is (tcmalloc's pvalloc of nearly 2^64).
        let bytes = size(bytes) as u64;
        if let Some(tid) = late_thread(rarer) {
            return self.told_late(event, tid, clocks, tables);
        }
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
                return self.host.unmap(event, &call).iter().for_each(|row| self.host.put(row, false, tables));
            }
            let freed_ns = self.host.pending.frees(address, call.start_ns);
            if let Some(block) = self.host.freed(address, &call) {
                (call.bytes, call.weight_bytes) = (block.bytes as i64, self.weight(&block));
                call.stack_id = block.stack_id;
                call.age_ns = Some((call.start_ns - block.start_ns).max(0));
                if let Some(culling) = &mut self.host.culling
                    && culling.frees(&call, &block, &mut |row| tables.host(row))
                {
                    return;
                }
            } else if let Some(freed_ns) = freed_ns {
                let waited = self.host.pending.orphan(&call, freed_ns);
                return waited.iter().for_each(|call| self.host.put(call, true, tables));
            }
        } else {
            call.stack_id = self.intake.stacks.by_key(stack, tables, written);
            if maps {
                return self.host.map(event, &call).iter().for_each(|row| self.host.put(row, false, tables));
            }
            let rarer = rarer.min(Shed::MOST.into()) as u8;
            let block = Block { start_ns: call.start_ns, bytes, rarer, stack_id: call.stack_id };
            call.weight_bytes = self.weight(&block);
            if let Some(old) = self.host.blocks.insert(address, &block) {
                let at_ns = clocks.ns(self.clock, event.end);
                self.host.displaced.push(Displaced { address, block: old, at_ns, tid: call.tid });
            }
        }
        self.host.put(&call, false, tables);
    }

    /// An allocation that was told late has the moment of that as its end, by which it stands in order. That it was there then is sure; a free
    /// that came after that may have been read before it.
    fn told_late(&mut self, event: &Event, tid: i32, clocks: &Clocks, tables: &mut Tables) {
        let Some(hook) = self.intake.hooks.get(usize::from(event.hook)) else { return };
        let [address, _, _, bytes] = event.payload;
        let [start_ns, there_ns] = [event.start, event.end].map(|ticks| clocks.ns(self.clock, ticks));
        let orphan = self.host.pending.free_of(address, there_ns);
        let freed_ns = orphan.map_or_else(|| self.host.pending.freed_ns(address), |(_, freed_ns)| freed_ns);
        let block = Block { start_ns: start_ns.max(freed_ns), bytes, ..Block::default() };
        let call = HostCall {
            start_ns: block.start_ns,
            process_id: self.id,
            pid: self.pid,
            tid,
            api_id: hook.api_id,
            address: address as i64,
            bytes: bytes as i64,
            weight_bytes: self.weight(&block),
            calls: 1,
            ..HostCall::default()
        };
        self.host.put(&call, true, tables);
        let Some((mut free, _)) = orphan else {
            self.host.blocks.insert(address, &block);
            return;
        };
        (free.bytes, free.weight_bytes) = (call.bytes, call.weight_bytes);
        free.age_ns = Some((free.start_ns - block.start_ns).max(0));
        let culling = self.host.culling.as_mut();
        if !culling.is_some_and(|culling| culling.frees(&free, &block, &mut |row| tables.host(row))) {
            self.host.put(&free, true, tables);
        }
    }

    /// Frees that have waited for their blocks until that time become rows without.
    fn give_orphans_up(&mut self, now_ns: i64, tables: &mut Tables) {
        while let Some(call) = self.host.pending.given_up(now_ns) {
            self.host.put(&call, true, tables);
        }
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
}
