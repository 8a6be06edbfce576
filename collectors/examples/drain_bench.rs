//! What the collector costs: `cargo run --release -p gputrace-collectors --example drain_bench [live seconds]`.
//!
//! 1. Drain and encode: threads write launches, synchronisations and copies as fast as the collector takes them; the
//!    figure is events per second of the collector's own processor time.
//! 2. Kernels of graphs: the same of CUPTI's records, a thousand to a launch.
//! 3. Arrivals: processes come and go without an event.
//! 4. Live: one process writes a million events a second; processor time, memory, drops, bytes on disk.

#[path = "../tests/support/mod.rs"]
mod support;

use std::time::{Duration, Instant};

use gputrace_abi::clock::counter;
use gputrace_abi::event::{Event, pack_block, pack_grid, text_kind};
use gputrace_abi::gpu::{WORKS, Work, kind, reason, state};
use gputrace_abi::layout::malloc_mode;
use gputrace_collectors::{Config, start};
use support::{Folder, Memory, Target, Thread, hook};

fn main() {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    let number = |n: usize| arguments.get(n).and_then(|a| a.parse::<u64>().ok());
    match (arguments.first().map(String::as_str), number(1), number(2)) {
        (Some("fast"), Some(events), _) => as_fast_as_possible(events),
        (Some("graphs"), Some(launches), _) => graphs(launches),
        (Some("arrivals"), Some(processes), _) => arrivals(processes),
        (Some("live"), Some(rate), Some(seconds)) => live(rate, seconds),
        _ => {
            // Each part in a process of its own, so that it has its own memory.
            let seconds = number(0).unwrap_or(10).to_string();
            let parts = [["fast", "8000000", "0"], ["graphs", "2000", "0"], ["arrivals", "1000", "0"]];
            let live = ["1000000", "100000", "100"].map(|rate| ["live", rate, &seconds]);
            for part in parts.into_iter().chain(live) {
                let program = std::env::current_exe().unwrap();
                assert!(std::process::Command::new(program).args(part).status().unwrap().success());
            }
        }
    }
}

/// A training step: 400 launches of 60 kernels, a few copies, one wait. Event `n` of it.
fn step(n: u64, start: u64) -> Event {
    let n = n % 412;
    let took = 3000 + (start >> 3) % 700 + if start.is_multiple_of(61) { 20_000 } else { 0 };
    let event = Event { start, end: start + took, context: 1, ..Event::default() };
    match n {
        0..=399 => {
            let kernel = (n * n + n / 7) % 60;
            let grid = pack_grid(64 + (kernel as u32 % 11) * 32, 1, 1);
            let block = pack_block(128 << (kernel % 3), 1, 1, (kernel as u32 % 4) * 1024);
            Event { hook: hook("cuLaunchKernel"), payload: [0x5500_0000 + kernel * 256, 0x77, grid, block], ..event }
        }
        400..=410 => {
            let payload = [0x7f00_0000_0000 + n * 4096, 0x77, 0x5555_0000_1000 + n * 64, 4096 * (n - 399)];
            Event { hook: hook("cuMemcpyAsync"), payload, ..event }
        }
        _ => Event { hook: hook("cuStreamSynchronize"), payload: [0, 0x77, 0, 0], ..event },
    }
}

fn names(thread: &mut Thread<'_>) {
    thread.context(1, 0);
    for kernel in 0..60 {
        let name = format!("_ZN2at6native29vectorized_elementwise_kernelILi4ENS0_{kernel}EEEvi");
        thread.text(text_kind::FUNCTION, 0x5500_0000 + kernel * 256, 0, &name);
    }
}

fn config(folder: &Folder) -> Config {
    Config::new(folder.trace(), folder.session(), "bench".to_owned(), gputrace_collectors::new_launcher_id())
}

/// Processor time of the collector's threads, by their names.
fn collector_cpu() -> f64 {
    let mut total = 0.0;
    for task in std::fs::read_dir("/proc/self/task").unwrap().flatten() {
        let name = std::fs::read_to_string(task.path().join("comm")).unwrap_or_default();
        if name.starts_with("gputrace-") {
            let ns = std::fs::read_to_string(task.path().join("schedstat")).unwrap_or_default();
            total += ns.split(' ').next().and_then(|n| n.parse::<f64>().ok()).unwrap_or(0.0) * 1e-9;
        }
    }
    total
}

