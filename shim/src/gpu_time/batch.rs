//! Records of a few words each on their way into a ring: as many as one text holds.

/// Room for so many words.
pub(super) struct Batch<const WORDS: usize> {
    words: [u64; WORDS],
    used: usize,
}

impl<const WORDS: usize> Batch<WORDS> {
    pub(super) const fn new() -> Batch<WORDS> {
        Batch { words: [0; WORDS], used: 0 }
    }

    /// Adds a record. True: there is no room for another one.
    pub(super) fn push<const RECORD: usize>(&mut self, record: [u64; RECORD]) -> bool {
        if let Some(place) = self.words.get_mut(self.used..).and_then(|rest| rest.first_chunk_mut()) {
            *place = record;
            self.used += RECORD;
        }
        self.used + RECORD > WORDS
    }

    /// Its words as a text.
    pub(super) fn text(&self) -> &[u8] {
        bytes(self.words.get(..self.used).unwrap_or(&[]))
    }

    /// How many records of this many words it holds.
    pub(super) fn count(&self, record: usize) -> u64 {
        self.used.checked_div(record).unwrap_or(0) as u64
    }

    pub(super) fn clear(&mut self) {
        self.used = 0;
    }
}

/// Words as the bytes of a text.
pub(super) fn bytes(words: &[u64]) -> &[u8] {
    // SAFETY: words seen as the bytes that they are; both processors that we know are little-endian.
    unsafe { core::slice::from_raw_parts(words.as_ptr().cast::<u8>(), size_of_val(words)) }
}
