//! What a call needs that may wait for work before it: where it took more than twice that, the rest was waiting.
//!
//! Reports ask it of each row and know all of a run (`analysis/passes/waiting.rs` says why it is asked so); whoever watches a run
//! has only what came so far (`Needs`).

use gputrace_abi::Class;
use gputrace_abi::event::detail;

/// What a blocking copy needs beside its bytes, ns. Measured ones take 7 to 15 us.
pub const CALL_NS: i64 = 20_000;
/// Bytes that the slowest link moves in a us, 2 GB/s: PCIe 3.0 with four lanes, and pages that are touched first.
const BYTES_PER_US: i64 = 2_000;
/// What an allocation or a free needs beside its bytes, ns, where it was never seen with nothing pending.
const MEMORY_NS: i64 = 100_000;
/// The same for each MiB: mapping device memory, and pinning host memory page by page.
const DEVICE_MIB_NS: i64 = 5_000;
const HOST_MIB_NS: i64 = 500_000;
/// So many calls with nothing pending say what a call needs.
pub const ENOUGH: u64 = 3;
/// And so many times that what another function needs for as many bytes.
pub const OTHERS: i64 = 2;

/// What a copy or a set of so many bytes needs, ns.
#[inline]
pub fn copy_ns(bytes: i64) -> i64 {
    CALL_NS.saturating_add(bytes.max(0).saturating_mul(1000) / BYTES_PER_US)
}

/// What an allocation or a free of so many bytes needs, ns, where none was seen with nothing pending; `host`: of the host's memory.
pub fn memory_ns(host: bool, bytes: i64) -> i64 {
    let mib = if host { HOST_MIB_NS } else { DEVICE_MIB_NS };
    MEMORY_NS.saturating_add((bytes.max(0) >> 20).saturating_mul(mib))
}

/// What lies beyond twice the need.
#[inline]
pub fn beyond(need_ns: i64, took_ns: i64, blocks: impl FnOnce() -> bool) -> i64 {
    if took_ns > need_ns.saturating_mul(2) && blocks() { took_ns - need_ns } else { 0 }
}

/// The place of a size: calls whose bytes have the same power of two are alike.
pub fn size(bytes: i64) -> u32 {
    64 - bytes.max(0).leading_zeros()
}

/// An allocation or a free of a process that is being watched.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Memory {
    pub(crate) class: Class,
    pub(crate) detail: u8,
    pub(crate) bytes: i64,
    pub(crate) took_ns: i64,
    /// Whether work was pending.
    pub(crate) pending: bool,
}

/// What allocations and frees of a process took so far when nothing was pending, by size: their number, and the sum of the
/// logarithms, for the first call of all takes a thousand times as long.
#[derive(Clone, Debug, Default)]
pub(crate) struct Needs(Option<Box<[(u32, f32); 65]>>);

impl Needs {
    /// How long the call waited, ns; one that did not is learned from.
    pub(crate) fn waited_ns(&mut self, memory: &Memory) -> i64 {
        // What is queued in stream order does not wait.
        if !matches!(memory.class, Class::Alloc | Class::Free) || memory.detail == detail::POOL {
            return 0;
        }
        let place = size(memory.bytes) as usize;
        if !memory.pending {
            let all = self.0.get_or_insert_with(|| Box::new([(0, 0.0); 65]));
            if let Some((count, logarithms)) = all.get_mut(place).filter(|(count, _)| *count < 1 << 20) {
                *count += 1;
                *logarithms += (memory.took_ns.max(1) as f32).ln();
            }
            return 0;
        }
        let known = self.0.as_ref().and_then(|all| all.get(place)).filter(|(count, _)| u64::from(*count) >= ENOUGH);
        let usual = known.map(|(count, logarithms)| (logarithms / *count as f32).exp() as i64);
        let host = matches!(memory.detail, detail::PINNED | detail::REGISTERED);
        let need = usual.map_or_else(|| memory_ns(host, memory.bytes), |ns| OTHERS.saturating_mul(ns));
        beyond(need.max(CALL_NS), memory.took_ns, || true)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_free_that_finds_work_waits_for_what_it_takes_beyond_its_need() {
        let mut needs = Needs::default();
        let free =
            Memory { class: Class::Free, detail: detail::DEVICE, bytes: 1 << 20, took_ns: 1_000_000, pending: true };
        assert_eq!(needs.waited_ns(&free), 895_000, "a guess");
        assert_eq!(needs.waited_ns(&Memory { took_ns: 200_000, ..free }), 0);
        // What it needs shows where nothing is pending; the first one loads a library.
        for took_ns in [5_000_000, 30_000, 30_000, 30_000, 30_000, 30_000, 30_000] {
            assert_eq!(needs.waited_ns(&Memory { class: Class::Alloc, pending: false, took_ns, ..free }), 0);
        }
        let waited = needs.waited_ns(&free);
        assert!((850_000..950_000).contains(&waited), "{waited}");
        assert!(needs.waited_ns(&Memory { took_ns: 300_000, ..free }) > 0);
        assert_eq!(needs.waited_ns(&Memory { detail: detail::POOL, ..free }), 0, "in stream order");
        assert!(needs.waited_ns(&Memory { bytes: i64::MAX, took_ns: i64::MAX, ..free }) >= 0);
        assert_eq!(needs.waited_ns(&Memory { bytes: -1, took_ns: i64::MIN, pending: false, ..free }), 0);
    }

    #[test]
    fn a_copy_needs_its_bytes_over_a_slow_link() {
        assert_eq!((copy_ns(0), copy_ns(1 << 20), copy_ns(-5)), (20_000, 544_288, 20_000));
        assert_eq!((beyond(10, 20, || true), beyond(10, 21, || true), beyond(10, 21, || false)), (0, 11, 0));
        assert!(beyond(copy_ns(i64::MAX), i64::MAX, || true) > 0, "nothing overflows");
    }
}
