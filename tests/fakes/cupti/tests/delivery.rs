//! How records reach a client, when they do not, and what is injected.

mod common;

use common::{BUFFER, Cuda, KERNEL, MEMCPY, NON_BLOCKING, Record, alone, at, first, second};
use std::sync::atomic::Ordering::SeqCst;
use std::time::Instant;

/// Launches on a stream of its own, and waits.
fn launch(cuda: &Cuda, count: usize) {
    let (stream, kernel) = (cuda.stream(NON_BLOCKING), cuda.kernel("spin_us_1"));
    (0..count).for_each(|_| assert_eq!(cuda.launch(kernel, stream), 0));
    cuda.ok("cuStreamSynchronize", &[stream]);
}

fn numbers(records: &[Record]) -> Vec<u32> {
    records.iter().map(|record| record.origin().0).collect()
}

#[test]
fn buffers_are_asked_for_in_launches_and_completed_in_a_thread_of_the_library_when_full() {
    alone(&[], |cuda, cupti| {
        let (party, full) = (first(), BUFFER / 216);
        cupti.register(&party);
        cupti.enable(&[KERNEL]);
        launch(cuda, full + 1);
        let begin = Instant::now();
        while party.count() < full {
            assert!(begin.elapsed().as_secs() < 60, "the thread completes the full buffer");
            std::thread::yield_now();
        }
        let mine = std::thread::current().id();
        let records = party.taken();
        assert!(records.len() == full && records.iter().all(|record| record.completed_by != mine));
        let rest = cupti.flushed(&party);
        assert_eq!(party.asked()[0], mine);
        assert!(rest.len() == 1 && rest[0].completed_by == mine);
        assert_eq!(numbers(&rest), [full as u32 + 1]);
    });
}

#[test]
fn who_registered_last_gets_everything_and_the_first_nothing_until_it_registers_again() {
    alone(&[], |cuda, cupti| {
        let (ours, theirs) = (first(), second());
        cupti.register(&ours);
        cupti.enable(&[KERNEL]);
        launch(cuda, 5);
        cupti.register(&theirs);
        cupti.enable(&[KERNEL, MEMCPY]);
        launch(cuda, 5);
        cupti.disable(&[KERNEL, MEMCPY]);
        assert_eq!(numbers(&cupti.flushed(&theirs)), (1..=10).collect::<Vec<_>>(), "with what was pending");
        launch(cuda, 5);
        assert_eq!((cupti.flushed(&ours).len(), theirs.count()), (0, 0), "they have disabled the kind for all");
        cupti.register(&ours);
        cupti.enable(&[KERNEL]);
        launch(cuda, 5);
        assert_eq!((cupti.flushed(&ours).len(), theirs.count()), (5, 0));
    });
}

#[test]
fn who_joins_inside_a_session_ruins_it() {
    alone(&[], |cuda, cupti| {
        let (theirs, ours) = (first(), second());
        cupti.register(&theirs);
        cupti.enable(&[KERNEL]);
        launch(cuda, 5);
        cupti.register(&ours);
        cupti.enable(&[KERNEL]);
        launch(cuda, 5);
        cupti.disable(&[KERNEL]);
        cupti.ok("cuptiActivityFlushAll", &[0]);
        assert_eq!((theirs.count(), ours.count()), (0, 10));
    });
}

#[test]
fn a_flush_before_the_second_registration_saves_what_the_first_has() {
    alone(&[], |cuda, cupti| {
        let (ours, theirs) = (first(), second());
        cupti.register(&ours);
        cupti.enable(&[KERNEL]);
        launch(cuda, 5);
        cupti.disable(&[KERNEL]);
        assert_eq!(cupti.flushed(&ours).len(), 5);
        cupti.register(&theirs);
        cupti.enable(&[KERNEL]);
        launch(cuda, 3);
        assert_eq!((cupti.flushed(&theirs).len(), ours.count()), (3, 0));
    });
}

#[test]
fn records_without_a_buffer_are_dropped_and_counted() {
    alone(&[], |cuda, cupti| {
        let party = first();
        party.poor.store(true, SeqCst);
        cupti.register(&party);
        cupti.enable(&[KERNEL]);
        launch(cuda, 5);
        assert_eq!((cupti.flushed(&party).len(), cupti.dropped(), cupti.dropped()), (0, 5, 0));
        party.poor.store(false, SeqCst);
        launch(cuda, 5);
        assert_eq!((cupti.flushed(&party).len(), cupti.dropped()), (5, 0));
    });
}

#[test]
fn records_are_dropped_and_spoilt_at_the_chosen_rate() {
    alone(&[("FAKE_CUPTI_DROP", "5"), ("FAKE_CUPTI_INVALID", "4")], |cuda, cupti| {
        cupti.register(&first());
        cupti.enable(&[KERNEL]);
        launch(cuda, 10);
        let records = cupti.flushed(&first());
        assert_eq!(numbers(&records), [1, 2, 3, 4, 6, 7, 8, 9]);
        assert_eq!(cupti.dropped(), 2);
        let invalid: Vec<Record> = records.into_iter().filter(|record| record.times() == (0, 0)).collect();
        assert_eq!(numbers(&invalid), [4, 8]);
    });
}

