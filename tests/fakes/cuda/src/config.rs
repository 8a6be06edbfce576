//! The environment that steers the simulation, read once when the library is loaded.
//!
//! | variable | meaning | default |
//! |---|---|---|
//! | FAKE_CUDA_VERSION | what cuDriverGetVersion answers; newer functions are not handed out | 13000 |
//! | FAKE_CUDA_DEVICES | number of devices, 0 to 8 | 1 |
//! | FAKE_CUDA_MEM | bytes of memory of each device | 8 GiB |
//! | FAKE_CUDA_GBPS | bandwidth between host and device in GB/s; device to device is 100 times faster | 10 |
//! | FAKE_CUDA_KERNEL_US | duration of a kernel whose name holds no `spin_us_N` | 5 |
//! | FAKE_CUDA_INSTANT | 1: every duration is zero | 0 |
//! | FAKE_CUDA_FAIL | `function:nth call:result`, separated by commas | none |
//! | FAKE_CUDA_TRUTH | file written at exit, `%p` is the process id | none |
//! | FAKE_CUDA_LOG | 1: what cuGetProcAddress and cuGetExportTable are asked for, on stderr | 0 |

use crate::table::{Calls, Code, entries};
use std::sync::Mutex;
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};
use std::sync::{LazyLock, Once};

pub(crate) struct Config {
    pub(crate) version: u32,
    pub(crate) devices: i32,
    pub(crate) memory: u64,
    pub(crate) bytes_per_ns: f64,
    pub(crate) kernel_ns: u64,
    pub(crate) instant: bool,
    pub(crate) truth: Option<String>,
    pub(crate) log: bool,
}

static CONFIG: LazyLock<Config> = LazyLock::new(|| Config {
    version: number("FAKE_CUDA_VERSION", 13000) as u32,
    devices: number("FAKE_CUDA_DEVICES", 1).min(8) as i32,
    memory: number("FAKE_CUDA_MEM", 8 << 30),
    bytes_per_ns: text("FAKE_CUDA_GBPS").and_then(|v| v.parse().ok()).filter(|v: &f64| *v > 0.0).unwrap_or(10.0),
    kernel_ns: number("FAKE_CUDA_KERNEL_US", 5) * 1000,
    instant: number("FAKE_CUDA_INSTANT", 0) != 0,
    truth: text("FAKE_CUDA_TRUTH").filter(|path| !path.is_empty()),
    log: number("FAKE_CUDA_LOG", 0) != 0,
});

/// A failure to be injected: function, nth call, result.
static FAILURES: Mutex<Vec<(String, u64, Code)>> = Mutex::new(Vec::new());
static INJECTED: AtomicU64 = AtomicU64::new(0);

pub(crate) fn config() -> &'static Config {
    &CONFIG
}

fn text(name: &str) -> Option<String> {
    std::env::var(name).ok()
}

fn number(name: &str, default: u64) -> u64 {
    text(name).and_then(|v| v.trim().parse().ok()).unwrap_or(default)
}

/// Reads FAKE_CUDA_FAIL and arms the chosen functions.
pub(crate) fn arm() {
    static ONCE: Once = Once::new();
    ONCE.call_once(|| {
        let Some(list) = text("FAKE_CUDA_FAIL") else { return };
        let mut failures = FAILURES.lock().unwrap_or_else(|e| e.into_inner());
        for item in list.split(',').map(str::trim).filter(|item| !item.is_empty()) {
            let mut parts = item.split(':');
            let parsed = (|| {
                let name = parts.next()?.to_owned();
                Some((name, parts.next()?.parse().ok()?, parts.next()?.parse().ok()?))
            })();
            match parsed {
                Some(failure) if entries().any(|e| e.symbol == failure.0) => failures.push(failure),
                _ => eprintln!("fake-cuda: FAKE_CUDA_FAIL: cannot use {item:?}"),
            }
        }
        for entry in entries() {
            rearm(entry.calls, entry.symbol, &failures);
        }
    });
}

/// The next failure of one function that has not happened yet.
fn rearm(calls: &Calls, symbol: &str, failures: &[(String, u64, Code)]) {
    let seen = calls.count.load(Relaxed);
    let next = failures.iter().filter(|f| f.0 == symbol && f.1 > seen).min_by_key(|f| f.1);
    calls.fail_with.store(next.map_or(0, |f| f.2), Relaxed);
    calls.fail_at.store(next.map_or(u64::MAX, |f| f.1), Relaxed);
}

/// The result of a call that was chosen to fail; arms the function's next failure.
#[cold]
pub(crate) fn injected(calls: &'static Calls, symbol: &'static str) -> Code {
    let code = calls.fail_with.load(Relaxed);
    INJECTED.fetch_add(1, Relaxed);
    rearm(calls, symbol, &FAILURES.lock().unwrap_or_else(|e| e.into_inner()));
    code
}

/// How many calls failed because FAKE_CUDA_FAIL said so.
pub(crate) fn injected_count() -> u64 {
    INJECTED.load(Relaxed)
}
