//! The segment of this process: made in the constructor, given to the collector, mapped until the end.
//!
//! On Linux, with a collector, the segment is a memfd, sent over the session's socket; both descriptors are closed again
//! before the constructor returns. Without one (it died, or has not come yet), and on macOS, it is a file in the session's folder, reserved
//! before it is mapped, because a mapped write to a full file system kills. A forked child makes its own at its first
//! event. If anything fails the process runs on untraced and tells the collector why; where it cannot, one line on stderr
//! does.

#[cfg(target_os = "linux")]
mod brake;
mod early;
mod info;
#[cfg(target_os = "linux")]
mod linux;
#[cfg(target_os = "macos")]
mod macos;
mod path;

use core::sync::atomic::{AtomicPtr, AtomicU32, AtomicU64, AtomicUsize, Ordering};

use gputrace_abi::clock::{self, ClockKind};
use gputrace_abi::hello::Refusal;
use gputrace_abi::layout::{self, COUNTER_BLOCKS, Header, SHARED_COUNTERS, SMALLEST_BYTES, View, note};
use gputrace_abi::{MAGIC, NEEDS, VERSION};

#[cfg(target_os = "linux")]
use linux as platform;
#[cfg(target_os = "linux")]
pub(crate) use linux::was_preloaded;
#[cfg(target_os = "macos")]
use macos as platform;

pub(crate) use self::early::count_unrecorded;
use self::path::Path;
use crate::sys::{self, Errno};
use crate::thread::{self, Process};
use crate::{calibrate, control, culling, hooks, sampling, shed, stack};

/// The process's state, in memory that a fork wipes to UNSET.
const UNSET: u32 = 0;
const STARTING: u32 = 1;
const LIVE: u32 = 2;
const OFF: u32 = 3;

const DEFAULT_SEGMENT_BYTES: u64 = 16 << 20;
/// `<session>/sock` must fit into a socket address of 108 bytes.
const PATH_BYTES: usize = 104;

static SEGMENT: AtomicPtr<u8> = AtomicPtr::new(core::ptr::null_mut());
static SEGMENT_BYTES: AtomicUsize = AtomicUsize::new(0);
/// 1: ticks are the processor's counter; 0: nanoseconds of [`sys::MONOTONIC`].
static COUNTER: AtomicU32 = AtomicU32::new(0);

/// What the environment asked for; written once by the constructor.
static WANTED_BYTES: AtomicU64 = AtomicU64::new(DEFAULT_SEGMENT_BYTES);
static BLOCK_WHEN_FULL: AtomicU32 = AtomicU32::new(0);
static FOLDER: [AtomicU64; PATH_BYTES / 8] = [const { AtomicU64::new(0) }; PATH_BYTES / 8];
/// What was noticed before there was a segment: bits of [`note`].
static NOTES: AtomicU32 = AtomicU32::new(0);
static FOLDER_BYTES: AtomicUsize = AtomicUsize::new(0);

/// The time in the segment's ticks.
#[inline(always)]
pub(crate) fn now() -> u64 {
    if COUNTER.load(Ordering::Relaxed) != 0 { clock::counter() } else { sys::clock_ns(sys::MONOTONIC) }
}

/// The same where the counter is not used: on Linux out of the way of hooks, which need it only where there is no good counter; on
/// macOS each message to Metal on x86-64 reads it twice.
#[cfg_attr(target_os = "linux", cold, inline(never))]
#[cfg_attr(target_os = "macos", inline(always))]
pub(crate) fn now_slow() -> u64 {
    sys::clock_ns(sys::MONOTONIC)
}

/// Whether ticks can be the processor's counter at all.
pub(crate) const MAY_COUNT: bool = cfg!(any(target_os = "linux", target_arch = "aarch64"));

/// Whether ticks are the processor's counter.
pub(crate) fn uses_counter() -> bool {
    COUNTER.load(Ordering::Relaxed) != 0
}

/// The segment that starts at `base`.
///
/// # Safety
/// `base` is the present segment's start or null.
pub(crate) unsafe fn view_at(base: *const u8) -> Option<View> {
    if base.is_null() {
        return None;
    }
    // SAFETY: the mapping has this size and lasts as long as the process's state is LIVE.
    unsafe { View::new(base, SEGMENT_BYTES.load(Ordering::Relaxed)) }
}

