//! DELTA_BINARY_PACKED, as the Parquet format describes it: differences in blocks of 128, packed in 4 miniblocks.

const BLOCK: usize = 128;
const MINIBLOCKS: usize = 4;
const MINI: usize = BLOCK / MINIBLOCKS;

/// Appends the values, encoded.
pub(crate) fn encode(values: &[u64], out: &mut Vec<u8>) {
    varint(BLOCK as u64, out);
    varint(MINIBLOCKS as u64, out);
    varint(values.len() as u64, out);
    let first = values.first().copied().unwrap_or(0);
    zigzag(first as i64, out);
    let mut before = first;
    for block in values.get(1..).unwrap_or(&[]).chunks(BLOCK) {
        let mut deltas = [0u64; BLOCK];
        let mut least = i64::MAX;
        for (delta, value) in deltas.iter_mut().zip(block) {
            *delta = value.wrapping_sub(before);
            before = *value;
            least = least.min(*delta as i64);
        }
        for delta in deltas.iter_mut().take(block.len()) {
            *delta = delta.wrapping_sub(least as u64);
        }
        zigzag(least, out);
        // A miniblock past the last value has width 0 and no bytes.
        let widths: [u8; MINIBLOCKS] = std::array::from_fn(|m| {
            let all = deltas.iter().skip(m * MINI).take(MINI).fold(0, |bits, d| bits | d);
            (u64::BITS - all.leading_zeros()) as u8
        });
        out.extend_from_slice(&widths);
        for (mini, width) in deltas.chunks(MINI).zip(widths) {
            pack(mini, u32::from(width), out);
        }
    }
}

/// Appends 32 values of `width` bits each, the lowest bit first.
fn pack(values: &[u64], width: u32, out: &mut Vec<u8>) {
    if width == 0 {
        return;
    }
    let (mut word, mut bits) = (0u64, 0u32);
    for value in values {
        word |= value << bits;
        if bits + width < u64::BITS {
            bits += width;
            continue;
        }
        out.extend_from_slice(&word.to_le_bytes());
        word = if bits == 0 { 0 } else { value >> (u64::BITS - bits) };
        bits = bits + width - u64::BITS;
    }
    // 32 values have a multiple of 32 bits.
    if bits > 0 {
        out.extend_from_slice(&(word as u32).to_le_bytes());
    }
}

/// Appends an unsigned number, 7 bits a byte.
pub(crate) fn varint(mut value: u64, out: &mut Vec<u8>) {
    while value >= 0x80 {
        out.push(value as u8 | 0x80);
        value >>= 7;
    }
    out.push(value as u8);
}

fn zigzag(value: i64, out: &mut Vec<u8>) {
    varint((value << 1 ^ value >> 63) as u64, out);
}
