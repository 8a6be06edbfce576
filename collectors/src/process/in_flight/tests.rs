//! What stands still and what does not, with times that the tests choose.

use std::os::fd::AsFd;
use std::time::{Duration, Instant};

use gputrace_abi::collective::pack_party;
use gputrace_abi::layout::malloc_mode;
use gputrace_abi::sync::Ordering;

use super::{Over, Stuck};
use crate::clock::Clocks;
use crate::names::Written;
use crate::process::Process;
use crate::redact::Redact;
use crate::segment::Segment;
use crate::support::{Memory, Thread, hook};
use crate::tables::Tables;

const AFTER: Duration = Duration::from_secs(300);
const STREAM: u64 = 0x2a0;

struct World {
    process: Process,
    clocks: Clocks,
    tables: Tables,
    written: Written,
    memory: Memory,
}

impl World {
    fn new() -> World {
        let memory = Memory::new(16 << 20, malloc_mode::OFF);
        let segment = Segment::map(memory.fd.as_fd()).expect("a segment");
        let pid = std::process::id() as i32;
        let (clocks, tables, written) = (Clocks::start(), Tables::new(), Written::default());
        World { process: Process::new(1, pid, segment, &Redact::default()), clocks, tables, written, memory }
    }

    fn thread(&self, tid: u32) -> Thread<'static> {
        Thread::new(self.memory.view, tid)
    }

    /// One pass finds the threads and reads, the next one makes sense of what was read.
    fn read(&mut self) {
        for _ in 0..3 {
            self.process.looked_for_threads =
                self.process.looked_for_threads.and_then(|at: Instant| at.checked_sub(AFTER));
            self.process.pass(&mut self.clocks, &mut self.tables, &mut self.written, false);
        }
    }

    /// What hangs when so much time has passed since that tick.
    fn stuck(&mut self, since: u64, after: Duration) -> Vec<Stuck> {
        self.read();
        let now_ns = self.clocks.ns(self.process.clock, since) + after.as_nanos() as i64;
        self.process.stuck(now_ns, &self.clocks, AFTER)
    }

    fn count(&mut self, since: u64) -> usize {
        self.stuck(since, AFTER).len()
    }
}

/// A thread waits for a stream. Returns when that began.
fn wait(thread: &mut Thread<'_>, stream: u64) -> u64 {
    thread.row().in_flight_about.store(stream, Ordering::Relaxed);
    thread.enter("cuStreamSynchronize")
}

#[test]
fn a_wait_in_which_nothing_goes_on_is_stuck_from_then_on_and_reported_once() {
    let mut world = World::new();
    let mut thread = world.thread(1);
    thread.call("cuLaunchKernel", [1, STREAM, 0, 0]);
    let began = wait(&mut thread, STREAM);
    assert!(world.stuck(began, AFTER - Duration::from_millis(1)).is_empty());
    let stuck = world.stuck(began, AFTER);
    assert_eq!((stuck.len(), stuck[0].stream, stuck[0].call.start), (1, Some(STREAM), began));
    world.process.report(&stuck, 7);
    assert_eq!(world.count(began), 0, "it is known");
    assert_eq!(world.process.returned(&world.clocks), []);
    thread.call_since(began, "cuStreamSynchronize", [0, STREAM, 0, 0]);
    world.read();
    let over = world.process.returned(&world.clocks);
    let began_ns = world.clocks.ns(world.process.clock, began);
    assert!(matches!(over[..], [Over { number: 7, ended_ns }] if ended_ns > began_ns), "{over:?}");
    assert_eq!(world.process.returned(&world.clocks), []);
}

#[test]
fn work_that_others_give_the_same_stream_is_progress_and_of_another_stream_is_none() {
    let mut world = World::new();
    let (mut waiting, mut giving) = (world.thread(1), world.thread(2));
    let began = wait(&mut waiting, STREAM);
    giving.call("cuLaunchKernel", [1, 0x3b0, 0, 0]);
    assert_eq!(world.count(began), 1, "another stream's work");
    giving.call("cuLaunchKernel", [1, STREAM, 0, 0]);
    assert_eq!(world.count(began), 0, "its own stream's work");
    assert_eq!(world.stuck(began, AFTER + Duration::from_secs(1)).len(), 1, "but for so long only");
}

