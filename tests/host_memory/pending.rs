//! Short lives that the traced process itself sums up: every block is counted or told, once, whoever frees it and however the process ends.

use std::collections::BTreeMap;
use std::time::{Duration, Instant};

use super::stress::Said;
use crate::recovering::{go_on, stop};
use crate::util::{Finished, Row, Scratch, Target, Trace, count, library, program};

/// Short lives of so many ms are summed up.
fn options(ms: &str) -> [&str; 8] {
    ["--malloc", "full", "--malloc-stacks", "off", "--on-full", "block", "--cull", ms]
}

/// Longer than a program runs on any machine: whatever a thread frees of its own blocks is summed up.
const ALL: &str = "10000";

/// What it leaves when it ends by this exit code: all calls are accounted for, and none is lost.
fn traced(target: Target<'_>, ms: &str, code: i32) -> (Finished, Trace) {
    let run = target.options(options(ms)).traced().expect(code);
    let trace = run.read();
    trace.assert_balanced();
    for class in ["host_alloc", "host_free"] {
        assert_eq!(count(&trace.root(), class).dropped, 0, "{class}");
    }
    (run, trace)
}

/// Blocks of the root of each size that were allocated in events, and that live.
fn told(trace: &Trace) -> BTreeMap<i64, [i64; 2]> {
    let (root, mut live, mut sizes) = (trace.root().process_id, BTreeMap::new(), BTreeMap::<i64, [i64; 2]>::new());
    let table = trace.table("host_memory");
    for row in table.rows().filter(|row| row.int("process_id") == root) {
        let (address, bytes) = (row.int("address"), row.int("bytes"));
        match row.text("action") {
            "alloc" => {
                sizes.entry(bytes).or_default()[0] += 1;
                assert_eq!(live.insert(address, bytes), None, "a block of {bytes} where another one lives");
            }
            "free" => assert_eq!(live.remove(&address).unwrap_or(bytes), bytes, "a free of a block of another size"),
            _ => {}
        }
    }
    live.values().for_each(|bytes| sizes.entry(*bytes).or_default()[1] += 1);
    sizes
}

/// Blocks of the root that were summed up, and their bytes, of sizes of one power of two.
fn summed(trace: &Trace, bytes: i64) -> (i64, f64) {
    let root = trace.root().process_id;
    let of = |row: &Row<'_>| {
        let own = row.text("action") == "culled" && row.int("process_id") == root;
        own && row.int("bytes").leading_zeros() == bytes.leading_zeros()
    };
    let table = trace.table("host_memory");
    table.rows().filter(of).fold((0, 0.0), |sum, row| (sum.0 + row.int("calls"), sum.1 + row.float("weight_bytes")))
}

#[test]
fn a_process_that_is_killed_leaves_every_block_that_it_had() {
    let scratch = Scratch::new();
    let (_run, trace) = traced(scratch.target(program("mallocs")).args(["killed", "20000", "777"]), ALL, 137);
    let starts: Vec<i64> = trace.table("host_memory").rows().map(|row| row.int("start_ns")).collect();
    assert!(starts.is_sorted());
    // Nobody else has blocks of this size, and few have any of up to a KiB.
    assert_eq!(told(&trace)[&777][1], 20_000);
    let (calls, bytes) = summed(&trace, 777);
    assert!((20_000..20_010).contains(&calls) && bytes >= 777.0 * 20_000.0, "{calls} of {bytes} bytes");
}

#[test]
fn blocks_that_another_thread_frees_are_told_with_who_allocated_and_who_freed_them() {
    let scratch = Scratch::new();
    let (_run, trace) = traced(scratch.target(program("mallocs")).args(["given", "10000", "777"]), "0.001", 0);
    let table = trace.table("host_memory");
    let threads = |action: &str| {
        let own = table.rows().filter(|row| row.text("action") == action && row.int("bytes") == 777);
        own.fold(BTreeMap::<i64, i64>::new(), |mut by, row| {
            *by.entry(row.int("tid")).or_default() += 1;
            by
        })
    };
    let (allocs, frees) = (threads("alloc"), threads("free"));
    // Some may be culled afterwards, by the collector.
    let culled = summed(&trace, 777).0;
    let [alloc, free] = [&allocs, &frees].map(|by| by.values().sum::<i64>());
    assert!(alloc == free && (10_000..10_010).contains(&(alloc + culled)), "{allocs:?} {frees:?} {culled}");
    assert!(alloc > 5_000, "the test proves little: {alloc}");
    assert!(allocs.keys().all(|tid| !frees.contains_key(tid)), "{allocs:?} {frees:?}");
    assert!(told(&trace).get(&777).is_none_or(|[_, live]| *live == 0));
}

