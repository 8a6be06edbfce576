//! `--cull`: allocations that are freed again soon become sums, by thread, stack, function and power of two of the size.
//!
//! A row can only be left out while it is not written, so all rows of a process wait in the order of their time until they
//! are older than what is culled, by the time of the events themselves. A block that is freed meanwhile leaves no row, nor does
//! its free. The sums become rows about once a second of that time, at its end, so that each thread's rows stay in order.

use std::collections::{BTreeMap, VecDeque};

use super::blocks::Block;
use crate::bindings::ByHandle;
use crate::tables::{HostAction, HostCall};

/// Rows that wait, at most; about 150 MB.
const MOST_WAITING: usize = 1 << 20;
/// Sums that are kept; beyond it they become rows before their second is over.
const MOST_SUMS: usize = 1 << 16;
/// How long sums are gathered.
const PERIOD_NS: i64 = 1_000_000_000;

/// What a sum is of: thread, function, stack, and bits of the size.
type Key = (i32, i64, Option<i64>, u32);

/// Allocations that were left out.
#[derive(Clone, Copy, Debug, Default)]
struct Sum {
    calls: i64,
    bytes: i64,
    age_ns: i64,
    /// Calls that were timed, and their time.
    timed: (i64, i64),
}

/// The rows of a process that wait.
#[derive(Debug, Default)]
pub(super) struct Culling {
    /// What is freed within so long is left out.
    within_ns: i64,
    process_id: i64,
    pid: i32,
    /// Time of the latest event.
    now_ns: i64,
    /// In the order of their time; none where a block was freed.
    waiting: VecDeque<Option<HostCall>>,
    /// Number of the first of them, counted from the process's start.
    first: u64,
    /// Numbers of allocations among them.
    blocks: ByHandle<u64>,
    sums: BTreeMap<Key, Sum>,
    /// When the sums become rows.
    until_ns: i64,
    culled: u64,
    early: u64,
}

impl Culling {
    /// For a process, whose blocks are left out that live no longer than so.
    pub(super) fn new(within_ns: i64, process_id: i64, pid: i32) -> Culling {
        Culling { within_ns, process_id, pid, ..Culling::default() }
    }

    /// Allocations that were left out so far.
    pub(super) fn culled(&self) -> u64 {
        self.culled
    }

    /// Allocations that became rows before it was known how long they live, for there were too many.
    pub(super) fn early(&self) -> u64 {
        self.early
    }

    /// A row that waits with the others; `row` takes those that have waited long enough.
    pub(super) fn push(&mut self, call: HostCall, row: &mut impl FnMut(&HostCall)) {
        self.advance(call.start_ns, row);
        if call.action == HostAction::Alloc {
            self.blocks.insert(call.address as u64, self.first + self.waiting.len() as u64);
        }
        self.waiting.push_back(Some(call));
    }

    /// A block is freed. True: neither it nor this free is a row.
    pub(super) fn frees(&mut self, call: &HostCall, block: &Block, row: &mut impl FnMut(&HostCall)) -> bool {
        self.advance(call.start_ns, row);
        let address = call.address as u64;
        let place = self.blocks.get(&address).and_then(|number| number.checked_sub(self.first));
        let Some(place) = place.filter(|_| call.start_ns.saturating_sub(block.start_ns) <= self.within_ns) else {
            return false;
        };
        let place = place as usize;
        let own = |alloc: &&mut Option<HostCall>| alloc.is_some_and(|alloc| alloc.start_ns == block.start_ns);
        let Some(alloc) = self.waiting.get_mut(place).filter(own).and_then(Option::take) else { return false };
        self.blocks.remove(&address);
        // What is freed at once, which most is, leaves nothing behind.
        while self.waiting.back().is_some_and(Option::is_none) {
            self.waiting.pop_back();
        }
        let bits = u64::BITS - (alloc.bytes.max(0) as u64).leading_zeros();
        let sum = self.sums.entry((alloc.tid, alloc.api_id, alloc.stack_id, bits)).or_default();
        sum.calls += 1;
        sum.bytes = sum.bytes.saturating_add(alloc.bytes);
        sum.age_ns = sum.age_ns.saturating_add(call.age_ns.unwrap_or(0));
        if let Some(ns) = alloc.api_ns {
            sum.timed = (sum.timed.0 + 1, sum.timed.1.saturating_add(ns));
        }
        self.culled += 1;
        if self.sums.len() >= MOST_SUMS {
            self.sum_up(call.start_ns);
        }
        true
    }

    /// Gives out all that waits.
    pub(super) fn finish(&mut self, row: &mut impl FnMut(&HostCall)) {
        self.sum_up(self.now_ns);
        self.waiting.drain(..).flatten().for_each(|call| row(&call));
        self.blocks.clear();
    }

    /// The time of the events has come so far.
    fn advance(&mut self, now_ns: i64, row: &mut impl FnMut(&HostCall)) {
        self.now_ns = self.now_ns.max(now_ns);
        if now_ns >= self.until_ns {
            self.sum_up(self.until_ns);
            self.until_ns = now_ns.saturating_add(PERIOD_NS);
        }
        while let Some(first) = self.waiting.front() {
            let young = first.is_some_and(|first| now_ns.saturating_sub(first.start_ns) <= self.within_ns);
            if young && self.waiting.len() < MOST_WAITING {
                break;
            }
            if let Some(Some(call)) = self.waiting.pop_front() {
                if call.action == HostAction::Alloc && self.blocks.get(&(call.address as u64)) == Some(&self.first) {
                    self.blocks.remove(&(call.address as u64));
                    self.early += u64::from(young);
                }
                row(&call);
            }
            self.first += 1;
        }
    }

