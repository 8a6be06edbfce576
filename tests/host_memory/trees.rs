//! No allocation gets the stack of another one: random paths through a program's functions, each block with its own size,
//! and the trace must say of each size the path that the program wrote down.
//!
//! The shim remembers a thread's last stack and looks only at what may have changed. Here everything changes at random, and
//! comes back: depth, functions, call sites, sizes of frames, with frame pointers and without.

use std::collections::{HashMap, HashSet};

use crate::util::{Scratch, Trace, program_with};

/// As the program has it.
const FIRST_BYTES: i64 = 10_000;
/// Frames of a stack that are kept.
const DEPTH_MAX: usize = 1024;

/// Function, place in its module, and whether it is the last of a stack that was cut.
type Frame = (String, Option<i64>, bool);

/// The stack of each block by the block's size, innermost first; none where the shim took none.
fn stacks(trace: &Trace, count: usize) -> HashMap<i64, Option<Vec<Frame>>> {
    let frames = trace.stacks(|row| (row.text("function").to_owned(), row.maybe_int("offset"), row.int("cut") == 1));
    let table = trace.table("host_memory");
    let bytes = FIRST_BYTES..FIRST_BYTES + count as i64;
    let ours = table.rows().filter(|row| row.text("action") == "alloc" && bytes.contains(&row.int("bytes")));
    let stack = |id: i64| frames.of(id).cloned().collect();
    ours.map(|row| (row.int("bytes"), row.maybe_int("stack_id").map(stack))).collect()
}

/// Runs the program, compiled with one choice about frame pointers and its library with the other, and never deeper than so many
/// functions. Returns how many blocks have no stack.
#[track_caller]
fn compare(choices: [&str; 2], blocks: usize, threads: usize, seed: u32, deepest: usize) -> usize {
    let [own, other] = choices.map(|choice| ["-O2".to_owned(), format!("-f{choice}")]);
    let library = ["-DLIBRARY", "-shared", "-fPIC"].map(str::to_owned);
    let tag = |what| format!("{}{what}", choices[0]);
    let library = program_with("call_trees", &tag(".so"), &[&other[..], &library].concat());
    let linked = [library.display().to_string(), "-lpthread".to_owned()];
    let program = program_with("call_trees", &tag(""), &[&own[..], &linked].concat());
    let scratch = Scratch::alone();
    let target = scratch.target(program).args([blocks, threads, seed as usize, deepest].map(|n| n.to_string()));
    let run = target.options(["--malloc", "full", "--on-full", "block"]).same().expect(0);
    let trace = run.read();
    trace.assert_balanced();
    let mut without = 0;
    let mut found = stacks(&trace, blocks * threads);
    // Each place in the code is one call site.
    let mut sites: HashMap<(String, i64), char> = HashMap::new();
    for line in run.text().lines() {
        let (bytes, path) = line.split_once(' ').expect("a size and a path");
        let stack = found.remove(&bytes.parse().expect("a size")).unwrap_or_else(|| panic!("no block for {line}"));
        let Some(stack) = stack else {
            without += 1;
            continue;
        };
        let path: Vec<char> = path.chars().rev().take(DEPTH_MAX).collect();
        for (site, (function, offset, _)) in path.iter().zip(&stack) {
            let number = (site.to_ascii_lowercase() as u8 - b'a') / 2;
            assert_eq!(*function, format!("node_{number}"), "seed {seed}, {line}: {stack:?}");
            let place = (function.clone(), offset.expect("a place in a file"));
            assert_eq!(sites.entry(place).or_insert(*site), site, "seed {seed}, {line}: {stack:?}");
        }
        let cut = stack.last().is_some_and(|(_, _, cut)| *cut);
        let whole = if cut { stack.len() == DEPTH_MAX } else { stack.len() > path.len() };
        assert!(whole, "seed {seed}, {line}: {stack:?}");
        if let Some((function, ..)) = stack.get(path.len()) {
            assert_eq!(function, "work", "seed {seed}, {line}: {stack:?}");
        }
    }
    assert!(found.is_empty(), "blocks that the program did not write down: {found:?}");
    let seen: HashSet<char> = sites.values().copied().collect();
    assert_eq!(seen.len(), 32, "each site was on the way to some block");
    without
}

const WITHOUT_FRAME_POINTERS: [&str; 2] = ["omit-frame-pointer", "no-omit-frame-pointer"];
const WITH_FRAME_POINTERS: [&str; 2] = ["no-omit-frame-pointer", "omit-frame-pointer"];

#[test]
fn each_block_of_a_random_tree_of_calls_has_the_stack_that_the_program_says() {
    for choices in [WITHOUT_FRAME_POINTERS, WITH_FRAME_POINTERS] {
        for seed in 1..4 {
            assert_eq!(compare(choices, 2_000, 1, seed, 230), 0);
        }
    }
}

/// As deep as is kept, twice as deep, which is all that is remembered, and deeper.
#[test]
fn stacks_of_which_the_outermost_frames_are_cut_are_told_apart_by_those_that_are_kept() {
    for deepest in [DEPTH_MAX + 300, 3 * DEPTH_MAX] {
        assert_eq!(compare(WITHOUT_FRAME_POINTERS, 3_000, 1, 5, deepest), 0);
    }
}

/// Of these the collector forgets most, which are told again.
#[test]
fn more_stacks_than_the_collector_keeps_in_mind_are_told_again() {
    assert_eq!(compare(WITHOUT_FRAME_POINTERS, 100_000, 1, 6, 40), 0);
}

/// Few stacks are described at a time; one that finds no room is told of with its next use, which here never comes.
#[test]
fn more_threads_than_have_memory_for_their_last_stack_have_their_own_stacks() {
    let without = compare(WITHOUT_FRAME_POINTERS, 20, 300, 4, 230);
    // 20 to 400, by how busy the machine is.
    assert!(without < 1_000, "{without} of 6,000");
}
