//! The key of a text: what stands for it in events, so that its bytes travel once; and the words that a text of records holds.
//!
//! The shim computes it at each range that a program pushes, so it takes sixteen bytes at a time; the names' own hash
//! (FNV) takes one, and 25 ns for a name of twenty. The collector computes it again from the bytes that came: a
//! process cannot give the key of one text to another.

const SPREAD: u64 = 0x9e37_79b9_7f4a_7c15;
const FINISH: u64 = 0xd6e8_feb8_6659_fd93;

/// FNV-1a, 64 bit, of nothing.
pub const FNV: u64 = 0xcbf2_9ce4_8422_2325;

/// FNV-1a of what has this hash and these bytes behind it: the same in every build and on every machine.
pub const fn fnv(mut hash: u64, mut bytes: &[u8]) -> u64 {
    while let [byte, rest @ ..] = bytes {
        hash = (hash ^ *byte as u64).wrapping_mul(0x0100_0000_01b3);
        bytes = rest;
    }
    hash
}

/// Key of a text of this kind ([`crate::event::text_kind`]); never 0, which stands for no text.
#[inline]
pub fn key(kind: u64, bytes: &[u8]) -> u64 {
    let mut hash = kind.wrapping_mul(SPREAD) ^ bytes.len() as u64;
    let (pairs, rest) = bytes.as_chunks::<16>();
    for pair in pairs {
        let [first, second]: [u64; 2] = words(pair);
        hash = fold(hash ^ first, SPREAD ^ second);
    }
    if let Some(word) = rest.first_chunk() {
        hash = fold(hash ^ u64::from_le_bytes(*word), SPREAD);
    }
    hash = fold(hash ^ last_word(bytes), FINISH);
    hash.max(1)
}

/// The bytes behind the last whole word of eight, as a word, low byte first; zeros behind them.
///
/// By loads that may lie on each other: byte by byte it took as long as all else of a name of twenty.
#[inline(always)]
pub(crate) fn last_word(bytes: &[u8]) -> u64 {
    let bits = |n: usize| (8 * n as u32) & 63;
    if bytes.len() >= 8
        && let Some(last) = bytes.get(bytes.len() - 8..).and_then(|last| last.first_chunk())
    {
        // In two steps: a word cannot be shifted by all of its bits.
        return u64::from_le_bytes(*last) >> bits(7 - bytes.len() % 8) >> 8;
    }
    if let (Some(first), Some(last)) = (bytes.first_chunk(), end(bytes)) {
        let last = u64::from(u32::from_le_bytes(*last));
        return u64::from(u32::from_le_bytes(*first)) | last << bits(bytes.len() - 4);
    }
    let (Some(first), Some(last)) = (bytes.first(), bytes.last()) else { return 0 };
    let middle = bytes.len() / 2;
    let between = bytes.get(middle).map_or(0, |byte| u64::from(*byte) << bits(middle));
    u64::from(*first) | between | u64::from(*last) << bits(bytes.len() - 1)
}

/// The last bytes. Not by `last_chunk`, which splits at a place of which the compiler does not always see that it lies inside: the shim
/// must not hold a way to panic.
#[inline(always)]
fn end<const BYTES: usize>(bytes: &[u8]) -> Option<&[u8; BYTES]> {
    bytes.get(bytes.len().checked_sub(BYTES)?..)?.first_chunk()
}

/// Both halves of a product: every bit of the factors reaches every bit of the result.
#[inline(always)]
const fn fold(a: u64, b: u64) -> u64 {
    let product = a as u128 * b as u128;
    product as u64 ^ (product >> 64) as u64
}

/// The words of a record.
#[inline(always)]
pub(crate) fn words<const BYTES: usize, const WORDS: usize>(bytes: &[u8; BYTES]) -> [u64; WORDS] {
    let mut words = [0; WORDS];
    for (word, bytes) in words.iter_mut().zip(bytes.as_chunks::<8>().0) {
        *word = u64::from_le_bytes(*bytes);
    }
    words
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::collections::HashSet;
    use std::format;
    use std::string::String;

    #[test]
    fn different_texts_have_different_keys_and_equal_ones_the_same() {
        let mut keys = HashSet::new();
        for n in 0..100_000 {
            assert!(keys.insert(key(5, format!("step {n}").as_bytes())), "{n}");
            assert!(keys.insert(key(6, format!("step {n}").as_bytes())), "{n} of another kind");
        }
        for length in 0..100 {
            let text: String = std::iter::repeat_n('a', length).collect();
            assert!(keys.insert(key(5, text.as_bytes())), "{length} bytes");
        }
        assert_eq!(key(5, b"forward and backward"), key(5, b"forward and backward"));
    }

    #[test]
    fn the_last_word_has_the_bytes_behind_the_whole_ones() {
        let bytes: [u8; 40] = core::array::from_fn(|at| at as u8 + 1);
        for length in 0..bytes.len() {
            let (whole, rest) = bytes[..length].as_chunks::<8>();
            let mut wanted = [0; 8];
            wanted[..rest.len()].copy_from_slice(rest);
            assert_eq!(last_word(&bytes[..length]), u64::from_le_bytes(wanted), "{length}, {}", whole.len());
        }
    }

    #[test]
    fn no_text_has_the_key_of_none() {
        assert_ne!(key(0, b""), 0);
        assert_ne!(key(5, &[0; 8]), key(5, &[0; 7]));
    }
}
