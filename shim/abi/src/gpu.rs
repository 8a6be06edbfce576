//! What the GPU did, on its own time, as CUPTI's activity records tell it: texts of kind
//! [`crate::event::text_kind::GPU_WORK`], and what became of asking CUPTI ([`state`], texts of kind
//! [`crate::event::text_kind::GPU_TIME`]).
//!
//! A text of work holds records one after the other, each [`WORK_BYTES`] long:
//!
//! | word | holds |
//! |---|---|
//! | 0 | [`kind`], kind of copy, memory of its source and of its destination (8 bits each), correlation id (32) |
//! | 1, 2 | begin and end, ns of CLOCK_MONOTONIC; both 0: CUPTI had no times |
//! | 3 | ordinal of the device, CUPTI's number of the context |
//! | 4 | CUPTI's number of the stream, of the graph (0: no graph) |
//! | 5 | CUPTI's number of the graph's node |
//! | 6 | key of the kernel's name ([`crate::event::text_kind::KERNEL_NAME`]), or bytes |
//! | 7, 8 | of a kernel: grid ([`crate::event::pack_grid`]), block and dynamic shared memory ([`crate::event::pack_block`]) |
//! | 9 | registers of a thread (32), static shared memory (32) |
//! | 10 | local memory of a thread (32), shared memory that a block was given (32) |

/// Words of a record.
pub const WORK_WORDS: usize = 11;
/// Its size.
pub const WORK_BYTES: usize = WORK_WORDS * 8;
/// Records that one text holds.
pub const WORKS: usize = crate::event::TEXT_MAX_BYTES / WORK_BYTES;

/// What the GPU did.
pub mod kind {
    /// A kernel.
    pub const KERNEL: u8 = 1;
    /// A copy.
    pub const COPY: u8 = 2;
    /// A set.
    pub const SET: u8 = 3;
    /// A copy between two devices.
    pub const PEER: u8 = 4;
}

/// What happened to the asking, in the number of a text of kind GPU_TIME. The text's ticks are when.
pub mod state {
    /// The library that is used: key is its version as it gives it itself, the text its path.
    pub const LIBRARY: u64 = 1;
    /// Calls that begin from now on have their work told. Key is one of [`super::reason`].
    pub const ON: u64 = 2;
    /// Calls that begin from now on have not. Key is one of [`super::reason`].
    pub const OFF: u64 = 3;
    /// All that was told of is in the ring: key is how many records CUPTI dropped so far, or had to be dropped.
    pub const SETTLED: u64 = 4;
    /// CUPTI refused: key is its result, the text the function.
    pub const REFUSED: u64 = 5;
    /// No library of CUPTI was found.
    pub const NO_LIBRARY: u64 = 6;
    /// Somebody else uses CUPTI, or is about to: the text is the function that was called, or the variable.
    pub const ASIDE: u64 = 7;
    /// Nobody else uses it any more.
    pub const RESUMED: u64 = 8;
    /// CUPTI was taken off the process until the next window: key is how long that took, ns.
    pub const DETACHED: u64 = 9;
    /// From now on it stays between windows. Key is one of [`super::reason`].
    pub const STAYS: u64 = 10;
    /// It is not used any more. Key is one of [`super::reason`].
    pub const GIVEN_UP: u64 = 11;
    /// CUPTI refused a kind of what it tells beside the GPU's work: key is its result, the text the kind's name
    /// ([`crate::activity::kind`]).
    pub const KIND_REFUSED: u64 = 12;
    /// CUPTI does not take our clock: its times are converted, and may be so many ns off. That is the key.
    pub const CLOCK: u64 = 13;
    /// Somebody else called another copy of CUPTI (the text is its path) when ours had been used, and the driver serves one.
    pub const OTHER_COPY: u64 = 14;
    /// CUPTI stays until the next window, for launches come ahead of a GPU that was busy for so many millionths of the
    /// last one. That is the key.
    pub const BUSY: u64 = 15;
    /// A library of CUPTI is there and cannot be used: the text says why.
    pub const UNUSABLE: u64 = 16;
}