fn memory_kib(what: &str) -> u64 {
    let status = std::fs::read_to_string("/proc/self/status").unwrap();
    let line = status.lines().find(|l| l.starts_with(what)).unwrap_or("");
    line.split_whitespace().nth(1).and_then(|n| n.parse().ok()).unwrap_or(0)
}

fn trace_bytes(folder: &Folder) -> u64 {
    let tables = ["launches", "syncs", "transfers"].into_iter();
    let of = |table: &str| -> u64 {
        let hosts = std::fs::read_dir(folder.trace().join(table)).into_iter().flatten().flatten();
        let files = hosts.flat_map(|h| std::fs::read_dir(h.path()).into_iter().flatten().flatten());
        files.map(|f| f.metadata().map_or(0, |m| m.len())).sum()
    };
    tables.map(of).sum()
}

/// Waits until the collector has all that these threads wrote, and has written it.
fn wait_until_read(target: &Target, threads: u32) {
    support::wait_until("everything to be read", || {
        let free = target.memory.view.header().free_chunks.iter();
        let free: u32 = free.map(|w| w.load(gputrace_abi::sync::Ordering::Relaxed).count_ones()).sum();
        free + threads + 1 >= target.memory.view.chunk_count()
    });
    std::thread::sleep(Duration::from_millis(1200));
}

/// A graph of a thousand kernels, launched again and again, and CUPTI's record of each kernel.
fn graphs(launches: u64) {
    const KERNELS: u64 = 1000;
    const KERNEL_NS: u64 = 100;
    let folder = Folder::new("graphs");
    let running = start(config(&folder)).unwrap();
    let target = Target::with(&folder.session(), Memory::new(128 << 20, malloc_mode::OFF));
    target.wait_until_read();
    let (mut program, mut ours) = (target.thread(1), target.thread(2));
    names(&mut program);
    ours.text(text_kind::GPU_TIME, reason::FULL, state::ON, "");
    let room = |thread: &mut Thread<'_>| {
        while !thread.reserve(200) {
            std::thread::sleep(Duration::from_micros(200));
        }
    };
    let (begin, before) = (Instant::now(), collector_cpu());
    for launch in 0..launches {
        room(&mut program);
        program.call("cuGraphLaunch", [0x99, 0x77, 0, 0]);
        let begin_ns = support::monotonic_ns();
        let work = |node: u64| {
            let start = begin_ns + node * KERNEL_NS;
            let own = Work {
                kind: kind::KERNEL,
                correlation: launch as u32 + 1,
                start,
                end: start + KERNEL_NS - 10,
                ..Work::default()
            };
            Work {
                context: 1,
                stream: 7,
                graph: 3,
                node,
                amount: 1 + node % 60,
                grid: 64,
                block: 128,
                registers: 32,
                ..own
            }
        };
        let works: Vec<Work> = (0..KERNELS).map(work).collect();
        for some in works.chunks(WORKS) {
            room(&mut ours);
            let bytes: Vec<u8> = some.iter().flat_map(Work::to_words).flat_map(u64::to_le_bytes).collect();
            ours.bytes(text_kind::GPU_WORK, 0, some.len() as u64, &bytes);
        }
        ours.text(text_kind::GPU_TIME, 0, state::SETTLED, "");
    }
    wait_until_read(&target, 2);
    let (cpu, wall) = (collector_cpu() - before, begin.elapsed().as_secs_f64());
    drop(target);
    let manifest = running.finish(None, Instant::now() + Duration::from_secs(10)).unwrap();
    let about = manifest.processes[0].gpu_time.as_ref().unwrap();
    println!(
        "kernels of graphs: {:.2} M records per CPU-second ({:.0} ns each; {} records, {} with their call, {cpu:.2} s of {wall:.2} s)",
        about.records as f64 / cpu / 1e6,
        cpu / about.records as f64 * 1e9,
        about.records,
        about.joined
    );
}

