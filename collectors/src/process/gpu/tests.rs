//! What is asked of CUPTI is known before the calls that it numbers.

use std::os::fd::AsFd;
use std::time::Instant;

use gputrace_abi::event::text_kind;
use gputrace_abi::gpu::{reason, state};
use gputrace_abi::layout::malloc_mode;

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
