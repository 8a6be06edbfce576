//! What becomes of stacks beyond bounds.

use gputrace_abi::layout::malloc_mode;
use gputrace_abi::sync::Ordering;

use super::*;
use crate::chain::{Chain, Item};
use crate::names::MOST_STACKS;
use crate::support::{Memory, Thread as Writer};

#[test]
fn a_stack_that_finds_no_room_is_lost_and_counted_until_all_are_written_again() {
    let memory = Memory::new(16 << 20, malloc_mode::FULL);
    let mut writer = Writer::new(memory.view, 1);
    let many = MOST_STACKS as u64 + 44;
    for number in 1..=many {
        let frame = Frame { number, key: 0, offset: 0x1000 * number };
        let text = [&[0; 16][..], &frame.to_bytes()].concat();
        assert!(writer.bytes(text_kind::STACK, number, 0, &text));
    }
    let first = memory.view.thread(0).unwrap().first_chunk.load(Ordering::Acquire) - 1;
    let mut stacks = Stacks::new(7, 70, "/bin/true");
    Chain::new(&memory.view, first).unwrap().read(&memory.view, false, usize::MAX, |item| {
        if let Item::Text(text) = item {
            assert!(stacks.take_text(&text));
        }
    });
    let (mut tables, mut written) = (Tables::new(), Written::default());
    let mut known = |keys: std::ops::RangeInclusive<u64>, stacks: &mut Stacks, written: &mut Written| {
        keys.filter(|key| stacks.by_key(*key, &mut tables, written).is_some()).count()
    };
    assert_eq!(known(1..=many, &mut stacks, &mut written), MOST_STACKS);
    assert_eq!((known(many..=many, &mut stacks, &mut written), stacks.lost()), (0, 45));
    assert_eq!(known(1..=1, &mut stacks, &mut written), 1);
    written.forget();
    stacks.announce_again();
    assert_eq!((known(many..=many, &mut stacks, &mut written), stacks.lost()), (1, 45));
    assert_eq!(tables.take_natives().iter().map(|of| of.stacks.len()).sum::<usize>(), MOST_STACKS + 1);
}
