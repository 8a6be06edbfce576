//! Writes a made-up trace of any size, for benchmarks of what reads traces:
//! `cargo run --release -p gputrace-collectors --example make_trace -- TRACE EVENTS`.
//!
//! It is a launch-bound training loop on one GPU: in each step a copy in, 480 launches on two streams, a copy out and a wait.
//! Half of the events are calls, half are the operations that they cause. Times vary as a generator of random numbers says
//! that always begins alike, so the same size is the same trace.

use std::path::Path;

use gputrace_collectors::archive::{Archive, Columns};
use gputrace_collectors::names::NameKind;
use gputrace_collectors::schema::{SCHEMA_VERSION, TableId};
use gputrace_collectors::{Manifest, manifest};

/// Launches of a step.
const LAUNCHES: usize = 480;
/// Names of kernels.
const KERNELS: usize = 40;
/// Steps that are written at once.
const STEPS: usize = 1_000;
const BEGIN: i64 = 1_800_000_000_000_000_000;

fn main() -> std::io::Result<()> {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    let [trace, events] = arguments.as_slice() else { panic!("usage: make_trace TRACE EVENTS") };
    let events: usize = events.parse().expect("a number of events");
    let mut maker = Maker::new(Path::new(trace))?;
    let steps = events.div_ceil(2 * LAUNCHES + 5);
    for first in (0..steps).step_by(STEPS) {
        maker.write(STEPS.min(steps - first))?;
    }
    println!("{} events", maker.events);
    maker.finish(trace)
}

/// A call, or what it caused.
#[derive(Clone, Copy)]
struct Row {
    start: i64,
    length: i64,
    correlation: i64,
    stream: i64,
    kernel: usize,
}

struct Maker {
    archive: Archive,
    names: Vec<i64>,
    apis: [i64; 3],
    random: u64,
    now: i64,
    /// When each stream of the device is free.
    free: [i64; 2],
    calls: i64,
    events: usize,
}

impl Maker {
    fn new(trace: &Path) -> std::io::Result<Maker> {
        let mut archive = Archive::create(trace, "node", 0xbe)?;
        let names =
            (0..KERNELS).map(|n| archive.name(NameKind::Kernel, &format!("kernel_{n}"))).collect::<Result<_, _>>()?;
        let mut api = |name| archive.name(NameKind::Api, name);
        let apis = [api("cuLaunchKernel")?, api("cuMemcpyAsync")?, api("cuStreamSynchronize")?];
        Ok(Maker { archive, names, apis, random: 1, now: BEGIN, free: [BEGIN; 2], calls: 0, events: 0 })
    }

    fn random(&mut self, most: i64) -> i64 {
        self.random = self.random.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        (self.random >> 33) as i64 % most
    }

    /// A call of so many ns at least, and time of the host after it.
    fn call(&mut self, api_ns: i64, host_ns: i64, kernel: usize, stream: usize) -> Row {
        let length = api_ns + self.random(1_000);
        let row = Row { start: self.now, length, correlation: self.calls, stream: 7 + stream as i64, kernel };
        self.calls += 1;
        self.now += length + host_ns + self.random(2_000);
        row
    }

    /// What a call causes, when its stream is free.
    fn caused(&mut self, call: Row, gpu_ns: i64) -> Row {
        let stream = (call.stream - 7) as usize;
        let start = self.free[stream].max(call.start + call.length + 3_000);
        let length = gpu_ns + self.random(3_000);
        self.free[stream] = start + length;
        Row { start, length, ..call }
    }

