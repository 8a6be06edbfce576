//! How much of a call was waiting for work that was queued before it, where the call does not say that it waits.
//!
//! A copy that blocks first waits until the work before it is done: `loss.item()` copies four bytes and takes as long as
//! the step's kernels. A free waits for everything. Host data hold one time for both parts, so three things are asked:
//!
//! 1. Could it wait at all? The collector knows which streams had work that nobody had waited for
//!    (`pending_streams`). Where none had, nothing was waited for, however long the call took. A trace without that
//!    column leaves the question open, and then only copies are judged.
//! 2. What does the call need by itself? Copies and sets: [`CALL_NS`] and their bytes over a link that is slower than
//!    any ([`copy_ns`]). Allocations and frees: the median of the same function and size in this process when nothing
//!    was pending ([`Idle`]), at least [`CALL_NS`]; where that never happened, [`OTHERS`] times that of other functions of the
//!    size (a free that always waits frees what was allocated without waiting); else a guess with a slow time for each page ([`memory_ns`]).
//! 3. Did it take more than twice that? The rest was waiting.
//!
//! So what counts as waiting is a lower bound: a wait that is short beside what its call needs is not told from it.

use gputrace_collectors::schema::TableId;
use gputrace_collectors::waiting::{CALL_NS, ENOUGH, OTHERS, beyond, copy_ns, memory_ns, size};

use super::groups::Groups;
use super::launches::OTHER;
use super::stats::Stats;
use crate::trace::{Rows, Want};

/// Stands for all functions.
const ANY: i64 = i64::MIN;

/// Whether a call found work that it had to wait for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Pending {
    /// The trace does not say.
    Unknown,
    /// Nothing.
    Nothing,
    /// Some.
    Some,
}

impl Pending {
    /// From the column `pending_streams`, where a trace without it reads as [`Pending::MISSING`].
    #[inline]
    pub(crate) fn of(streams: i32) -> Pending {
        match streams {
            0 => Pending::Nothing,
            1.. => Pending::Some,
            _ => Pending::Unknown,
        }
    }

    /// Stands for a value that is not there.
    pub(crate) const MISSING: i32 = -1;
}

/// What must be known of a transfer to say whether it may have waited.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Transfer<'a> {
    /// A set, not a copy.
    pub(crate) set: bool,
    /// Queued in stream order.
    pub(crate) queued: bool,
    /// Kinds of memory of source and destination.
    pub(crate) memory: [&'a str; 2],
    /// `transfers.direction`.
    pub(crate) direction: &'a str,
    /// Work before it.
    pub(crate) pending: Pending,
}

impl Transfer<'_> {
    /// Time of a call that was waiting: 0 where the call does not block, or is over when its bytes may just be moved.
    #[inline]
    pub(crate) fn waited_ns(self, bytes: i64, api_ns: i64) -> i64 {
        // Nearly all calls are short: their kinds need not be compared.
        if self.pending == Pending::Nothing { 0 } else { beyond(copy_ns(bytes), api_ns, || self.blocks()) }
    }

    /// An asynchronous copy blocks where it touches pageable memory: the driver copies through a buffer of its own. A
    /// synchronous copy within a device is one in name only. A synchronous set blocks where its memory is the host's or may be.
    pub(crate) fn blocks(self) -> bool {
        match (self.set, self.queued) {
            (false, true) => self.memory.contains(&"pageable"),
            (false, false) => self.direction != "DtoD",
            (true, queued) => !queued && matches!(self.memory[1], "pinned" | "managed"),
        }
    }
}

/// An allocation or a free.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Memory<'a> {
    /// Process.
    pub(crate) process_id: i64,
    /// Function.
    pub(crate) api_id: i64,
    /// `device_memory.kind`.
    pub(crate) kind: &'a str,
    /// Bytes taken or given back.
    pub(crate) bytes: i64,
    /// Work before it.
    pub(crate) pending: Pending,
}

impl Memory<'_> {
    /// Whether it may wait: one that is queued in stream order does not.
    fn blocks(self) -> bool {
        self.kind != "async"
    }

    /// Time of a call that was waiting.
    #[inline]
    pub(crate) fn waited_ns(self, idle: &Idle, api_ns: i64) -> i64 {
        if self.pending != Pending::Some {
            return 0;
        }
        let guess = || memory_ns(matches!(self.kind, "pinned" | "registered"), self.bytes);
        let need = idle.own_ns(self.process_id, self.api_id, self.bytes).unwrap_or_else(guess);
        // A few microseconds more or less are no wait.
        beyond(need.max(CALL_NS), api_ns, || self.blocks())
    }
}

/// What allocations and frees take when nothing is pending: by process, function and power of two of the bytes.
#[derive(Debug)]
pub(crate) struct Idle(Groups<(i64, i64, u32), Stats>);

impl Default for Idle {
    fn default() -> Idle {
        Idle(Groups::new(50_000, (OTHER, OTHER, 0)))
    }
}

impl Idle {
    /// What it reads, before all other passes.
    pub(crate) const WANT: Want =
        Want { table: TableId::DeviceMemory, columns: &["api_ns", "api_id", "bytes", "pending_streams", "result"] };

