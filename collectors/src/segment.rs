//! A traced process's segment, mapped here: the only place of the collector that handles raw memory.
//!
//! The other side may write anything at any time, may shrink the file under us, or may not be a shim at all. Sizes are
//! taken from the kernel, memory is sealed against shrinking and a file that is cut reads as zeros (`cut`), and everything inside is read
//! through [`View`], which checks each index.

mod cut;

use std::io;
use std::os::fd::{AsRawFd, BorrowedFd};

use gputrace_abi::clock::ClockKind;
use gputrace_abi::hello::Refusal;
use gputrace_abi::layout::{
    ADDRESS_SPACE_SHARE, CHUNKS_AT, CHUNKS_MAX, HOOKS_MAX, SMALLEST_BYTES, View, chunks_in, info, malloc_mode,
};
use gputrace_abi::ring::CHUNK_BYTES;
use gputrace_abi::sync::{AtomicU32, Ordering};
use gputrace_abi::{MAGIC, VERSION, is_readable};

use crate::accounting::MOST;
use cut::Guard;

/// Largest size that has a meaning.
const LARGEST: u64 = (CHUNKS_AT + CHUNKS_MAX * CHUNK_BYTES) as u64;

/// A mapped segment.
pub(crate) struct Segment {
    /// Goes before the mapping does.
    guard: Option<Guard>,
    view: View,
    mapped: usize,
    /// Of the whole file.
    bytes: u64,
}

/// Why a segment is not read.
#[derive(Debug, thiserror::Error)]
pub(crate) enum Refused {
    #[error(
        "its shim speaks version {0} of the segment, this gputrace {VERSION}: collect it with the gputrace that it was started by, or start it anew"
    )]
    Version(u32),
    #[error("its segment has {0} bytes, which is none")]
    Size(u64),
    #[error("its segment does not begin with the magic number")]
    Magic,
    #[error("its segment cannot be mapped: {0}")]
    Map(#[from] io::Error),
    #[error("{}", told(*.0))]
    #[cfg_attr(target_os = "macos", allow(dead_code))] // there processes say it themselves
    Told(Refusal),
}

/// What a process that has no segment said, and what to do.
fn told(why: Refusal) -> String {
    let least = SMALLEST_BYTES.div_ceil(1 << 20);
    match why {
        Refusal::FileSize => {
            format!("RLIMIT_FSIZE leaves no room for its events: raise it to {least} MiB (ulimit -f)")
        }
        Refusal::AddressSpace => {
            let least = least * ADDRESS_SPACE_SHARE;
            format!("RLIMIT_AS leaves no room for its events: raise it to {least} MiB (ulimit -v)")
        }
        Refusal::Failed => "the kernel gave it no memory or no descriptor for its events".to_owned(),
        Refusal::NoSpace => {
            "a process's events take a tenth of what is free in the session's folder at most, and that is too little: ask for less by \
             --segment-memory, or have the session in a larger file system"
                .to_owned()
        }
        Refusal::NotWritable => "it could make no file in the session's folder".to_owned(),
        Refusal::NoDescriptor => "no file descriptor is free in it".to_owned(),
    }
}

impl Segment {
    /// Maps the segment behind a descriptor, which may be closed afterwards.
    pub(crate) fn map(fd: BorrowedFd<'_>) -> Result<Segment, Refused> {
        seal(fd);
        let bytes = size(fd)?;
        let mapped = bytes.min(LARGEST) as usize;
        if mapped < CHUNKS_AT + CHUNK_BYTES {
            return Err(Refused::Size(bytes));
        }
        let protection = libc::PROT_READ | libc::PROT_WRITE;
        // SAFETY: a new mapping at an address that the kernel chooses.
        let base = unsafe { libc::mmap(std::ptr::null_mut(), mapped, protection, libc::MAP_SHARED, fd.as_raw_fd(), 0) };
        if base == libc::MAP_FAILED {
            return Err(io::Error::last_os_error().into());
        }
        // SAFETY: just mapped, readable and writable, this long, until `drop`; page aligned by the kernel.
        let Some(view) = (unsafe { View::new(base.cast(), mapped) }) else { return Err(Refused::Size(bytes)) };
        let segment = Segment { guard: Some(Guard::of(base as usize, mapped)), view, mapped, bytes };
        let header = view.header();
        // SYNC POINT: magic. Acquire, with the Release of the shim: the rest of the header is written.
        if header.magic.load(Ordering::Acquire) != MAGIC {
            return Err(Refused::Magic);
        }
        let [version, needs] = [&header.version, &header.needs].map(|word| word.load(Ordering::Relaxed));
        if is_readable(version, needs) { Ok(segment) } else { Err(Refused::Version(version)) }
    }