#[test]
fn streams_are_shuffled_and_the_order_within_one_is_kept() {
    alone(&[("FAKE_CUPTI_SHUFFLE", "1")], |cuda, cupti| {
        cupti.register(&first());
        cupti.enable(&[KERNEL]);
        launch(cuda, 3);
        launch(cuda, 3);
        assert_eq!(numbers(&cupti.flushed(&first())), [4, 5, 6, 1, 2, 3]);
    });
}

#[test]
fn a_chosen_function_fails_and_does_nothing() {
    alone(&[("FAKE_CUPTI_FAIL", "cuptiActivityEnable:35, cuptiSubscribe:999")], |cuda, cupti| {
        cupti.register(&first());
        assert_eq!(cupti.call("cuptiActivityEnable", &[KERNEL]), 35);
        launch(cuda, 1);
        assert_eq!(cupti.flushed(&first()).len(), 0);
        assert_eq!(cupti.call("cuptiSubscribe", &[0, 0, 0]), 999);
    });
}

#[test]
fn there_is_one_subscriber_and_what_is_asked_for_must_make_sense() {
    alone(&[], |_, cupti| {
        let (mut handle, mut other) = (0u64, 0u64);
        cupti.ok("cuptiSubscribe", &[at(&mut handle), 0, 0]);
        assert_eq!(cupti.call("cuptiSubscribe", &[at(&mut other), 0, 0]), 39);
        cupti.ok("cuptiEnableDomain", &[1, handle, 1]);
        cupti.ok("cuptiUnsubscribe", &[handle]);
        cupti.ok("cuptiSubscribe", &[at(&mut other), 0, 0]);
        cupti.ok("cuptiFinalize", &[]);
        cupti.ok("cuptiSubscribe", &[at(&mut other), 0, 0]);
        assert_eq!(cupti.call("cuptiActivityFlushAll", &[0]), 7, "nobody has registered");
        assert_eq!(cupti.call("cuptiActivityEnable", &[99]), 21);
        assert_eq!(cupti.call("cuptiActivityRegisterCallbacks", &[0, 0]), 1);
    });
}

#[test]
fn finalizing_forgets_what_is_pending() {
    alone(&[], |cuda, cupti| {
        cupti.register(&first());
        cupti.enable(&[KERNEL]);
        launch(cuda, 3);
        cupti.ok("cuptiFinalize", &[]);
        launch(cuda, 3);
        cupti.register(&first());
        cupti.enable(&[KERNEL]);
        launch(cuda, 2);
        assert_eq!(cupti.flushed(&first()).len(), 2);
    });
}

extern "C" fn monotonic() -> u64 {
    let mut time = libc::timespec { tv_sec: 0, tv_nsec: 0 };
    // SAFETY: the time is a local.
    unsafe { libc::clock_gettime(libc::CLOCK_MONOTONIC, &mut time) };
    time.tv_sec as u64 * 1_000_000_000 + time.tv_nsec as u64
}

#[test]
fn records_are_on_the_devices_clock_until_the_client_gives_its_own() {
    extern "C" fn hour_ahead() -> u64 {
        monotonic() + 3_600_000_000_000
    }
    let clock = [("FAKE_CUPTI_OFFSET_NS", "-5000000000"), ("FAKE_CUPTI_DRIFT_PPM", "100000")];
    alone(&clock, |cuda, cupti| {
        let one = |begin: u64, end: u64| {
            let records = cupti.flushed(&first());
            assert_eq!(records.len(), 1);
            let (start, stop) = records[0].times();
            assert!(begin <= start && start <= stop && stop <= end, "{begin} {start} {stop} {end}");
        };
        let device = || {
            let mut time = 0u64;
            cupti.ok("cuptiGetTimestamp", &[at(&mut time)]);
            time
        };
        let (host, there) = (monotonic(), device());
        let expected = (host as f64 * 1.1) as u64 - 5_000_000_000;
        assert!(there >= expected && there - expected < 10_000_000_000, "{there} {expected}");
        cupti.register(&first());
        cupti.enable(&[KERNEL]);
        let begin = device();
        launch(cuda, 1);
        one(begin, device());
        cupti.ok("cuptiActivityRegisterTimestampCallback", &[monotonic as *const () as u64]);
        let begin = monotonic();
        launch(cuda, 1);
        one(begin, monotonic());
        cupti.ok("cuptiActivityRegisterTimestampCallback", &[hour_ahead as *const () as u64]);
        let begin = hour_ahead();
        launch(cuda, 1);
        one(begin - 1_000_000, hour_ahead() + 1_000_000);
    });
}

#[test]
fn the_chosen_costs_are_paid() {
    let costs = [
        ("FAKE_CUPTI_COST_NS", "1000000"),
        ("FAKE_CUPTI_FIRST_ENABLE_MS", "20"),
        ("FAKE_CUPTI_FIRST_LAUNCH_MS", "30"),
        ("FAKE_CUPTI_FLUSH_MS", "10"),
    ];
    alone(&costs, |cuda, cupti| {
        let ms = |body: &dyn Fn()| {
            let begin = Instant::now();
            body();
            begin.elapsed().as_millis()
        };
        cupti.register(&first());
        assert!(ms(&|| cupti.enable(&[KERNEL])) >= 20);
        assert!(ms(&|| launch(cuda, 1)) >= 31);
        assert!(ms(&|| launch(cuda, 5)) >= 5);
        assert!(ms(&|| _ = cupti.flushed(&first())) >= 10);
    });
}