/// Why records are on or off, and CUPTI stays or is given up.
pub mod reason {
    /// For the whole run.
    pub const FULL: u64 = 1;
    /// Somebody else uses CUPTI.
    pub const ASIDE: u64 = 2;
    /// The process ends.
    pub const END: u64 = 3;
    /// For a window, or until the next one.
    pub const WINDOW: u64 = 4;
    /// The program makes graphs: CUPTI cannot be taken off any more.
    pub const GRAPHS: u64 = 5;
    /// Somebody else uses CUPTI too, or did.
    pub const SHARED: u64 = 6;
    /// This CUPTI cannot be taken off: it is of a CUDA before 12.6.
    pub const VERSION: u64 = 7;
    /// cuptiFinalize failed.
    pub const FAILED: u64 = 8;
    /// cuptiActivityFlushAll failed several times in a row.
    pub const FLUSH: u64 = 9;
    /// Kernels may wait for other processes or devices: CUPTI can neither be put on a process any more, nor taken off it.
    pub const PEERS: u64 = 10;
}

/// A record.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Work {
    /// One of [`kind`].
    pub kind: u8,
    /// CUPTI's kind of copy, and of the memory at both ends; 0 for kernels.
    pub copy: [u8; 3],
    /// CUPTI's number of the call.
    pub correlation: u32,
    /// When it began, ns of CLOCK_MONOTONIC.
    pub start: u64,
    /// When it ended.
    pub end: u64,
    /// Ordinal of the device.
    pub device: u32,
    /// CUPTI's number of the context.
    pub context: u32,
    /// CUPTI's number of the stream in the context.
    pub stream: u32,
    /// CUPTI's number of the graph; 0: it was in none.
    pub graph: u32,
    /// CUPTI's number of the node.
    pub node: u64,
    /// Key of a kernel's name; bytes of a copy or set.
    pub amount: u64,
    /// A kernel's grid, packed.
    pub grid: u64,
    /// Its block and dynamic shared memory, packed.
    pub block: u64,
    /// Its registers for a thread.
    pub registers: u32,
    /// Its static shared memory, bytes.
    pub static_shared: u32,
    /// Its local memory for a thread, bytes.
    pub local: u32,
    /// Shared memory that a block was given, bytes.
    pub shared_given: u32,
}

impl Work {
    /// As words.
    pub fn to_words(&self) -> [u64; WORK_WORDS] {
        let pair = |low: u32, high: u32| u64::from(low) | u64::from(high) << 32;
        let [copy, source, destination] = self.copy;
        [
            pair(u32::from_le_bytes([self.kind, copy, source, destination]), self.correlation),
            self.start,
            self.end,
            pair(self.device, self.context),
            pair(self.stream, self.graph),
            self.node,
            self.amount,
            self.grid,
            self.block,
            pair(self.registers, self.static_shared),
            pair(self.local, self.shared_given),
        ]
    }

    /// Out of words. Any words are a record; none is trusted.
    pub fn from_words(words: &[u64; WORK_WORDS]) -> Work {
        let [first, start, end, place, queue, node, amount, grid, block, thread, memory] = *words;
        let halves = |word: u64| (word as u32, (word >> 32) as u32);
        let [kind, copy, source, destination] = (first as u32).to_le_bytes();
        let (device, context) = halves(place);
        let (stream, graph) = halves(queue);
        let (registers, static_shared) = halves(thread);
        let (local, shared_given) = halves(memory);
        Work {
            kind,
            copy: [copy, source, destination],
            correlation: halves(first).1,
            start,
            end,
            device,
            context,
            stream,
            graph,
            node,
            amount,
            grid,
            block,
            registers,
            static_shared,
            local,
            shared_given,
        }
    }

    /// The records of a text.
    pub fn all(text: &[u8]) -> impl Iterator<Item = Work> + '_ {
        text.as_chunks::<WORK_BYTES>().0.iter().map(|bytes| Work::from_words(&crate::text::words(bytes)))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::vec::Vec;

    #[test]
    fn records_survive_the_way_through_a_text() {
        let work = |n: u32| Work {
            kind: kind::KERNEL,
            copy: [1, 2, 3],
            correlation: n,
            start: u64::MAX - 1,
            end: u64::MAX,
            device: 4,
            context: 5,
            stream: 6,
            graph: 7,
            node: 1 << 40,
            amount: 1 << 41,
            grid: 1 << 42,
            block: 1 << 43,
            registers: 255,
            static_shared: 48 << 10,
            local: 8,
            shared_given: 100 << 10,
        };
        let all: Vec<Work> = (0..WORKS as u32).map(work).collect();
        let mut text: Vec<u8> = all.iter().flat_map(Work::to_words).flat_map(u64::to_le_bytes).collect();
        assert!(text.len() <= crate::event::TEXT_MAX_BYTES);
        text.push(0); // what is no whole record is left out
        assert_eq!(Work::all(&text).collect::<Vec<_>>(), all);
    }
}
