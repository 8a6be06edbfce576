//! The environment that steers the stand-in, read once.
//!
//! | variable | meaning | default |
//! |---|---|---|
//! | FAKE_CUPTI_VERSION | whose layouts and API version: 11.8, 12.1, 12.4, 12.6, 12.8, 13.0 or 13.5 | 13.0 |
//! | FAKE_CUPTI_OFFSET_NS | how far the device's clock is ahead of CLOCK_MONOTONIC | 1 000 000 000 000 |
//! | FAKE_CUPTI_DRIFT_PPM | how much faster the device's clock runs, in millionths; may be negative | 0 |
//! | FAKE_CUPTI_FAIL | `function:result`, separated by commas: each call of it gives the result and does nothing | none |
//! | FAKE_CUPTI_DROP | N: every Nth record is dropped and counted | 0, none |
//! | FAKE_CUPTI_INVALID | N: every Nth record has start and end 0 | 0, none |
//! | FAKE_CUPTI_SHUFFLE | 1: a buffer has the records of a later stream before those of an earlier one | 0 |
//! | FAKE_CUPTI_COST_NS | a launch or graph launch takes the host so much longer while kernels are enabled | 0 |
//! | FAKE_CUPTI_IDLE_NS | a launch or graph launch takes the host so much longer from the first enable until cuptiFinalize | 0 |
//! | FAKE_CUPTI_FIRST_ENABLE_MS | the first cuptiActivityEnable, and the first after cuptiFinalize, takes that long | 0 |
//! | FAKE_CUPTI_FIRST_LAUNCH_MS | the first launch while kernels are enabled takes that long | 0 |
//! | FAKE_CUPTI_FLUSH_MS | each cuptiActivityFlushAll takes that long | 0 |
//! | FAKE_CUPTI_BUFFER_MS | to fill a buffer takes that long | 0 |
//! | FAKE_CUPTI_BUFFER_RECORDS | N: a buffer takes no more records | 0, as many as fit |
//! | FAKE_CUPTI_REFUSE | the kind whose cuptiActivityEnable gives CUPTI_ERROR_NOT_SUPPORTED | 0, none |
//! | FAKE_CUPTI_QUEUE_FULL | N: every Nth launch finds the queue full, as a record of overhead says (from 12.4 on) | 0, none |
//! | FAKE_CUPTI_TRUTH | file written at exit, `%p` is the process id: `truth.rs` | none |

use crate::layout::{LAYOUTS, Layout};
use std::sync::LazyLock;

pub(crate) struct Config {
    pub(crate) layout: &'static Layout,
    pub(crate) offset_ns: i64,
    pub(crate) drift_ppm: f64,
    failures: Vec<(String, u32)>,
    pub(crate) drop: u64,
    pub(crate) invalid: u64,
    pub(crate) shuffle: bool,
    pub(crate) cost_ns: u64,
    pub(crate) idle_ns: u64,
    pub(crate) first_enable_ms: u64,
    pub(crate) first_launch_ms: u64,
    pub(crate) flush_ms: u64,
    pub(crate) buffer_ms: u64,
    pub(crate) buffer_records: usize,
    pub(crate) refused: u64,
    pub(crate) queue_full: u64,
    pub(crate) truth: Option<String>,
}

static CONFIG: LazyLock<Config> = LazyLock::new(|| Config {
    layout: layout(&text("FAKE_CUPTI_VERSION").unwrap_or_else(|| "13.0".to_owned())),
    offset_ns: parsed("FAKE_CUPTI_OFFSET_NS").unwrap_or(1_000_000_000_000),
    drift_ppm: parsed("FAKE_CUPTI_DRIFT_PPM").unwrap_or(0.0),
    failures: failures(&text("FAKE_CUPTI_FAIL").unwrap_or_default()),
    drop: number("FAKE_CUPTI_DROP"),
    invalid: number("FAKE_CUPTI_INVALID"),
    shuffle: number("FAKE_CUPTI_SHUFFLE") != 0,
    cost_ns: number("FAKE_CUPTI_COST_NS"),
    idle_ns: number("FAKE_CUPTI_IDLE_NS"),
    first_enable_ms: number("FAKE_CUPTI_FIRST_ENABLE_MS"),
    first_launch_ms: number("FAKE_CUPTI_FIRST_LAUNCH_MS"),
    flush_ms: number("FAKE_CUPTI_FLUSH_MS"),
    buffer_ms: number("FAKE_CUPTI_BUFFER_MS"),
    buffer_records: number("FAKE_CUPTI_BUFFER_RECORDS") as usize,
    refused: number("FAKE_CUPTI_REFUSE"),
    queue_full: number("FAKE_CUPTI_QUEUE_FULL"),
    truth: text("FAKE_CUPTI_TRUTH").filter(|path| !path.is_empty()),
});

pub(crate) fn config() -> &'static Config {
    &CONFIG
}

/// The result that a function was chosen to fail with.
pub(crate) fn failure(function: &str) -> Option<u32> {
    config().failures.iter().find(|(name, _)| name == function).map(|(_, result)| *result)
}

fn text(name: &str) -> Option<String> {
    std::env::var(name).ok()
}

fn parsed<T: std::str::FromStr>(name: &str) -> Option<T> {
    text(name).and_then(|value| value.trim().parse().ok())
}

fn number(name: &str) -> u64 {
    parsed(name).unwrap_or(0)
}

fn layout(version: &str) -> &'static Layout {
    let found = LAYOUTS.iter().find(|layout| layout.version == version);
    found.unwrap_or_else(|| {
        eprintln!("fake-cupti: FAKE_CUPTI_VERSION: cannot use {version:?}");
        &LAYOUTS[0]
    })
}

fn failures(list: &str) -> Vec<(String, u32)> {
    let items = list.split(',').map(str::trim).filter(|item| !item.is_empty());
    let parsed = items.filter_map(|item| {
        let failure = item.split_once(':').and_then(|(name, result)| Some((name.to_owned(), result.parse().ok()?)));
        if failure.is_none() {
            eprintln!("fake-cupti: FAKE_CUPTI_FAIL: cannot use {item:?}");
        }
        failure
    });
    parsed.collect()
}