    /// The sums so far become rows of that time.
    fn sum_up(&mut self, start_ns: i64) {
        for ((tid, api_id, stack_id, _), sum) in std::mem::take(&mut self.sums) {
            self.waiting.push_back(Some(HostCall {
                action: HostAction::Culled,
                start_ns,
                api_ns: (sum.timed.0 > 0).then(|| sum.timed.1 / sum.timed.0),
                process_id: self.process_id,
                pid: self.pid,
                tid,
                api_id,
                address: 0,
                bytes: (sum.bytes + sum.calls / 2) / sum.calls,
                weight_bytes: sum.bytes as f64,
                stack_id,
                age_ns: Some(sum.age_ns / sum.calls),
                calls: sum.calls,
            }));
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn alloc(start_ns: i64, address: i64, bytes: i64) -> HostCall {
        HostCall { start_ns, address, bytes, weight_bytes: bytes as f64, tid: 1, calls: 1, ..HostCall::default() }
    }

    /// Action, start, bytes, weight, age and calls.
    type Row = (HostAction, i64, i64, f64, Option<i64>, i64);

    /// The rows of blocks of (start, age, bytes), each at an address of its own.
    fn rows(within_ns: i64, blocks: &[(i64, i64, i64)]) -> (Vec<Row>, Culling) {
        let mut calls = Vec::new();
        for (n, (start_ns, age_ns, bytes)) in blocks.iter().enumerate() {
            let alloc = alloc(*start_ns, 16 * (n as i64 + 1), *bytes);
            calls.push((alloc, None));
            let block = Block { start_ns: *start_ns, bytes: *bytes as u64, ..Block::default() };
            let free =
                HostCall { action: HostAction::Free, start_ns: start_ns + age_ns, age_ns: Some(*age_ns), ..alloc };
            calls.push((free, Some(block)));
        }
        calls.sort_by_key(|(call, _)| call.start_ns);
        let (mut culling, mut rows) = (Culling::new(within_ns, 7, 8), Vec::new());
        let mut row = |c: &HostCall| rows.push((c.action, c.start_ns, c.bytes, c.weight_bytes, c.age_ns, c.calls));
        for (call, block) in calls {
            if block.is_none_or(|block| !culling.frees(&call, &block, &mut row)) {
                culling.push(call, &mut row);
            }
        }
        culling.finish(&mut row);
        (rows, culling)
    }

    use HostAction::{Alloc, Culled, Free};

    #[test]
    fn short_lives_become_sums_and_others_stay_as_they_are() {
        let (rows, culling) = rows(100, &[(0, 100, 64), (10, 101, 100), (20, 40, 65)]);
        let wanted = [
            (Alloc, 10, 100, 100.0, None, 1),
            (Free, 111, 100, 100.0, Some(101), 1),
            // Sizes of one power of two together.
            (Culled, 111, 65, 129.0, Some(70), 2),
        ];
        assert_eq!((rows.as_slice(), culling.culled(), culling.early()), (wanted.as_slice(), 2, 0));
        assert!(culling.waiting.is_empty() && culling.blocks.is_empty() && culling.sums.is_empty());
    }

    #[test]
    fn sums_are_of_about_a_second_and_stand_in_the_order_of_time() {
        let mut blocks: Vec<_> = (0..5000).map(|n| (n * 1_000_000, 500_000, 32)).collect();
        blocks.push((1_500_000_123, 2_000_000_000, 48));
        let (rows, culling) = rows(1_000_000, &blocks);
        assert!(rows.is_sorted_by_key(|row| row.1), "{rows:?}");
        let sums: Vec<_> = rows.iter().filter(|row| row.0 == Culled).collect();
        assert!((5..=6).contains(&sums.len()), "{sums:?}");
        assert_eq!((sums.iter().map(|row| row.5).sum::<i64>(), culling.culled()), (5000, 5000));
        assert_eq!(sums.iter().map(|row| row.3).sum::<f64>(), 160_000.0);
        assert_eq!(rows.len() - sums.len(), 2);
    }

    #[test]
    fn an_address_in_use_again_is_another_block() {
        let mut culling = Culling::new(1_000, 7, 8);
        let mut row = |_: &HostCall| {};
        culling.push(alloc(0, 16, 64), &mut row);
        culling.push(alloc(10, 16, 64), &mut row);
        // The free of the first comes late.
        let free = HostCall { action: HostAction::Free, ..alloc(20, 16, 64) };
        assert!(!culling.frees(&free, &Block { start_ns: 0, ..Block::default() }, &mut row));
        assert!(culling.frees(&free, &Block { start_ns: 10, ..Block::default() }, &mut row));
        assert!(!culling.frees(&free, &Block { start_ns: 10, ..Block::default() }, &mut row));
        assert_eq!(culling.waiting.len(), 1);
    }

    #[test]
    fn what_waits_is_bounded_and_what_leaves_early_is_counted() {
        let mut culling = Culling::new(i64::MAX, 7, 8);
        let mut given = 0;
        let mut row = |_: &HostCall| given += 1;
        for n in 0..MOST_WAITING as i64 + 10 {
            culling.push(alloc(n, 16 * (n + 1), 64), &mut row);
        }
        assert_eq!((culling.waiting.len(), culling.early()), (MOST_WAITING, 10));
        // The first are rows already.
        let free = HostCall { action: HostAction::Free, ..alloc(1 << 30, 16, 64) };
        assert!(!culling.frees(&free, &Block::default(), &mut row));
        culling.finish(&mut row);
        assert_eq!(given, MOST_WAITING + 10);
    }
}
