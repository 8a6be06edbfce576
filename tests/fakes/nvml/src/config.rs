//! The environment that steers the stand-in, read once.
//!
//! | variable | meaning | default |
//! |---|---|---|
//! | FAKE_NVML_FAIL | `function:result`, separated by commas: each call of it gives the result and does nothing | none |
//! | FAKE_NVML_WORK | what the devices do: `matmul`, `copy`, `tiny` or `idle`; GPM's values are those measured on an H200 | matmul |
//! | FAKE_NVML_BUSY | so many questions for a device's utilisation are answered as of a busy one, whatever it does | 0 |
//! | FAKE_NVML_REASONS | why clocks are not higher, the sum of the bits | 4, the software's power cap |
//! | FAKE_NVML_XID | a critical Xid error that each device reports once | none |
//! | FAKE_NVML_ECC | uncorrected memory errors | 0 |
//! | FAKE_NVML_LOST_AFTER | N: from the Nth question for its utilisation on, a device is lost | never |
//! | FAKE_NVML_MIG | 1: the devices are MIG instances | 0 |
//! | FAKE_NVML_VIRTUAL | 1: the devices are virtual GPUs of a hypervisor, and older than GPM | 0 |
//! | FAKE_NVML_STARTED | file that is made when somebody initialises NVML, also when that fails | none |
//! | FAKE_NVML_READ | file that is made when a device has been asked for its memory so many times as the next says, or is lost | none |
//! | FAKE_NVML_READINGS | how often that is | 3 |
//! | FAKE_NVML_ALONE | 1: a function takes a moment, and whoever calls one meanwhile is aborted: an H200's driver died so | 0 |

use std::sync::LazyLock;
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::Duration;

pub(crate) struct Config {
    failures: Vec<(String, u32)>,
    pub(crate) work: String,
    pub(crate) busy: u64,
    pub(crate) reasons: u64,
    pub(crate) xid: Option<u64>,
    pub(crate) ecc: u64,
    pub(crate) lost_after: Option<u64>,
    pub(crate) mig: bool,
    pub(crate) virtual_gpu: bool,
    pub(crate) started: Option<String>,
    pub(crate) read: Option<String>,
    pub(crate) readings: u64,
    alone: bool,
}

static CONFIG: LazyLock<Config> = LazyLock::new(|| Config {
    failures: failures(&text("FAKE_NVML_FAIL").unwrap_or_default()),
    work: text("FAKE_NVML_WORK").unwrap_or_else(|| "matmul".to_owned()),
    busy: number("FAKE_NVML_BUSY").unwrap_or(0),
    reasons: number("FAKE_NVML_REASONS").unwrap_or(4),
    xid: number("FAKE_NVML_XID"),
    ecc: number("FAKE_NVML_ECC").unwrap_or(0),
    lost_after: number("FAKE_NVML_LOST_AFTER"),
    mig: number("FAKE_NVML_MIG") == Some(1),
    virtual_gpu: number("FAKE_NVML_VIRTUAL") == Some(1),
    started: text("FAKE_NVML_STARTED"),
    read: text("FAKE_NVML_READ"),
    readings: number("FAKE_NVML_READINGS").unwrap_or(3),
    alone: number("FAKE_NVML_ALONE") == Some(1),
});

pub(crate) fn config() -> &'static Config {
    &CONFIG
}

static INSIDE: AtomicU32 = AtomicU32::new(0);

/// A call, for as long as it lasts.
pub(crate) struct Inside;

/// A call begins, which may have to be the only one.
pub(crate) fn enter() -> Option<Inside> {
    config().alone.then(|| {
        if INSIDE.fetch_add(1, Ordering::SeqCst) > 0 {
            eprintln!("two threads are in NVML at once");
            std::process::abort();
        }
        std::thread::sleep(Duration::from_millis(1));
        Inside
    })
}

impl Drop for Inside {
    fn drop(&mut self) {
        INSIDE.fetch_sub(1, Ordering::SeqCst);
    }
}

/// Makes a file, for whoever waits for it.
pub(crate) fn make(file: Option<&String>) {
    if let Some(file) = file {
        let _ = std::fs::write(file, "");
    }
}

/// The result that a function was chosen to fail with.
pub(crate) fn failure(function: &str) -> Option<u32> {
    config().failures.iter().find(|(name, _)| name == function).map(|(_, result)| *result)
}

fn failures(text: &str) -> Vec<(String, u32)> {
    let one = |part: &str| Some((part.split_once(':')?.0.to_owned(), part.split_once(':')?.1.parse().ok()?));
    text.split(',').filter_map(one).collect()
}

fn text(name: &str) -> Option<String> {
    std::env::var(name).ok().filter(|text| !text.is_empty())
}

fn number(name: &str) -> Option<u64> {
    text(name)?.parse().ok()
}
