//! Bytes of pixels: numbers of MTLPixelFormat, which Metal's headers give.

/// Bytes of a block of pixels, its width and its height; none for a format that is not known.
const fn block(format: u64) -> Option<(u64, u64, u64)> {
    let block = match format {
        1 | 10..=14 | 253 => (1, 1, 1),
        20..=25 | 30..=34 | 40..=43 | 250 => (2, 1, 1),
        53..=55 | 60..=65 | 70..=74 | 80 | 81 | 90..=94 | 252 | 255 | 262 | 554 | 555 => (4, 1, 1),
        103..=105 | 110..=115 | 260 | 261 | 552 | 553 => (8, 1, 1),
        123..=125 => (16, 1, 1),
        // BC1, BC4, EAC R11 and ETC2 without a full alpha: 4 bits a pixel.
        130 | 131 | 140 | 141 | 170..=172 | 180..=183 => (8, 4, 4),
        // The others of BC, EAC and ETC2.
        132..=135 | 142 | 143 | 150..=153 | 174..=179 => (16, 4, 4),
        // Two pixels share their colour.
        240 | 241 => (4, 2, 1),
        186..=200 => return astc(format - 186),
        204..=218 => return astc(format - 204),
        222..=236 => return astc(format - 222),
        _ => return None,
    };
    Some(block)
}

/// Blocks of ASTC, in the order of their formats; there is none with number 5.
const fn astc(nth: u64) -> Option<(u64, u64, u64)> {
    let (width, height) = match nth {
        0 => (4, 4),
        1 => (5, 4),
        2 => (5, 5),
        3 => (6, 5),
        4 => (6, 6),
        6 => (8, 5),
        7 => (8, 6),
        8 => (8, 8),
        9 => (10, 5),
        10 => (10, 6),
        11 => (10, 8),
        12 => (10, 10),
        13 => (12, 10),
        14 => (12, 12),
        _ => return None,
    };
    Some((16, width, height))
}

/// Bytes that so many pixels take; none for a format that is not known.
pub fn bytes(format: u64, width: u64, height: u64, depth: u64) -> Option<u64> {
    let (bytes, across, down) = block(format)?;
    // No block is 0 wide, which the compiler does not see: the shim holds no code that could panic.
    let blocks = width.div_ceil(across.max(1)).saturating_mul(height.div_ceil(down.max(1))).saturating_mul(depth);
    Some(blocks.saturating_mul(bytes))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn pixels_take_what_their_format_says() {
        // R8, R16Float, RGBA8, RGBA16Float, RGBA32Float, Depth32Float.
        for (format, of_one) in [(10, 1), (25, 2), (70, 4), (115, 8), (125, 16), (252, 4)] {
            assert_eq!(bytes(format, 10, 3, 2), Some(60 * of_one), "{format}");
        }
        assert_eq!(bytes(9_999, 1, 1, 1), None);
        assert_eq!(bytes(191, 1, 1, 1), None, "ASTC has no block of this number");
    }

    #[test]
    fn blocks_that_are_begun_count_in_full() {
        // BC1 with 8 bytes and BC7 with 16 for 4 x 4 pixels; ASTC of 8 x 5 and 12 x 12.
        assert_eq!(bytes(130, 9, 4, 1), Some(3 * 8));
        assert_eq!(bytes(152, 9, 5, 1), Some(6 * 16));
        assert_eq!(bytes(210, 8, 6, 1), Some(2 * 16));
        assert_eq!(bytes(200, 13, 1, 3), Some(6 * 16));
        assert_eq!(bytes(70, u64::MAX, 2, 2), Some(u64::MAX), "no overflow");
    }
}
