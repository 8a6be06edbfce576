//! CUPTI's records, read where they lie.
//!
//! Records grow at their end from version to version; what is read here has stood at the same place from CUDA 11.8 to
//! 13.5. CUPTI itself walks from one record to the next and knows their sizes.

use core::ffi::{CStr, c_char};

use gputrace_abi::event::{pack_block, pack_grid};
use gputrace_abi::gpu::{Work, kind};

/// CUPTI's kinds of records that are asked for: copies, sets, kernels, copies between devices.
pub(super) const KINDS: [u32; 4] = [KERNEL, COPY, SET, PEER];

const COPY: u32 = 1;
const SET: u32 = 2;
const KERNEL: u32 = 10;
const PEER: u32 = 22;

/// A record that CUPTI keeps in its buffer.
pub(super) struct Record(pub(super) *const u8);

impl Record {
    /// # Safety
    /// The record has so many bytes.
    pub(super) unsafe fn u32(&self, at: usize) -> u32 {
        // SAFETY: the caller's promise.
        unsafe { self.0.add(at).cast::<u32>().read_unaligned() }
    }

    /// # Safety
    /// The same.
    pub(super) unsafe fn u64(&self, at: usize) -> u64 {
        // SAFETY: the caller's promise.
        unsafe { self.0.add(at).cast::<u64>().read_unaligned() }
    }
}

/// What a record says, and a kernel's name. None: of another kind.
///
/// # Safety
/// A record that cuptiActivityGetNextRecord returned, whose buffer is still there.
pub(super) unsafe fn read<'a>(record: *const u8) -> Option<(Work, &'a [u8])> {
    let record = Record(record);
    // SAFETY: every record begins with its kind; those of the kinds below have all that is read here.
    unsafe {
        let work = |kind: u8| Work {
            kind,
            copy: record.u32(4).to_le_bytes().first_chunk().copied().unwrap_or_default(),
            amount: record.u64(8),
            start: record.u64(16),
            end: record.u64(24),
            device: record.u32(32),
            context: record.u32(36),
            stream: record.u32(40),
            correlation: record.u32(44),
            node: record.u64(64),
            graph: record.u32(72),
            ..Work::default()
        };
        let done = match record.u32(0) {
            COPY => work(kind::COPY),
            SET => Work { copy: [0, 0, (record.u32(48) >> 16) as u8], ..work(kind::SET) },
            PEER => {
                Work { correlation: record.u32(60), node: record.u64(72), graph: record.u32(80), ..work(kind::PEER) }
            }
            KERNEL => return Some(kernel(&record)),
            _ => return None,
        };
        Some((done, b""))
    }
}

/// # Safety
/// The record is a kernel's.
unsafe fn kernel<'a>(record: &Record) -> (Work, &'a [u8]) {
    // SAFETY: the caller's promise; the name is null or a C string that CUPTI keeps.
    unsafe {
        let [gx, gy, gz, bx, by, bz] = [52, 56, 60, 64, 68, 72].map(|at| record.u32(at));
        let name = record.u64(104) as *const c_char;
        let work = Work {
            kind: kind::KERNEL,
            copy: [0; 3],
            correlation: record.u32(92),
            start: record.u64(16),
            end: record.u64(24),
            device: record.u32(40),
            context: record.u32(44),
            stream: record.u32(48),
            graph: record.u32(156),
            node: record.u64(144),
            amount: 0,
            grid: pack_grid(gx, gy, gz),
            block: pack_block(bx, by, bz, record.u32(80)),
            registers: record.u32(4) >> 16,
            static_shared: record.u32(76),
            local: record.u32(84),
            shared_given: record.u32(140),
        };
        (work, if name.is_null() { b"" } else { CStr::from_ptr(name).to_bytes() })
    }
}