#[test]
fn a_call_of_which_it_is_not_known_what_it_waits_for_takes_all_other_threads_work_for_progress() {
    let mut world = World::new();
    let (mut waiting, mut giving) = (world.thread(1), world.thread(2));
    let began = waiting.enter("cuMemAlloc_v2");
    giving.call("cuStreamCreate", [1, 0, 0, 0]);
    assert_eq!(world.count(began), 1, "no work of the GPU");
    giving.call("cuLaunchKernel", [1, STREAM, 0, 0]);
    assert_eq!(world.count(began), 0);
}

#[test]
fn a_wait_for_the_system_and_a_call_that_was_left_are_not_stuck() {
    let mut world = World::new();
    let (mut idle, mut jumped, mut went_on) = (world.thread(1), world.thread(2), world.thread(3));
    let began = idle.enter("cuStreamSynchronize");
    idle.row().in_flight_start.store(0, Ordering::Relaxed);
    idle.row().wait_start.store(began, Ordering::Relaxed);
    let left = wait(&mut jumped, STREAM);
    jumped.row().wait_start.store(left + 1, Ordering::Relaxed);
    let followed = wait(&mut went_on, STREAM);
    went_on.call("cuLaunchKernel", [1, 0x3b0, 0, 0]);
    went_on.row().in_flight_start.store(followed, Ordering::Relaxed);
    assert_eq!(world.stuck(followed, AFTER * 2).len(), 0);
}

#[test]
fn a_call_of_nccl_stands_still_unless_the_driver_is_called_inside_it() {
    let mut world = World::new();
    let mut thread = world.thread(1);
    let began = thread.enter("cuStreamSynchronize");
    thread.row().in_flight_start.store(0, Ordering::Relaxed);
    thread.row().library_hook.store(hook("ncclAllReduce").into(), Ordering::Relaxed);
    thread.row().library_start.store(began, Ordering::Relaxed);
    thread.row().library_about.store(3, Ordering::Relaxed);
    let stuck = world.stuck(began, AFTER);
    assert_eq!((stuck.len(), stuck[0].call.about, stuck[0].stream), (1, 3, None));
    thread.call("cuLaunchKernel", [1, STREAM, 0, 0]);
    assert_eq!(world.count(began), 0);
}

#[test]
fn collectives_that_returned_are_counted_by_communicator() {
    let mut world = World::new();
    let mut thread = world.thread(1);
    for _ in 0..3 {
        thread.call("ncclAllReduce", [pack_party(5, -1), STREAM, 1, 0]);
    }
    thread.call("ncclAllReduce", [pack_party(0, -1), STREAM, 1, 0]);
    world.read();
    let parties: Vec<_> = world.process.communicators.parties().collect();
    assert_eq!(parties.iter().map(|(number, party)| (*number, party.entered)).collect::<Vec<_>>(), [(5, 3)]);
}

#[test]
fn what_a_stream_was_given_and_what_was_waited_for_is_known() {
    let mut world = World::new();
    let mut thread = world.thread(1);
    for _ in 0..2 {
        thread.call("cuLaunchKernel", [1, STREAM, 0, 0]);
    }
    thread.call("cuStreamSynchronize", [0, STREAM, 0, 0]);
    thread.call("cuGraphLaunch", [1, STREAM, 0, 0]);
    world.read();
    let (_, id, given, since) = world.process.pending.given().next().expect("a stream");
    assert_eq!((id.handle(), given.operations, given.done), (STREAM, 3, 2));
    assert_eq!((given.last, given.last_done), (hook("cuGraphLaunch"), hook("cuLaunchKernel")));
    assert!(since.is_some());
}
