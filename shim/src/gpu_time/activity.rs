//! What CUPTI tells beside the GPU's work, as far as the user asked for it: its own overhead, waits, and pages of managed memory
//! that moved. Whatever becomes of it, kernels are recorded.
//!
//! Overhead costs nothing to speak of and changes nothing. The others do, and for as long as the process uses CUPTI, whether they
//! are switched off or not, so that they are asked for on purpose, and for the whole run only (measured on an H200 with CUDA 13.0):
//! waits make CUPTI number calls that it does not number else, and each wait dearer by 0.1 to 0.2 us; to follow managed memory takes 20
//! ms at its first allocation, each flush takes 10 to 20 ms then, and to switch it off 13 ms, or 2 s where there never was any.

use core::ffi::c_void;
use core::sync::atomic::{AtomicU32, Ordering};

use gputrace_abi::activity::{Activity, NONE, kind};
use gputrace_abi::event::text_kind;
use gputrace_abi::gpu::state;

use super::library::{Counter, Cupti};
use super::records::Record;
use super::teller::Teller;
use super::{END, Mode, mode};
use crate::sys;

const OVERHEAD: u32 = 17;
const UNIFIED_MEMORY: u32 = 25;
const SYNC: u32 = 38;

/// CUPTI's number of each kind, in their order.
const KINDS: [u32; 3] = [OVERHEAD, SYNC, UNIFIED_MEMORY];

/// The kinds that the user asked for, a bit each.
static ASKED: AtomicU32 = AtomicU32::new(0);
/// Those that are on.
static ON: AtomicU32 = AtomicU32::new(0);
/// What CUPTI said to those that it refused last, and those of which that was told.
static REFUSALS: [AtomicU32; KINDS.len()] = [const { AtomicU32::new(0) }; KINDS.len()];
static TOLD: AtomicU32 = AtomicU32::new(0);

/// Reads what the user asked for: names with commas between them. For the constructor.
pub(super) fn configure() {
    let names = sys::variable(b"GPUTRACE_GPU_ACTIVITY").unwrap_or(b"");
    for (bit, name) in kind::NAMES.iter().enumerate() {
        if names.split(|byte| *byte == b',').any(|asked| asked == name.as_bytes()) {
            ASKED.fetch_or(1 << bit, Ordering::Relaxed);
        }
    }
}

/// Switches on what was asked for. Under the lock.
pub(super) fn switch_on(cupti: &Cupti) {
    for (bit, number) in KINDS.iter().enumerate() {
        let is_asked = ASKED.load(Ordering::Relaxed) & 1 << bit != 0;
        if !is_asked || *number != OVERHEAD && mode() != Mode::Full {
            continue;
        }
        let configured = if *number == UNIFIED_MEMORY { configure_counters(cupti) } else { 0 };
        let result = match configured {
            // SAFETY: one of CUPTI's numbers.
            0 => unsafe { (cupti.enable)(*number) },
            refused => refused,
        };
        match (result, REFUSALS.get(bit)) {
            (0, _) => drop(ON.fetch_or(1 << bit, Ordering::Relaxed)),
            (refused, Some(place)) => place.store(refused, Ordering::Relaxed),
            _ => {}
        }
    }
}

/// Which counters of managed memory are kept, of all devices.
fn configure_counters(cupti: &Cupti) -> u32 {
    const OF_DEVICE: u32 = 1;
    /// CUPTI_ERROR_NOT_SUPPORTED: this library cannot.
    const NOT_SUPPORTED: u32 = 24;
    let Some(configure) = cupti.configure_memory else { return NOT_SUPPORTED };
    // Bytes to the device, to the host and between devices, faults of both, thrashing, throttling, mappings.
    let counters = [1, 2, 3, 4, 5, 6, 7, 8].map(|kind| Counter { scope: OF_DEVICE, kind, device: 0, enable: 1 });
    // SAFETY: it reads so many of them.
    unsafe { configure(counters.as_ptr(), counters.len() as u32) }
}

/// Switches off what is on. Under the lock. At the end of the process managed memory is left to it: that may take 2 s.
pub(super) fn switch_off(cupti: &Cupti) {
    let on = ON.swap(0, Ordering::Relaxed);
    let ends = END.load(Ordering::Relaxed) != 0;
    for (bit, number) in KINDS.iter().enumerate() {
        if on & 1 << bit != 0 && !(ends && *number == UNIFIED_MEMORY) {
            // SAFETY: a kind that was enabled.
            unsafe { (cupti.disable)(*number) };
        }
    }
}

