//! Ticks and times, of pairs that are made up.

use super::*;

const EPOCH: u64 = 1_700_000_000 * SECOND;

/// A counter of 2.5 GHz.
fn pair(ns: u64) -> Pair {
    Pair { ticks: 1_000_000 + ns * 5 / 2, monotonic_ns: 5_000 + ns, realtime_ns: EPOCH + ns }
}

#[test]
fn ticks_become_the_time_of_their_moment() {
    let mut clocks = Clocks::from_pair(pair(0));
    for ms in [1, 2, 4, 900, 1900, 2900] {
        clocks.add(pair(ms * 1_000_000));
    }
    for ns in [0, 17, 1_500_000, 950_000_000, 2_900_000_400] {
        let found = clocks.ns(ClockKind::Tsc, pair(ns).ticks);
        assert!((found - (EPOCH + ns) as i64).abs() <= 2, "{ns}: {}", found - (EPOCH + ns) as i64);
    }
    assert_eq!(clocks.span_ns(ClockKind::Tsc, 100, 100 + 2_500_000), 1_000_000);
    assert_eq!(clocks.span_ns(ClockKind::Tsc, 100, 99), 0);
    assert_eq!(clocks.ns(ClockKind::Monotonic, 5_000 + 42), (EPOCH + 42) as i64);
}

#[test]
fn the_error_is_what_comparisons_found() {
    let mut clocks = Clocks::from_pair(pair(0));
    // An hour in which CLOCK_MONOTONIC is bent by 20 millionths, and back, every ten minutes.
    let mut at = pair(1_000_000);
    clocks.add(at);
    for second in 1..3600u64 {
        let slow = if second / 600 % 2 == 0 { 0 } else { 20_000 };
        let before = if second == 1 { 999_000_000 } else { SECOND };
        at = Pair {
            ticks: at.ticks + before * 5 / 2,
            monotonic_ns: at.monotonic_ns + before - slow * before / SECOND,
            realtime_ns: at.realtime_ns + before,
        };
        clocks.add(at);
    }
    let error = clocks.error_ns(ClockKind::Tsc);
    assert!(
        (20_000..60_000).contains(&error),
        "a second at another speed, and the seconds in which it is made good: {error}"
    );
    assert_eq!((clocks.error_ns(ClockKind::Monotonic), clocks.describe(ClockKind::Tsc).error_ns), (0, Some(error)));
    // Without that: nothing.
    let mut clocks = Clocks::from_pair(pair(0));
    (1..3600).for_each(|second| clocks.add(pair(second * SECOND)));
    assert!(clocks.error_ns(ClockKind::Tsc) <= 2, "{}", clocks.error_ns(ClockKind::Tsc));
}

#[test]
fn the_same_moment_has_the_same_time_on_both_clocks() {
    let mut clocks = Clocks::from_pair(pair(0));
    // A pair that was read slowly bends the line, for both.
    let late = Pair { monotonic_ns: pair(1_900_000_000).monotonic_ns + 3_000, ..pair(1_900_000_000) };
    for pair in [pair(1_000_000), pair(900_000_000), late, pair(2_900_000_000), pair(3_900_000_000)] {
        clocks.add(pair);
    }
    let off = |ns| clocks.ns_of_monotonic(ClockKind::Tsc, 5_000 + ns) - clocks.ns(ClockKind::Tsc, pair(ns).ticks);
    assert!([0, 1_000_000, 2_900_000_000, 3_400_000_000, 4_000_000_000].into_iter().all(|ns| off(ns).abs() <= 2));
    assert!([1_500_000_000, 2_400_000_000].into_iter().all(|ns| off(ns).abs() <= 3_000));
    assert_eq!(clocks.ns_of_monotonic(ClockKind::Monotonic, 5_000 + 42), (EPOCH + 42) as i64);
}

#[test]
fn time_never_runs_backwards_although_the_pairs_jitter() {
    let mut clocks = Clocks::from_pair(pair(0));
    let (mut at, mut last) = (0, i64::MIN);
    for n in 1..200u64 {
        let jitter = n * 7919 % 4000;
        let exact = pair(n * 100_000_000);
        clocks.add(Pair { monotonic_ns: exact.monotonic_ns + jitter, ..exact });
        while at < exact.ticks {
            let ns = clocks.ns(ClockKind::Tsc, at);
            assert!(ns >= last);
            last = ns;
            at += 9_999_991;
        }
    }
}

#[test]
fn a_pair_off_the_line_is_left_out_and_a_new_line_is_followed() {
    let mut clocks = Clocks::from_pair(pair(0));
    (1..5).for_each(|s| clocks.add(pair(s * SECOND)));
    let odd = Pair { ticks: pair(5 * SECOND).ticks + 25_000_000, ..pair(5 * SECOND) };
    clocks.add(odd);
    assert_eq!(clocks.describe(ClockKind::Tsc).rejected, 1);
    assert!((clocks.ns(ClockKind::Tsc, pair(5 * SECOND).ticks) - (EPOCH + 5 * SECOND) as i64).abs() < 10);
    // The machine moved: the counter starts anew.
    let moved = |s: u64| Pair { ticks: s * 3 * SECOND, ..pair(s * SECOND) };
    (6..20).for_each(|s| clocks.add(moved(s)));
    let off = clocks.ns(ClockKind::Tsc, moved(19).ticks) - (EPOCH + 19 * SECOND) as i64;
    assert!(off.abs() < 1_000_000, "{off}");
}

#[test]
fn the_first_pairs_lie_far_enough_apart_for_a_line() {
    let mut clocks = Clocks::start();
    clocks.tick();
    let Some((first, second)) = clocks.window.front().zip(clocks.window.get(1)) else { panic!("two pairs") };
    assert!(second.monotonic_ns - first.monotonic_ns >= FIRST_NS);
}

#[test]
fn this_machines_clocks_agree() {
    let mut clocks = Clocks::start();
    for _ in 0..1000 {
        clocks.tick();
    }
    let off = clocks.ns(gputrace_abi::clock::COUNTER, counter()) - clocks.now_ns();
    assert!(off.abs() < 1_000_000, "{off}");
}
