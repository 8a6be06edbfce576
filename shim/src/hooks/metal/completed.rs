//! When the GPU ran a command buffer: told by a completion handler of ours, added as it is committed.
//!
//! The handler is a block without captures, one for all: the system neither copies nor frees it, and it is given its command
//! buffer, which is retained until its handlers have run. Times are seconds of mach_absolute_time; they are told relative
//! to the moment of the handler, so that nobody has to know what that clock's zero is.

use core::ffi::{c_char, c_int, c_void};
use core::sync::atomic::{AtomicUsize, Ordering};

use gputrace_abi::Event;
use gputrace_abi::event::KIND_GPU_TIMES;
use gputrace_abi::layout::note;
use gputrace_abi::metal::{FLAG_NUMBERED, UNSCHEDULED, status};

use super::{command_buffer, commits, devices, gpu_clock};
use crate::interpose::objc::{Id, send};
use crate::{session, sys, thread};

/// A block, as compilers make it.
#[repr(C)]
pub(super) struct Block {
    isa: *const c_void,
    flags: c_int,
    reserved: c_int,
    invoke: unsafe extern "C" fn(*const Block, Id),
    descriptor: *const Descriptor,
}

// SAFETY: nothing of it changes.
unsafe impl Sync for Block {}

#[repr(C)]
struct Descriptor {
    reserved: usize,
    bytes: usize,
    signature: *const c_char,
}

// SAFETY: nothing of it changes.
unsafe impl Sync for Descriptor {}

/// BLOCK_IS_GLOBAL, so that a copy is the block itself, and BLOCK_HAS_SIGNATURE.
const FLAGS: c_int = 1 << 28 | 1 << 30;

static DESCRIPTOR: Descriptor = Descriptor { reserved: 0, bytes: size_of::<Block>(), signature: c"v16@?0@8".as_ptr() };

unsafe extern "C" {
    /// The class of blocks without captures.
    static _NSConcreteGlobalBlock: [*const c_void; 32];
}

impl Block {
    /// A block that calls this.
    const fn new(invoke: unsafe extern "C" fn(*const Block, Id)) -> Block {
        Block {
            isa: (&raw const _NSConcreteGlobalBlock).cast(),
            flags: FLAGS,
            reserved: 0,
            invoke,
            descriptor: &raw const DESCRIPTOR,
        }
    }

    /// Makes one where there is room for it; nobody else looks there.
    pub(super) fn write(room: &[AtomicUsize; BLOCK_WORDS], invoke: unsafe extern "C" fn(*const Block, Id)) -> Id {
        let isa = (&raw const _NSConcreteGlobalBlock) as usize;
        let words = [isa, FLAGS as usize, invoke as usize, (&raw const DESCRIPTOR) as usize];
        room.iter().zip(words).for_each(|(word, value)| word.store(value, Ordering::Relaxed));
        room.as_ptr().cast_mut().cast()
    }

    /// As an object.
    fn id(&'static self) -> Id {
        core::ptr::from_ref(self).cast_mut().cast()
    }
}

/// Words of a block.
pub(super) const BLOCK_WORDS: usize = 4;

const _: () = assert!(size_of::<Block>() == BLOCK_WORDS * size_of::<usize>());

static COMPLETED: Block = Block::new(completed);

/// Has the end of a command buffer told.
#[inline(always)]
pub(super) fn listen<const SLOT: usize>(buffer: Id) {
    command_buffer::add_completed_handler::<SLOT>(buffer, COMPLETED.id());
}

unsafe extern "C" fn completed(_: *const Block, buffer: Id) {
    if let Some(start) = commits::ended(buffer) {
        command_buffer::left(buffer, start);
    }
    // One that does not say how it ended is over all the same.
    let result = match command_buffer::status(buffer) as u16 {
        0 => status::COMPLETED,
        said => said,
    };
    tell(buffer as u64, buffer, 0, result, devices::number(buffer));
}

/// A thread that is stopped between two clocks reads them at two moments. More than this between them, and they are read again.
const APART_NS: u64 = 2_000;
const MOST_READINGS: usize = 8;

/// One moment in the segment's ticks and in ns of mach_absolute_time, and how long its reading took.
pub(super) fn one_moment() -> (u64, u64, u64) {
    let (mut least, mut found) = (u64::MAX, (0, 0, 0));
    for _ in 0..MOST_READINGS {
        let before = sys::clock_ns(sys::MONOTONIC);
        let now = session::now();
        let apart = sys::clock_ns(sys::MONOTONIC).saturating_sub(before);
        if apart < least {
            (least, found) = (apart, (now, before.saturating_add(apart / 2), apart));
        }
        if apart <= APART_NS {
            break;
        }
    }
    found
}

/// Writes the times of a command buffer, or of Metal 4's feedback, which has the same properties.
pub(super) fn tell(key: u64, times: Id, flags: u16, result: u16, context: u16) {
    let Some(state) = thread::state_slow().filter(|state| !state.is_paused()) else { return };
    let (now, moment, _) = one_moment();
    let is_feedback = flags & FLAG_NUMBERED != 0;
    gpu_clock::at_end(if is_feedback { core::ptr::null_mut() } else { times }, context, moment);
    let ns = |seconds: f64| (seconds * 1e9) as u64;
    let [start, end] = [send!(times, "GPUStartTime"; f64), send!(times, "GPUEndTime"; f64)].map(ns);
    // Feedback does not have it, nor has each layer's command buffer.
    let scheduled = if !is_feedback { ns(send!(times, "kernelEndTime"; f64)) } else { 0 };
    let scheduling = match scheduled {
        0 => UNSCHEDULED,
        end => end.saturating_sub(ns(send!(times, "kernelStartTime"; f64))),
    };
    // What failed before the GPU took it has no times.
    let [start, end] = if start == 0 { [0, 0] } else { [start, end].map(|at| moment.wrapping_sub(at)) };
    let event = Event {
        hook: KIND_GPU_TIMES,
        start: now,
        end: now,
        context,
        flags,
        result,
        payload: [key, start, end, scheduling],
        ..Event::default()
    };
    if !state.write_apart(event) {
        state.header().notes.fetch_or(note::METAL_TIMES_LOST, Ordering::Relaxed);
    }
}
