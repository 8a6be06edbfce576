//! What becomes of stacks beyond bounds.

use std::ops::RangeInclusive;

use gputrace_abi::layout::malloc_mode;
use gputrace_abi::sync::Ordering;

use super::*;
use crate::chain::{Chain, Item};
use crate::names::MOST_STACKS;
use crate::support::{Memory, Thread as Writer};

/// A stack of one frame of native code for each of these numbers, its key.
fn tell(stacks: &mut Stacks, numbers: RangeInclusive<u64>) {
    let memory = Memory::new(16 << 20, malloc_mode::FULL);
    let mut writer = Writer::new(memory.view, 1);
    for number in numbers {
        let frame = Frame { number, key: 0, offset: 0x1000 * number };
        let text = [&[0; 16][..], &frame.to_bytes()].concat();
        assert!(writer.bytes(text_kind::STACK, number, 0, &text));
    }
    let first = memory.view.thread(0).unwrap().first_chunk.load(Ordering::Acquire) - 1;
    Chain::new(&memory.view, first).unwrap().read(&memory.view, false, usize::MAX, |item| {
        if let Item::Text(text) = item {
            assert!(stacks.take_text(&text));
        }
    });
}

struct Trace {
    tables: Tables,
    written: Written,
}

impl Trace {
    fn new() -> Trace {
        Trace { tables: Tables::new(), written: Written::default() }
    }

    /// How many of these stacks have an id.
    fn ids(&mut self, stacks: &mut Stacks, keys: RangeInclusive<u64>) -> usize {
        keys.filter(|key| stacks.by_key(*key, &mut self.tables, &mut self.written).is_some()).count()
    }

    /// Rows that were written since it was asked last.
    fn rows(&mut self) -> usize {
        self.tables.take_natives().iter().map(|of| of.stacks.len()).sum()
    }
}

#[test]
fn of_more_stacks_than_a_collector_keeps_those_that_it_met_last_are_written_once() {
    let (mut stacks, mut trace) = (Stacks::new(7, 70, "/bin/true"), Trace::new());
    let many = MOST_STACKS as u64 + 44;
    tell(&mut stacks, 1..=many);
    assert_eq!((trace.ids(&mut stacks, 1..=many), trace.rows()), (many as usize, many as usize));
    // Another process has the same.
    let mut other = Stacks::new(7, 71, "/bin/true");
    tell(&mut other, 1..=many);
    assert_eq!((trace.ids(&mut other, many - 43..=many), trace.rows()), (44, 0));
    assert_eq!((trace.ids(&mut other, 1..=1), trace.rows()), (1, 1));
    trace.written.forget();
    stacks.announce_again();
    assert_eq!((trace.ids(&mut stacks, many..=many), trace.rows(), stacks.lost()), (1, 1, 0));
}

#[test]
fn what_was_told_long_ago_is_forgotten_which_is_said_and_told_again() {
    let (mut stacks, mut trace) = (Stacks::new(7, 70, "/bin/true"), Trace::new());
    let half = (MOST_BYTES / 2 / (STACK + FRAME)) as u64 + 1;
    assert_eq!(stacks.make_room(10, 0), 0);
    tell(&mut stacks, 1..=half);
    assert_eq!(stacks.make_room(20, 10), 1);
    tell(&mut stacks, half + 1..=2 * half);
    assert_eq!(
        trace.ids(&mut stacks, 1..=2 * half),
        2 * half as usize,
        "what the process knows to be forgotten is there"
    );
    assert_eq!(stacks.make_room(30, 20), 1, "as what it recorded before it knew may not have been read");
    assert_eq!(trace.ids(&mut stacks, 1..=2 * half), 2 * half as usize);
    assert_eq!(stacks.make_room(40, 30), 2);
    tell(&mut stacks, 2 * half + 1..=2 * half + 1);
    assert_eq!((trace.ids(&mut stacks, 1..=half), stacks.lost()), (0, half));
    tell(&mut stacks, 5..=9);
    assert_eq!(trace.ids(&mut stacks, 1..=half), 5);
    assert_eq!(trace.ids(&mut stacks, half + 1..=2 * half + 1), half as usize + 1);
    let mut heirs = Stacks::new(7, 70, "/bin/true");
    heirs.go_on(stacks.make_room(50, 40));
    assert_eq!(heirs.make_room(60, 0), 3, "what the other collector heard of is told to the heir");
}