/// The segment, made now if this is a forked child's first event. None: not recording.
pub(crate) fn live() -> Option<View> {
    let process = thread::process()?;
    let word = &process.word;
    loop {
        match word.load(Ordering::Acquire) {
            // SAFETY: LIVE is set after the segment is mapped.
            LIVE => return unsafe { view_at(SEGMENT.load(Ordering::Relaxed)) },
            UNSET => {
                if word.compare_exchange(UNSET, STARTING, Ordering::AcqRel, Ordering::Relaxed).is_ok() {
                    process.maker.store(sys::gettid(), Ordering::Relaxed);
                    start_forked(process);
                }
            }
            STARTING if early::comes(process) => {}
            _ => return None,
        }
    }
}

/// The segment if there is one already.
pub(crate) fn present() -> Option<View> {
    let process = thread::process()?;
    if process.word.load(Ordering::Acquire) != LIVE {
        return None;
    }
    // SAFETY: LIVE is set after the segment is mapped.
    unsafe { view_at(SEGMENT.load(Ordering::Relaxed)) }
}

/// Whether calls wait for room where there is none.
#[cfg(target_os = "linux")]
pub(crate) fn blocks() -> bool {
    BLOCK_WHEN_FULL.load(Ordering::Relaxed) != 0
}

/// Says in the segment what is missing or was seen: a bit of [`note`].
pub(crate) fn say(bit: u32) {
    if let Some(view) = present() {
        view.header().notes.fetch_or(bit, Ordering::Relaxed);
    }
}

/// The constructor's work: reads the environment, makes the segment, registers the main thread.
pub(crate) fn start_in_constructor() {
    let Some(folder) = sys::variable(b"GPUTRACE_SESSION") else { return };
    if !platform::is_in_place() || sys::variable(b"GPUTRACE") == Some(b"off") || sys::exists(c"/etc/gputrace/disable") {
        return;
    }
    #[cfg(target_os = "linux")]
    if brake::is_on(folder) {
        return;
    }
    start(folder);
}

/// Makes the segment of the session with this folder, as the environment asks for it.
pub(crate) fn start(folder: &[u8]) {
    if folder.len() + b"/sock".len() >= PATH_BYTES {
        return complain(b"the session folder's path is too long");
    }
    FOLDER.iter().for_each(|word| word.store(0, Ordering::Relaxed));
    for (i, byte) in folder.iter().enumerate() {
        if let Some(word) = FOLDER.get(i / 8) {
            word.fetch_or(u64::from(*byte) << (8 * (i % 8)), Ordering::Relaxed);
        }
    }
    FOLDER_BYTES.store(folder.len(), Ordering::Relaxed);
    if let Some(bytes) = sys::variable(b"GPUTRACE_SEGMENT_MEMORY").and_then(number) {
        WANTED_BYTES.store(bytes.max(SMALLEST_BYTES), Ordering::Relaxed);
    }
    BLOCK_WHEN_FULL.store((sys::variable(b"GPUTRACE_ON_FULL") == Some(b"block")) as u32, Ordering::Relaxed);
    COUNTER.store(platform::counter_is_good(sys::variable(b"GPUTRACE_CLOCK")) as u32, Ordering::Relaxed);
    let malloc = sys::variable(b"GPUTRACE_MALLOC").or(Some(b"sample")).filter(|wanted| *wanted != b"off");
    let out_of_reach = hooks::alloc::out_of_reach();
    if malloc.is_some() {
        NOTES.store(out_of_reach, Ordering::Relaxed);
    }
    sampling::configure(malloc.filter(|_| out_of_reach == 0));
    platform::configure_maps();
    info::remember_variables();
    platform::configure();
    culling::configure();
    shed::configure();
    control::configure();
    if let Err(why) = thread::prepare() {
        return complain(why);
    }
    let Some(process) = thread::process() else { return };
    process.word.store(STARTING, Ordering::Relaxed);
    // Not before: what the system's functions above allocate would find a process that has no segment, and make one.
    hooks::alloc::lead_all();
    #[cfg(all(target_os = "linux", target_arch = "x86_64"))]
    hooks::alloc::straighten_all();
    finish_start(process, make(false));
    if process.word.load(Ordering::Relaxed) == LIVE {
        platform::listen();
        thread::state_slow();
        hooks::alloc::note_allocator();
        if !sampling::is_off() {
            calibrate::at_start();
        }
        platform::started();
    }
}

