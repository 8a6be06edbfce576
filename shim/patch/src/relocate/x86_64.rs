//! On x86-64 iced-x86 moves instructions, and what they refer to by their own address stays what it was.

use iced_x86::{
    BlockEncoder, BlockEncoderOptions, Code, Decoder, DecoderOptions, FlowControl, Instruction, InstructionBlock,
};

use super::Moved;
use crate::NEAR;

/// The first `bytes` of a function at `address`, for `to`; none where they cannot be there.
pub fn moved(code: &[u8], address: usize, bytes: usize, to: usize) -> Option<Moved> {
    let mut all: Vec<Instruction> =
        Decoder::with_ip(64, code.get(..bytes)?, address as u64, DecoderOptions::NONE).into_iter().collect();
    if all.iter().any(Instruction::is_invalid) || all.iter().map(Instruction::len).sum::<usize>() != bytes {
        return None;
    }
    let starts: Vec<usize> = all.iter().map(|one| (one.ip() - address as u64) as usize).collect();
    // Behind what never goes on there is no way back, and needs to be none.
    let ends = all.last().is_some_and(|last| {
        matches!(
            last.flow_control(),
            FlowControl::Return | FlowControl::UnconditionalBranch | FlowControl::IndirectBranch
        )
    });
    if !ends {
        let mut back = Instruction::with_branch(Code::Jmp_rel32_64, (address + bytes) as u64).ok()?;
        // An address of its own: what leads to where one of these stood leads to it.
        back.set_ip(u64::MAX);
        all.push(back);
    }
    let block = InstructionBlock::new(&all, to as u64);
    let options = BlockEncoderOptions::RETURN_NEW_INSTRUCTION_OFFSETS;
    let encoded = BlockEncoder::encode(64, block, options).ok()?;
    let places = starts.into_iter().zip(&encoded.new_instruction_offsets);
    let places = places.filter(|(_, now)| **now != u32::MAX).map(|(start, now)| (start, *now as usize)).collect();
    Some(Moved { code: encoded.code_buffer, places })
}

/// A jump from one address to another; none where they are too far from each other.
pub fn near_jump(from: usize, to: usize) -> Option<[u8; NEAR]> {
    let distance = i32::try_from((to as i64).checked_sub(from as i64 + NEAR as i64)?).ok()?;
    let mut jump = [0xe9; NEAR];
    jump[1..].copy_from_slice(&distance.to_le_bytes());
    Some(jump)
}

/// Whether these bytes are one.
pub fn is_near_jump(code: &[u8]) -> bool {
    code.len() >= NEAR && code[0] == 0xe9
}

/// Where the jump at this address leads.
pub fn near_target(code: &[u8], from: usize) -> Option<usize> {
    let bytes = code.get(1..NEAR).filter(|_| is_near_jump(code))?;
    let distance = i32::from_le_bytes(bytes.try_into().ok()?);
    Some((from + NEAR).wrapping_add_signed(distance as isize))
}

/// A jump to anywhere: jmp *(%rip), and the address.
pub fn far_jump(to: usize) -> Vec<u8> {
    [&[0xff, 0x25, 0, 0, 0, 0][..], &to.to_le_bytes()].concat()
}

#[cfg(test)]
mod tests {
    use super::*;

    const AT: usize = 0x7f00_0040_0000;

    #[test]
    fn what_refers_to_its_own_address_refers_to_the_same_from_elsewhere() {
        // cmpl $0x321cba00, 0x30201(%rip); of which ten bytes move far away.
        let code = [0x81, 0x3d, 1, 2, 3, 0, 0, 0xba, 0x1c, 0x32];
        let to = AT + 0x1000_0000;
        let moved = moved(&code, AT, 10, to).unwrap();
        let before = Decoder::with_ip(64, &code, AT as u64, 0).decode();
        let now = Decoder::with_ip(64, &moved.code, to as u64, 0).decode();
        assert_eq!(now.ip_rel_memory_address(), before.ip_rel_memory_address());
        assert_eq!((now.code(), moved.places.as_slice()), (before.code(), &[(0, 0)][..]));
        let back = Decoder::with_ip(64, &moved.code[now.len()..], (to + now.len()) as u64, 0).decode();
        assert_eq!(back.near_branch_target(), (AT + 10) as u64);
        // Three gigabytes away its data are out of reach.
        assert_eq!(super::moved(&code, AT, 10, AT + (3 << 30)), None);
    }

    #[test]
    fn a_short_branch_leads_where_it_led_and_later_instructions_are_found() {
        // je +12; push %rbx; push %rcx; push %rdx
        let code = [0x74, 0x0c, 0x53, 0x51, 0x52];
        let moved = moved(&code, AT, 5, AT + 0x10_0000).unwrap();
        let mut decoder = Decoder::with_ip(64, &moved.code, (AT + 0x10_0000) as u64, 0);
        assert_eq!(decoder.decode().near_branch_target(), (AT + 14) as u64);
        let push = moved.places.iter().find(|(start, _)| *start == 2).unwrap().1;
        assert_eq!(moved.code[push], 0x53);
        // A part of an instruction is none.
        assert_eq!(super::moved(&code, AT, 1, AT + 0x10_0000), None);
    }

    #[test]
    fn jumps_lead_where_they_are_told() {
        let jump = near_jump(AT, AT + 0x1234).unwrap();
        assert_eq!((near_target(&jump, AT), is_near_jump(&jump)), (Some(AT + 0x1234), true));
        assert_eq!(near_target(&near_jump(AT, AT - 77).unwrap(), AT), Some(AT - 77));
        assert_eq!(near_jump(AT, AT + (3 << 30)), None);
        assert_eq!(near_target(&[0x90; 5], AT), None);
        assert_eq!(far_jump(0x1122_3344_5566).len(), crate::FAR);
    }
}
