//! Numbers and bytes out of an input, which is never too short: at its end all is zero.

/// What is left of an input.
pub(crate) struct Input<'a>(pub(crate) &'a [u8]);

impl<'a> Input<'a> {
    pub(crate) fn is_over(&self) -> bool {
        self.0.is_empty()
    }

    pub(crate) fn byte(&mut self) -> u8 {
        let Some((first, rest)) = self.0.split_first() else { return 0 };
        self.0 = rest;
        *first
    }

    pub(crate) fn short(&mut self) -> u16 {
        u16::from_le_bytes([self.byte(), self.byte()])
    }

    /// Small numbers take a byte, so that they are found often; others nine.
    pub(crate) fn number(&mut self) -> u64 {
        match self.byte() {
            small @ 0..=223 => small.into(),
            power @ 224..=239 => 1 << (4 * u32::from(power - 224)),
            240 => u64::MAX,
            241 => i64::MAX as u64,
            _ => std::array::from_fn::<u8, 8, _>(|_| self.byte()).iter().fold(0, |n, b| n << 8 | u64::from(*b)),
        }
    }

    /// So many bytes, or as many as there are.
    pub(crate) fn bytes(&mut self, count: usize) -> &'a [u8] {
        let (bytes, rest) = self.0.split_at(count.min(self.0.len()));
        self.0 = rest;
        bytes
    }
}
