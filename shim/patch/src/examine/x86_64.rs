//! On x86-64 a jump to anywhere takes 14 bytes, and one to what lies near 5; iced-x86 decodes the instructions.

use iced_x86::{Decoder, DecoderOptions, FlowControl, Instruction};

use super::Trouble;

/// Bytes of a jump to anywhere, as the engines write it.
pub const FAR: usize = 14;
/// Bytes of a jump within two gigabytes.
pub const NEAR: usize = 5;

/// Whether the function of these bytes at `address` can be patched with a jump of so many bytes: how many of its bytes move.
pub fn start(code: &[u8], address: usize, jump: usize) -> Result<usize, Trouble> {
    if code.len() < jump {
        return Err(Trouble::TooShort);
    }
    let address = address as u64;
    let mut moved = 0;
    let mut targets = Vec::new();
    for instruction in Decoder::with_ip(64, code, address, DecoderOptions::NONE) {
        let offset = (instruction.ip() - address) as usize;
        if instruction.is_invalid() {
            // Of the last instruction only a part is the function's, or these are data: no telling what refers to them.
            return Err(if moved < jump { Trouble::TooShort } else { Trouble::UnknownStart });
        }
        if offset < jump {
            moved = offset + instruction.len();
            // While a called function runs, the return address would lie where no unwinder knows the way.
            if matches!(instruction.flow_control(), FlowControl::Call | FlowControl::IndirectCall) {
                return Err(Trouble::UnknownStart);
            }
        }
        targets.extend(target(&instruction));
    }
    if moved < jump {
        return Err(Trouble::TooShort);
    }
    let inside = address..address + moved as u64;
    if targets.iter().any(|target| inside.contains(target)) { Err(Trouble::JumpsBack) } else { Ok(moved) }
}

/// Where a jump leads. Calls of the function itself come to the hook as those of others do.
fn target(instruction: &Instruction) -> Option<u64> {
    let jumps = matches!(
        instruction.flow_control(),
        FlowControl::ConditionalBranch | FlowControl::UnconditionalBranch | FlowControl::XbeginXabortXend
    );
    jumps.then(|| instruction.near_branch_target())
}

#[cfg(test)]
mod tests {
    use super::*;

    const AT: usize = 0x40_0000;

    fn examined(parts: &[&[u8]]) -> Result<(), Trouble> {
        start(&parts.concat(), AT, FAR).map(|_| ())
    }

    #[test]
    fn a_near_jump_moves_no_more_than_it_must() {
        // push %rbp; mov %rsp,%rbp; push %rbx; sub $24,%rsp: five bytes end in the middle of nothing.
        let usual = [&[0x55u8][..], &[0x48, 0x89, 0xe5], &[0x53], &[0x48, 0x83, 0xec, 0x18], RET].concat();
        assert_eq!(start(&usual, AT, NEAR), Ok(5));
        // xor %eax,%eax; mov $4,%ecx; ret: the second instruction moves as a whole.
        let odd = [&[0x31, 0xc0][..], &[0xb9, 4, 0, 0, 0], RET].concat();
        assert_eq!(start(&odd, AT, NEAR), Ok(7));
        assert_eq!(start(&[0x31, 0xc0, 0xc3], AT, NEAR), Err(Trouble::TooShort));
    }

    const NOPS: &[u8] = &[0x90; 14];
    const RET: &[u8] = &[0xc3];

    #[test]
    fn a_function_that_begins_as_the_vendors_do_can_be_patched() {
        // cmpl $imm, disp(%rip); je +12; jmp *disp(%rip); nopw; mov $4, %eax; ret
        let vendor: [&[u8]; 6] = [
            &[0x81, 0x3d, 1, 2, 3, 0, 0, 0xba, 0x1c, 0x32],
            &[0x74, 0x0c],
            &[0xff, 0x25, 1, 2, 3, 0],
            &[0x66, 0x0f, 0x1f, 0x44, 0, 0],
            &[0xb8, 4, 0, 0, 0],
            RET,
        ];
        assert_eq!(examined(&vendor), Ok(()));
    }

    #[test]
    fn a_function_that_ends_before_the_jump_is_too_short() {
        assert_eq!(examined(&[&[0x31, 0xc0], RET]), Err(Trouble::TooShort));
        assert_eq!(examined(&[&NOPS[..13]]), Err(Trouble::TooShort));
        // 13 bytes, then an instruction of five of which one is the function's.
        assert_eq!(examined(&[&NOPS[..13], &[0xb8]]), Err(Trouble::TooShort));
        assert_eq!(examined(&[NOPS]), Ok(()));
    }

    #[test]
    fn a_jump_into_the_bytes_that_move_forbids_it() {
        // jmp to offset 2 and to offset 14, from offset 14 on.
        assert_eq!(examined(&[NOPS, &[0xeb, 0xf2]]), Err(Trouble::JumpsBack));
        assert_eq!(examined(&[NOPS, &[0x75, 0xfe], RET]), Ok(()));
        // The eight-byte instruction at 13 moves as a whole, and a jump to its end is right.
        assert_eq!(examined(&[&NOPS[..13], &[0xb8, 0, 0, 0, 0], &[0x75, 0xf9], RET]), Err(Trouble::JumpsBack));
    }

    #[test]
    fn a_call_at_the_start_and_what_is_no_instruction_forbid_it() {
        assert_eq!(examined(&[&[0xe8, 0, 0, 0, 0], NOPS, RET]), Err(Trouble::UnknownStart));
        assert_eq!(examined(&[NOPS, &[0x06]]), Err(Trouble::UnknownStart));
        assert_eq!(examined(&[NOPS, &[0xe8, 0, 0, 0, 0], RET]), Ok(()));
    }
}