fn start_forked(process: &Process) {
    let old = SEGMENT.swap(core::ptr::null_mut(), Ordering::Relaxed);
    if FOLDER_BYTES.load(Ordering::Relaxed) == 0 {
        return process.word.store(OFF, Ordering::Release);
    }
    culling::end_segment();
    if !old.is_null() {
        // SAFETY: the states that referred to the parent's segment were wiped by the fork; this thread is in the slow
        // path, and other threads of this young child find STARTING.
        unsafe { sys::unmap(old, SEGMENT_BYTES.load(Ordering::Relaxed)) };
    }
    thread::begin_segment();
    finish_start(process, make(true));
}

fn finish_start(process: &Process, made: Result<(), Failure>) {
    match &made {
        Err(Failure::Refuse(why)) => platform::refuse(*why),
        Err(Failure::Silent) | Ok(()) => {}
    }
    process.word.store(if made.is_ok() { LIVE } else { OFF }, Ordering::SeqCst);
    early::take(process);
}

/// Why there is no segment.
enum Failure {
    /// The session is over: nobody is there to read a line about it.
    Silent,
    /// The collector is told, and tells the user once for all processes.
    Refuse(Refusal),
}

impl From<Errno> for Failure {
    fn from(_: Errno) -> Failure {
        Failure::Refuse(Refusal::Failed)
    }
}

fn make(forked: bool) -> Result<(), Failure> {
    if !sys::exists(Path::folder().c_str()) {
        return Err(Failure::Silent);
    }
    let wanted = WANTED_BYTES.load(Ordering::Relaxed);
    let limits = [
        (Refusal::FileSize, sys::limit(libc::RLIMIT_FSIZE)),
        (Refusal::AddressSpace, sys::limit(libc::RLIMIT_AS) / layout::ADDRESS_SPACE_SHARE),
    ];
    if let Some((why, _)) = limits.iter().find(|(_, most)| *most < SMALLEST_BYTES) {
        return Err(Failure::Refuse(*why));
    }
    let bytes = limits.iter().fold(wanted, |bytes, (_, most)| bytes.min(*most)) / 4096 * 4096;
    let notes = if bytes < wanted / 4096 * 4096 { note::SMALL_SEGMENT } else { 0 };
    platform::make(bytes, forked, notes)
}

/// A segment for a collector that comes later. The name of its file.
fn make_file(bytes: u64, forked: bool, notes: u32) -> Result<Path, Failure> {
    let mut name = Path::empty();
    name.push(b"seg-");
    name.push_number(u64::from(sys::getpid()));
    name.push(b"-");
    name.push_number(sys::clock_ns(sys::MONOTONIC));
    let mut path = Path::folder();
    path.push(b"/");
    path.push(name.bytes());
    let file =
        sys::open(path.c_str(), libc::O_RDWR | libc::O_CREAT | libc::O_EXCL, 0o600).map_err(|error| match error.0 {
            // A process of another user, which the launcher names: the session is not open to it.
            libc::EACCES | libc::EPERM => Failure::Silent,
            libc::EMFILE | libc::ENFILE => Failure::Refuse(Refusal::NoDescriptor),
            libc::ENOSPC | libc::EDQUOT => Failure::Refuse(Refusal::NoSpace),
            _ => Failure::Refuse(Refusal::NotWritable),
        })?;
    let reserved = if bytes <= sys::free_bytes(&file) / 10 { sys::fallocate(&file, bytes) } else { Err(Errno(0)) };
    let mapped = reserved.and_then(|()| sys::map(bytes as usize, Some(&file)));
    match mapped {
        Ok(base) => {
            fill(base, bytes, forked, notes);
            Ok(name)
        }
        Err(_) => {
            sys::unlink(path.c_str());
            Err(Failure::Refuse(Refusal::NoSpace))
        }
    }
}

