//! The ring's scenarios with real threads, many times: what loom's small models leave out is the number of events.
//!
//! `ci/tsan.sh` runs them under ThreadSanitizer. Under Miri the counts are small.
#![cfg(not(loom))]

mod scenarios;

use gputrace_abi::ring::{CHUNK_SLOTS, SHARED};

/// As many rounds as a sanitizer or an interpreter can do in seconds.
const ROUNDS: u32 = if cfg!(miri) { 3 } else { 300 };
const EVENTS: u64 = if cfg!(miri) { 40 } else { 20_000 };

#[test]
fn a_chain_of_chunks_is_read_whole_and_in_order() {
    for round in 0..ROUNDS / 3 {
        scenarios::crossing::<7>(EVENTS.min(300), 50, round * 20);
    }
    scenarios::crossing::<CHUNK_SLOTS>(EVENTS, 50, u32::MAX);
}

#[test]
fn a_chunk_is_used_again_only_when_it_was_read() {
    scenarios::recycling::<7>(EVENTS * 10, 3, u32::MAX);
    scenarios::recycling::<CHUNK_SLOTS>(EVENTS * 10, 2, u32::MAX);
    for round in 0..ROUNDS {
        scenarios::recycling::<1>(50, 2, round);
    }
}

#[test]
fn two_threads_share_a_chain() {
    for _ in 0..ROUNDS {
        scenarios::shared::<5>(EVENTS.min(100), 4, 400);
    }
    scenarios::shared::<CHUNK_SLOTS>(EVENTS, 5, EVENTS as u32 * 2);
}

#[test]
fn a_late_reservation_never_harms_another_use() {
    for _ in 0..ROUNDS {
        scenarios::late_sharer::<1>(SHARED);
        scenarios::late_sharer::<3>(0);
    }
}

#[test]
fn a_thread_that_was_thrown_out_sees_that_its_chunk_was_linked() {
    for _ in 0..ROUNDS {
        scenarios::thrown_out::<1>();
        scenarios::thrown_out::<7>();
    }
}

#[test]
fn a_thread_that_was_thrown_out_leaves_a_shared_chunk_that_is_used_again_as_it_is() {
    for _ in 0..ROUNDS {
        scenarios::thrown_out_of_a_shared_chunk::<1>();
        scenarios::thrown_out_of_a_shared_chunk::<7>();
    }
}

#[test]
fn a_hole_is_seen_when_its_chunk_is_closed_or_its_writer_dead() {
    for round in 0..ROUNDS {
        scenarios::hole::<3>(false, round);
        scenarios::hole::<3>(true, round);
    }
}

#[test]
fn a_look_at_arenas_is_read_whole_or_not_at_all() {
    scenarios::arenas(EVENTS * 10);
}

#[test]
fn a_pending_block_is_told_or_counted_once_and_before_its_free() {
    for _ in 0..ROUNDS {
        scenarios::pending();
    }
}
