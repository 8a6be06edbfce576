//! Rows in, path and gains out: programs whose critical path is known by how they were made.

use super::path::Piece;
use super::*;
use crate::analysis::{Facts, Need};
use crate::trace::Filter;
use crate::trace::testing::{START, TestTrace};

/// Per step: its length, the path by piece, and what each class would gain alone; at last all together.
type Found = (i64, Vec<(Piece, i64)>, Vec<(Class, i64)>, i64);

fn found(trace: &TestTrace) -> Found {
    let (trace, filter) = (trace.open(), Filter::default());
    let facts = Facts::gather(&trace, &filter, &[Need::Critical]);
    let critical = facts.critical.expect("GPU times");
    let sums = critical.of(1).expect("a process with GPU times");
    assert_eq!(sums.lost, 0);
    assert_eq!(sums.path_ns.iter().sum::<i64>() as f64, sums.total_ns(), "the pieces are the path");
    let each = |ns: f64| sums.each(ns).round() as i64;
    let path = PIECES.iter().map(|(piece, ..)| (*piece, each(sums.path_ns[*piece as usize] as f64)));
    let gains = CLASSES.iter().map(|(class, ..)| (*class, sums.gain_ns(Without::these(&[*class])).round() as i64));
    let all = Without::these(&CLASSES.map(|(class, ..)| class));
    (
        sums.unit_ns().round() as i64,
        path.filter(|(_, ns)| *ns > 0).collect(),
        gains.filter(|(_, ns)| *ns > 0).collect(),
        sums.gain_ns(all).round() as i64,
    )
}

