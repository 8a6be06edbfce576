//! What CUPTI tells beside the GPU's work: texts of kind [`crate::event::text_kind::GPU_ACTIVITY`].
//!
//! A text holds records one after the other, each [`ACTIVITY_BYTES`] long:
//!
//! | word | holds |
//! |---|---|
//! | 0 | [`kind`], what it was and why, as that kind numbers them (8 bits each), 8 bits of 0, CUPTI's number of the call (32; 0: none) |
//! | 1, 2 | begin and end, ns of CLOCK_MONOTONIC; end 0: it was a moment |
//! | 3 | ordinal of the device, CUPTI's number of the context |
//! | 4 | CUPTI's number of the stream, its number of the thread |
//! | 5 | bytes, or faults |
//! | 6 | address |
//!
//! A number of 32 bits that a record does not have is [`NONE`].

/// Words of a record.
pub const ACTIVITY_WORDS: usize = 7;
/// Its size.
pub const ACTIVITY_BYTES: usize = ACTIVITY_WORDS * 8;
/// Records that one text holds.
pub const ACTIVITIES: usize = crate::event::TEXT_MAX_BYTES / ACTIVITY_BYTES;
/// Stands for a number that a record does not have.
pub const NONE: u32 = u32::MAX;

/// What is told of, in the order in which `--gpu-activity` has them.
pub mod kind {
    /// What CUPTI, and loading of code, took from the program's threads. `what`: 1 for the compiler, and one more than CUPTI's
    /// number for what comes after it.
    pub const OVERHEAD: u8 = 0;
    /// A wait of the host, or of a stream, by a call. `what`: CUpti_ActivitySynchronizationType.
    pub const SYNC: u8 = 1;
    /// Pages of managed memory that moved, and faults. `what`: CUpti_ActivityUnifiedMemoryCounterKind; `why`: what stands in the
    /// record's flags.
    pub const UNIFIED_MEMORY: u8 = 2;
    /// Their names.
    pub const NAMES: [&str; 3] = ["overhead", "sync", "unified-memory"];
}

/// A record.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Activity {
    /// One of [`kind`].
    pub kind: u8,
    /// What it was.
    pub what: u8,
    /// Why.
    pub why: u8,
    /// CUPTI's number of the call; 0: none.
    pub correlation: u32,
    /// When it began, ns of CLOCK_MONOTONIC.
    pub start: u64,
    /// When it ended; 0: it was a moment.
    pub end: u64,
    /// Ordinal of the device.
    pub device: u32,
    /// CUPTI's number of the context.
    pub context: u32,
    /// CUPTI's number of the stream in the context.
    pub stream: u32,
    /// CUPTI's number of the thread.
    pub thread: u32,
    /// Bytes, or faults.
    pub amount: u64,
    /// Where in memory.
    pub address: u64,
}

impl Activity {
    /// A record that has nothing but its kind.
    pub const fn of(kind: u8, what: u8) -> Activity {
        Activity {
            kind,
            what,
            why: 0,
            correlation: 0,
            start: 0,
            end: 0,
            device: NONE,
            context: NONE,
            stream: NONE,
            thread: NONE,
            amount: 0,
            address: 0,
        }
    }

    /// As words.
    pub fn to_words(&self) -> [u64; ACTIVITY_WORDS] {
        let pair = |low: u32, high: u32| u64::from(low) | u64::from(high) << 32;
        [
            pair(u32::from_le_bytes([self.kind, self.what, self.why, 0]), self.correlation),
            self.start,
            self.end,
            pair(self.device, self.context),
            pair(self.stream, self.thread),
            self.amount,
            self.address,
        ]
    }

    /// Out of words. Any words are a record; none is trusted.
    pub fn from_words(words: &[u64; ACTIVITY_WORDS]) -> Activity {
        let [first, start, end, place, queue, amount, address] = *words;
        let halves = |word: u64| (word as u32, (word >> 32) as u32);
        let [kind, what, why, _] = (first as u32).to_le_bytes();
        let (device, context) = halves(place);
        let (stream, thread) = halves(queue);
        let correlation = halves(first).1;
        Activity { kind, what, why, correlation, start, end, device, context, stream, thread, amount, address }
    }

    /// The records of a text.
    pub fn all(text: &[u8]) -> impl Iterator<Item = Activity> + '_ {
        text.as_chunks::<ACTIVITY_BYTES>().0.iter().map(|bytes| Activity::from_words(&crate::text::words(bytes)))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::vec::Vec;

    #[test]
    fn records_survive_the_way_through_a_text() {
        let activity = |n: u32| Activity {
            why: 5,
            correlation: n,
            start: u64::MAX - 1,
            end: u64::MAX,
            device: 1,
            context: 2,
            stream: 3,
            thread: 4,
            amount: 1 << 41,
            address: 1 << 47,
            ..Activity::of(kind::UNIFIED_MEMORY, 8)
        };
        let all: Vec<Activity> = (0..ACTIVITIES as u32).map(activity).collect();
        let mut text: Vec<u8> = all.iter().flat_map(Activity::to_words).flat_map(u64::to_le_bytes).collect();
        assert!(text.len() <= crate::event::TEXT_MAX_BYTES);
        text.push(0); // what is no whole record is left out
        assert_eq!(Activity::all(&text).collect::<Vec<_>>(), all);
    }
}
