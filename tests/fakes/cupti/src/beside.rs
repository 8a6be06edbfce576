//! Records beside those of the device's work: waits, the library's own overhead, and managed memory.
//!
//! Managed memory: each copy or set into it is one fault of the device, and moves its bytes there; each copy out of it is one
//! fault of the host, and moves them back.

use crate::clock::{now, recorded};
use crate::codes::{INVALID_PARAMETER, SUCCESS};
use crate::config::config;
use crate::delivery;
use crate::kinds;
use crate::observed::{Operation, Wait, memory, wait};
use crate::observer::is_enabled;
use crate::record::{Bytes, Record, stream};
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering::Relaxed};

/// Stands for what does not apply.
const NONE: u32 = u32::MAX;

/// Kinds of overhead.
pub(crate) const FLUSH: u32 = 1 << 16;
pub(crate) const REQUEST: u32 = 7 << 16;
const INSTRUMENTATION: u32 = 2 << 16;
const QUEUE_FULL: u32 = 6 << 16;

/// Bytes of what a record of a full queue says beside.
const DETAIL_BYTES: usize = 54_321;

static CONFIGURED: AtomicBool = AtomicBool::new(false);

fn add(bytes: Bytes) {
    delivery::add(Record { stream: 0, bytes: bytes.0 });
}

/// A call has waited.
pub(crate) fn waited(of: &Wait) {
    if !is_enabled(kinds::SYNCHRONIZATION) {
        return;
    }
    let (has_stream, has_event) = match of.kind {
        wait::EVENT => (false, true),
        wait::STREAM_EVENT => (true, true),
        wait::STREAM => (true, false),
        wait::CONTEXT => (false, false),
        // A record of an event is only numbered.
        _ => {
            debug_assert_eq!(of.kind, wait::RECORD);
            return;
        }
    };
    let record = Bytes::new(kinds::SYNCHRONIZATION)
        .with(4, of.kind)
        .with(8, recorded(of.start_ns))
        .with(16, recorded(of.end_ns))
        .with(24, of.tag as u32)
        .with(28, of.context)
        .with(32, if has_stream { stream(of.legacy, of.context, of.stream) } else { NONE })
        .with(36, if has_event { 1 } else { NONE });
    add(record);
}

/// The library itself has taken from a thread's time until now; whether that is told.
pub(crate) fn overhead(what: u32, start_ns: u64) -> bool {
    let is_told = is_enabled(kinds::OVERHEAD);
    if is_told {
        add(of_thread(what, start_ns));
    }
    is_told
}

fn of_thread(what: u32, start_ns: u64) -> Bytes {
    const THREAD: u32 = 2;
    Bytes::new(kinds::OVERHEAD)
        .with(4, what)
        .with(8, THREAD)
        .with(12, std::process::id())
        .with(16, unsafe { libc::pthread_self() } as u32)
        .with(24, recorded(start_ns))
        .with(32, recorded(now()))
}

/// A launch of this number was made while kernels are enabled.
pub(crate) fn launched(number: u32) {
    static LAUNCHES: AtomicU64 = AtomicU64::new(0);
    if !is_enabled(kinds::OVERHEAD) {
        return;
    }
    let (nth, start_ns) = (LAUNCHES.fetch_add(1, Relaxed) + 1, now());
    if nth == 1 {
        add(of_thread(INSTRUMENTATION, start_ns));
    }
    let every = config().queue_full;
    let record = of_thread(QUEUE_FULL, start_ns);
    if every > 0 && nth.is_multiple_of(every) && record.0.len() >= 56 {
        // Of a size that a test finds again.
        let details = unsafe { libc::malloc(DETAIL_BYTES) };
        add(record.with(40, number).with(48, details as u64));
    }
}

/// An operation of the device has ended.
pub(crate) fn moved(of: &Operation) {
    if !is_enabled(kinds::UNIFIED_MEMORY_COUNTER) || of.bytes == 0 {
        return;
    }
    const TO_DEVICE: u32 = 1;
    const TO_HOST: u32 = 2;
    const HOST_FAULT: u32 = 3;
    const DEVICE_FAULT: u32 = 4;
    const FAULT: u32 = 2;
    const WRITE: u32 = 2;
    let record = |what: u32, value: u64, flags: u32, end: u64| {
        let bytes = Bytes::new(kinds::UNIFIED_MEMORY_COUNTER)
            .with(4, what)
            .with(8, value)
            .with(16, recorded(of.start_ns))
            .with(24, end)
            .with(32, of.bytes << 20) // some address
            .with(40, of.device)
            .with(44, of.device)
            .with(52, std::process::id())
            .with(56, flags);
        add(bytes);
    };
    let end = recorded(of.end_ns);
    if of.target.memory == memory::MANAGED {
        record(DEVICE_FAULT, 1, WRITE, end);
        record(TO_DEVICE, of.bytes, FAULT, end);
    }
    if of.source.memory == memory::MANAGED {
        record(HOST_FAULT, 0x40_1000, 0, 0u64.wrapping_sub(of.start_ns));
        record(TO_HOST, of.bytes, FAULT, end);
    }
}

/// What is to be told of managed memory.
pub(crate) fn configure(counters: *const u32, count: u32) -> u32 {
    if counters.is_null() || count == 0 {
        return INVALID_PARAMETER;
    }
    CONFIGURED.store(true, Relaxed);
    SUCCESS
}

/// Whether that was said.
pub(crate) fn is_configured() -> bool {
    CONFIGURED.load(Relaxed)
}
