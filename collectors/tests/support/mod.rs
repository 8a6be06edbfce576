//! A traced process as the collector sees it: a child that sends a segment, and a test that writes into it.
//!
//! The child is a fork that sends the hello and then waits to be told its end, so it has a pid of its own and dies
//! when the test wants it to. The segment's memory is shared with the test, which plays the shim.
#![allow(dead_code, reason = "each test uses a part of it")]

use std::ffi::CString;
use std::os::fd::{AsRawFd, FromRawFd, OwnedFd};
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::{Duration, Instant};

use gputrace_abi::clock::{COUNTER, counter};
use gputrace_abi::event::{self, Event, detail};
use gputrace_abi::hello::Hello;
use gputrace_abi::layout::{CHUNKS_FOR_SHARED, ThreadRow, View, chunks_in, info, malloc_mode, thread_state};
use gputrace_abi::ring::{CHUNK_SLOTS, Chunks, commit_word};
use gputrace_abi::{Class, MAGIC, VERSION};

/// Hooks of the pretended shim: name, class, detail.
pub(crate) const HOOKS: [(&str, Class, u8); 14] = [
    ("cuLaunchKernel", Class::Launch, detail::KERNEL),
    ("cuGraphLaunch", Class::Launch, detail::GRAPH),
    ("cuStreamSynchronize", Class::Sync, detail::STREAM),
    ("cuMemcpyAsync", Class::Transfer, detail::COPY_ASYNC),
    ("cuMemsetD8_v2", Class::Transfer, detail::SET),
    ("cuMemAlloc_v2", Class::Alloc, detail::DEVICE),
    ("cuMemFree_v2", Class::Free, detail::DEVICE),
    ("cuMemHostAlloc", Class::Alloc, detail::PINNED),
    ("cuMemFreeHost", Class::Free, detail::PINNED),
    ("malloc", Class::HostAlloc, detail::NONE),
    ("free", Class::HostFree, detail::NONE),
    ("cuModuleLoadData", Class::Module, detail::NONE),
    ("cuStreamCreate", Class::Api, detail::NONE),
    ("cuMemcpyPeerAsync", Class::Transfer, detail::COPY_ASYNC),
];

/// Number of a hook.
pub(crate) fn hook(name: &str) -> u16 {
    HOOKS.iter().position(|h| h.0 == name).unwrap() as u16
}

/// Waits until something is true; a bound keeps a failed test from hanging.
pub(crate) fn wait_until(what: &str, mut done: impl FnMut() -> bool) {
    let start = Instant::now();
    while !done() {
        assert!(start.elapsed() < Duration::from_secs(20), "waited for: {what}");
        std::thread::sleep(Duration::from_millis(1));
    }
}

/// A folder of its own for a test, removed at its end.
pub(crate) struct Folder(pub(crate) PathBuf);

impl Folder {
    /// `name` must be different in each test.
    pub(crate) fn new(name: &str) -> Folder {
        static COUNT: AtomicU32 = AtomicU32::new(0);
        let n = COUNT.fetch_add(1, Ordering::Relaxed);
        let path = std::env::temp_dir().join(format!("gtc-{name}-{}-{n}", std::process::id()));
        std::fs::create_dir_all(path.join("session")).unwrap();
        Folder(path)
    }

    /// The session's folder.
    pub(crate) fn session(&self) -> PathBuf {
        self.0.join("session")
    }

    /// The trace's folder.
    pub(crate) fn trace(&self) -> PathBuf {
        self.0.join("trace")
    }
}

impl Drop for Folder {
    fn drop(&mut self) {
        let _ = std::fs::remove_dir_all(&self.0);
    }
}

/// A segment in shared memory, filled in as a shim does it.
pub(crate) struct Memory {
    /// Its parts.
    pub(crate) view: View,
    /// The memfd, or the file.
    pub(crate) fd: OwnedFd,
    bytes: usize,
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
        for (n, (name, class, detail)) in HOOKS.iter().enumerate() {
            view.hook(n).unwrap().write(name, *class, *detail);
        }
        header.hook_count.store(HOOKS.len() as u32, order);
        let mut texts = Vec::new();
        for (tag, text) in [(info::EXE, &b"/bin/train"[..]), (info::COMMAND, b"train\0a b\0"), (info::RANK, b"RANK=3")]
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

/// What a child is told to send its second segment.
const EXEC: u8 = 200;

/// A process with a segment.
pub(crate) struct Target {
    /// The segment.
    pub(crate) memory: Memory,
    /// The child.
    pub(crate) pid: i32,
    tell: Option<OwnedFd>,
}

impl Target {
    /// A child with a segment of 16 MiB that has sent its hello.
    pub(crate) fn new(session: &Path) -> Target {
        Target::with(session, Memory::new(16 << 20, malloc_mode::SAMPLE))
    }