    /// The segment's parts.
    pub(crate) fn view(&self) -> &View {
        &self.view
    }

    /// Whether something has written over the header: it says what no shim writes, and no number in it is to be relied on.
    pub(crate) fn is_damaged(&self) -> bool {
        let header = self.view.header();
        let word = |word: &AtomicU32| word.load(Ordering::Relaxed);
        self.is_cut()
            || header.magic.load(Ordering::Relaxed) != MAGIC
            || header.segment_bytes.load(Ordering::Relaxed) != self.bytes
            || ClockKind::from_u32(word(&header.clock)).is_none()
            || word(&header.malloc_mode) > malloc_mode::FULL
            || word(&header.hook_count) > HOOKS_MAX as u32
            || word(&header.chunk_count) > chunks_in(self.bytes)
            || header.rowless.iter().any(|calls| calls.load(Ordering::Relaxed) > MOST)
    }

    /// Whether its file was cut under us: nothing stands in it any more.
    pub(crate) fn is_cut(&self) -> bool {
        self.guard.as_ref().is_some_and(Guard::is_cut)
    }

    /// When it was made, in ns of the machine's monotonic clock: of two images of one process the later one has more.
    pub(crate) fn began(&self) -> u64 {
        self.view.started().monotonic_ns
    }

    /// Which clock stamps the events; that of the processor where the number says nothing.
    pub(crate) fn clock(&self) -> ClockKind {
        let number = self.view.header().clock.load(Ordering::Relaxed);
        ClockKind::from_u32(number).unwrap_or(gputrace_abi::clock::COUNTER)
    }

    /// The information texts: tag and bytes. Reads no further than they go: each page read costs the process one.
    pub(crate) fn texts(&self) -> Vec<(u16, Vec<u8>)> {
        let words = self.view.info();
        let byte = |at: usize| words.get(at / 8).map(|w| w.load(Ordering::Relaxed).to_le_bytes()[at % 8]);
        let short = |at: usize| Some(u16::from_le_bytes([byte(at)?, byte(at + 1)?]));
        let mut texts = Vec::new();
        let mut at = 0;
        while let (Some(tag), Some(length)) = (short(at), short(at + 2))
            && tag != info::END
        {
            let Some(text) = (at + 4..at + 4 + usize::from(length)).map(byte).collect() else { break };
            texts.push((tag, text));
            at += 4 + usize::from(length);
        }
        texts
    }
}

/// Keeps memory from being shrunk. A file, or a memfd made without sealing, refuses.
#[cfg(target_os = "linux")]
fn seal(fd: BorrowedFd<'_>) {
    // SAFETY: numbers only.
    unsafe { libc::fcntl(fd.as_raw_fd(), libc::F_ADD_SEALS, libc::F_SEAL_SHRINK) };
}

/// macOS has no seals: all segments are files.
#[cfg(target_os = "macos")]
fn seal(_: BorrowedFd<'_>) {}

/// Size of the file, as the kernel has it.
fn size(fd: BorrowedFd<'_>) -> io::Result<u64> {
    // SAFETY: an all-zero stat is a valid value of this plain struct.
    let mut about: libc::stat = unsafe { std::mem::zeroed() };
    // SAFETY: the kernel fills the struct.
    if unsafe { libc::fstat(fd.as_raw_fd(), &mut about) } != 0 {
        return Err(io::Error::last_os_error());
    }
    Ok(about.st_size.max(0) as u64)
}

impl Drop for Segment {
    fn drop(&mut self) {
        self.guard = None;
        // SAFETY: mapped in `map` with this size; no reference into it outlives the segment.
        unsafe { libc::munmap(self.view.base().cast_mut().cast(), self.mapped) };
    }
}
