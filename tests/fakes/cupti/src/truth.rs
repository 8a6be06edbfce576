//! What really happened: the calls of this library in their order, and what became of records.
//!
//! Written at exit to the file that FAKE_CUPTI_TRUTH names: `{"pid", "calls": [{"function", "argument", "ns", "tid",
//! "result"}], "delivered", "dropped", "kinds"}`, the last of them how many records of each kind were delivered. The argument is the kind, flag or switch of the call; times are those since the
//! Unix epoch, when the call began. Functions that only ask are left out. A fork child that made no call writes nothing.

use crate::clock::now;
use crate::config::config;
use crate::kinds;
use std::fmt::Write;
use std::sync::Mutex;
use std::sync::atomic::{AtomicU32, AtomicUsize, Ordering::Relaxed};

/// A call in progress.
pub(crate) struct Call {
    function: &'static str,
    argument: u64,
    begin: u64,
}

struct Ended {
    call: Call,
    tid: i32,
    result: u32,
}

const MOST_CALLS: usize = 1 << 16;
static CALLS: Mutex<Vec<Ended>> = Mutex::new(Vec::new());
/// The process of the last call.
static CALLER: AtomicU32 = AtomicU32::new(0);
static DELIVERED: AtomicUsize = AtomicUsize::new(0);
static KINDS: [AtomicUsize; kinds::LAST as usize + 1] = [const { AtomicUsize::new(0) }; kinds::LAST as usize + 1];
static DROPPED: AtomicUsize = AtomicUsize::new(0);

pub(crate) fn call(function: &'static str, argument: u64) -> Call {
    Call { function, argument, begin: now() }
}

impl Call {
    pub(crate) fn ended(self, result: u32) {
        if config().truth.is_none() || self.function.starts_with("cuptiGet") || self.function.contains("GetNext") {
            return;
        }
        CALLER.store(std::process::id(), Relaxed);
        let mut calls = CALLS.lock().unwrap_or_else(|e| e.into_inner());
        if calls.len() < MOST_CALLS {
            calls.push(Ended { call: self, tid: unsafe { libc::gettid() }, result });
        }
    }
}

pub(crate) fn delivered<'a>(records: impl Iterator<Item = &'a [u8]>) {
    for record in records {
        DELIVERED.fetch_add(1, Relaxed);
        let kind = record.first_chunk().map_or(0, |kind| u32::from_ne_bytes(*kind));
        if let Some(count) = KINDS.get(kind as usize) {
            count.fetch_add(1, Relaxed);
        }
    }
}

pub(crate) fn dropped(records: usize) {
    DROPPED.fetch_add(records, Relaxed);
}

#[used]
#[unsafe(link_section = ".fini_array")]
static AT_EXIT: extern "C" fn() = finished;

extern "C" fn finished() {
    let Some(path) = &config().truth else { return };
    if CALLER.load(Relaxed) != std::process::id() {
        return;
    }
    let path = path.replace("%p", &std::process::id().to_string());
    if let Err(error) = std::fs::write(&path, json()) {
        eprintln!("fake-cupti: {path}: {error}");
    }
}

fn json() -> String {
    let mut time = libc::timespec { tv_sec: 0, tv_nsec: 0 };
    unsafe { libc::clock_gettime(libc::CLOCK_REALTIME, &mut time) };
    let epoch = time.tv_sec as i128 * 1_000_000_000 + time.tv_nsec as i128 - now() as i128;
    let mut text = format!("{{\"pid\":{},\"calls\":[", std::process::id());
    for (i, ended) in CALLS.lock().unwrap_or_else(|e| e.into_inner()).iter().enumerate() {
        let Call { function, argument, begin } = ended.call;
        let _ = write!(
            text,
            "{}\n{{\"function\":\"{function}\",\"argument\":{argument},\"ns\":{},\"tid\":{},\"result\":{}}}",
            if i == 0 { "" } else { "," },
            begin as i128 + epoch,
            ended.tid,
            ended.result,
        );
    }
    let delivered = KINDS.iter().map(|count| count.load(Relaxed)).enumerate().filter(|(_, count)| *count > 0);
    let kinds: Vec<String> = delivered.map(|(kind, count)| format!("\"{kind}\":{count}")).collect();
    let (delivered, dropped) = (DELIVERED.load(Relaxed), DROPPED.load(Relaxed));
    let _ = writeln!(text, "],\"delivered\":{delivered},\"dropped\":{dropped},\"kinds\":{{{}}}}}", kinds.join(","));
    text
}