    fn write(&mut self, steps: usize) -> std::io::Result<()> {
        let (mut launches, mut kernels) = (Vec::new(), Vec::new());
        let (mut transfers, mut copies, mut syncs) = (Vec::new(), Vec::new(), Vec::new());
        for _ in 0..steps {
            let call = self.call(9_000, 1_000, 0, 0);
            transfers.push(call);
            copies.push(self.caused(call, 20_000));
            for launch in 0..LAUNCHES {
                let call = self.call(4_000, 3_000, launch * 7 % KERNELS, usize::from(launch % 16 == 0));
                launches.push(call);
                kernels.push(self.caused(call, 4_000));
            }
            let call = self.call(6_000, 500, 1, 0);
            transfers.push(call);
            let last = self.caused(call, 2_000);
            copies.push(last);
            let wait = (last.start + last.length + 5_000 - self.now).max(2_000);
            syncs.push(self.call(wait, 50_000, 2, 0));
        }
        kernels.sort_by_key(|row| row.start);
        copies.sort_by_key(|row| row.start);
        self.events += launches.len() + kernels.len() + transfers.len() + copies.len() + syncs.len();
        let names = self.names.clone();
        let (launch, copy, sync) = (self.apis[0], self.apis[1], self.apis[2]);
        let calls = |table, rows: &[Row], api: i64| {
            front(table, rows)
                .i64("api_ns", rows.iter().map(|row| row.length))
                .i32("tid", rows.iter().map(|_| 11))
                .i64("correlation_id", rows.iter().map(|row| row.correlation))
                .i64("api_id", rows.iter().map(|_| api))
                .i32("pending_streams", rows.iter().map(|_| 1))
        };
        let device = |table, rows: &[Row]| {
            front(table, rows)
                .i64("gpu_ns", rows.iter().map(|row| row.length))
                .i64("correlation_id", rows.iter().map(|row| row.correlation))
        };
        let direction = |rows: &[Row]| rows.iter().map(|row| if row.kernel == 0 { "HtoD" } else { "DtoH" }).collect();
        let directions: Vec<&str> = direction(&transfers);
        let batch = calls(TableId::Launches, &launches, launch)
            .i64("name_id", launches.iter().map(|row| names[row.kernel]))
            .i32("kernels", launches.iter().map(|_| 1))
            .i32("grid_x", launches.iter().map(|_| 64));
        self.archive.append(TableId::Launches, &batch.batch()?)?;
        let batch = calls(TableId::Transfers, &transfers, copy)
            .text("kind", transfers.iter().map(|_| "copy"))
            .text("direction", directions.iter().copied())
            .text("src_kind", transfers.iter().map(|_| "pinned"))
            .text("dst_kind", transfers.iter().map(|_| "device"))
            .i64("bytes", transfers.iter().map(|_| 1 << 16))
            .bool("async", transfers.iter().map(|_| true));
        self.archive.append(TableId::Transfers, &batch.batch()?)?;
        let batch = calls(TableId::Syncs, &syncs, sync).text("kind", syncs.iter().map(|_| "stream"));
        self.archive.append(TableId::Syncs, &batch.batch()?)?;
        let batch = device(TableId::Kernels, &kernels)
            .i64("name_id", kernels.iter().map(|row| names[row.kernel]))
            .i32("grid_x", kernels.iter().map(|_| 64))
            .i32("grid_y", kernels.iter().map(|_| 1))
            .i32("grid_z", kernels.iter().map(|_| 1))
            .i32("block_x", kernels.iter().map(|_| 256))
            .i32("block_y", kernels.iter().map(|_| 1))
            .i32("block_z", kernels.iter().map(|_| 1));
        self.archive.append(TableId::Kernels, &batch.batch()?)?;
        let directions: Vec<&str> = direction(&copies);
        let batch = device(TableId::DeviceCopies, &copies)
            .text("kind", copies.iter().map(|_| "copy"))
            .text("direction", directions.iter().copied())
            .i64("bytes", copies.iter().map(|_| 1 << 16));
        self.archive.append(TableId::DeviceCopies, &batch.batch()?)
    }

    fn finish(mut self, trace: &str) -> std::io::Result<()> {
        let batch = Columns::new(TableId::Processes, 1)
            .i64("process_id", [1])
            .i32("pid", [100])
            .text("host", ["node"])
            .text("exe", ["/usr/bin/python"])
            .text("command", ["python train.py"])
            .i64("start_ns", [BEGIN])
            .i64("end_ns", [self.now])
            .bool("traced", [true]);
        self.archive.append(TableId::Processes, &batch.batch()?)?;
        let process = manifest::Process { process_id: 1, pid: 100, traced: true, balanced: true, ..Default::default() };
        self.archive.finish(&Manifest {
            schema_version: SCHEMA_VERSION,
            command: vec!["python".to_owned(), "train.py".to_owned()],
            host: "node".to_owned(),
            launcher_id: 0xbe,
            started_ns: BEGIN,
            ended_ns: Some(self.now),
            complete: true,
            processes: vec![process],
            notes: vec![format!("made up: {trace}")],
            ..Manifest::default()
        })
    }
}

/// The columns that every table of events has.
fn front(table: TableId, rows: &[Row]) -> Columns {
    Columns::new(table, rows.len())
        .i64("start_ns", rows.iter().map(|row| row.start))
        .i64("process_id", rows.iter().map(|_| 1))
        .i32("pid", rows.iter().map(|_| 100))
        .i32("device", rows.iter().map(|_| 0))
        .i32("context", rows.iter().map(|_| 1))
        .i64("stream", rows.iter().map(|row| row.stream))
}