    /// A child that sends this segment.
    pub(crate) fn with(session: &Path, memory: Memory) -> Target {
        Target::start(session, memory, None)
    }

    /// A child that sends this segment and, when told to, another one, as after an exec.
    pub(crate) fn with_next(session: &Path, memory: Memory, next: &Memory) -> Target {
        Target::start(session, memory, Some(next))
    }

    fn start(session: &Path, memory: Memory, next: Option<&Memory>) -> Target {
        let mut pipe = [0; 2];
        // SAFETY: the kernel fills the array.
        assert_eq!(unsafe { libc::pipe2(pipe.as_mut_ptr(), libc::O_CLOEXEC) }, 0);
        let socket = CString::new(session.join("sock").as_os_str().as_bytes()).unwrap();
        let bytes = memory.bytes as u64;
        let fd = memory.fd.as_raw_fd();
        let next = next.map(|m| (m.fd.as_raw_fd(), m.bytes as u64));
        // SAFETY: the child calls async-signal-safe functions only.
        let pid = unsafe { libc::fork() };
        if pid == 0 {
            // SAFETY: as above; the child has these descriptors, and ends here.
            unsafe {
                libc::close(pipe[1]);
                let mut sent = send(&socket, fd, bytes);
                let mut byte = [0u8; 1];
                let mut got = libc::read(pipe[0], byte.as_mut_ptr().cast(), 1);
                if let Some((fd, bytes)) = next.filter(|_| got == 1 && byte[0] == EXEC) {
                    sent = sent && send(&socket, fd, bytes);
                    got = libc::read(pipe[0], byte.as_mut_ptr().cast(), 1);
                }
                libc::_exit(if sent { i32::from(if got == 1 { byte[0] } else { 0 }) } else { 99 });
            }
        }
        assert!(pid > 0);
        // SAFETY: ours, and not used elsewhere.
        let tell = unsafe {
            libc::close(pipe[0]);
            OwnedFd::from_raw_fd(pipe[1])
        };
        Target { memory, pid, tell: Some(tell) }
    }

    /// Waits until the collector reads the segment.
    pub(crate) fn wait_until_read(&self) {
        let heartbeat = &self.memory.view.header().heartbeat;
        wait_until("the first pass", || heartbeat.load(gputrace_abi::sync::Ordering::Relaxed) != 0);
    }

    /// A thread of the process.
    pub(crate) fn thread(&self, tid: u32) -> Thread<'_> {
        Thread::new(self.memory.view, tid).at(self)
    }

    /// Lets the child send its second segment.
    pub(crate) fn exec(&self) {
        self.say(EXEC);
    }

    fn say(&self, byte: u8) {
        let Some(tell) = &self.tell else { return };
        // SAFETY: writes one byte of a local.
        unsafe { libc::write(tell.as_raw_fd(), (&raw const byte).cast(), 1) };
    }

    /// Ends the child with this code.
    pub(crate) fn exit(&mut self, code: u8) {
        if self.tell.is_none() {
            return;
        }
        self.say(code);
        self.tell = None;
        self.reap();
    }

    /// Kills the child.
    pub(crate) fn kill(&mut self) {
        self.tell = None;
        // SAFETY: the child is ours and has not been waited for.
        unsafe { libc::kill(self.pid, libc::SIGKILL) };
        self.reap();
    }

    fn reap(&self) {
        let mut status = 0;
        // SAFETY: waits for our own child.
        unsafe { libc::waitpid(self.pid, &mut status, 0) };
        assert_ne!(status, 99 << 8, "the child could not send its hello");
    }
}

impl Drop for Target {
    fn drop(&mut self) {
        self.exit(0);
    }
}

