//! Streams, events and the legacy stream.

use super::*;

fn id(handle: u64) -> StreamId {
    StreamId::new(handle, 0)
}

#[test]
fn a_stream_is_pending_from_its_work_to_the_wait_for_it() {
    let mut pending = Pending::default();
    assert_eq!(pending.wait_stream(1, id(0x50), 5, true).streams, 0);
    pending.work(1, id(0x50), 10);
    assert_eq!(pending.wait_context(2, 15, true).streams, 0, "another context");
    assert_eq!(pending.wait_context(1, 15, false).streams, 1);
    assert_eq!(pending.wait_stream(1, id(0x60), 16, true).streams, 0, "another stream");
    assert_eq!(pending.wait_stream(1, id(0x50), 20, true).streams, 1);
    assert_eq!(pending.wait_context(1, 25, true).streams, 0);
}

#[test]
fn times_decide_and_not_the_order_in_which_threads_are_read() {
    let mut pending = Pending::default();
    pending.work(1, id(0x50), 10);
    pending.work(1, id(0x50), 30);
    assert_eq!(pending.wait_stream(1, id(0x50), 20, true).streams, 1);
    assert_eq!(pending.wait_context(1, 25, false).streams, 1, "younger work is left");
    pending.wait_stream(1, id(0x50), 40, true);
    // Another thread's work before that wait.
    pending.work(1, id(0x50), 35);
    assert_eq!(pending.wait_context(1, 50, false).streams, 0);
}

#[test]
fn the_legacy_stream_and_ordinary_ones_wait_for_each_other() {
    let mut pending = Pending::default();
    pending.create(1, id(0x50), 0);
    pending.create(1, id(0x60), NON_BLOCKING);
    assert_eq!(pending.work(1, id(0x50), 10), Ahead::default());
    pending.work(1, id(0x60), 11);
    pending.work(1, id(0x70), 12); // not seen made
    assert_eq!(pending.work(1, id(0), 20), Ahead { streams: 1, legacy: true });
    assert_eq!(pending.work(1, id(0x50), 21), Ahead { streams: 1, legacy: true });
    assert_eq!(pending.work(1, id(0x60), 22), Ahead::default());
    assert_eq!(pending.wait_stream(1, id(1), 30, true), Ahead { streams: 2, legacy: true });
    assert_eq!(pending.wait_stream(1, id(0x50), 31, true), Ahead::default(), "that one waited for it too");
    assert_eq!(pending.wait_context(1, 40, true).streams, 2);
}

#[test]
fn each_thread_has_a_stream_of_its_own() {
    let mut pending = Pending::default();
    let of = |thread| StreamId::new(PER_THREAD, thread);
    pending.work(1, of(3), 10);
    assert_eq!(pending.wait_stream(1, of(4), 20, true).streams, 0);
    assert_eq!(pending.wait_stream(1, id(0), 21, true), Ahead { streams: 1, legacy: true });
}

#[test]
fn an_event_stands_for_what_its_stream_had_when_it_was_recorded() {
    let mut pending = Pending::default();
    pending.work(1, id(0x50), 10);
    pending.record(1, 0xe0, id(0x50), 15);
    pending.work(1, id(0x50), 20);
    assert_eq!(pending.wait_event(0xe0, 30, true).streams, 1);
    assert_eq!(pending.wait_event(0xe0, 40, true).streams, 0);
    assert_eq!(pending.wait_stream(1, id(0x50), 50, true).streams, 1, "what came after it");
    assert_eq!(pending.wait_event(0xff, 60, true), Ahead::default());
}

