//! A segment in shared memory.

use std::os::fd::{AsRawFd, FromRawFd, OwnedFd};

use gputrace_abi::clock::{COUNTER, ClockKind, counter};
use gputrace_abi::layout::{COUNTER_BLOCKS, NAME_BYTES, View, chunks_in, hook_flag, info, malloc_mode};
use gputrace_abi::ring::CHUNK_BYTES;
use gputrace_abi::{MAGIC, VERSION, pending};

use super::{COUNTED, HOOKS};

/// A segment in shared memory, filled in as a shim does it.
pub(crate) struct Memory {
    /// Its parts.
    pub(crate) view: View,
    /// The memfd, or the file.
    pub(crate) fd: OwnedFd,
    pub(super) bytes: usize,
}

impl Memory {
    /// A segment in a memfd.
    pub(crate) fn new(bytes: u64, malloc: u32) -> Memory {
        // SAFETY: the name is a C string; the descriptor is ours.
        let fd = unsafe { libc::memfd_create(c"test".as_ptr(), libc::MFD_CLOEXEC | libc::MFD_ALLOW_SEALING) };
        assert!(fd >= 0);
        // SAFETY: just made.
        Memory::in_file(unsafe { OwnedFd::from_raw_fd(fd) }, bytes, malloc)
    }

    /// The same with room for so many bytes and a table of pending blocks behind them.
    pub(crate) fn with_pending(bytes: u64) -> Memory {
        let memory = Memory::new(bytes + u64::from(pending::CHUNKS) * CHUNK_BYTES as u64, malloc_mode::FULL);
        let (header, order) = (memory.view.header(), gputrace_abi::sync::Ordering::Relaxed);
        while memory.view.take_chunk(u32::MAX).is_some() {}
        header.chunk_count.store(chunks_in(bytes), order);
        (0..chunks_in(bytes)).for_each(|n| memory.view.give_chunk(n));
        header.pending.store(1, order);
        memory
    }

    /// The same, whose times are those of CLOCK_MONOTONIC.
    pub(crate) fn monotonic(bytes: u64, malloc: u32) -> Memory {
        let memory = Memory::new(bytes, malloc);
        let header = memory.view.header();
        let order = gputrace_abi::sync::Ordering::Relaxed;
        header.clock.store(ClockKind::Monotonic as u32, order);
        header.started[0].store(super::monotonic_ns(), order);
        memory
    }

    /// How long it is.
    pub(crate) fn bytes(&self) -> usize {
        self.bytes
    }

    /// A segment in this file.
    pub(crate) fn in_file(fd: OwnedFd, bytes: u64, malloc: u32) -> Memory {
        // SAFETY: numbers only.
        assert_eq!(unsafe { libc::ftruncate(fd.as_raw_fd(), bytes as i64) }, 0);
        let protection = libc::PROT_READ | libc::PROT_WRITE;
        // SAFETY: a new shared mapping of the file.
        let base = unsafe {
            libc::mmap(std::ptr::null_mut(), bytes as usize, protection, libc::MAP_SHARED, fd.as_raw_fd(), 0)
        };
        assert_ne!(base, libc::MAP_FAILED);
        // SAFETY: mapped until drop.
        let view = unsafe { View::new(base.cast(), bytes as usize) }.unwrap();
        let memory = Memory { view, fd, bytes: bytes as usize };
        memory.fill(bytes, malloc);
        memory
    }

    fn fill(&self, bytes: u64, malloc: u32) {
        let view = &self.view;
        let header = view.header();
        let order = gputrace_abi::sync::Ordering::Relaxed;
        header.version.store(VERSION, order);
        header.clock.store(COUNTER as u32, order);
        header.segment_bytes.store(bytes, order);
        header.pid.store(std::process::id(), order);
        header.parent_pid.store(1, order);
        header.malloc_mode.store(malloc, order);
        header.sample_bytes.store(if malloc == malloc_mode::SAMPLE { 524_288 } else { 0 }, order);
        header.started[0].store(counter(), order);
        header.event_cost.store(256 * 60, order);
        header.chunk_count.store(chunks_in(bytes), order);
        (0..chunks_in(bytes)).for_each(|n| view.give_chunk(n));
        (1..COUNTER_BLOCKS as u32).for_each(|n| view.give_counters(n));
        for (n, (name, class, detail)) in HOOKS.iter().enumerate() {
            let flags = if *name == COUNTED { hook_flag::COUNTED } else { 0 };
            view.hook(n).unwrap().write(name.as_bytes(), *class, *detail, flags);
        }
        let longer = |(n, (name, ..)): (usize, &(&'static str, _, _))| {
            name.as_bytes().chunks(NAME_BYTES).skip(1).map(move |part| (n as u16, part))
        };
        for (place, (n, part)) in (HOOKS.len()..).zip(HOOKS.iter().enumerate().flat_map(longer)) {
            view.hook(place).unwrap().write_more(n, part);
        }
        header.hook_count.store(HOOKS.len() as u32, order);
        let mut texts = Vec::new();
        for (tag, text) in
            [(info::EXE, &b"/bin/train"[..]), (info::COMMAND, b"train\0a b\0"), (info::VARIABLE, b"RANK=3")]
        {
            texts.extend_from_slice(&tag.to_le_bytes());
            texts.extend_from_slice(&(text.len() as u16).to_le_bytes());
            texts.extend_from_slice(text);
        }
        texts.resize(texts.len().next_multiple_of(8), 0);
        for (word, bytes) in view.info().iter().zip(texts.chunks_exact(8)) {
            word.store(u64::from_le_bytes(bytes.try_into().unwrap()), order);
        }
        header.magic.store(MAGIC, gputrace_abi::sync::Ordering::Release);
    }
}

impl Drop for Memory {
    fn drop(&mut self) {
        // SAFETY: mapped with this size; the writers of a test end before their memory.
        unsafe { libc::munmap(self.view.base().cast_mut().cast(), self.bytes) };
    }
}
