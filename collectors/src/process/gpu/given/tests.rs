//! Records and calls in the orders in which they come.

use super::*;

fn call(start_ns: i64, what: What) -> Given {
    Given::new((start_ns, start_ns), start_ns * 10, what)
}

fn kernel(correlation: u32, grid: u64) -> Work {
    Work { kind: kind::KERNEL, correlation, grid, block: 1, ..Work::default() }
}

fn calls(grids: &[u64]) -> Calls {
    let mut calls = Calls::default();
    for (at, grid) in grids.iter().enumerate() {
        calls.add(call(1000 + at as i64, What::Kernel(*grid, 1)));
    }
    calls
}

fn all(calls: &mut Calls, records: &[Work]) -> Vec<Option<i64>> {
    records.iter().map(|work| calls.find(work, 5000, None, true).map(|given| given.start_ns - 1000)).collect()
}

#[test]
fn records_find_their_calls_by_number_and_shape() {
    let mut calls = calls(&[9, 9, 1, 2, 1, 2, 3, 1]);
    // Numbering began at the third call.
    let records: Vec<Work> = [1, 2, 1, 2, 3, 1].into_iter().zip(70..).map(|(grid, n)| kernel(n, grid)).collect();
    let known: Vec<(Work, i64)> = records.iter().map(|work| (*work, 5000)).collect();
    assert!(calls.align(&known, 0));
    assert_eq!(all(&mut calls, &records), [2, 3, 4, 5, 6, 7].map(Some));
    // Each is taken once.
    assert_eq!(calls.find(&kernel(75, 1), 5000, None, true).map(|given| given.start_ns), None);
    assert_eq!(calls.outstanding_ns(0), Some(1000));
    assert_eq!(calls.outstanding_ns(1002), None);
}

#[test]
fn what_cupti_counts_and_we_do_not_see_moves_the_rest() {
    let mut calls = calls(&[1, 2, 3, 4, 5, 6]);
    let numbers = [10, 11, 12, 15, 16, 17];
    let records: Vec<Work> = (1..=6).zip(numbers).map(|(grid, n)| kernel(n, grid)).collect();
    let known: Vec<(Work, i64)> = records.iter().map(|work| (*work, 5000)).collect();
    assert!(calls.align(&known, 0));
    assert_eq!(all(&mut calls, &records), [0, 1, 2, 3, 4, 5].map(Some));
}

#[test]
fn numbers_that_are_missing_where_code_is_loaded_move_the_place_one_by_one() {
    // As CUPTI 13 numbers a training loop: the first launch of each kernel loads it, which takes a number, or eight.
    let skipped = [(72, 1), (73, 1), (74, 8), (75, 1), (77, 1), (81, 1), (83, 1), (157, 1), (159, 1), (160, 1)];
    let shapes = |place: i64| if place < 72 { 1 } else { [3, 3, 5, 8, 3, 2][place as usize % 6] };
    let (mut calls, mut number, mut records) = (Calls::default(), 1, Vec::new());
    for place in 0..400 {
        let start_ns = 1_000_000 * (1 + place);
        calls.add(Given::new((start_ns, start_ns + 5000), place, What::Kernel(shapes(place), 1)));
        number += skipped.iter().find(|(at, _)| *at == place).map_or(0, |(_, more)| *more);
        records.push((kernel(number, shapes(place)), start_ns + 8000));
        number += 1;
    }
    let (mut found, mut told) = (Vec::new(), 0);
    // They come in batches, of which the first says where the numbers lie.
    for batch in records.chunks(72) {
        if told == 0 {
            assert!(calls.align(batch, 0));
        }
        told += batch.len();
        found.extend(batch.iter().map(|(work, ns)| calls.find(work, *ns, None, false).map(|call| call.correlation_id)));
    }
    assert_eq!(found, (0..400).map(Some).collect::<Vec<_>>());
}

#[test]
fn work_is_not_given_to_a_call_that_began_after_it() {
    let mut calls = Calls::default();
    for start_ns in [1000, 90_000] {
        calls.add(Given::new((start_ns, start_ns + 10), start_ns, What::Kernel(1, 1)));
    }
    assert!(calls.align(&[(kernel(4, 1), 5000)], 0));
    let mut find = |number, begin_ns| calls.find(&kernel(number, 1), begin_ns, None, true).map(|call| call.start_ns);
    assert_eq!([find(4, 5000), find(5, 60_000), find(5, 80_000)], [Some(1000), None, Some(90_000)]);
}

#[test]
fn a_call_that_comes_late_is_put_in_its_place() {
    let mut calls = calls(&[1, 2, 3]);
    let records: Vec<Work> = [1, 2, 3].into_iter().zip(5..).map(|(grid, n)| kernel(n, grid)).collect();
    let known: Vec<(Work, i64)> = records.iter().map(|work| (*work, 5000)).collect();
    assert!(calls.align(&known, 0));
    assert_eq!(all(&mut calls, &records), [0, 1, 2].map(Some));
    // Another thread's, which began before the last one, and one after it.
    calls.add(call(1003, What::Kernel(8, 1)));
    calls.add(Given::new((1001, 1009), 7, What::Copy(64)));
    let copy = Work { kind: kind::COPY, correlation: 8, amount: 64, ..Work::default() };
    assert_eq!(calls.find(&copy, 5000, None, true).map(|given| given.correlation_id), Some(7));
    assert_eq!(calls.find(&kernel(9, 8), 5000, None, true).map(|given| given.start_ns), Some(1003));
}

