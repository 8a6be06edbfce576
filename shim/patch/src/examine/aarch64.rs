//! On aarch64 a jump to anywhere takes four instructions and register x17, and one to what lies near one instruction. Instructions
//! move as they are; those that refer to their own address would be wrong then, so none of them may be among them.

use super::Trouble;

/// Bytes of a jump to anywhere, as the engines write it.
pub const FAR: usize = 16;
/// Bytes of a jump within 128 MiB.
pub const NEAR: usize = 4;
/// Scratch register of the jump and of the way back.
const SCRATCH: u32 = 17;

/// Whether the function of these bytes at `address` can be patched with a jump of so many bytes: how many of its bytes move.
pub fn start(code: &[u8], _address: usize, jump: usize) -> Result<usize, Trouble> {
    let count = jump.div_ceil(4);
    let words: Vec<u32> = code.as_chunks().0.iter().map(|bytes| u32::from_le_bytes(*bytes)).collect();
    let Some((moved, rest)) = words.split_at_checked(count) else { return Err(Trouble::TooShort) };
    if moved.iter().any(|word| {
        refers_to_itself(*word) || is_call(*word) || is_landing(*word) || uses(*word, SCRATCH) || *word == 0
    }) {
        return Err(Trouble::UnknownStart);
    }
    let mut back = rest.iter().zip(count as i64..).filter_map(|(word, at)| Some(at + branch(*word)?));
    if back.any(|to| (0..count as i64).contains(&to)) { Err(Trouble::JumpsBack) } else { Ok(4 * count) }
}

/// adr, adrp, a literal load, or a branch by a distance.
fn refers_to_itself(word: u32) -> bool {
    word & 0x1f00_0000 == 0x1000_0000 || word & 0x3b00_0000 == 0x1800_0000 || is_bl(word) || branch(word).is_some()
}

fn is_bl(word: u32) -> bool {
    word & 0xfc00_0000 == 0x9400_0000
}

/// A call by register, with or without authentication.
fn is_call(word: u32) -> bool {
    word & 0xfeff_f000 == 0xd63f_0000
}

/// What a jump by register may have to land on (`bti`, `paciasp`, `pacibsp`): it stays where it is.
fn is_landing(word: u32) -> bool {
    word & 0xffff_ff3f == 0xd503_241f || word == 0xd503_233f || word == 0xd503_237f
}

/// Whether any field where instructions name registers names this one.
fn uses(word: u32, register: u32) -> bool {
    [0, 5, 10, 16].iter().any(|at| word >> at & 31 == register)
}

/// Distance in instructions of a jump that is not a call.
fn branch(word: u32) -> Option<i64> {
    let signed = |at: u32, bits: u32| i64::from(((word >> at) << (32 - bits)) as i32 >> (32 - bits));
    if word & 0xfc00_0000 == 0x1400_0000 {
        return Some(signed(0, 26));
    }
    // b.cond and bc.cond; cbz and cbnz.
    if word & 0xff00_0000 == 0x5400_0000 || word & 0x7e00_0000 == 0x3400_0000 {
        return Some(signed(5, 19));
    }
    // tbz and tbnz.
    (word & 0x7e00_0000 == 0x3600_0000).then(|| signed(5, 14))
}

#[cfg(test)]
mod tests {
    use super::*;

    const NOP: u32 = 0xd503_201f;
    const RET: u32 = 0xd65f_03c0;

    fn examined(words: &[u32]) -> Result<(), Trouble> {
        start(words.iter().flat_map(|word| word.to_le_bytes()).collect::<Vec<_>>().as_slice(), 0x40_0000, FAR)
            .map(|_| ())
    }

    #[test]
    fn a_usual_start_can_be_patched_and_a_short_function_cannot() {
        // stp x29, x30, [sp, #-32]!; mov x29, sp; str x19, [sp, #16]; mov x19, x0; ret
        assert_eq!(examined(&[0xa9be_7bfd, 0x9100_03fd, 0xf900_0bf3, 0xaa00_03f3, RET]), Ok(()));
        assert_eq!(examined(&[NOP, NOP, RET]), Err(Trouble::TooShort));
    }

    #[test]
    fn what_refers_to_its_own_address_or_uses_the_scratch_register_is_not_moved() {
        // adrp, adr, ldr literal, b, bl, b.eq, cbz, tbz, blr x0, mov x17, x0.
        let forbidden = [
            0x9000_0000,
            0x1000_0000,
            0x5800_0040,
            0x1400_0002,
            0x9400_0002,
            0x5400_0040,
            0xb400_0040,
            0x3600_0040,
            0xd63f_0000,
            0xaa00_03f1,
            // bti c, paciasp.
            0xd503_245f,
            0xd503_233f,
        ];
        for word in forbidden {
            assert_eq!(examined(&[NOP, word, NOP, NOP, RET]), Err(Trouble::UnknownStart), "{word:x}");
        }
    }

    #[test]
    fn a_jump_back_into_what_moves_forbids_it() {
        // b -2 and b.ne -1 from the fifth instruction.
        assert_eq!(examined(&[NOP, NOP, NOP, NOP, 0x17ff_fffe]), Err(Trouble::JumpsBack));
        assert_eq!(examined(&[NOP, NOP, NOP, NOP, NOP, 0x54ff_ffe1, RET]), Ok(()));
    }
}
