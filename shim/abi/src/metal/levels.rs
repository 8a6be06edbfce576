//! Levels of a texture that one message copies, in the word of their bytes: adding them up takes the collector's time and not the program's.
//!
//! The highest bit says that the word is none of bytes. A texture that is deep has one slice, so both share a place.
//!
//! | bits | what |
//! |---|---|
//! | 63 | 1 |
//! | 53..63 | MTLPixelFormat |
//! | 38..53, 23..38 | width and height in pixels |
//! | 11..23, 10 | depth, or slices; whether it is slices |
//! | 5..10, 0..5 | first level, how many of them |

use super::pixels;

const MARK: u64 = 1 << 63;
const IS_SLICES: u64 = 1 << 10;
/// Widths of the places.
const FORMAT: u32 = 10;
const SIDE: u32 = 15;
const DEPTH: u32 = 12;
const LEVEL: u32 = 5;

const fn place(value: usize, bits: u32, at: u32) -> u64 {
    let most = (1 << bits) - 1;
    (if value > most { most as u64 } else { value as u64 }) << at
}

/// The word: what is larger than Metal allows becomes the largest that has room.
#[inline(always)]
pub const fn pack(sides: [usize; 3], format: usize, [first, count, slices]: [usize; 3]) -> u64 {
    let [width, height, depth] = sides;
    let deep = if depth > 1 { place(depth, DEPTH, 11) } else { place(slices, DEPTH, 11) | IS_SLICES };
    MARK | place(format, FORMAT, 53)
        | place(width, SIDE, 38)
        | place(height, SIDE, 23)
        | deep
        | place(first, LEVEL, 5)
        | place(count, LEVEL, 0)
}

/// The bytes that a word of a copy stands for; 0 for pixels of a format that is not known.
pub fn bytes(word: u64) -> u64 {
    if word & MARK == 0 {
        return word;
    }
    let part = |bits: u32, at: u32| word >> at & ((1 << bits) - 1);
    let is_slices = word & IS_SLICES != 0;
    let (depth, slices) = if is_slices { (1, part(DEPTH, 11)) } else { (part(DEPTH, 11), 1) };
    let level = |level: u64| {
        let half = |n: u64| (n >> level).max(1);
        let sides = [part(SIDE, 38), part(SIDE, 23), depth].map(half);
        pixels::bytes(part(FORMAT, 53), sides[0], sides[1], sides[2]).unwrap_or(0)
    };
    let first = part(LEVEL, 5);
    (first..first + part(LEVEL, 0)).map(level).fold(0, u64::saturating_add).saturating_mul(slices)
}

#[cfg(test)]
mod tests {
    use super::*;

    /// RGBA8Unorm, four bytes.
    const FORMAT: usize = 70;

    #[test]
    fn levels_halve_each_side_down_to_one() {
        // 32 x 8, 16 x 4, 8 x 2, 4 x 1, 2 x 1 pixels.
        let all = 4 * (256 + 64 + 16 + 4 + 2);
        assert_eq!(bytes(pack([32, 8, 1], FORMAT, [0, 5, 1])), all);
        assert_eq!(bytes(pack([32, 8, 1], FORMAT, [1, 2, 3])), 3 * 4 * (64 + 16));
        assert_eq!(bytes(pack([8, 8, 4], FORMAT, [0, 2, 1])), 4 * (256 + 32));
        assert_eq!(bytes(pack([32, 8, 1], FORMAT, [0, 0, 1])), 0);
        assert_eq!(bytes(pack([32, 8, 1], 999, [0, 5, 1])), 0, "a format that is not known");
    }

    #[test]
    fn what_a_texture_can_be_has_room_and_more_does_no_harm() {
        assert_eq!(bytes(pack([16_384, 16_384, 1], FORMAT, [0, 1, 2_048])), 4 * 16_384 * 16_384 * 2_048);
        assert_eq!(bytes(pack([2_048, 2_048, 2_048], FORMAT, [0, 1, 1])), 4 * 2_048 * 2_048 * 2_048);
        assert_eq!(bytes(pack([usize::MAX; 3], usize::MAX, [usize::MAX; 3])), 0);
        assert_eq!(bytes(u64::MAX >> 1), u64::MAX >> 1, "bytes are bytes");
    }
}
