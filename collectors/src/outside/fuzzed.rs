//! Unwinding tables of any bytes, as a file may hold them that a process has mapped.

use super::linux::Memory;
use super::native::Tables;

pub(crate) fn unwind(data: &[u8]) {
    let (&[header, register], bytes) = data.split_first_chunk().unwrap_or((&[0, 0], &[]));
    let (header, frames) = bytes.split_at(usize::from(header).min(bytes.len()));
    let tables = Tables::of_bytes(header, frames, [0x1000, 0x2000, 0]);
    let memory = Memory::of(std::process::id() as i32);
    for inside in [0u64, 0x10, 0x1000, 0x1010, 0x2000, 0x3000, u64::MAX] {
        tables.calls(&memory, inside, u64::from(register) << 8);
    }
}
