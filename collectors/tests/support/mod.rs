//! A traced process as the collector sees it: a child that sends a segment, and a test that writes into it.
//!
//! The child is a fork that sends the hello and then waits to be told its end, so it has a pid of its own and dies
//! when the test wants it to. The segment's memory is shared with the test, which plays the shim.
#![allow(dead_code, reason = "each test uses a part of it")]

mod memory;
mod thread;

use std::ffi::CString;
use std::os::fd::{AsRawFd, FromRawFd, OwnedFd};
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::{Duration, Instant};

use gputrace_abi::event::detail;
use gputrace_abi::hello::Hello;
use gputrace_abi::layout::malloc_mode;
use gputrace_abi::{Class, MAGIC, VERSION};

pub(crate) use memory::Memory;
pub(crate) use thread::Thread;

/// Hooks of the pretended shim: name, class, detail.
pub(crate) const HOOKS: [(&str, Class, u8); 49] = [
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
    ("nvtxRangePushA", Class::Range, detail::PUSH),
    ("nvtxRangePop", Class::Range, detail::POP),
    ("nvtxRangeStartEx", Class::Range, detail::START),
    ("nvtxRangeEnd", Class::Range, detail::END),
    ("nvtxMarkA", Class::Range, detail::MARK),
    (COUNTED, Class::Api, detail::NONE),
    ("[MTLCommandQueue commandBuffer]", Class::Sync, detail::ROOM),
    ("[MTLCommandBuffer computeCommandEncoder]", Class::Encode, detail::ENCODER),
    ("[MTLComputeCommandEncoder setComputePipelineState:]", Class::Encode, detail::PIPELINE),
    ("[MTLComputeCommandEncoder dispatchThreads]", Class::Encode, detail::THREADS),
    ("[MTLComputeCommandEncoder dispatchThreadgroups:threadsPerThreadgroup:]", Class::Encode, detail::GROUPS),
    ("[MTLComputeCommandEncoder executeCommandsInBuffer]", Class::Encode, detail::COMMANDS),
    ("[MTLCommandEncoder endEncoding]", Class::Encode, detail::END_ENCODER),
    ("[MTLCommandQueue setLabel:]", Class::Api, detail::NONE),
    ("[MTLCommandBuffer setLabel:]", Class::Api, detail::NONE),
    ("[MTLComputeCommandEncoder setLabel:]", Class::Api, detail::NONE),
    ("[MTLBuffer setLabel:]", Class::Api, detail::NONE),
    ("[MTLCommandBuffer commit]", Class::Commit, detail::NONE),
    ("[MTL4CommandQueue commit:count:]", Class::Commit, detail::NONE),
    ("[MTL4CommandBuffer beginCommandBufferWithAllocator:]", Class::Api, detail::NONE),
    ("[MTL4CommandQueue commit:count:] command buffer", Class::Encode, detail::COMMITTED),
    ("[MTLDevice newCommandQueueWithMaxCommandBufferCount:]", Class::Api, detail::NONE),
    ("[MTLCommandBuffer waitUntilCompleted]", Class::Sync, detail::STREAM),
    ("[MTLCommandBuffer waitUntilScheduled]", Class::Sync, detail::SCHEDULE),
    ("[MTLCommandBuffer encodeWaitForEvent:value:]", Class::Sync, detail::STREAM_WAIT),
    ("[MTLCommandBuffer encodeSignalEvent:value:]", Class::Api, detail::NONE),
    ("[MTLSharedEvent waitUntilSignaledValue:timeoutMS:]", Class::Sync, detail::EVENT),
    (
        "[MTLBlitCommandEncoder copyFromBuffer:sourceOffset:toBuffer:destinationOffset:size:]",
        Class::Transfer,
        detail::COPY_ASYNC,
    ),
    ("[MTLBlitCommandEncoder fillBuffer:range:value:]", Class::Transfer, detail::SET_ASYNC),
    ("[MTLDevice newBufferWithLength:options:]", Class::Alloc, detail::DEVICE),
    ("[MTLDevice newBufferWithBytesNoCopy]", Class::Alloc, detail::REGISTERED),
    ("[MTLBuffer dealloc]", Class::Free, detail::DEVICE),
    ("mmap", Class::HostAlloc, detail::MAP),
    ("munmap", Class::HostFree, detail::MAP),
    ("ncclAllReduce", Class::Collective, detail::COLLECTIVE),
];

/// The hook whose calls are only counted.
pub(crate) const COUNTED: &str = "cuDeviceGetAttribute";

/// Number of a hook.
pub(crate) fn hook(name: &str) -> u16 {
    HOOKS.iter().position(|h| h.0 == name).unwrap() as u16
}

/// Waits until something is true; a bound keeps a failed test from hanging.
pub(crate) fn wait_until(what: &str, mut done: impl FnMut() -> bool) {
    let start = Instant::now();
    while !done() {
        assert!(start.elapsed() < Duration::from_secs(120), "waited for: {what}");
        std::thread::sleep(Duration::from_millis(1));
    }
}

/// CLOCK_MONOTONIC, ns.
pub(crate) fn monotonic_ns() -> u64 {
    let mut time = libc::timespec { tv_sec: 0, tv_nsec: 0 };
    // SAFETY: writes the time into a variable of ours.
    unsafe { libc::clock_gettime(libc::CLOCK_MONOTONIC, &raw mut time) };
    time.tv_sec as u64 * 1_000_000_000 + time.tv_nsec as u64
}

/// Bytes and number of the files in a folder and below.
pub(crate) fn size(folder: &Path) -> (u64, u64) {
    let entries = std::fs::read_dir(folder).into_iter().flatten().flatten();
    entries.fold((0, 0), |(bytes, files), entry| match entry.metadata() {
        Ok(meta) if meta.is_dir() => {
            let (more, inside) = size(&entry.path());
            (bytes + more, files + inside)
        }
        // One may be removed while we look.
        meta => (bytes + meta.map_or(0, |meta| meta.len()), files + 1),
    })
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
        // A pass says its time at its begin, so the second one from now begins after what was written before.
        let heartbeat = || self.memory.view.header().heartbeat.load(gputrace_abi::sync::Ordering::Relaxed);
        for pass in ["the pass that runs", "the next pass", "the end of it"] {
            let before = heartbeat();
            wait_until(pass, || heartbeat() != before);
        }
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
