//! Reading the unwinding tables of a loaded library, a value at a time, never beyond the end that they state.

/// Bytes of a library that stays loaded while they are read.
#[derive(Clone, Copy)]
pub(super) struct Bytes {
    at: usize,
    end: usize,
}

/// How an address is encoded in these tables: a format and what it is relative to (the LSB's DW_EH_PE constants).
pub(super) mod encoding {
    pub(crate) const RELATIVE_TO_TABLE: u8 = 0x30;
    const SIGNED_4: u8 = 0x0b;
    const UNSIGNED_4: u8 = 0x03;
    const RELATIVE_TO_ITSELF: u8 = 0x10;
    /// All that GNU ld, gold, lld and mold write.
    pub(crate) const TABLE: u8 = RELATIVE_TO_TABLE | SIGNED_4;
    pub(crate) const COUNT: u8 = UNSIGNED_4;
    pub(crate) const POINTER: u8 = RELATIVE_TO_ITSELF | SIGNED_4;
}

impl Bytes {
    /// # Safety
    /// So many bytes at `at` are mapped and readable, and stay so while this is used.
    pub(super) unsafe fn new(at: usize, bytes: usize) -> Bytes {
        Bytes { at, end: at.saturating_add(bytes) }
    }

    pub(super) fn at(&self) -> usize {
        self.at
    }

    pub(super) fn is_empty(&self) -> bool {
        self.at >= self.end
    }

    /// The next so many bytes apart, and the rest here.
    pub(super) fn split(&mut self, bytes: usize) -> Option<Bytes> {
        let end = self.at.checked_add(bytes).filter(|end| *end <= self.end)?;
        let part = Bytes { at: self.at, end };
        self.at = end;
        Some(part)
    }

    fn array<const N: usize>(&mut self) -> Option<[u8; N]> {
        let part = self.split(N)?;
        // SAFETY: `new`'s promise, and `split` has checked the bound.
        Some(unsafe { (part.at as *const [u8; N]).read_unaligned() })
    }

    pub(super) fn u8(&mut self) -> Option<u8> {
        self.array::<1>().map(|[byte]| byte)
    }

    pub(super) fn u16(&mut self) -> Option<u16> {
        self.array().map(u16::from_le_bytes)
    }

    pub(super) fn u32(&mut self) -> Option<u32> {
        self.array().map(u32::from_le_bytes)
    }

    pub(super) fn i32(&mut self) -> Option<i32> {
        self.array().map(i32::from_le_bytes)
    }

    /// A number in pieces of seven bits, lowest first.
    pub(super) fn unsigned(&mut self) -> Option<u64> {
        let mut value = 0u64;
        for shift in (0..64).step_by(7) {
            let byte = self.u8()?;
            value |= u64::from(byte & 0x7f) << shift;
            if byte & 0x80 == 0 {
                return Some(value);
            }
        }
        None
    }

    /// The same with a sign.
    pub(super) fn signed(&mut self) -> Option<i64> {
        let mut value = 0i64;
        for shift in (0..64u32).step_by(7) {
            let byte = self.u8()?;
            value |= i64::from(byte & 0x7f) << shift;
            if byte & 0x80 == 0 {
                let unused = 64u32.saturating_sub(shift + 7);
                return Some(value << unused >> unused);
            }
        }
        None
    }
}
