//! What is asked of CUPTI is known before the calls that it numbers.

use std::os::fd::AsFd;
use std::time::Instant;

use gputrace_abi::event::text_kind;
use gputrace_abi::gpu::{Work, kind, reason, state};
use gputrace_abi::layout::malloc_mode;
use gputrace_abi::sync::Ordering;

use super::{Given, Gpu, Told, What};
use crate::clock::Clocks;
use crate::names::Written;
use crate::process::Process;
use crate::redact::Redact;
use crate::segment::Segment;
use crate::support::{Memory, Thread};
use crate::tables::Tables;

#[test]
fn a_launch_right_after_cu_init_is_given_though_our_thread_has_just_begun() {
    let memory = Memory::new(16 << 20, malloc_mode::OFF);
    let segment = Segment::map(memory.fd.as_fd()).expect("a segment");
    let (mut clocks, mut tables, mut written) = (Clocks::start(), Tables::new(), Written::default());
    let mut process = Process::new(1, 1, segment, &Redact::default());
    let mut program = Thread::new(memory.view, 1);
    program.context(1, 0);
    program.text(text_kind::DEVICE, 0, 0, &"a device, whatever it is ".repeat(4));
    // Threads were looked for right before each pass, as far as that is a matter of time.
    let mut pass = |process: &mut Process| {
        process.looked_for_threads = process.looked_for_threads.map(|_| Instant::now());
        process.pass(&mut clocks, &mut tables, &mut written, false)
    };
    pass(&mut process);
    // The table of hooks has Metal's too, for which threads are looked for in each pass.
    process.intake.metal.is_here = false;
    // Our thread begins, and cuInit returns.
    let mut ours = Thread::new(memory.view, 2);
    ours.text(text_kind::GPU_TIME, reason::FULL, state::ON, "");
    program.call("cuLaunchKernel", [0xf0, 1, 0, 0]);
    // One pass reads the launch, the next one makes its row.
    for _ in 0..3 {
        pass(&mut process);
    }
    assert_eq!(process.gpu.given, 1);
}

/// A window that begins at `on_ns`: calls of two streams, every fifth of the second, and their records, in streams as CUPTI numbers them.
fn window(gpu: &mut Gpu, on_ns: i64, first: u32, streams: [u32; 2]) {
    gpu.open = Some((on_ns, reason::WINDOW));
    let is_anew = std::mem::take(&mut gpu.is_anew);
    gpu.begins.push_back((on_ns, is_anew));
    for n in 0..200i64 {
        let (start_ns, shape) = (on_ns + 100_000 * (1 + n), if n % 5 == 4 { 2 } else { 1 });
        let handle = if shape == 2 { 0xf0 } else { 0 };
        let given = Given::new((start_ns, start_ns + 3000), start_ns, What::Kernel(shape, 1));
        gpu.gave(Given { stream: handle, ..given }, 1, 1.0);
        let stream = streams[usize::from(shape == 2)];
        let correlation = first + n as u32;
        let work = Work {
            kind: kind::KERNEL,
            correlation,
            stream,
            grid: shape,
            block: 1,
            start: 1,
            end: 2,
            ..Work::default()
        };
        gpu.fresh.push(Told { work, told_ns: on_ns + 50_000_000, begin_ns: start_ns + 5000 });
    }
}

#[test]
fn streams_that_cupti_numbers_otherwise_once_it_was_taken_off_find_their_calls() {
    let (mut tables, written) = (Tables::new(), Written::default());
    let mut gpu = Gpu::new(1, 1);
    gpu.about = Some(Default::default());
    let joined = |gpu: &Gpu| gpu.about.as_ref().map(|about| about.joined);
    const SECOND: i64 = 1_000_000_000;
    window(&mut gpu, SECOND, 10, [7, 13]);
    // A pass makes rows of what the one before had read.
    for second in [2, 3] {
        gpu.settle(false, second * SECOND, &mut tables, &written);
    }
    assert_eq!(joined(&gpu), Some(200));
    gpu.close(4 * SECOND, reason::WINDOW);
    gpu.is_anew = true;
    window(&mut gpu, 11 * SECOND, 10, [13, 7]);
    for second in [12, 13, 14] {
        gpu.settle(false, second * SECOND, &mut tables, &written);
    }
    assert_eq!(joined(&gpu), Some(400));
}

#[test]
fn a_window_is_told_when_each_of_its_calls_has_its_record_and_none_still_runs() {
    const SECOND: i64 = 1_000_000_000;
    const OFF_NS: i64 = SECOND + 30_000_000;
    let memory = Memory::new(16 << 20, malloc_mode::OFF);
    let told = || memory.view.header().told_window.load(Ordering::Relaxed);
    let (mut tables, written) = (Tables::new(), Written::default());
    let closed = |ticks: u64| {
        let mut gpu = Gpu::new(1, 1);
        gpu.about = Some(Default::default());
        window(&mut gpu, SECOND, 10, [7, 13]);
        gpu.close(OFF_NS, reason::WINDOW);
        gpu.untold = Some((ticks, OFF_NS));
        gpu
    };
    let mut pass = |gpu: &mut Gpu, tenths: i64, given_to_ns: Option<i64>| {
        let now_ns = tenths * SECOND / 10;
        gpu.settle(false, now_ns, &mut tables, &written);
        gpu.tell(given_to_ns.unwrap_or(now_ns), now_ns, memory.view.header());
    };
    let mut gpu = closed(77);
    let last = gpu.fresh.pop();
    (11..14).for_each(|tenths| pass(&mut gpu, tenths, None));
    assert!(told() == 0 && gpu.is_waited_for(OFF_NS + 1) && !gpu.is_waited_for(OFF_NS + SECOND), "a record is missing");
    gpu.fresh.extend(last);
    pass(&mut gpu, 14, None);
    assert!(told() == 77 && !gpu.is_waited_for(OFF_NS + 1));
    // All records are there, and a call that began in the window has not returned: it may have given work too.
    let mut gpu = closed(99);
    (11..14).for_each(|tenths| pass(&mut gpu, tenths, Some(OFF_NS - 1)));
    assert_eq!(told(), 77);
    // It returns; what it gave is known one pass later.
    pass(&mut gpu, 14, None);
    assert_eq!(told(), 77);
    pass(&mut gpu, 15, None);
    assert_eq!(told(), 99);
}

#[test]
fn calls_whose_records_are_still_to_be_looked_at_are_not_given_up_however_late_it_is() {
    const SECOND: i64 = 1_000_000_000;
    let (mut tables, written) = (Tables::new(), Written::default());
    let mut gpu = Gpu::new(1, 1);
    gpu.about = Some(Default::default());
    window(&mut gpu, SECOND, 10, [7, 13]);
    gpu.settle(false, 2 * SECOND, &mut tables, &written);
    // The collector got no processor for 20 s: what this pass read is looked at in the next one.
    assert_eq!(gpu.unwritten_ns(22 * SECOND), Some(SECOND - super::NEAR_NS));
    gpu.settle(false, 22 * SECOND, &mut tables, &written);
    assert_eq!(gpu.about.as_ref().map(|about| about.joined), Some(200));
    // What has no record even then is.
    gpu.gave(Given::new((2 * SECOND, 2 * SECOND + 3000), 1, What::Kernel(1, 1)), 1, 1.0);
    gpu.settle(false, 23 * SECOND, &mut tables, &written);
    assert_eq!(gpu.calls.outstanding_ns(gpu.given_up_ns(23 * SECOND)), None);
}