/// Sends a hello. Async-signal-safe.
unsafe fn send(path: &CString, fd: i32, bytes: u64) -> bool {
    let hello = Hello { magic: MAGIC, version: VERSION, pid: 1, segment_bytes: bytes }.to_bytes();
    // SAFETY: plain structs filled in and passed by address; nothing is allocated.
    unsafe {
        let socket = libc::socket(libc::AF_UNIX, libc::SOCK_SEQPACKET, 0);
        let mut address: libc::sockaddr_un = std::mem::zeroed();
        address.sun_family = libc::AF_UNIX as u16;
        for (place, byte) in address.sun_path.iter_mut().zip(path.as_bytes()) {
            *place = *byte as libc::c_char;
        }
        let length = size_of::<libc::sockaddr_un>() as u32;
        if libc::connect(socket, (&raw const address).cast(), length) != 0 {
            return false;
        }
        let mut control = [0u64; 4];
        let mut vector = libc::iovec { iov_base: hello.as_ptr().cast_mut().cast(), iov_len: hello.len() };
        let mut header: libc::msghdr = std::mem::zeroed();
        header.msg_iov = &mut vector;
        header.msg_iovlen = 1;
        header.msg_control = control.as_mut_ptr().cast();
        header.msg_controllen = libc::CMSG_SPACE(4) as usize;
        let message = libc::CMSG_FIRSTHDR(&header);
        (*message).cmsg_level = libc::SOL_SOCKET;
        (*message).cmsg_type = libc::SCM_RIGHTS;
        (*message).cmsg_len = libc::CMSG_LEN(4) as usize;
        libc::CMSG_DATA(message).cast::<i32>().write_unaligned(fd);
        let sent = libc::sendmsg(socket, &header, 0) == hello.len() as isize;
        libc::close(socket);
        sent
    }
}

/// A thread that writes events as the shim does.
pub(crate) struct Thread<'a> {
    view: View,
    number: u16,
    chunk: Option<(u32, u32)>,
    index: u32,
    life: std::marker::PhantomData<&'a ()>,
}

