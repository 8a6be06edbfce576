//! The process's memory, read and written by the kernel's file of it: also where the process itself may only execute.

use std::fs::File;
use std::io;
use std::os::unix::fs::FileExt;

/// Text that is longer is cut.
const MOST_TEXT: usize = 512;

/// The memory of a process.
#[derive(Debug)]
pub(super) struct Memory(File);

impl Memory {
    /// Opens it, which the kernel allows to whom it allows to attach. Changes nothing.
    pub(super) fn open(pid: i32) -> io::Result<Memory> {
        File::options().read(true).write(true).open(format!("/proc/{pid}/mem")).map(Memory)
    }

    /// So many bytes; fewer are none.
    pub(super) fn bytes(&self, address: u64, count: usize) -> io::Result<Vec<u8>> {
        let mut bytes = vec![0; count];
        self.0.read_exact_at(&mut bytes, address)?;
        Ok(bytes)
    }

    /// Numbers of 64 bits.
    pub(super) fn words<const N: usize>(&self, address: u64) -> io::Result<[u64; N]> {
        let bytes = self.bytes(address, 8 * N)?;
        let mut words = [0; N];
        words.iter_mut().zip(bytes.as_chunks().0).for_each(|(word, bytes)| *word = u64::from_le_bytes(*bytes));
        Ok(words)
    }

    /// The text at an address, up to its zero byte.
    pub(super) fn text(&self, address: u64) -> String {
        let mut bytes = Vec::new();
        while bytes.len() < MOST_TEXT
            && let Ok(byte) = self.bytes(address + bytes.len() as u64, 1)
            && byte != [0]
        {
            bytes.extend(byte);
        }
        String::from_utf8_lossy(&bytes).into_owned()
    }

    /// Writes bytes: by a debugger also where the process itself may not.
    pub(super) fn write(&self, address: u64, bytes: &[u8]) -> io::Result<()> {
        self.0.write_all_at(bytes, address)
    }
}
