//! How long the GPU was busy with a launch, by two timed events around it: texts of kind
//! [`crate::event::text_kind::GPU_SAMPLES`], and what became of the timing ([`Account`], texts of kind
//! [`crate::event::text_kind::GPU_SAMPLING`]).
//!
//! A text of samples holds records one after the other, each [`SAMPLE_BYTES`] long:
//!
//! | word | holds |
//! |---|---|
//! | 0 | [`kind`] (8 bits), 8 zeros, row of the launching thread (16), launches that it stands for (32) |
//! | 1 | the call's start in ticks, as in its event |
//! | 2 | when the work began, ns of CLOCK_MONOTONIC |
//! | 3 | time on the GPU, ns |
//! | 4 | time between both events, ns: nothing subtracted |

use crate::text::words;

/// Words of a sample.
pub const SAMPLE_WORDS: usize = 5;
/// Its size.
pub const SAMPLE_BYTES: usize = SAMPLE_WORDS * 8;
/// Samples that one text holds.
pub const SAMPLES: usize = crate::event::TEXT_MAX_BYTES / SAMPLE_BYTES;

/// What two events around a launch cost the thread and the GPU (docs/benchmarks.md), ns.
pub const PAIR_NS: u64 = 8_000;

/// What was launched.
pub mod kind {
    /// A kernel, drawn by chance.
    pub const KERNEL: u8 = 1;
    /// A graph.
    pub const GRAPH: u8 = 2;
    /// What a call of NCCL launched.
    pub const COLLECTIVE: u8 = 3;
}

/// A timed launch.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Sample {
    /// One of [`kind`].
    pub kind: u8,
    /// Row of the thread that made the call.
    pub thread: u16,
    /// Launches that it stands for: the mean distance between two that are drawn.
    pub weight: u32,
    /// The call's start, ticks.
    pub call: u64,
    /// When the work began, ns of CLOCK_MONOTONIC.
    pub start: u64,
    /// Time on the GPU, ns.
    pub gpu: u64,
    /// Time between both events, ns.
    pub pair: u64,
}

impl Sample {
    /// As words.
    pub fn to_words(&self) -> [u64; SAMPLE_WORDS] {
        let first = u64::from(self.kind) | u64::from(self.thread) << 16 | u64::from(self.weight) << 32;
        [first, self.call, self.start, self.gpu, self.pair]
    }

    /// Out of words. Any words are a sample; none is trusted.
    pub fn from_words(words: &[u64; SAMPLE_WORDS]) -> Sample {
        let [first, call, start, gpu, pair] = *words;
        Sample { kind: first as u8, thread: (first >> 16) as u16, weight: (first >> 32) as u32, call, start, gpu, pair }
    }

    /// The samples of a text.
    pub fn all(text: &[u8]) -> impl Iterator<Item = Sample> + '_ {
        text.as_chunks::<SAMPLE_BYTES>().0.iter().map(|bytes| Sample::from_words(&words(bytes)))
    }
}

/// What became of launches that were drawn, over the process's life so far.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Account {
    /// Samples that were told.
    pub timed: u64,
    /// Launches for which no pair of events was free.
    pub without_room: u64,
    /// Pairs of which the driver, or the end of their context, left no time.
    pub lost: u64,
    /// Those whose second event came too late to say when the work ended.
    pub late: u64,
    /// Samples for which the ring had no room.
    pub dropped: u64,
    /// What a pair with nothing between takes, ns: it is subtracted. The last context's.
    pub pair_ns: u64,
    /// Contexts whose launches were timed.
    pub contexts: u64,
    /// The most by which the GPU's clock may be off the host's, ns.
    pub error_ns: u64,
    /// Contexts for which it could not be measured what the GPU needs to begin and to end something: [`USUAL_NS`] was taken.
    pub assumed: u64,
}

/// What a GPU needs to begin and to end something between two events, on hosts with an H200.
pub const USUAL_NS: u64 = 1400;

/// Words of an [`Account`].
pub const ACCOUNT_WORDS: usize = 9;
/// Its size.
pub const ACCOUNT_BYTES: usize = ACCOUNT_WORDS * 8;

impl Account {
    /// As words.
    pub fn to_words(&self) -> [u64; ACCOUNT_WORDS] {
        let Account { timed, without_room, lost, late, dropped, pair_ns, contexts, error_ns, assumed } = *self;
        [timed, without_room, lost, late, dropped, pair_ns, contexts, error_ns, assumed]
    }

    /// Out of a text; none where it is too short.
    pub fn read(text: &[u8]) -> Option<Account> {
        let [timed, without_room, lost, late, dropped, pair_ns, contexts, error_ns, assumed] =
            words(text.first_chunk::<ACCOUNT_BYTES>()?);
        Some(Account { timed, without_room, lost, late, dropped, pair_ns, contexts, error_ns, assumed })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::vec::Vec;

    #[test]
    fn samples_survive_the_way_through_a_text() {
        let sample = |n: u16| Sample {
            kind: kind::COLLECTIVE,
            thread: n,
            weight: u32::MAX,
            call: 1 << 60,
            start: u64::MAX,
            gpu: 1 << 40,
            pair: (1 << 40) + 1,
        };
        let all: Vec<Sample> = (0..SAMPLES as u16).map(sample).collect();
        let mut text: Vec<u8> = all.iter().flat_map(Sample::to_words).flat_map(u64::to_le_bytes).collect();
        assert!(text.len() <= crate::event::TEXT_MAX_BYTES);
        text.push(0); // what is no whole sample is left out
        assert_eq!(Sample::all(&text).collect::<Vec<_>>(), all);
    }

    #[test]
    fn accounts_survive_the_way_through_a_text() {
        let account = Account {
            timed: 1,
            without_room: 2,
            lost: 3,
            late: 4,
            dropped: 5,
            pair_ns: 6,
            contexts: 7,
            error_ns: 8,
            assumed: 9,
        };
        let text: Vec<u8> = account.to_words().into_iter().flat_map(u64::to_le_bytes).collect();
        assert_eq!(Account::read(&text), Some(account));
        assert_eq!(Account::read(&text[1..]), None);
    }
}