fn as_fast_as_possible(events: u64) {
    let folder = Folder::new("fast");
    let running = start(config(&folder)).unwrap();
    let target = Target::with(&folder.session(), Memory::new(16 << 20, malloc_mode::OFF));
    target.wait_until_read();
    let mut thread = target.thread(1);
    names(&mut thread);
    let (begin, before) = (Instant::now(), collector_cpu());
    let mut n = 0;
    while n < events {
        // Waits for room: the figure is the collector's, not the writer's.
        if !thread.reserve(1) {
            std::thread::sleep(Duration::from_micros(200));
            continue;
        }
        thread.event(step(n, counter()));
        n += 1;
    }
    wait_until_read(&target, 1);
    let cpu = collector_cpu() - before;
    let wall = begin.elapsed().as_secs_f64();
    println!(
        "drain and encode: {:.2} M events per CPU-second ({:.0} ns each; {n} events, {cpu:.2} s of {wall:.2} s)",
        n as f64 / cpu / 1e6,
        cpu / n as f64 * 1e9
    );
    drop(target);
    let manifest = running.finish(None, Instant::now() + Duration::from_secs(10)).unwrap();
    let count = &manifest.processes[0].accounting["launch"];
    println!(
        "  launches {} recorded {} dropped {} balanced {}",
        count.seen,
        count.recorded,
        count.dropped,
        count.is_balanced()
    );
    println!("  {:.2} bytes per event", trace_bytes(&folder) as f64 / n as f64);
}

/// Processes that come and go without an event.
fn arrivals(processes: u64) {
    let folder = Folder::new("arrivals");
    let running = start(config(&folder)).unwrap();
    let before = collector_cpu();
    for _ in 0..processes {
        let mut target = Target::new(&folder.session());
        target.exit(0);
    }
    let cpu = collector_cpu() - before;
    let manifest = running.finish(None, Instant::now() + Duration::from_secs(10)).unwrap();
    assert_eq!(manifest.processes.len() as u64, processes);
    println!("a process without events: {:.0} us of the collector", cpu / processes as f64 * 1e6);
}

/// Writes for so many seconds; returns events and drops. Calls nothing that allocates or locks.
fn write_at(rate: u64, seconds: u64, thread: &mut Thread<'_>) -> (u64, u64) {
    let begin = Instant::now();
    let (mut n, mut dropped) = (0u64, 0u64);
    while begin.elapsed() < Duration::from_secs(seconds) {
        let due = (begin.elapsed().as_secs_f64() * rate as f64) as u64;
        while n < due {
            dropped += u64::from(!thread.event(step(n, counter())));
            n += 1;
        }
        std::thread::sleep(Duration::from_micros(100));
    }
    (n, dropped)
}

fn live(rate: u64, seconds: u64) {
    let folder = Folder::new("live");
    let memory = Memory::new(16 << 20, malloc_mode::OFF);
    let mut thread = Thread::new(memory.view, 1);
    names(&mut thread);
    // The writing side is a process of its own, forked before the collector has threads.
    let session = folder.session();
    // SAFETY: the child only waits, writes into shared memory and ends.
    let child = unsafe { libc::fork() };
    if child == 0 {
        let heartbeat = &memory.view.header().heartbeat;
        while heartbeat.load(gputrace_abi::sync::Ordering::Relaxed) == 0 {
            std::thread::sleep(Duration::from_millis(1));
        }
        write_at(rate, seconds, &mut thread);
        // SAFETY: ends the child without the parent's clean-up.
        unsafe { libc::_exit(0) };
    }
    let running = start(config(&folder)).unwrap();
    let mut target = Target::with(&session, memory);
    target.wait_until_read();
    let (begin, before) = (Instant::now(), collector_cpu());
    let (mut status, mut most_kib) = (0, 0);
    // SAFETY: asks for our own child without waiting.
    while unsafe { libc::waitpid(child, &mut status, libc::WNOHANG) } == 0 {
        most_kib = most_kib.max(memory_kib("VmRSS:"));
        std::thread::sleep(Duration::from_millis(20));
    }
    let (cpu, wall) = (collector_cpu() - before, begin.elapsed().as_secs_f64());
    target.exit(0);
    let manifest = running.finish(None, Instant::now() + Duration::from_secs(10)).unwrap();
    let sum = |of: fn(&gputrace_collectors::manifest::Count) -> u64| -> u64 {
        manifest.processes[0].accounting.values().map(of).sum()
    };
    let (seen, recorded, dropped) = (sum(|c| c.seen), sum(|c| c.recorded), sum(|c| c.dropped));
    println!("live, {rate} events/s for {seconds} s: {:.1} % of a core", cpu / wall * 100.0);
    println!(
        "  memory {} MiB, recorded {recorded} of {seen}, dropped {dropped}, {:.2} bytes per event",
        most_kib / 1024,
        trace_bytes(&folder) as f64 / recorded as f64
    );
}