#[test]
fn blocks_of_threads_that_free_each_others_do_not_all_begin_when_the_collector_looks() {
    let scratch = Scratch::new();
    let (_run, trace) = traced(scratch.target(program("mallocs")).args(["swapped", "200000", "600"]), "0.001", 0);
    let table = trace.table("host_memory");
    let (mut live, mut most) = (0_i64, 0);
    for row in table.rows().filter(|row| (600..800).contains(&row.int("bytes"))) {
        live += match row.text("action") {
            "alloc" => 1,
            "free" => -1,
            _ => 0,
        };
        most = most.max(live);
    }
    // 1,028 at most at any time, and as many as are allocated in the half of a ms by which they may begin early.
    assert!((500..4_500).contains(&most) && live.abs() < 10, "{most} at once, {live} at the end");
}

#[test]
fn blocks_of_sixty_four_threads_that_free_each_others_are_all_there_and_live_as_the_program_has_them() {
    let scratch = Scratch::alone();
    let target = scratch.target(program("malloc_stress")).args(["64", "8", "100", "600"]);
    let (run, trace) = traced(target, ALL, 0);
    let said = Said::by(&run);
    let told = told(&trace);
    let mut made = 0;
    for (bytes, [allocated, live]) in &said.blocks {
        let [events, alive] = told.get(bytes).copied().unwrap_or_default();
        assert_eq!(alive, *live, "live blocks of {bytes}");
        assert!(events <= *allocated, "{events} blocks of {bytes} of {allocated}");
        made += allocated - events;
    }
    // Sums say only of which power of two their sizes are; the program and libc have few others of these.
    let (calls, _) = summed(&trace, 600);
    assert!((made..made + 200).contains(&calls), "{calls} blocks were summed up, and {made} are missing");
    assert!(made > 0 && said.children > 0);
}

#[test]
fn a_collector_that_is_held_up_leaves_short_lives_short() {
    let scratch = Scratch::alone();
    let target = scratch.target(program("mallocs")).args(["turns", "2", "232"]).options(options("20"));
    let run = target.start();
    let until = Instant::now() + Duration::from_secs(2);
    while Instant::now() < until {
        std::thread::sleep(Duration::from_millis(30));
        stop(run.pid());
        std::thread::sleep(Duration::from_millis(70));
        go_on(run.pid());
    }
    let run = run.wait().expect(0);
    let made: i64 = run.text().lines().next().and_then(|line| line.parse().ok()).expect("a number");
    let trace = run.read();
    trace.assert_balanced();
    let told = told(&trace).get(&232).map_or(0, |[events, _]| *events);
    // Of those that lived while it stood still two thousand each time would be told, some 40,000.
    assert!(told < 10_000 && summed(&trace, 232).0 >= made - told, "{told} of {made}");
}

#[test]
fn a_free_of_nothing_is_no_block_and_functions_that_are_only_counted_have_names() {
    let scratch = Scratch::new();
    let (_run, trace) = traced(scratch.target(program("mallocs")).args(["nothing", "100000"]), ALL, 0);
    assert_eq!(summed(&trace, 0).0, 0);
    let table = trace.table("host_memory");
    let zeroed = table.rows().find(|row| row.text("action") == "culled" && row.int("bytes") == 777).expect("the block");
    assert_eq!(trace.names()[&zeroed.int("api_id")], "calloc");
}

#[test]
fn who_walks_up_the_stack_inside_of_malloc_comes_to_its_beginning() {
    let scratch = Scratch::new();
    let target = || {
        scratch
            .target(program("mallocs"))
            .args(["traffic", "20000", "100"])
            .env("LD_PRELOAD", library("walking_malloc"))
    };
    let frames =
        |run: &Finished| run.text().split(' ').nth(2).and_then(|frames| frames.parse::<i64>().ok()).expect("frames");
    let alone = frames(&target().plain().expect(0));
    let (run, trace) = traced(target(), ALL, 0);
    assert!(alone > 3 && frames(&run) > alone, "{alone} alone, {} traced", frames(&run));
    assert!(summed(&trace, 100).0 > 10_000);
}
