//! How much of a copy was waiting for work that was queued before it, as far as its own size and time tell.
//!
//! A copy that blocks first waits until the work before it is done: `loss.item()` copies four bytes and takes as long as
//! the step's kernels. Host data hold one time for both parts. But the copying alone needs little: [`CALL_NS`] and its
//! bytes over a link that is slower than any ([`BYTES_PER_US`]). A call that takes more than twice that waited for the
//! rest. So what counts as waiting is a lower bound; a wait that is short beside its copy's need is not told from it.

/// What a blocking copy needs beside its bytes, ns. Measured ones take 7 to 15 us.
const CALL_NS: i64 = 20_000;
/// Bytes that the slowest link moves in a us, 2 GB/s: PCIe 3.0 with four lanes, and pages that are touched first.
const BYTES_PER_US: i64 = 2_000;

/// What must be known of a transfer to say whether it may have waited.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Transfer<'a> {
    /// A set, not a copy.
    pub(crate) set: bool,
    /// Queued in stream order.
    pub(crate) queued: bool,
    /// Kinds of memory of source and destination.
    pub(crate) memory: [&'a str; 2],
}

impl Transfer<'_> {
    /// Time of a call that was waiting: 0 where the call does not block, or is over when its bytes may just be moved.
    #[inline]
    pub(crate) fn waited_ns(self, bytes: i64, api_ns: i64) -> i64 {
        let need = CALL_NS.saturating_add(bytes.max(0).saturating_mul(1000) / BYTES_PER_US);
        // Nearly all calls are short: their kinds need not be compared.
        if api_ns <= need.saturating_mul(2) || !self.blocks() {
            return 0;
        }
        api_ns - need
    }

    /// An asynchronous copy blocks where it touches pageable memory: the driver copies through a buffer of its own.
    fn blocks(self) -> bool {
        !self.set && (!self.queued || self.memory.contains(&"pageable"))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_a_copy_takes_far_beyond_its_need_is_waiting() {
        let copy = Transfer { set: false, queued: false, memory: ["device", "pinned"] };
        assert_eq!(copy.waited_ns(4, 1_000_000), 980_000 - 2);
        assert_eq!(copy.waited_ns(4, 40_000), 0);
        assert_eq!(copy.waited_ns(1 << 20, 1_000_000), 0, "as slow as the slowest link");
        assert_eq!(copy.waited_ns(1 << 20, 2_000_000), 2_000_000 - 20_000 - 524_288);
        assert!(copy.waited_ns(i64::MAX, i64::MAX) > 0, "nothing overflows");
    }

    #[test]
    fn only_what_blocks_waits() {
        let sync = Transfer { set: false, queued: false, memory: ["", "device"] };
        let pageable = Transfer { queued: true, memory: ["device", "pageable"], ..sync };
        let pinned = Transfer { queued: true, memory: ["device", "pinned"], ..sync };
        let set = Transfer { set: true, ..sync };
        let waits = [sync, pageable, pinned, set].map(|t| t.waited_ns(4, 1_000_000) > 0);
        assert_eq!(waits, [true, true, false, false]);
    }
}