/// Ten steps, each of which begins when the last one's wait is over.
fn ten(step: impl Fn(&mut crate::trace::testing::Thread<'_>)) -> TestTrace {
    let mut trace = TestTrace::new();
    let mut thread = trace.thread(1, 11);
    for _ in 0..10 {
        let began = thread.range_begin();
        step(&mut thread);
        thread.range_end(None, "step", began, true);
    }
    trace
}

#[test]
fn a_loop_that_waits_has_host_and_gpu_on_its_path_one_after_the_other() {
    // 95 us of Python, a launch, 100 us of a kernel that begins 6 us after its call did, a wait that ends 4 us after it.
    let trace = ten(|thread| {
        thread.host(95_000);
        let begin = thread.now + 6_000;
        let end = thread.launch_running("gemm", 5_000, 7, (begin, 100_000));
        thread.sync("cuStreamSynchronize", "stream", end + 4_000 - thread.now);
    });
    let (step, path, gains, all) = found(&trace);
    assert_eq!(step, 205_000);
    let expected = [(Piece::Outside, 95_000), (Piece::Wait, 4_000), (Piece::Latency, 6_000), (Piece::Compute, 100_000)];
    assert_eq!(path, expected);
    // Without the host's own time the kernel, its launch and the return from the wait remain. Without waits host and GPU work
    // beside each other, and a step is as long as the longer of the two, the GPU's 100 us; the first of the ten has to begin
    // with the host. Without both it has not.
    assert_eq!(gains, [(Class::Host, 95_000), (Class::Wait, (205_000 - 100_000) - 101_000 / 10)]);
    assert_eq!(all, 205_000 - 100_000 - 6_000 / 10);
}

#[test]
fn what_the_gpu_hides_gains_nothing() {
    // The host is a step ahead of the GPU and waits for the step before; a copy on another stream lies beside the kernels.
    let mut trace = TestTrace::new();
    let mut thread = trace.thread(1, 11);
    let mut end = START;
    for _ in 0..30 {
        let (began, before) = (thread.range_begin(), end);
        thread.host(20_000);
        let copied = thread.now + 8_000;
        thread.copy_running("HtoD", 1 << 20, 3_000, (copied, 30_000));
        let begin = (before + 1_000).max(thread.now + 6_000);
        end = thread.launch_running("gemm", 5_000, 7, (begin, 99_000));
        let wait = (before + 4_000 - thread.now).max(1_000);
        thread.sync("cuEventSynchronize", "event", wait);
        thread.range_end(None, "step", began, true);
    }
    let (step, path, gains, _) = found(&trace);
    assert_eq!((step, path), (100_000, vec![(Piece::Between, 1_000), (Piece::Compute, 99_000)]));
    assert_eq!(gains, []);
}

#[test]
fn gains_of_several_causes_do_not_add_up() {
    let trace = ten(|thread| {
        thread.system_wait("read", "read", 50_000);
        thread.alloc("cuMemAlloc_v2", "device", 1, 8, 30_000);
        let begin = thread.now + 6_000;
        let end = thread.launch_running("gemm", 5_000, 7, (begin, 60_000));
        thread.sync("cuStreamSynchronize", "stream", end + 4_000 - thread.now);
    });
    let (step, _, gains, all) = found(&trace);
    assert_eq!(step, 150_000);
    // Without waits the host needs 85 us a step and the GPU 60, which ends 61 us after the last launch began: 65 us are gained
    // a step, and not the wait's 65 and the 50 of the file. Without all of them the GPU's 60 remain.
    assert_eq!(gains, [(Class::Wait, 65_000 - 61_000 / 10), (Class::Memory, 30_000), (Class::System, 50_000)]);
    assert_eq!(all, 150_000 - 60_000 - 6_000 / 10);
}

#[test]
fn work_that_the_default_stream_puts_in_order_runs_at_once_without_it() {
    // Two kernels of 100 us on two streams, the second one 1 us after the first; a wait for both.
    let mut trace = ten(|thread| {
        let end = thread.launch_running("left", 5_000, 7, (thread.now + 6_000, 100_000));
        let end = thread.launch_running("right", 5_000, 0, (end + 1_000, 100_000));
        thread.sync("cuCtxSynchronize", "context", end + 4_000 - thread.now);
    });
    let without = |found: &Found| found.2.iter().find(|(class, _)| *class == Class::Streams).map(|(_, ns)| *ns);
    let events = found(&trace);
    assert_eq!((events.0, without(&events)), (211_000, None), "an event between the two stays");
    trace.order_by_legacy_stream();
    let legacy = found(&trace);
    // The second one begins 5 us after its call, that is 4 us later than the first one.
    assert_eq!((legacy.0, without(&legacy)), (211_000, Some(101_000 - 4_000)));
    assert!(legacy.3 >= 97_000, "no less is gained together: {}", legacy.3);
}

#[test]
fn a_copy_that_waits_for_earlier_work_is_a_wait_and_a_copy() {
    // 20 us of Python, a kernel of 100 us, and a copy of 10 us that blocks until it has been made and returns 4 us later.
    let trace = ten(|thread| {
        thread.host(20_000);
        let end = thread.launch_running("gemm", 5_000, 7, (thread.now + 6_000, 100_000));
        let call_ns = end + 1_000 + 10_000 + 4_000 - thread.now;
        thread.copy_running("DtoH", 4, call_ns, (end + 1_000, 10_000));
    });
    let (step, _, gains, _) = found(&trace);
    assert_eq!(step, 141_000);
    // Without the copy the call still waits for the kernel. Without waits the GPU has 100 us of kernel and 11 of copy to do a
    // step; in the first one it begins 26 us late, and what it was given last is 15 us behind the host's end.
    let gain = |of: Class| gains.iter().find(|(class, _)| *class == of).map(|(_, ns)| *ns);
    assert_eq!(gain(Class::Copy), Some(15_000));
    assert_eq!(gain(Class::Host), Some(20_000));
    assert!(gain(Class::Wait).is_some_and(|ns| (25_000..30_000).contains(&ns)), "{gains:?}");
}

#[test]
fn a_wait_for_the_device_waits_for_every_stream() {
    // A kernel of 500 us, NCCL beside it for 640 us, and a wait for both: without NCCL the kernel is what is waited for.
    let trace = ten(|thread| {
        let begin = thread.now + 16_000;
        thread.launch_running("gemm", 5_000, 7, (begin, 500_000));
        let end = thread.launch_running("ncclDevKernel_AllReduce", 5_000, 9, (begin, 640_000));
        thread.sync("cuCtxSynchronize", "context", end + 4_000 - thread.now);
    });
    let (step, _, gains, _) = found(&trace);
    assert_eq!(step, 660_000);
    let nccl = gains.iter().find(|(class, _)| *class == Class::Communication).map(|(_, ns)| *ns);
    assert_eq!(nccl, Some(140_000));
}

#[test]
fn an_operation_waits_for_another_stream() {
    // NCCL begins when the kernel before it ends, and the next kernel when NCCL does.
    let trace = ten(|thread| {
        let begin = thread.now + 6_000;
        let first = thread.launch_running("gemm", 5_000, 7, (begin, 100_000));
        let nccl = thread.launch_running("ncclDevKernel_AllReduce", 5_000, 9, (first + 2_000, 80_000));
        let last = thread.launch_running("gemm", 5_000, 7, (nccl + 2_000, 100_000));
        thread.sync("cuStreamSynchronize", "stream", last + 4_000 - thread.now);
    });
    let (step, path, gains, _) = found(&trace);
    assert_eq!(step, 294_000);
    let expected = [
        (Piece::Wait, 4_000),
        (Piece::Latency, 6_000),
        (Piece::Between, 4_000),
        (Piece::Compute, 200_000),
        (Piece::Communication, 80_000),
    ];
    assert_eq!(path, expected);
    let nccl = gains.iter().find(|(class, _)| *class == Class::Communication);
    assert!(nccl.is_some_and(|(_, ns)| (80_000..=84_000).contains(ns)), "{gains:?}");
}

#[test]
fn a_launch_that_waits_for_room_in_the_queue_waits_for_the_gpu() {
    // Per step four kernels of 80 us and a copy of 80 us, one after the other on the GPU, each given in 5 us; the queue takes 600.
    let mut trace = TestTrace::new();
    let mut thread = trace.thread(1, 11);
    let (mut ends, mut end) = (std::collections::VecDeque::new(), START);
    for _ in 0..400 {
        let began = thread.range_begin();
        for part in 0..5 {
            let begin = end.max(thread.now + 6_000);
            let room = if ends.len() < 600 { None } else { ends.pop_front() };
            let call_ns = room.map_or(5_000, |room: i64| (room + 3_000 - thread.now).max(5_000));
            end = match part {
                4 => thread.copy_running("HtoD", 1 << 22, call_ns, (begin, 80_000)),
                _ => thread.launch_running("gemm", call_ns, 7, (begin, 80_000)),
            };
            ends.push_back(end);
        }
        thread.range_end(None, "step", began, true);
    }
    let (step, path, gains, _) = found(&trace);
    assert_eq!((step, path), (400_000, vec![(Piece::Compute, 320_000), (Piece::Copy, 80_000)]));
    // Without the copies a step is as long as its kernels; the host's calls were not what it waited for.
    let gain = |of: Class| gains.iter().find(|(class, _)| *class == of).map_or(0, |(_, ns)| *ns);
    assert!((76_000..84_000).contains(&gain(Class::Copy)), "{gains:?}");
    assert!(gain(Class::Host) < 4_000, "{gains:?}");
}

#[test]
fn a_process_without_steps_is_replayed_as_a_whole() {
    let mut trace = TestTrace::new();
    let mut thread = trace.thread(1, 11);
    let end = thread.launch_running("a", 5_000, 7, (START + 6_000, 50_000));
    thread.sync("cuStreamSynchronize", "stream", end + 1_000 - thread.now);
    thread.host(30_000);
    thread.launch_running("b", 5_000, 7, (thread.now + 6_000, 10_000));
    let (length, path, gains, _) = found(&trace);
    assert_eq!(length, 6_000 + 50_000 + 1_000 + 30_000 + 6_000 + 10_000);
    assert_eq!(path.iter().map(|(_, ns)| ns).sum::<i64>(), length);
    assert_eq!(gains, [(Class::Host, 30_000), (Class::Wait, 37_000)]);
}

#[test]
fn a_wait_in_which_another_thread_launches_ends_with_that_threads_work() {
    // The loop's thread waits for its backward thread, which launches: 60 us of its Python, and a kernel of 30 us.
    let mut trace = TestTrace::new();
    for n in 0..10 {
        let from = START + n * 100_000;
        let mut main = trace.thread(1, 11);
        main.host(from - main.now);
        let began = main.range_begin();
        main.system_wait("pthread_cond_wait", "condition", 66_000);
        let end = from + 60_000 + 6_000 + 30_000;
        main.sync("cuStreamSynchronize", "stream", end + 4_000 - main.now);
        main.range_end(None, "step", began, true);
        let mut backward = trace.thread(1, 12);
        backward.host(from + 60_000 - backward.now);
        backward.launch_running("gemm", 5_000, 7, (from + 66_000, 30_000));
    }
    let (step, path, gains, _) = found(&trace);
    assert_eq!(step, 100_000);
    // Until the first launch the loop's thread is the one that counts; from then on the other one is, whose time is the host's.
    let of = |piece: Piece| path.iter().find(|(of, _)| *of == piece).map_or(0, |(_, ns)| *ns);
    assert_eq!((of(Piece::Compute), of(Piece::Wait), of(Piece::Latency)), (30_000, 4_000, 6_000));
    assert_eq!(of(Piece::Outside) + of(Piece::System), 60_000);
    assert!(gains.iter().any(|(class, _)| *class == Class::Wait), "{gains:?}");
}

#[test]
fn whatever_a_program_does_its_path_is_as_long_as_its_steps() {
    let mut random = 1u64;
    let mut next = |below: i64| {
        random = random.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        ((random >> 33) as i64) % below
    };
    for _ in 0..40 {
        let mut trace = TestTrace::new();
        let mut ends = [START; 3];
        let mut threads: Vec<i64> = vec![START; 2];
        for _ in 0..300 {
            let which = next(2) as usize;
            let mut thread = trace.thread(1, 11 + which as i32);
            thread.host(threads[which] - thread.now);
            let stream = next(3) as usize;
            match next(8) {
                0 => thread.sync("cuStreamSynchronize", "stream", 1 + next(90_000)),
                1 => thread.alloc("cuMemAlloc_v2", "device", 1, 8, 1 + next(9_000)),
                2 => thread.system_wait("read", "read", 1 + next(60_000)),
                3 => {
                    let begin = ends[stream].max(thread.now) + next(9_000);
                    ends[stream] = thread.copy_running("HtoD", 8, 1 + next(20_000), (begin, next(30_000)));
                }
                4 => thread.host(next(80_000)),
                _ => {
                    let name = if stream == 2 { "ncclDevKernel_AllReduce" } else { "gemm" };
                    let begin = ends[stream].max(thread.now) + next(9_000);
                    ends[stream] = thread.launch_running(name, 1 + next(8_000), stream as i64, (begin, next(40_000)));
                }
            }
            threads[which] = thread.now;
        }
        let (length, _, gains, all) = found(&trace);
        assert!(gains.iter().all(|(_, ns)| *ns <= all && all <= length), "{gains:?}, {all} of {length}");
    }
}

#[test]
fn of_a_long_run_stretches_are_replayed_and_say_what_the_whole_run_says() {
    // The host is two steps ahead of the GPU. Every fifth step takes longer, and the steps of the run's second half as well.
    let mut trace = TestTrace::new();
    let mut thread = trace.thread(1, 11);
    let mut ends = [START; 2];
    for step in 0..1000i64 {
        let began = thread.range_begin();
        thread.host(20_000 + if step % 5 == 0 { 30_000 } else { step % 7 * 100 } + step / 500 * 300);
        for _ in 0..3 {
            let begin = (ends[1] + 500).max(thread.now + 6_000);
            let end = thread.launch_running("gemm", 5_000, 7, (begin, 14_000));
            ends[1] = end;
        }
        let wait = (ends[0] + 4_000 - thread.now).max(1_000);
        thread.sync("cuEventSynchronize", "event", wait);
        ends[0] = ends[1];
        thread.range_end(None, "step", began, true);
    }
    let (trace, filter) = (trace.open(), Filter::default());
    let steps = Facts::gather(&trace, &filter, &[]).steps;
    let replay = |most: f64| {
        let mut critical = Critical::of_calls(&trace, Arc::default(), &steps, most);
        super::super::spread::read(&trace, &filter, &steps, &mut [(1, &mut critical)], 1);
        critical
    };
    let (whole, part) = (replay(1e9), replay(800.0));
    let (whole, part) = (whole.of(1).expect("GPU times"), part.of(1).expect("GPU times"));
    assert_eq!((whole.replayed, whole.lost, part.lost), (None, 0, 0));
    let (stretches, replayed) = part.replayed.expect("a long run");
    assert!(stretches > 10 && (150..250).contains(&replayed), "{stretches} stretches of {replayed} steps");
    assert!((20..whole.count).contains(&part.count), "{} of {} usual steps", part.count, whole.count);
    assert_eq!(part.path_ns.iter().sum::<i64>() as f64, part.total_ns(), "the pieces are the path");
    let near = |one: f64, other: f64, what: &str| {
        assert!((one - other).abs() <= 0.02 * whole.unit_ns(), "{what}: {one} of the whole, {other} of the part");
    };
    near(whole.unit_ns(), part.unit_ns(), "step");
    for set in 0..lanes::LANES {
        let classes: Vec<Class> =
            CLASSES.iter().map(|(class, ..)| *class).filter(|class| set & (1 << *class as u8) != 0).collect();
        let without = Without::these(&classes);
        near(whole.gain_ns(without), part.gain_ns(without), &format!("{classes:?}"));
    }
    for (piece, _, what) in PIECES {
        let path = |sums: &Sums| sums.each(sums.path_ns[piece as usize] as f64);
        near(path(whole), path(part), what);
    }
}
