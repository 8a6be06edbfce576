//! What really happened: outermost calls of every exported function, and every operation of the device.
//!
//! Each operation of the device has the time and the thread of its call, so that a trace's calls can be joined with it.
//!
//! The counts are read through `fakeCudaCounters`, or from the file that FAKE_CUDA_TRUTH names, which is written when
//! the process exits (not by `_exit`, and not by a fork child that made no call of its own).

use crate::config::{arm, config, injected_count};
use crate::launch::Geometry;
use crate::state::{Cause, Driver, locked};
use crate::table::entries;
use crate::timeline::now;
use crate::work::Span;
use std::cell::Cell;
use std::ffi::{CString, c_char, c_void};
use std::fmt::Write;
use std::sync::Mutex;
use std::sync::atomic::Ordering::Relaxed;

struct Record {
    kind: &'static str,
    name: String,
    stream: u64,
    device: usize,
    start: u64,
    end: u64,
    bytes: u64,
    issued: u64,
    tid: i32,
    geometry: Option<Geometry>,
}

const MOST_RECORDS: usize = 1_000_000;
static RECORDS: Mutex<Vec<Record>> = Mutex::new(Vec::new());

thread_local! {
    static TID: Cell<i32> = const { Cell::new(0) };
}

/// The calling thread, where the truth will be told.
pub(crate) fn tid() -> i32 {
    if config().truth.is_none() {
        return 0;
    }
    if TID.get() == 0 {
        TID.set(unsafe { libc::gettid() });
    }
    TID.get()
}

/// Notes one operation of the device, of the call that is the driver's current cause.
pub(crate) fn device(
    driver: &Driver,
    kind: &'static str,
    name: &str,
    span: Span,
    bytes: u64,
    geometry: Option<&Geometry>,
) {
    if config().truth.is_none() {
        return;
    }
    let Span { stream, start, end, .. } = span;
    let (raw, device) = driver.streams.get(stream).map_or((stream, 0), |s| (s.raw.unwrap_or(stream), s.device));
    let mut records = RECORDS.lock().unwrap_or_else(|e| e.into_inner());
    if records.len() < MOST_RECORDS {
        let Cause { issued_ns: issued, tid, .. } = driver.cause;
        let (name, geometry) = (name.to_owned(), geometry.copied());
        records.push(Record { kind, name, stream: raw, device, start, end, bytes, issued, tid, geometry });
    }
}

/// A fork child starts with nothing done.
pub(crate) fn forget() {
    entries().for_each(|entry| entry.calls.count.store(0, Relaxed));
    if let Ok(mut records) = RECORDS.try_lock() {
        records.clear();
    }
    TID.set(0);
}

/// Calls `each` with every exported function's name and the number of its outermost calls so far.
#[unsafe(no_mangle)]
extern "C" fn fakeCudaCounters(each: extern "C" fn(*const c_char, u64, *mut c_void), user: *mut c_void) {
    for entry in entries() {
        if let Ok(name) = CString::new(entry.symbol) {
            each(name.as_ptr(), entry.calls.count.load(Relaxed), user);
        }
    }
}

type EachFunction = extern "C" fn(*const c_char, *const c_char, u32, u64, *mut c_void);

/// Calls `each` with every exported function's symbol, and the name, version and flags for which cuGetProcAddress
/// gives it.
#[unsafe(no_mangle)]
extern "C" fn fakeCudaFunctions(each: EachFunction, user: *mut c_void) {
    for entry in entries() {
        if let (Ok(symbol), Ok(base)) = (CString::new(entry.symbol), CString::new(entry.base)) {
            each(symbol.as_ptr(), base.as_ptr(), entry.since, if entry.per_thread { 2 } else { 0 }, user);
        }
    }
}

#[used]
#[unsafe(link_section = ".init_array")]
static AT_LOAD: extern "C" fn() = loaded;

#[used]
#[unsafe(link_section = ".fini_array")]
static AT_EXIT: extern "C" fn() = finished;

extern "C" fn loaded() {
    arm();
    unsafe { libc::pthread_atfork(None, None, Some(crate::state::forked)) };
}

extern "C" fn finished() {
    let Some(path) = &config().truth else { return };
    if entries().all(|entry| entry.calls.count.load(Relaxed) == 0) {
        return;
    }
    let path = path.replace("%p", &std::process::id().to_string());
    if let Err(error) = std::fs::write(&path, json()) {
        eprintln!("fake-cuda: {path}: {error}");
    }
}

/// Nanoseconds to add to our clock to get those since the Unix epoch.
fn epoch_offset() -> i128 {
    let mut time = libc::timespec { tv_sec: 0, tv_nsec: 0 };
    unsafe { libc::clock_gettime(libc::CLOCK_REALTIME, &mut time) };
    time.tv_sec as i128 * 1_000_000_000 + time.tv_nsec as i128 - now() as i128
}

fn json() -> String {
    let mut text = format!("{{\"pid\":{},\"calls\":{{", std::process::id());
    let mut first = true;
    for entry in entries() {
        let count = entry.calls.count.load(Relaxed);
        if count > 0 {
            let _ = write!(text, "{}\"{}\":{count}", if first { "" } else { "," }, entry.symbol);
            first = false;
        }
    }
    text.push_str("},\"device\":[");
    let offset = epoch_offset();
    // A fork's child has done nothing on a device, and waits for no lock that a thread of its parent held.
    let child = crate::state::is_child();
    let records = if child { None } else { Some(RECORDS.lock().unwrap_or_else(|e| e.into_inner())) };
    for (i, record) in records.iter().flat_map(|records| records.iter()).enumerate() {
        let _ = write!(
            text,
            "{}\n{{\"kind\":\"{}\",\"name\":\"{}\",\"stream\":{},\"device\":{},\"start_ns\":{},\"end_ns\":{},\"bytes\":{},\"issued_ns\":{},\"tid\":{}",
            if i == 0 { "" } else { "," },
            record.kind,
            escaped(&record.name),
            record.stream,
            record.device,
            record.start as i128 + offset,
            record.end as i128 + offset,
            record.bytes,
            record.issued as i128 + offset,
            record.tid,
        );
        if let Some(Geometry { grid, block, shared }) = record.geometry {
            let _ = write!(text, ",\"grid\":{grid:?},\"block\":{block:?},\"shared_bytes\":{shared}");
        }
        text.push('}');
    }
    drop(records);
    let driver = if child { crate::state::locked_if_free() } else { Some(locked()) };
    let (used, peak) = driver.map_or((0, 0), |driver| driver.memory.used_and_peak());
    let _ = writeln!(text, "],\"allocated\":{used},\"peak\":{peak},\"injected\":{}}}", injected_count());
    text
}

fn escaped(name: &str) -> String {
    name.chars().map(|c| if c == '"' || c == '\\' || c.is_control() { '_' } else { c }).collect()
}