/// Writes everything that stands in a segment from the start.
fn fill(base: *mut u8, bytes: u64, forked: bool, notes: u32) {
    SEGMENT_BYTES.store(bytes as usize, Ordering::Relaxed);
    sys::leave_out_of_dumps(base, bytes as usize);
    // SAFETY: freshly mapped, page aligned, this large.
    let Some(view) = (unsafe { View::new(base, bytes as usize) }) else { return };
    let header = view.header();
    let put = |word: &AtomicU32, value: u32| word.store(value, Ordering::Relaxed);
    put(&header.version, VERSION);
    put(&header.needs, NEEDS);
    let kind = if COUNTER.load(Ordering::Relaxed) != 0 { clock::COUNTER } else { ClockKind::Monotonic };
    put(&header.clock, kind as u32);
    header.segment_bytes.store(bytes, Ordering::Relaxed);
    put(&header.pid, sys::getpid());
    put(&header.parent_pid, sys::getppid());
    put(&header.forked, u32::from(forked));
    put(&header.malloc_mode, sampling::mode());
    header.sample_bytes.store(sampling::mean_bytes(), Ordering::Relaxed);
    put(&header.budget_ppm, platform::budget_ppm());
    shed::tell(header, platform::spares_launches(), platform::budget_ppm() != 0);
    control::begin(header);
    stamp(header);
    put(&header.block_when_full, BLOCK_WHEN_FULL.load(Ordering::Relaxed));
    put(&header.notes, notes | NOTES.load(Ordering::Relaxed));
    let chunks = layout::chunks_in(bytes);
    let chunks = chunks - culling::chunks(chunks);
    put(&header.chunk_count, chunks);
    culling::begin_segment(&view, chunks < layout::chunks_in(bytes));
    for chunk in 0..chunks {
        view.give_chunk(chunk);
    }
    for block in (0..COUNTER_BLOCKS as u32).filter(|block| *block != SHARED_COUNTERS) {
        view.give_counters(block);
    }
    put(&header.hook_count, hooks::describe(&view));
    calibrate::tell(&view);
    info::write_info(&view);
    header.magic.store(MAGIC, Ordering::Release);
    SEGMENT.store(base, Ordering::Relaxed);
}

/// The segment's account begins now, and recording is on.
#[cfg(target_os = "linux")]
pub(crate) fn begin_anew(view: &View) {
    let header = view.header();
    stamp(header);
    header.switches.store(0, Ordering::Relaxed);
    control::begin(header);
    // What is not to be recorded is not, until somebody says so; what was, is.
    thread::pause(header.paused.load(Ordering::Relaxed) != 0);
}

/// Writes the moment from which on the account is.
fn stamp(header: &Header) {
    let moment = [now(), sys::clock_ns(sys::MONOTONIC), sys::clock_ns(libc::CLOCK_REALTIME)];
    for (place, value) in header.started.iter().zip(moment) {
        place.store(value, Ordering::Relaxed);
    }
    let [ticks, ..] = moment;
    stack::begin_segment(ticks);
}

pub(crate) fn number(text: &[u8]) -> Option<u64> {
    text.iter().try_fold(0u64, |n, byte| {
        let digit = byte.checked_sub(b'0').filter(|d| *d < 10)?;
        n.checked_mul(10)?.checked_add(u64::from(digit))
    })
}

/// What is to be said of a refusal where the collector cannot be told.
fn complain_of(why: Refusal) {
    complain(match why {
        Refusal::FileSize => b"RLIMIT_FSIZE leaves no room for its segment",
        Refusal::AddressSpace => b"RLIMIT_AS leaves no room for its segment",
        Refusal::Failed => b"its segment could not be made",
        Refusal::NoSpace => b"the session's folder has too little free space for its segment",
        Refusal::NotWritable => b"the session's folder is not writable",
        Refusal::NoDescriptor => b"no file descriptor is free",
    });
}

fn complain(why: &[u8]) {
    // Who attached says it: the program's stderr is its own.
    #[cfg(target_os = "linux")]
    if crate::attach::takes(why) {
        return;
    }
    let mut line = [0u8; 160];
    let mut pid = Path::empty();
    pid.push_number(u64::from(sys::getpid()));
    let parts = b"gputrace: process ".iter().chain(pid.bytes()).chain(b" is not traced: ").chain(why).chain(b"\n");
    let mut length = 0;
    for (place, byte) in line.iter_mut().zip(parts) {
        *place = *byte;
        length += 1;
    }
    sys::complain(line.get(..length).unwrap_or(&[]));
}
