//! A week in minutes: `cargo run --release -p gputrace-collectors --example week [events] [seconds]`.
//!
//! One process launches kernels without a pause through a clock that runs so fast that a week passes in so many seconds (1,000,000,000
//! events and 300 seconds unless told): `--max-age 3d --keep-detail 24h`, files of ten minutes, sums a second. Each half day
//! it prints what the collector holds: memory, descriptors, mappings, and the trace's bytes and files. Nothing of it may
//! grow once the limits are reached. Nothing is dropped: the writer waits for room.

#[path = "../tests/support/mod.rs"]
mod support;

use std::path::Path;
use std::time::{Duration, Instant};

use gputrace_abi::event::{Event, text_kind};
use gputrace_abi::layout::malloc_mode;
use gputrace_collectors::{Config, start};
use support::{Folder, Memory, Target, hook};

/// Seconds of a week.
const WEEK: u64 = 7 * 86_400;
const DAY: Duration = Duration::from_secs(86_400);
/// Lines that are printed.
const LINES: u64 = 14;
/// Kernels, each launched as often as any other.
const KERNELS: u64 = 60;

fn main() {
    let number = |n: usize| std::env::args().nth(n).map(|text| text.parse::<u64>().expect("a number"));
    let (events, seconds) = (number(1).unwrap_or(1_000_000_000), number(2).unwrap_or(300));
    let folder = Folder::new("week");
    let mut config = Config::new(folder.trace(), folder.session(), "bench".to_owned(), 1);
    config.speed = u32::try_from(WEEK.div_ceil(seconds)).expect("a second or more");
    (config.max_age, config.keep_detail) = (Some(3 * DAY), Some(DAY));
    config.file_age = Duration::from_secs(600) / config.speed;
    let running = start(config).expect("a collector");
    let target = Target::with(&folder.session(), Memory::monotonic(16 << 20, malloc_mode::OFF));
    target.wait_until_read();
    let mut thread = target.thread(1);
    thread.context(1, 0);
    (0..KERNELS).for_each(|kernel| thread.text(text_kind::FUNCTION, 0x5500 + kernel, 0, &format!("kernel {kernel}")));
    println!(
        "{:>6} {:>13} {:>8} {:>5} {:>9} {:>10} {:>6}",
        "days", "events", "RSS MiB", "fds", "mappings", "disk MiB", "files"
    );
    let begin = Instant::now();
    let mut printed = 0;
    for n in 0..events {
        // As fast as the collector reads, and no faster than the week passes.
        while !thread.reserve(1) {
            std::thread::sleep(Duration::from_micros(200));
        }
        if n % 1024 == 0 {
            let due = Duration::from_secs(seconds).mul_f64(n as f64 / events as f64);
            std::thread::sleep(due.saturating_sub(begin.elapsed()));
        }
        let start = support::monotonic_ns();
        let payload = [0x5500 + n % KERNELS, 0x77, 64, 128];
        thread.event(Event {
            hook: hook("cuLaunchKernel"),
            start,
            end: start + 3,
            context: 1,
            payload,
            ..Event::default()
        });
        if n * LINES / events > printed || n + 1 == events {
            printed = n * LINES / events;
            line(&folder.trace(), begin.elapsed().as_secs_f64() / seconds as f64 * 7.0, n + 1);
        }
    }
    drop(target);
    let manifest = running.finish(None, Instant::now() + Duration::from_secs(60)).expect("a trace");
    let count = manifest.processes[0].accounting["launch"];
    println!(
        "seen {} recorded {} dropped {} balanced {}",
        count.seen,
        count.recorded,
        count.dropped,
        count.is_balanced()
    );
    for removed in &manifest.removed {
        let hours = (removed.to_ns - removed.from_ns) / 3_600_000_000_000;
        println!("{}: {} rows of {hours} h removed for {}", removed.table, removed.rows, removed.limit);
    }
}

fn line(trace: &Path, days: f64, events: u64) {
    let entries = |of: &str| std::fs::read_dir(of).map_or(0, Iterator::count);
    let status = std::fs::read_to_string("/proc/self/status").unwrap_or_default();
    let rss =
        status.lines().find_map(|line| line.strip_prefix("VmRSS:")?.split_whitespace().next()?.parse::<u64>().ok());
    let mappings = std::fs::read_to_string("/proc/self/maps").map_or(0, |maps| maps.lines().count());
    let (bytes, files) = support::size(trace);
    let (rss, fds) = (rss.unwrap_or(0) >> 10, entries("/proc/self/fd"));
    println!(
        "{days:>6.2} {events:>13} {rss:>8} {fds:>5} {mappings:>9} {:>10.1} {files:>6}",
        bytes as f64 / f64::from(1 << 20)
    );
}
