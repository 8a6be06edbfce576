//! The segment's way to the collector on Linux, and what else a session needs there.

use core::sync::atomic::{AtomicU32, Ordering};

use gputrace_abi::hello::{EXE_BYTES, FILE, Hello, NAME_BYTES, Refusal};
use gputrace_abi::layout::View;
use gputrace_abi::{MAGIC, VERSION};

use super::path::Path;
use super::{Failure, complain_of, fill, make_file};
use crate::interpose::{driver, elf, inline, scope};
use crate::{arenas, attach, gpu_time, hooks, sampling, stack, sys, wait};

pub(super) use crate::ending::listen;
pub(super) use crate::gpu_time::{budget_ppm, spares_launches};

/// Whether the loader put this copy in front of libc, as preloading does: one that the program loads itself comes last.
pub(crate) fn was_preloaded() -> bool {
    elf::next_definition(c"malloc") != 0
}

/// Whether our hooks work in this process.
pub(super) fn is_in_place() -> bool {
    hooks::nvtx::remember_previous();
    // NVTX loads us into a process that somebody took LD_PRELOAD from: nothing else of ours would work there.
    was_preloaded()
}

/// Reads whether calls of mmap's family are recorded.
pub(super) fn configure_maps() {
    hooks::alloc::maps::configure(sys::variable(b"GPUTRACE_MMAP") == Some(b"1"));
}

/// Segments are files: the session outlives its collectors.
static AS_FILES: AtomicU32 = AtomicU32::new(0);

/// Reads what else the launcher asked for.
pub(super) fn configure() {
    AS_FILES.store((sys::variable(b"GPUTRACE_SEGMENT") == Some(b"file")) as u32, Ordering::Relaxed);
    if !attach::is_attached() {
        stack::remember_main_stack(sys::environment() as usize);
    }
    let calls = sys::variable(b"GPUTRACE_STACKS");
    // As those of calls unless told.
    let wanted = sys::variable(b"GPUTRACE_MALLOC_STACKS").or(calls) != Some(b"off");
    let allocations = wanted && (!sampling::is_off() || hooks::alloc::maps::are_wanted());
    stack::configure(calls, sys::variable(b"GPUTRACE_LAUNCH_STACKS"), allocations);
    wait::configure(sys::variable(b"GPUTRACE_OS"), sys::variable(b"GPUTRACE_OS_OVER"));
    hooks::remember_preloads();
    arenas::configure();
    gpu_time::configure();
    inline::configure();
    driver::look_at_start();
    scope::look_at_start();
}

/// There is a segment now.
pub(super) fn started() {
    stack::started();
    wait::started(driver::is_known());
    arenas::started();
}

/// Whether the processor's counter may be used: the launcher says so, or the kernel itself uses it.
pub(super) fn counter_is_good(wanted: Option<&[u8]>) -> bool {
    match wanted {
        Some(b"monotonic") => false,
        Some(_) => true,
        None if cfg!(target_arch = "aarch64") => true,
        None => {
            let mut name = [0u8; 8];
            let path = c"/sys/devices/system/clocksource/clocksource0/current_clocksource";
            let length = sys::open(path, libc::O_RDONLY, 0).map_or(0, |file| sys::read_all(&file, &mut name));
            name.get(..length).is_some_and(|n| n.starts_with(b"tsc"))
        }
    }
}

/// Makes the segment and gives it to the collector; where none answers, or others are to come after it, one for a collector that comes
/// later.
pub(super) fn make(bytes: u64, forked: bool, notes: u32) -> Result<(), Failure> {
    if AS_FILES.load(Ordering::Relaxed) != 0 {
        let name = make_file(bytes, forked, notes)?;
        // Where a collector is at work it knows of us at once, and how we end however soon; else the next one finds the file.
        let mut message = [0u8; size_of::<Hello>() + NAME_BYTES];
        let said = hello(FILE).into_iter().chain(name.bytes().iter().copied().take(NAME_BYTES));
        message.iter_mut().zip(said).for_each(|(place, byte)| *place = byte);
        let length = size_of::<Hello>() + name.bytes().len();
        let _ = tell(message.get(..length).unwrap_or(&message), None);
        return Ok(());
    }
    let memory = sys::memfd(c"gputrace")?;
    sys::ftruncate(&memory, bytes)?;
    let base = sys::map(bytes as usize, Some(&memory))?;
    fill(base, bytes, forked, notes);
    if let Ok(listener) = tell(&hello(bytes), Some(&memory)) {
        // SAFETY: just mapped, this large.
        if let Some(view) = unsafe { View::new(base, bytes as usize) } {
            view.header().listener.store(listener, Ordering::Relaxed);
        }
        return Ok(());
    }
    // SAFETY: nothing refers to it yet.
    unsafe { sys::unmap(base, bytes as usize) };
    make_file(bytes, forked, notes).map(|_| ())
}

/// The message of a process with so large a segment.
fn hello(segment_bytes: u64) -> [u8; size_of::<Hello>()] {
    Hello { magic: MAGIC, version: VERSION, pid: sys::getpid(), segment_bytes }.to_bytes()
}

/// Sends the collector a message: its process as this one sees it, where one is at work.
fn tell(message: &[u8], descriptor: Option<&sys::Fd>) -> Result<u32, sys::Errno> {
    let mut path = Path::folder();
    path.push(b"/sock");
    sys::send(path.bytes(), message, descriptor)
}

/// Tells the collector why there is no segment.
pub(super) fn refuse(why: Refusal) {
    let mut message = [0u8; size_of::<Hello>() + EXE_BYTES];
    let (head, exe) = message.split_at_mut(size_of::<Hello>());
    for (place, byte) in head.iter_mut().zip(hello(why as u64)) {
        *place = byte;
    }
    let length = size_of::<Hello>() + sys::executable(exe);
    if tell(message.get(..length).unwrap_or(&[]), None).is_err() {
        complain_of(why);
    }
}
