//! `--cull`: allocations that are freed again soon become sums, by thread, stack, function and power of two of the size.
//!
//! A row can only be left out while it is not written, so all rows of a process wait in the order of their time until they
//! are older than what is culled, by the time of the events themselves. A block that is freed meanwhile leaves no row, nor does
//! its free. The sums become rows about once a second of that time, at its end, so that each thread's rows stay in order.
//! What the process itself has summed up ([`super::pending`]) goes into the same sums; what it tells late waits apart, and all for as
//! much longer as that may be late.

use std::collections::{BTreeMap, VecDeque};

use super::blocks::Block;
use crate::bindings::ByHandle;
use crate::tables::{HostAction, HostCall};

/// Rows that wait, at most; about 150 MB.
const MOST_WAITING: usize = 1 << 20;
/// Sums that are kept; beyond it they become rows before their second is over.
const MOST_SUMS: usize = 1 << 16;
/// Set in the number of one that was told late.
const LATE: u64 = 1 << 63;
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
    /// So long after that an allocation may be told.
    late_ns: i64,
    process_id: i64,
    pid: i32,
    /// Time of the latest event.
    now_ns: i64,
    /// In the order of their time; none where a block was freed.
    waiting: VecDeque<Option<HostCall>>,
    /// Number of the first of them, counted from the process's start.
    first: u64,
    /// Allocations that were told late, by their time and number.
    late: BTreeMap<(i64, u64), HostCall>,
    /// Numbers of allocations among them.
    blocks: ByHandle<u64>,
    sums: BTreeMap<Key, Sum>,
    /// When the sums become rows.
    until_ns: i64,
    culled: u64,
    early: u64,
    /// Allocations that were told late.
    lates: u64,
}

impl Culling {
    /// For a process, whose blocks are left out that live no longer than so.
    pub(super) fn new(within_ns: i64, late_ns: i64, process_id: i64, pid: i32) -> Culling {
        Culling { within_ns, late_ns, process_id, pid, ..Culling::default() }
    }

    /// How long that is.
    pub(super) fn within_ns(&self) -> i64 {
        self.within_ns
    }

    /// Blocks that the process itself has summed up: of a thread and function, of one size and about so long lives.
    pub(super) fn add(&mut self, (tid, api_id): (i32, i64), bytes: i64, calls: i64, age_ns: i64) {
        let bits = u64::BITS - (bytes.max(0) as u64).leading_zeros();
        let sum = self.sums.entry((tid, api_id, None, bits)).or_default();
        sum.calls = sum.calls.saturating_add(calls);
        sum.bytes = sum.bytes.saturating_add(bytes.saturating_mul(calls));
        sum.age_ns = sum.age_ns.saturating_add(age_ns.saturating_mul(calls));
        self.culled += calls as u64;
    }

    /// Allocations that were left out so far.
    pub(super) fn culled(&self) -> u64 {
        self.culled
    }

    /// Allocations that became rows before it was known how long they live, for there were too many.
    pub(super) fn early(&self) -> u64 {
        self.early
    }

    /// A row that waits with the others; `row` takes those that have waited long enough. `was_late`: others of a later time came before it.
    pub(super) fn push(&mut self, call: HostCall, was_late: bool, row: &mut impl FnMut(&HostCall)) {
        self.advance(call.start_ns, row);
        let number = if was_late { self.lates | LATE } else { self.first + self.waiting.len() as u64 };
        if call.action == HostAction::Alloc {
            self.blocks.insert(call.address as u64, number);
        }
        if was_late {
            self.lates += 1;
            self.late.insert((call.start_ns, number), call);
        } else {
            self.waiting.push_back(Some(call));
        }
    }