    /// Takes rows of device memory in.
    pub(crate) fn rows(&mut self, rows: &Rows) {
        let (process, api) = (rows.i64("process_id"), rows.i64("api_id"));
        let (length, bytes, result) = (rows.i64("api_ns"), rows.i64("bytes"), rows.i32_or("result", 0));
        let pending = rows.i32_or("pending_streams", Pending::MISSING);
        for row in (0..rows.len).filter(|row| pending[*row] == 0 && result[*row] == 0) {
            for api in [api[row], ANY] {
                self.0.at(key(process[row], api, bytes[row])).add(length[row]);
            }
        }
    }

    fn own_ns(&self, process_id: i64, api_id: i64, bytes: i64) -> Option<i64> {
        let of = |api| self.0.get(&key(process_id, api, bytes)).filter(|stats| stats.count >= ENOUGH);
        let own = of(api_id).map(Stats::median);
        own.or_else(|| of(ANY).map(|stats| OTHERS * stats.median()))
    }
}

fn key(process_id: i64, api_id: i64, bytes: i64) -> (i64, i64, u32) {
    (process_id, api_id, size(bytes))
}

#[cfg(test)]
mod tests {
    use super::*;

    const COPY: Transfer<'_> = Transfer {
        set: false,
        queued: false,
        memory: ["device", "pinned"],
        direction: "DtoH",
        pending: Pending::Unknown,
    };

    #[test]
    fn what_a_copy_takes_far_beyond_its_need_is_waiting() {
        assert_eq!(COPY.waited_ns(4, 1_000_000), 980_000 - 2);
        assert_eq!(COPY.waited_ns(4, 40_000), 0);
        assert_eq!(COPY.waited_ns(1 << 20, 1_000_000), 0, "as slow as the slowest link");
        assert_eq!(COPY.waited_ns(1 << 20, 2_000_000), 2_000_000 - 20_000 - 524_288);
        assert!(COPY.waited_ns(i64::MAX, i64::MAX) > 0, "nothing overflows");
    }

    #[test]
    fn only_what_blocks_waits() {
        let pageable = Transfer { queued: true, memory: ["device", "pageable"], ..COPY };
        let pinned = Transfer { queued: true, ..COPY };
        let set = Transfer { set: true, ..COPY };
        let device_set = Transfer { set: true, memory: ["", "device"], ..COPY };
        let queued_set = Transfer { set: true, queued: true, ..COPY };
        let within = Transfer { direction: "DtoD", ..COPY };
        let waits =
            [COPY, pageable, pinned, set, device_set, queued_set, within].map(|t| t.waited_ns(4, 1_000_000) > 0);
        assert_eq!(waits, [true, true, false, true, false, false, false]);
    }

    #[test]
    fn where_nothing_was_pending_nothing_was_waited_for() {
        assert_eq!(Transfer { pending: Pending::Nothing, ..COPY }.waited_ns(4, 1_000_000), 0);
        assert!(Transfer { pending: Pending::Some, ..COPY }.waited_ns(4, 1_000_000) > 0);
    }

    #[test]
    fn a_free_needs_what_it_takes_when_nothing_is_pending() {
        let mut idle = Idle::default();
        let free = Memory { process_id: 1, api_id: 7, kind: "device", bytes: 1 << 20, pending: Pending::Some };
        let waited = |idle: &Idle, ns| free.waited_ns(idle, ns);
        assert_eq!((waited(&idle, 1_000_000), waited(&idle, 200_000)), (895_000, 0), "a guess");
        for ns in [300_000, 400_000, 500_000] {
            idle.0.at(key(1, 7, (1 << 20) + 5)).add(ns);
        }
        assert_eq!((waited(&idle, 1_000_000), waited(&idle, 800_000)), (600_000, 0));
        assert_eq!(Memory { pending: Pending::Nothing, ..free }.waited_ns(&idle, 1_000_000), 0);
        assert_eq!(Memory { pending: Pending::Unknown, ..free }.waited_ns(&idle, 1_000_000), 0);
        assert_eq!(Memory { kind: "async", ..free }.waited_ns(&idle, 1_000_000), 0);
        assert!(Memory { bytes: 1 << 30, ..free }.waited_ns(&idle, 100_000_000) > 0, "another size");
    }

    #[test]
    fn a_free_that_always_waits_needs_twice_what_allocations_of_the_size_do() {
        let mut idle = Idle::default();
        [100_000, 110_000, 120_000].into_iter().for_each(|ns| idle.0.at(key(1, ANY, 256 << 20)).add(ns));
        let free = Memory { process_id: 1, api_id: 7, kind: "device", bytes: 256 << 20, pending: Pending::Some };
        let need = idle.own_ns(1, 7, 256 << 20).expect("what others need");
        let waited = |ns| free.waited_ns(&idle, ns);
        assert!((200_000..240_000).contains(&need), "{need}");
        assert_eq!((waited(1_400_000), waited(400_000)), (1_400_000 - need, 0));
    }
}