#[test]
fn a_stream_that_waits_for_an_event_takes_over_what_was_pending_there() {
    let mut pending = Pending::default();
    pending.work(1, id(0x50), 10);
    pending.record(1, 0xe0, id(0x50), 15);
    pending.work(1, id(0x50), 20);
    assert_eq!(pending.join(1, id(0x60), 0xe0, 25).streams, 1);
    assert_eq!(pending.wait_stream(1, id(0x60), 24, false).streams, 0, "before it was made to wait");
    assert_eq!(pending.wait_stream(1, id(0x60), 30, false).streams, 1);
    pending.work(1, id(0x60), 31);
    assert_eq!(pending.wait_stream(1, id(0x60), 40, true).streams, 2);
    assert_eq!(pending.wait_stream(1, id(0x60), 41, true).streams, 0);
    assert_eq!(pending.wait_stream(1, id(0x50), 50, true).streams, 1, "what came after the event");
    assert_eq!(pending.join(1, id(0x60), 0xe0, 60).streams, 0, "that was waited for");
    assert_eq!(pending.join(1, id(0x60), 0xff, 61), Ahead::default(), "an event that nobody recorded");
}

#[test]
fn what_was_taken_over_goes_on_from_stream_to_stream() {
    let mut pending = Pending::default();
    pending.work(1, id(0x50), 10);
    pending.record(1, 0xe0, id(0x50), 15);
    // Another device's stream waits for it, and a third one for that.
    pending.join(2, id(0x60), 0xe0, 20);
    pending.work(2, id(0x60), 21);
    pending.record(2, 0xe1, id(0x60), 25);
    assert_eq!(pending.join(1, id(0x70), 0xe1, 30).streams, 2);
    assert_eq!(pending.wait_event(0xe1, 35, false).streams, 2);
    assert_eq!(pending.wait_context(2, 40, false).streams, 2, "one of another context");
    assert_eq!(pending.wait_stream(1, id(0x70), 50, true).streams, 2);
    assert_eq!((pending.wait_context(1, 60, true).streams, pending.wait_context(2, 60, true).streams), (0, 0));
}

#[test]
fn a_wait_for_the_legacy_stream_is_one_for_what_ordinary_streams_took_over() {
    let mut pending = Pending::default();
    pending.create(1, id(0x50), 0);
    pending.create(1, id(0x60), NON_BLOCKING);
    pending.work(1, id(0x60), 10);
    pending.record(1, 0xe0, id(0x60), 15);
    pending.join(1, id(0x50), 0xe0, 20);
    pending.work(1, id(0x50), 21);
    pending.record(1, 0xe1, id(0), 22);
    // A wait that is not over counts each of them once, however many ways lead there.
    pending.join(1, id(0), 0xe1, 23);
    assert_eq!(pending.wait_stream(1, id(0), 25, false), Ahead { streams: 2, legacy: true });
    assert_eq!(pending.wait_stream(1, id(0), 30, true), Ahead { streams: 2, legacy: true });
    assert_eq!(pending.wait_context(1, 40, true).streams, 0);
}

#[test]
fn a_stream_that_is_made_anew_waits_for_nobody() {
    let mut pending = Pending::default();
    pending.work(1, id(0x50), 10);
    pending.record(1, 0xe0, id(0x50), 15);
    pending.join(1, id(0x60), 0xe0, 20);
    pending.create(1, id(0x60), NON_BLOCKING);
    assert_eq!(pending.wait_stream(1, id(0x60), 30, true).streams, 0);
}

#[test]
fn what_a_process_invents_takes_bounded_memory() {
    let mut pending = Pending::default();
    for n in 0..100_000u64 {
        pending.create(n as u16, id(n << 4), 0);
        pending.work(0, id(n << 4), n);
        pending.record(0, n, id(n << 4), n + 1);
        pending.join(0, id((n / 200) << 4), n, n + 2);
        pending.join(n as u16, id(n << 4), n, n + 2);
    }
    assert!(pending.contexts.len() <= MOST_CONTEXTS && pending.contexts[&0].is_bounded());
    assert!(pending.events.len() <= MOST_EVENTS && pending.joins.is_bounded() && !pending.joins.is_empty());
}
