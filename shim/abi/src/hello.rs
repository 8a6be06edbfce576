//! The one message with which a process gives its segment to the collector.
//!
//! Sent over the session's SOCK_SEQPACKET socket with the segment's descriptor in SCM_RIGHTS. There is no answer:
//! the process goes on at once, and whatever it records waits in the segment.
//!
//! | offset | size | field |
//! |---|---|---|
//! | 0 | 8 | `magic` |
//! | 8 | 4 | `version` |
//! | 12 | 4 | `pid`, as the process itself sees it (another number inside a pid namespace) |
//! | 16 | 8 | `segment_bytes`; without a descriptor: a [`Refusal`], or [`FILE`] |
//! | 24 | | without a descriptor: the path of the executable, at most [`EXE_BYTES`]; with [`FILE`]: the file's name, at most [`NAME_BYTES`] |

/// Bytes of the executable's path in a refusal.
pub const EXE_BYTES: usize = 512;

/// Bytes of the name of a segment's file.
pub const NAME_BYTES: usize = 64;

/// In place of a segment's size: it stands as a file in the session's folder, where the collector would find it a moment later.
pub const FILE: u64 = 16;

/// Why a process has no segment to give. One line to the collector, instead of one to the user from each process.
#[repr(u64)]
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Refusal {
    /// RLIMIT_FSIZE is below the smallest segment.
    FileSize = 1,
    /// RLIMIT_AS leaves less than the smallest segment.
    AddressSpace = 2,
    /// The kernel refused to make it: no memory, no descriptor.
    Failed = 3,
    /// The session's folder, in which the segment is to be a file, has too little free space.
    NoSpace = 4,
    /// The process may not make a file in that folder.
    NotWritable = 5,
    /// The process has no descriptor left for that file.
    NoDescriptor = 6,
}

impl Refusal {
    /// All of them.
    pub const ALL: [Refusal; 6] = [
        Refusal::FileSize,
        Refusal::AddressSpace,
        Refusal::Failed,
        Refusal::NoSpace,
        Refusal::NotWritable,
        Refusal::NoDescriptor,
    ];

    /// The refusal with this number.
    pub fn from_number(number: u64) -> Option<Refusal> {
        Refusal::ALL.into_iter().find(|refusal| *refusal as u64 == number)
    }
}

/// The message. 24 bytes.
#[repr(C)]
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Hello {
    /// [`crate::MAGIC`].
    pub magic: u64,
    /// [`crate::VERSION`].
    pub version: u32,
    /// The sender's own pid.
    pub pid: u32,
    /// Size of the segment in bytes.
    pub segment_bytes: u64,
}

const _: () = assert!(size_of::<Hello>() == 24);

impl Hello {
    /// The message as bytes, little endian.
    pub fn to_bytes(self) -> [u8; 24] {
        let mut bytes = [0; 24];
        bytes[0..8].copy_from_slice(&self.magic.to_le_bytes());
        bytes[8..12].copy_from_slice(&self.version.to_le_bytes());
        bytes[12..16].copy_from_slice(&self.pid.to_le_bytes());
        bytes[16..24].copy_from_slice(&self.segment_bytes.to_le_bytes());
        bytes
    }

    /// The message that these bytes hold, if its magic is right.
    pub fn from_bytes(bytes: &[u8]) -> Option<Hello> {
        let u64_at = |at: usize| Some(u64::from_le_bytes(bytes.get(at..at + 8)?.try_into().ok()?));
        let u32_at = |at: usize| Some(u32::from_le_bytes(bytes.get(at..at + 4)?.try_into().ok()?));
        let hello = Hello { magic: u64_at(0)?, version: u32_at(8)?, pid: u32_at(12)?, segment_bytes: u64_at(16)? };
        (hello.magic == crate::MAGIC).then_some(hello)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn no_segment_is_as_small_as_the_number_of_a_refusal() {
        for why in Refusal::ALL {
            assert_eq!(Refusal::from_number(why as u64), Some(why));
            assert!((why as u64) < crate::layout::SMALLEST_BYTES);
        }
        assert_eq!(Refusal::from_number(crate::layout::SMALLEST_BYTES), None);
        assert_eq!(Refusal::from_number(FILE), None);
    }

    #[test]
    fn a_hello_survives_its_bytes_and_rubbish_is_refused() {
        let hello = Hello { magic: crate::MAGIC, version: crate::VERSION, pid: 42, segment_bytes: 1 << 24 };
        assert_eq!(Hello::from_bytes(&hello.to_bytes()), Some(hello));
        assert_eq!(Hello::from_bytes(&hello.to_bytes()[..23]), None);
        assert_eq!(Hello::from_bytes(&[7; 24]), None);
    }
}
