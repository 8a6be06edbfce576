//! On aarch64 those instructions move that are the same anywhere: the function was examined.

use super::Moved;
use crate::NEAR;

/// The first `bytes` of a function at `address`, for `to`; none where they cannot be there.
pub fn moved(code: &[u8], address: usize, bytes: usize, to: usize) -> Option<Moved> {
    let mut moved = code.get(..bytes).filter(|_| bytes.is_multiple_of(4))?.to_vec();
    moved.extend(near_jump(to + bytes, address + bytes)?);
    Some(Moved { code: moved, places: (0..bytes).step_by(4).map(|at| (at, at)).collect() })
}

/// A jump from one address to another; none where they are too far from each other.
pub fn near_jump(from: usize, to: usize) -> Option<[u8; NEAR]> {
    let distance = (to as i64).checked_sub(from as i64)?;
    let words = distance / 4;
    let fits = distance % 4 == 0 && (-(1 << 25)..1 << 25).contains(&words);
    fits.then(|| (0x1400_0000 | (words as u32 & 0x03ff_ffff)).to_le_bytes())
}

/// Whether these bytes are one.
pub fn is_near_jump(code: &[u8]) -> bool {
    word(code).is_some_and(|word| word & 0xfc00_0000 == 0x1400_0000)
}

/// Where the jump at this address leads.
pub fn near_target(code: &[u8], from: usize) -> Option<usize> {
    let word = word(code).filter(|_| is_near_jump(code))?;
    let distance = i64::from(((word << 6) as i32) >> 6) * 4;
    Some(from.wrapping_add_signed(distance as isize))
}

/// A jump to anywhere: ldr x17, #8; br x17; and the address.
pub fn far_jump(to: usize) -> Vec<u8> {
    [&0x5800_0051u32.to_le_bytes()[..], &0xd61f_0220u32.to_le_bytes(), &to.to_le_bytes()].concat()
}

fn word(code: &[u8]) -> Option<u32> {
    Some(u32::from_le_bytes(code.get(..4)?.try_into().ok()?))
}

#[cfg(test)]
mod tests {
    use super::*;

    const AT: usize = 0x40_0000;

    #[test]
    fn jumps_lead_where_they_are_told() {
        for to in [AT + 0x1234, AT - 76, AT + 4] {
            let jump = near_jump(AT, to).unwrap();
            assert_eq!((near_target(&jump, AT), is_near_jump(&jump)), (Some(to), true));
        }
        assert_eq!([near_jump(AT, AT + (1 << 28)), near_jump(AT, AT + 2)], [None, None]);
        assert_eq!(near_target(&[0x1f, 0x20, 0x03, 0xd5], AT), None);
        assert_eq!(far_jump(0x1122_3344_5566).len(), 16);
    }

    #[test]
    fn an_instruction_is_itself_elsewhere_with_the_way_back_behind_it() {
        let code = [0xfd, 0x7b, 0xbe, 0xa9, 0xfd, 0x03, 0x00, 0x91];
        let moved = moved(&code, AT, 4, AT + 0x1000).unwrap();
        assert_eq!((&moved.code[..4], moved.places.as_slice()), (&code[..4], &[(0, 0)][..]));
        assert_eq!(near_target(&moved.code[4..], AT + 0x1004), Some(AT + 4));
    }
}
