//! The books stay right with threads that come and go, free each other's blocks and fork, under 10,000 signals a second.

use std::collections::BTreeMap;

use crate::util::{Finished, Scratch, Trace, count, program};

/// As the program has it.
const CHILD: i64 = 40;
const CHILD_BYTES: i64 = 50_000;

/// What the program says: blocks that it allocated and blocks that live at its end, by size; and how many children it had.
pub(super) struct Said {
    pub(super) blocks: BTreeMap<i64, [i64; 2]>,
    pub(super) children: i64,
}

impl Said {
    pub(super) fn by(run: &Finished) -> Said {
        let (mut blocks, mut children) = (BTreeMap::new(), 0);
        for line in run.text().lines() {
            let number = |text: &str| text.parse().expect("a number");
            match line.split(' ').collect::<Vec<_>>()[..] {
                ["children", n] => children = number(n),
                [bytes, allocated, live] => _ = blocks.insert(number(bytes), [number(allocated), number(live)]),
                _ => panic!("{line}"),
            }
        }
        assert!(blocks.len() == 64 && children > 0, "{}", run.text());
        Said { blocks, children }
    }
}

fn stressed(scratch: &Scratch, smallest: i64, mode: &str) -> (Said, Trace) {
    let target = scratch.target(program("malloc_stress")).args(["64", "8", "100", &smallest.to_string()]);
    let run = target.options(["--malloc", mode, "--on-full", "block"]).traced().expect(0);
    let trace = run.read();
    trace.assert_balanced();
    (Said::by(&run), trace)
}

#[test]
fn every_block_of_sixty_four_threads_has_its_size_its_stack_and_its_end() {
    let scratch = Scratch::alone();
    let (said, trace) = stressed(&scratch, 20_000, "full");
    let root = trace.root();
    let functions = trace.stacks(|row| row.text("function").to_owned());
    // Blocks that were allocated, and that live, by size; in the program and in its children.
    let (mut own, mut others) = (BTreeMap::new(), BTreeMap::new());
    let (mut stacks, mut without) = (0, 0);
    let table = trace.table("host_memory");
    for row in table.rows() {
        let bytes = row.int("bytes");
        let mine = row.int("process_id") == root.process_id;
        let ours = if mine { 20_000..20_064 } else { CHILD_BYTES..CHILD_BYTES + CHILD };
        if !ours.contains(&bytes) {
            continue;
        }
        let counts: &mut [i64; 2] = if mine { &mut own } else { &mut others }.entry(bytes).or_default();
        let alloc = row.text("action") == "alloc";
        counts[0] += i64::from(alloc);
        counts[1] += if alloc { 1 } else { -1 };
        if !alloc {
            assert!(row.maybe_int("age_ns").is_some_and(|ns| ns >= 0), "the age of a block of {bytes}");
        }
        match row.maybe_int("stack_id") {
            Some(id) => assert_eq!(*functions.innermost(id), format!("make_{}", bytes % 4)),
            None => without += 1,
        }
        stacks += 1;
    }
    assert_eq!(own, said.blocks);
    let of_children = (0..CHILD).map(|i| (CHILD_BYTES + i, [said.children, i % 2 * said.children]));
    assert_eq!(others, of_children.collect::<BTreeMap<_, _>>());
    // Few stacks are described at a time: the first use of one may find no room.
    assert!(without * 100 < stacks, "{without} of {stacks} have no stack");
}

#[test]
fn samples_of_sixty_four_threads_say_what_they_allocated_and_what_lives() {
    let scratch = Scratch::alone();
    let (said, trace) = stressed(&scratch, 700, "sample=1K");
    let root = trace.root();
    assert_eq!(count(&root, "host_alloc").dropped, 0);
    let mut estimates = [0.0, 0.0];
    let table = trace.table("host_memory");
    let bytes = 700..764;
    for row in table.rows().filter(|r| r.int("process_id") == root.process_id && bytes.contains(&r.int("bytes"))) {
        let weight = row.float("weight_bytes");
        let alloc = row.text("action") == "alloc";
        estimates[0] += if alloc { weight } else { 0.0 };
        estimates[1] += if alloc { weight } else { -weight };
    }
    for (at, what) in ["allocated", "live"].iter().enumerate() {
        let (mut truth, mut variance) = (0.0, 0.0);
        for (bytes, counts) in &said.blocks {
            let (s, n) = (*bytes as f64, counts[at] as f64);
            let p = 1.0 - (-s / 1024.0).exp();
            truth += n * s;
            variance += n * s * s * (1.0 - p) / p;
        }
        let off = (estimates[at] - truth) / variance.sqrt();
        assert!(off.abs() < 5.0, "{what}: {} of {truth}, off by {off} standard errors", estimates[at]);
        assert!(variance.sqrt() * 5.0 < truth * 0.3, "the test proves nothing");
    }
}