impl<'a> Thread<'a> {
    /// Claims the lowest free row. The view must stay mapped.
    pub(crate) fn new(view: View, tid: u32) -> Thread<'a> {
        let order = gputrace_abi::sync::Ordering::Relaxed;
        let claim = |n: &usize| {
            let state = &view.thread(*n).unwrap().state;
            state.compare_exchange(thread_state::FREE, thread_state::CLAIMED, order, order).is_ok()
        };
        let number = (0..4096).find(claim).expect("a free row");
        let row = view.thread(number).unwrap();
        row.tid.store(tid, order);
        row.started.store(counter(), order);
        row.first_chunk.store(0, order);
        row.generation.fetch_add(1, order);
        row.state.store(thread_state::LIVE, gputrace_abi::sync::Ordering::Release);
        Thread { view, number: number as u16, chunk: None, index: 0, life: std::marker::PhantomData }
    }

    fn at<'b>(self, _: &'b Target) -> Thread<'b> {
        Thread { view: self.view, number: self.number, chunk: self.chunk, index: self.index, life: Default::default() }
    }

    /// The thread's row.
    pub(crate) fn row(&self) -> &ThreadRow {
        self.view.thread(usize::from(self.number)).unwrap()
    }

    /// Makes room for `n` slots next to each other; false when the pool is empty.
    pub(crate) fn reserve(&mut self, n: u32) -> bool {
        let full = CHUNK_SLOTS as u32;
        if self.chunk.is_some() && self.index + n <= full {
            return true;
        }
        while self.chunk.is_some() && self.index < full {
            let padding = Event { hook: event::KIND_PADDING, ..Event::default() };
            self.put(padding);
        }
        let limit = self.view.chunk_count() - CHUNKS_FOR_SHARED as u32;
        let Some(taken) = self.view.take_chunk(limit) else { return false };
        let generation = self.view.chunk(taken).unwrap().open(u32::from(self.number));
        match self.chunk {
            Some((old, _)) => {
                let old = self.view.chunk(old).unwrap();
                old.close(full);
                old.link(taken);
            }
            None => self.row().first_chunk.store(taken + 1, gputrace_abi::sync::Ordering::Release),
        }
        self.chunk = Some((taken, generation));
        self.index = 0;
        true
    }

    fn put(&mut self, mut event: Event) {
        let (chunk, generation) = self.chunk.unwrap();
        event.commit = commit_word(generation, self.index);
        event.thread = self.number;
        self.view.chunk(chunk).unwrap().slot(self.index).unwrap().write(&event);
        self.index += 1;
    }

    /// Writes an event into the shared chain, as a thread does that found the pool empty.
    pub(crate) fn shared_event(&mut self, name: &str, payload: [u64; 4]) {
        let class = HOOKS[usize::from(hook(name))].1 as usize;
        let order = gputrace_abi::sync::Ordering::Relaxed;
        let view = self.view;
        let header = view.header();
        let row = view.thread(usize::from(self.number)).unwrap();
        row.seen[class].store(row.seen[class].load(order) + 1, order);
        loop {
            let current = header.shared.load(order);
            let chunk = current.checked_sub(1).map(|c| view.chunk(c).unwrap());
            if let Some(chunk) = chunk
                && let Ok((commit, index)) = chunk.reserve_shared(1)
            {
                let now = counter();
                let event = Event { hook: hook(name), start: now, end: now + 100, payload, ..Event::default() };
                let event = Event { commit, thread: self.number, ..event };
                return chunk.slot(index).unwrap().write(&event);
            }
            let taken = view.take_chunk(view.chunk_count()).expect("a free chunk");
            view.chunk(taken).unwrap().open(gputrace_abi::ring::SHARED);
            match chunk {
                Some(old) => old.link(taken),
                None => header.shared_first.store(taken + 1, gputrace_abi::sync::Ordering::Release),
            }
            header.shared.store(taken + 1, gputrace_abi::sync::Ordering::Release);
        }
    }

    /// Marks a call as running, as the shim does before it calls the original.
    pub(crate) fn begin(&mut self, name: &str) {
        let class = HOOKS[usize::from(hook(name))].1 as usize;
        let order = gputrace_abi::sync::Ordering::Relaxed;
        let row = self.row();
        row.seen[class].store(row.seen[class].load(order) + 1, order);
        row.in_flight_hook.store(hook(name).into(), order);
        row.in_flight_start.store(counter(), order);
    }

    /// Passes over a slot without ever writing it.
    pub(crate) fn tear(&mut self) {
        assert!(self.reserve(1));
        self.index += 1;
    }

    /// Writes an event and counts it as the shim does. False: it was dropped.
    pub(crate) fn event(&mut self, event: Event) -> bool {
        let class = HOOKS[usize::from(event.hook)].1 as usize;
        let order = gputrace_abi::sync::Ordering::Relaxed;
        let view = self.view;
        let row = view.thread(usize::from(self.number)).unwrap();
        row.seen[class].store(row.seen[class].load(order) + 1, order);
        if matches!(HOOKS[usize::from(event.hook)].1, Class::HostAlloc | Class::HostFree) {
            row.chosen[class].store(row.chosen[class].load(order) + 1, order);
        }
        if !self.reserve(1) {
            row.dropped[class].store(row.dropped[class].load(order) + 1, order);
            return false;
        }
        self.put(event);
        true
    }

    /// A call that takes `ticks`.
    pub(crate) fn call(&mut self, name: &str, payload: [u64; 4]) -> bool {
        let now = counter();
        self.event(Event { hook: hook(name), start: now, end: now + 2000, context: 1, payload, ..Event::default() })
    }

    /// Writes a text.
    pub(crate) fn text(&mut self, kind: u64, key: u64, number: u64, text: &str) {
        let bytes = text.as_bytes();
        let more = bytes.len().div_ceil(event::TEXT_SLOT_BYTES) as u32;
        assert!(self.reserve(1 + more));
        let now = counter();
        let payload = [key, kind, bytes.len() as u64, number];
        self.put(Event { hook: event::KIND_TEXT, start: now, end: now, payload, ..Event::default() });
        for part in bytes.chunks(event::TEXT_SLOT_BYTES) {
            let mut padded = part.to_vec();
            padded.resize(event::TEXT_SLOT_BYTES, 0);
            let (chunk, generation) = self.chunk.unwrap();
            let commit = commit_word(generation, self.index);
            let first = Event { commit, hook: event::KIND_TEXT_MORE, thread: self.number, ..Event::default() };
            let mut words = [0u64; 7];
            for (word, bytes) in words.iter_mut().zip(padded.chunks_exact(8)) {
                *word = u64::from_le_bytes(bytes.try_into().unwrap());
            }
            self.view.chunk(chunk).unwrap().slot(self.index).unwrap().write_text(first.words()[0], words);
            self.index += 1;
        }
    }

    /// Says on which device context 1 is.
    pub(crate) fn context(&mut self, number: u16, device: u64) {
        assert!(self.reserve(1));
        let payload = [0xc0, 0, device, 0];
        self.put(Event { hook: event::KIND_CONTEXT, context: number, payload, ..Event::default() });
    }

    /// Ends the thread as the shim's exit handler does.
    pub(crate) fn exit(self) {
        if let Some((chunk, _)) = self.chunk {
            let chunk = self.view.chunk(chunk).unwrap();
            chunk.close(self.index);
            chunk.link_end();
        }
        self.row().ended.store(counter(), gputrace_abi::sync::Ordering::Relaxed);
        self.row().state.store(thread_state::EXITED, gputrace_abi::sync::Ordering::Release);
    }
}