#[test]
fn a_thread_that_is_stopped_in_a_call_has_a_later_number() {
    let mut calls = Calls::default();
    let given = |start: i64, end: i64, stream: i64| Given {
        stream,
        ..Given::new((start, end), start * 10 + stream, What::Kernel(1, 1))
    };
    // The second call is numbered after four of another thread, which has a stream of its own.
    calls.add(given(1000, 1001, 1));
    calls.add(given(1002, 1100, 2));
    (0..4).for_each(|n| calls.add(given(1010 + 10 * n, 1011 + 10 * n, 1)));
    calls.add(given(1200, 1201, 2));
    let known: Vec<(Work, i64)> = (0..7).map(|n| (kernel(20 + n, 1), 5000)).collect();
    assert!(calls.align(&known, 0));
    let streams = [1, 1, 1, 1, 1, 2, 2];
    let found: Vec<i64> = known
        .iter()
        .zip(streams)
        .filter_map(|((work, begin), stream)| calls.find(work, *begin, Some(stream), false))
        .map(|given| given.start_ns)
        .collect();
    assert_eq!(found, [1000, 1010, 1020, 1030, 1040, 1002, 1200]);
}

#[test]
fn calls_that_cupti_did_not_count_move_the_place() {
    let mut calls = Calls::default();
    // Ten captured calls without a number, then launches of one graph.
    (0..5).for_each(|at| calls.add(call(1000 + at, What::Kernel(7, 1))));
    (5..15).for_each(|at| calls.add(call(1000 + at, What::Nothing)));
    (15..45).for_each(|at| calls.add(call(1000 + at, What::Graph)));
    let nodes = |number: u32| (0..3).map(move |node| Work { graph: 1, node, ..kernel(number, 1) });
    let kernels: Vec<(Work, i64)> = (1..=5).map(|n| (kernel(n, 7), 5000)).collect();
    assert!(calls.align(&kernels, 0));
    assert_eq!(all(&mut calls, &kernels.iter().map(|(work, _)| *work).collect::<Vec<_>>()).len(), 5);
    let graphs: Vec<(Work, i64)> = (6..=35).flat_map(nodes).map(|work| (work, 5000)).collect();
    assert_eq!(calls.find(&graphs[0].0, 5000, None, false).map(|given| given.start_ns), None);
    assert!(calls.align(&graphs, 0));
    let found: Vec<Option<i64>> =
        graphs.iter().map(|(work, _)| calls.find(work, 5000, None, false).map(|given| given.start_ns - 1000)).collect();
    let expected: Vec<Option<i64>> = (15..45).flat_map(|at| [Some(at); 3]).collect();
    assert_eq!(found, expected);
}

#[test]
fn where_numbers_have_gaps_their_order_is_left() {
    let mut calls = Calls::default();
    for at in 0..20 {
        calls.add(Given { stream: at % 2, ..call(1000 + at, What::Kernel(3, 1)) });
    }
    let records: Vec<(Work, i64)> = (0..20).map(|n| (kernel(100 + 3 * n, 3), 5000)).collect();
    assert!(!calls.align(&records, 0), "every third number");
    // A stream's work comes in its order, and late.
    let of = |stream: i64| (0..10).map(move |n| (2 * n + stream, stream));
    for (nth, stream) in of(1).chain(of(0)) {
        let found = calls.next(&records[nth as usize].0, 5000, Some(stream));
        assert_eq!(found.map(|given| given.start_ns), Some(1000 + nth));
    }
    // What was given while nothing was told of has no work.
    calls.add(call(1030, What::Kernel(3, 1)));
    calls.begin(1040);
    calls.add(call(1050, What::Kernel(3, 1)));
    assert_eq!(calls.next(&records[9].0, 5000, None).map(|given| given.start_ns), Some(1050));
    assert!(calls.next(&records[0].0, 5000, None).is_none());
}

#[test]
fn numbers_wrap_and_nodes_of_a_graph_have_one_call() {
    let mut calls = Calls::default();
    for at in 0..6 {
        calls.add(call(1000 + at, if at == 3 { What::Graph } else { What::Kernel(at as u64, 1) }));
    }
    let number = |at: u64| (u32::MAX - 2).wrapping_add(at as u32);
    let mut records: Vec<Work> = [0, 1, 2, 4, 5].map(|at| kernel(number(at), at)).to_vec();
    let node = |at| Work { graph: 1, node: at, ..kernel(number(3), at) };
    records.splice(3..3, [node(1), node(2)]);
    let known: Vec<(Work, i64)> = records.iter().map(|work| (*work, 5000)).collect();
    assert!(calls.align(&known, 0));
    assert_eq!(all(&mut calls, &records), [0, 1, 2, 3, 3, 4, 5].map(Some));
}

#[test]
fn records_of_nothing_that_we_know_find_nothing() {
    let mut calls = calls(&[1, 2, 3]);
    let strange: Vec<(Work, i64)> = (0..9).map(|n| (kernel(n, 77), 5000)).collect();
    assert!(!calls.align(&strange, 0));
    assert_eq!(calls.find(&strange[0].0, 5000, None, true).map(|given| given.start_ns), None);
    // Work does not begin before its call.
    let known = [(kernel(1, 1), 5000)];
    assert!(calls.align(&known, 0));
    assert!(calls.find(&kernel(1, 1), -2_000_000, None, true).is_none());
}

#[test]
fn a_number_that_a_launch_of_a_graph_had_before_is_another_call_afterwards() {
    let node = |number| Work { graph: 1, node: 1, ..kernel(number, 1) };
    let mut calls = Calls::default();
    calls.add(call(1000, What::Graph));
    assert!(calls.align(&[(node(7), 5000)], 0));
    assert_eq!(all(&mut calls, &[node(7), node(7)]), [Some(0), Some(0)]);
    calls.begin(1010);
    calls.add(call(1020, What::Graph));
    assert!(calls.align(&[(node(7), 5000)], 1010));
    assert_eq!(all(&mut calls, &[node(7)]), [Some(20)]);
}
