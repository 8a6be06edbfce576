//! Blocks of which nothing was told yet: each is told or counted once, and before its free.

#[cfg(not(loom))]
use std::{sync::Arc, thread};

use gputrace_abi::pending::{Pending, Word};
use gputrace_abi::sync::{AtomicU64, Ordering};
#[cfg(loom)]
use loom::{sync::Arc, thread};

/// A block stands in the table. Its place is wanted for another one, the collector finds it old, and a third thread frees it: one of
/// them owns what was known of it, and who tells of it has a time before that of the free, which looks for it and then at the clock.
pub(crate) fn pending() {
    const BLOCK: Word = Word(5);
    const OTHER: Word = Word(6);
    let shared = Arc::new((Pending::<1>::default(), AtomicU64::new(1), [AtomicU64::new(0), AtomicU64::new(0)]));
    assert!(shared.0.exchange(0, Word::NONE, BLOCK));
    let tell = |nth: usize, new: Word| {
        let shared = shared.clone();
        thread::spawn(move || {
            let (table, clock, told) = &*shared;
            if table.at(0) == BLOCK {
                let now = clock.fetch_add(1, Ordering::Relaxed);
                if table.exchange(0, BLOCK, new) {
                    told[nth].store(now, Ordering::Relaxed);
                }
            }
        })
    };
    let tellers = [tell(0, OTHER), tell(1, Word::NONE)];
    let (table, clock, told) = &*shared;
    let counted = table.at(0) == BLOCK && table.exchange(0, BLOCK, Word::NONE);
    // Who was too late looks once more, and finds it gone.
    assert!(counted || table.at(0) != BLOCK);
    let freed = clock.fetch_add(1, Ordering::Relaxed);
    for teller in tellers {
        teller.join().unwrap();
    }
    let times: Vec<u64> = told.iter().map(|at| at.load(Ordering::Relaxed)).filter(|at| *at != 0).collect();
    assert_eq!(times.len() + usize::from(counted), 1);
    assert!(times.iter().all(|at| *at < freed), "told at {times:?}, freed at {freed}");
}