/// Tells what CUPTI refused, once of each kind.
pub(super) fn tell_refusals(teller: &Teller) {
    for ((bit, place), name) in (0..).zip(&REFUSALS).zip(kind::NAMES) {
        let result = place.load(Ordering::Relaxed);
        if result != 0 && TOLD.fetch_or(1 << bit, Ordering::Relaxed) & 1 << bit == 0 {
            teller.tell(text_kind::GPU_TIME, result.into(), state::KIND_REFUSED, name.as_bytes());
        }
    }
}

/// What a record says. None: of another kind.
///
/// # Safety
/// A record that cuptiActivityGetNextRecord returned, whose buffer is still there. It is read once.
pub(super) unsafe fn read(record: *const u8) -> Option<Activity> {
    let record = Record(record);
    // SAFETY: every record begins with its kind; those of the kinds below have all that is read here, since CUDA 11.8.
    unsafe {
        match record.u32(0) {
            OVERHEAD => Some(overhead(&record)),
            SYNC => Some(Activity {
                start: record.u64(8),
                end: record.u64(16),
                correlation: record.u32(24),
                context: record.u32(28),
                stream: record.u32(32),
                ..Activity::of(kind::SYNC, small(record.u32(4)))
            }),
            UNIFIED_MEMORY => Some(memory(&record)),
            _ => None,
        }
    }
}

/// Numbers of kinds are small; a larger one is none that we know.
fn small(number: u32) -> u8 {
    number.min(0xff) as u8
}

/// # Safety
/// The record is one of overhead.
unsafe fn overhead(record: &Record) -> Activity {
    const THREAD: u32 = 2;
    const DEVICE: u32 = 3;
    const FULL: u32 = 6 << 16;
    // SAFETY: the caller's promise.
    unsafe {
        let number = record.u32(4);
        let what = if number >> 16 == 0 { small(number) } else { small((number >> 16) + 1) };
        let mut activity =
            Activity { start: record.u64(24), end: record.u64(32), ..Activity::of(kind::OVERHEAD, what) };
        match record.u32(8) {
            THREAD => activity.thread = record.u32(16),
            // Of a device, context or stream.
            object if object >= DEVICE => {
                (activity.device, activity.context, activity.stream) = (record.u32(12), NONE, NONE);
                if object > DEVICE {
                    activity.context = record.u32(16);
                }
                if object > DEVICE + 1 {
                    activity.stream = record.u32(20);
                }
            }
            _ => {}
        }
        // The versions that tell of full queues append the call, and details that whoever reads them must free.
        if number == FULL {
            activity.correlation = record.u32(40);
            // As CUPTI itself would: by the free that the process has, which is ours where we follow its blocks.
            libc::free(record.u64(48) as *mut c_void);
        }
        activity
    }
}

/// # Safety
/// The record is one of unified memory.
unsafe fn memory(record: &Record) -> Activity {
    const TO_HOST: u32 = 2;
    const CPU_FAULT: u32 = 3;
    const GPU_FAULT: u32 = 4;
    const THRASHING: u32 = 5;
    const THROTTLING: u32 = 6;
    const REMOTE_MAP: u32 = 7;
    // SAFETY: the caller's promise.
    unsafe {
        let what = record.u32(4);
        let (source, destination) = (record.u32(40), record.u32(44));
        Activity {
            why: small(record.u32(56)),
            start: record.u64(16),
            // What stands there for a moment means nothing.
            end: if matches!(what, CPU_FAULT | THRASHING | REMOTE_MAP) { 0 } else { record.u64(24) },
            device: match what {
                TO_HOST | GPU_FAULT | THROTTLING => source,
                CPU_FAULT | THRASHING => NONE,
                _ => destination,
            },
            amount: match what {
                // There it is an address in the program.
                CPU_FAULT => 1,
                THROTTLING => 0,
                _ => record.u64(8),
            },
            address: record.u64(32),
            ..Activity::of(kind::UNIFIED_MEMORY, small(what))
        }
    }
}
