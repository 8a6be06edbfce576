//! The bytes of several pieces, one behind the other, as words.

/// What is left of the pieces.
pub(super) struct Words<'a, const N: usize>([&'a [u8]; N]);

impl<'a, const N: usize> Words<'a, N> {
    pub(super) fn of(pieces: [&'a [u8]; N]) -> Self {
        Words(pieces)
    }

    /// The next eight bytes, low byte first; zeros behind the last piece.
    #[inline]
    pub(super) fn next(&mut self) -> u64 {
        if self.0.iter().all(|piece| piece.is_empty()) {
            return 0;
        }
        let mut word = [0u8; 8];
        let mut filled = 0;
        for piece in &mut self.0 {
            if filled == 0
                && let Some((whole, rest)) = piece.split_first_chunk()
            {
                *piece = rest;
                return u64::from_le_bytes(*whole);
            }
            let (taken, rest) = piece.split_at(piece.len().min(word.len() - filled));
            for (place, byte) in word.iter_mut().skip(filled).zip(taken) {
                *place = *byte;
            }
            filled += taken.len();
            *piece = rest;
        }
        u64::from_le_bytes(word)
    }
}