    /// A block is freed. True: neither it nor this free is a row.
    pub(super) fn frees(&mut self, call: &HostCall, block: &Block, row: &mut impl FnMut(&HostCall)) -> bool {
        self.advance(call.start_ns, row);
        let address = call.address as u64;
        let number = self.blocks.get(&address).copied();
        let Some(number) = number.filter(|_| call.start_ns.saturating_sub(block.start_ns) <= self.within_ns) else {
            return false;
        };
        let Some(alloc) = self.take_out(number, block.start_ns) else { return false };
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

    /// The allocation with this number that began then, if it waits still.
    fn take_out(&mut self, number: u64, start_ns: i64) -> Option<HostCall> {
        if number & LATE != 0 {
            return self.late.remove(&(start_ns, number));
        }
        let own = |alloc: &&mut Option<HostCall>| alloc.is_some_and(|alloc| alloc.start_ns == start_ns);
        self.waiting.get_mut(number.checked_sub(self.first)? as usize).filter(own).and_then(Option::take)
    }

    /// Gives out all that waits. `now_ns`: nothing began later.
    pub(super) fn finish(&mut self, now_ns: i64, row: &mut impl FnMut(&HostCall)) {
        let end_ns = if self.until_ns == 0 { now_ns } else { now_ns.min(self.until_ns) };
        self.now_ns = self.now_ns.max(end_ns);
        self.sum_up(self.now_ns);
        while let Some((_, is_late)) = self.earliest() {
            self.leave(is_late, i64::MAX, row);
        }
        self.blocks.clear();
    }

    /// The time of the events has come so far.
    pub(super) fn advance(&mut self, now_ns: i64, row: &mut impl FnMut(&HostCall)) {
        self.now_ns = self.now_ns.max(now_ns);
        if now_ns >= self.until_ns {
            // What the process summed up may be there before the first event is.
            self.sum_up(if self.until_ns == 0 { now_ns } else { self.until_ns });
            self.until_ns = now_ns.saturating_add(PERIOD_NS);
        }
        let longest_ns = self.within_ns.saturating_add(self.late_ns);
        while let Some((start_ns, is_late)) = self.earliest() {
            let waits = now_ns.saturating_sub(start_ns) <= longest_ns;
            if waits && self.waiting.len() + self.late.len() < MOST_WAITING {
                break;
            }
            self.leave(is_late, now_ns, row);
        }
    }

    /// When the first began of those that wait, and whether it was told late. What was left out before it goes.
    fn earliest(&mut self) -> Option<(i64, bool)> {
        while self.waiting.front().is_some_and(Option::is_none) {
            self.waiting.pop_front();
            self.first += 1;
        }
        let on_time = self.waiting.front().and_then(|call| Some(call.as_ref()?.start_ns));
        let late = self.late.keys().next().map(|(start_ns, _)| *start_ns);
        match (on_time, late) {
            (Some(on_time), late) if late.is_none_or(|late| on_time <= late) => Some((on_time, false)),
            (_, late) => Some((late?, true)),
        }
    }

    /// The first of those that wait becomes a row.
    fn leave(&mut self, is_late: bool, now_ns: i64, row: &mut impl FnMut(&HostCall)) {
        let (number, call) = if is_late {
            let Some(((_, number), call)) = self.late.pop_first() else { return };
            (number, call)
        } else {
            let Some(Some(call)) = self.waiting.pop_front() else { return };
            self.first += 1;
            (self.first - 1, call)
        };
        if call.action == HostAction::Alloc && self.blocks.get(&(call.address as u64)) == Some(&number) {
            self.blocks.remove(&(call.address as u64));
            self.early += u64::from(now_ns.saturating_sub(call.start_ns) <= self.within_ns);
        }
        row(&call);
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
        let (mut culling, mut rows) = (Culling::new(within_ns, 0, 7, 8), Vec::new());
        let mut row = |c: &HostCall| rows.push((c.action, c.start_ns, c.bytes, c.weight_bytes, c.age_ns, c.calls));
        for (call, block) in calls {
            if block.is_none_or(|block| !culling.frees(&call, &block, &mut row)) {
                culling.push(call, false, &mut row);
            }
        }
        culling.finish(0, &mut row);
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
        let mut culling = Culling::new(1_000, 0, 7, 8);
        let mut row = |_: &HostCall| {};
        culling.push(alloc(0, 16, 64), false, &mut row);
        culling.push(alloc(10, 16, 64), false, &mut row);
        // The free of the first comes late.
        let free = HostCall { action: HostAction::Free, ..alloc(20, 16, 64) };
        assert!(!culling.frees(&free, &Block { start_ns: 0, ..Block::default() }, &mut row));
        assert!(culling.frees(&free, &Block { start_ns: 10, ..Block::default() }, &mut row));
        assert!(!culling.frees(&free, &Block { start_ns: 10, ..Block::default() }, &mut row));
        assert_eq!(culling.waiting.len(), 1);
    }

    #[test]
    fn what_waits_is_bounded_and_what_leaves_early_is_counted() {
        let mut culling = Culling::new(i64::MAX, 0, 7, 8);
        let mut given = 0;
        let mut row = |_: &HostCall| given += 1;
        for n in 0..MOST_WAITING as i64 + 10 {
            culling.push(alloc(n, 16 * (n + 1), 64), false, &mut row);
        }
        assert_eq!((culling.waiting.len(), culling.early()), (MOST_WAITING, 10));
        // The first are rows already.
        let free = HostCall { action: HostAction::Free, ..alloc(1 << 30, 16, 64) };
        assert!(!culling.frees(&free, &Block::default(), &mut row));
        culling.finish(0, &mut row);
        assert_eq!(given, MOST_WAITING + 10);
    }

    #[test]
    fn what_is_told_late_stands_where_it_began_and_is_culled_like_the_others() {
        let mut culling = Culling::new(100, 50, 7, 8);
        let mut rows = Vec::new();
        let mut row = |c: &HostCall| rows.push((c.action, c.start_ns, c.address));
        culling.push(alloc(10, 16, 64), false, &mut row);
        culling.push(alloc(100, 32, 64), false, &mut row);
        culling.push(alloc(5, 48, 64), true, &mut row);
        culling.push(alloc(60, 64, 64), true, &mut row);
        culling.push(alloc(60, 80, 64), true, &mut row);
        let free = HostCall { action: Free, ..alloc(155, 64, 64) };
        assert!(culling.frees(&free, &Block { start_ns: 60, ..Block::default() }, &mut row));
        assert!(!culling.frees(&free, &Block { start_ns: 60, ..Block::default() }, &mut row));
        // 50 longer than what is culled.
        culling.push(alloc(156, 96, 64), false, &mut row);
        culling.add((1, 3), 40, 5, 2);
        culling.finish(1000, &mut row);
        let wanted = [(Alloc, 5, 48), (Alloc, 10, 16), (Alloc, 60, 80), (Alloc, 100, 32), (Alloc, 156, 96)];
        assert_eq!(rows[..5], wanted);
        assert_eq!((rows[5..].iter().all(|row| row.0 == Culled), culling.culled(), culling.early()), (true, 6, 0));
    }

    #[test]
    fn what_the_process_summed_up_becomes_rows_with_the_others() {
        let mut culling = Culling::new(100, 50, 7, 8);
        let mut rows = Vec::new();
        let mut row = |c: &HostCall| rows.push((c.action, c.tid, c.api_id, c.bytes, c.weight_bytes, c.calls, c.age_ns));
        culling.advance(1_000, &mut row);
        culling.add((1, 3), 40, 5, 2);
        culling.add((1, 3), 50, 5, 4);
        culling.add((2, 3), 1000, 1, 0);
        culling.advance(1_000 + PERIOD_NS, &mut row);
        culling.advance(2_000 + PERIOD_NS, &mut row);
        let wanted = [(Culled, 1, 3, 45, 450.0, 10, Some(3)), (Culled, 2, 3, 1000, 1000.0, 1, Some(0))];
        assert_eq!((&rows[..], culling.culled()), (&wanted[..], 11));
    }
}
