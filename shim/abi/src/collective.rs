//! How a collective's arguments, and what is known of its communicator, share the words of an event.

/// A communicator's number, and the root or peer of a call on it ([`NO_PARTY`] for none), in one word.
#[inline(always)]
pub const fn pack_party(communicator: u32, party: i32) -> u64 {
    communicator as u64 | (party as u32 as u64) << 32
}

/// What [`pack_party`] packed.
pub const fn unpack_party(word: u64) -> (u32, i32) {
    (word as u32, (word >> 32) as u32 as i32)
}

/// A call without root or peer, or a rank that is not known.
pub const NO_PARTY: i32 = -1;

/// NCCL's numbers of a data type and of a reduction operator, in one word.
#[inline(always)]
pub const fn pack_type(data_type: u8, operator: u16) -> u64 {
    data_type as u64 | (operator as u64) << 8
}

/// What [`pack_type`] packed.
pub const fn unpack_type(word: u64) -> (u8, u16) {
    (word as u8, (word >> 8) as u16)
}

/// A call without a data type: its count is in bytes.
pub const NO_TYPE: u8 = u8::MAX;
/// A call without an operator.
pub const NO_OPERATOR: u16 = u16::MAX;

/// The device in [`crate::event::KIND_COMMUNICATOR`] is not known.
pub const NO_DEVICE: u64 = 0xffff;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn parties_and_types_survive_packing() {
        assert_eq!(unpack_party(pack_party(u32::MAX, NO_PARTY)), (u32::MAX, NO_PARTY));
        assert_eq!(unpack_party(pack_party(7, i32::MAX)), (7, i32::MAX));
        assert_eq!(unpack_type(pack_type(NO_TYPE, 4)), (NO_TYPE, 4));
        assert_eq!(unpack_type(pack_type(9, NO_OPERATOR)), (9, NO_OPERATOR));
    }
}
