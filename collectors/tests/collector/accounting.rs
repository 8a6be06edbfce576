//! seen = recorded + dropped + sampled out + in flight + abandoned, whatever happens.

use gputrace_abi::layout::{malloc_mode, thread_state};
use gputrace_abi::sync::Ordering;

use crate::rows::{batches, count, values};
use crate::support::{COUNTED, Folder, Memory, Target, hook, wait_until};
use crate::{assert_exact, collect, finish};

#[test]
fn a_killed_process_loses_nothing_that_was_written_and_its_last_call_is_in_flight() {
    for round in 0..20 {
        let folder = Folder::new("killed");
        let running = collect(&folder);
        let mut target = Target::new(&folder.session());
        let mut threads: Vec<_> = (1..4).map(|tid| target.thread(tid)).collect();
        for n in 0..round * 97 {
            for thread in &mut threads {
                thread.call("cuLaunchKernel", [n, 0, 0, 0]);
            }
        }
        threads[1].begin("cuStreamSynchronize");
        // Another one was killed between its slot's commit and the end of the call.
        threads[2].begin("cuLaunchKernel");
        threads[2].row().seen[1].fetch_sub(1, Ordering::Relaxed);
        threads[2].call("cuLaunchKernel", [0; 4]);
        target.wait_until_read();
        target.kill();
        let manifest = finish(running);
        assert_exact(&folder, &manifest);
        let accounting = &manifest.processes[0].accounting;
        assert_eq!(accounting["sync"].in_flight, 1);
        assert_eq!((accounting["launch"].in_flight, accounting["launch"].recorded), (0, 3 * round * 97 + 1));
    }
}

#[test]
fn a_first_call_that_never_returns_is_accounted_for_though_the_process_has_no_event() {
    for killed in [false, true] {
        let folder = Folder::new("first");
        let running = collect(&folder);
        let mut target = Target::new(&folder.session());
        let mut thread = target.thread(1);
        thread.begin("cuStreamSynchronize");
        if !killed {
            thread.exit();
        }
        target.wait_until_read();
        target.kill();
        let manifest = finish(running);
        assert_exact(&folder, &manifest);
        let count = manifest.processes[0].accounting["sync"];
        assert_eq!((count.seen, count.in_flight, count.abandoned), (1, u64::from(killed), u64::from(!killed)));
    }
}

#[test]
fn torn_slots_are_passed_over_and_counted_as_dropped() {
    let folder = Folder::new("torn");
    let running = collect(&folder);
    let mut target = Target::new(&folder.session());
    let mut thread = target.thread(1);
    for _ in 0..600 {
        thread.call("cuLaunchKernel", [1, 0, 0, 0]);
    }
    thread.row().seen[1].fetch_add(1, Ordering::Relaxed);
    thread.tear();
    for _ in 0..600 {
        thread.call("cuLaunchKernel", [2, 0, 0, 0]);
    }
    target.wait_until_read();
    target.kill();
    let manifest = finish(running);
    assert_exact(&folder, &manifest);
    let count = manifest.processes[0].accounting["launch"];
    assert_eq!((count.recorded, count.dropped), (1200, 1));
}

#[test]
fn a_hole_holds_a_living_thread_up_for_a_moment_only() {
    let folder = Folder::new("hole");
    let running = collect(&folder);
    let mut target = Target::new(&folder.session());
    let mut thread = target.thread(1);
    thread.row().seen[1].fetch_add(1, Ordering::Relaxed);
    thread.tear();
    for n in 0..2000 {
        thread.call("cuLaunchKernel", [n, 0, 0, 0]);
    }
    let used = || -> u32 {
        let words = target.memory.view.header().free_chunks.iter();
        words.map(|w| w.load(Ordering::Relaxed).count_zeros()).sum()
    };
    let all = used();
    // Of its four chunks two are given back; the one with the hole is not, nor the last.
    wait_until("the chunks after the hole", || used() == all - 2);
    thread.exit();
    target.exit(0);
    let manifest = finish(running);
    assert_exact(&folder, &manifest);
    assert_eq!(manifest.processes[0].accounting["launch"].dropped, 1);
}

#[test]
fn drops_of_a_full_pool_are_counted() {
    let folder = Folder::new("full");
    // The process is there before its collector: nobody empties the pool.
    let memory = Memory::new(4 << 20, malloc_mode::OFF);
    let mut thread = crate::support::Thread::new(memory.view, 1);
    let written = (0..100_000).filter(|n| thread.call("cuLaunchKernel", [*n, 0, 0, 0])).count();
    assert!(written > 1000 && written < 100_000);
    let running = collect(&folder);
    let mut target = Target::with(&folder.session(), memory);
    target.exit(0);
    let manifest = finish(running);
    assert_exact(&folder, &manifest);
    let launches = manifest.processes[0].accounting["launch"];
    assert_eq!((launches.recorded, launches.seen), (written as u64, 100_000));
}

#[test]
fn threads_that_end_give_their_rows_back_and_are_counted() {
    let folder = Folder::new("threads");
    let running = collect(&folder);
    let mut target = Target::new(&folder.session());
    target.wait_until_read();
    for round in 0..40 {
        for n in 0..50 {
            let mut thread = target.thread(1000 + round * 50 + n);
            thread.call("cuLaunchKernel", [0; 4]);
            thread.row().abandoned[1].store(1, Ordering::Relaxed);
            thread.row().seen[1].fetch_add(1, Ordering::Relaxed);
            thread.exit();
        }
        if round % 8 == 7 {
            let free = |n| target.memory.view.thread(n).unwrap().state.load(Ordering::Relaxed) == thread_state::FREE;
            wait_until("the rows to be freed", || (0..4096).all(free));
        }
    }
    target.exit(0);
    let manifest = finish(running);
    assert_exact(&folder, &manifest);
    let launches = manifest.processes[0].accounting["launch"];
    assert_eq!((launches.recorded, launches.abandoned), (2000, 2000));
    let threads = batches(&folder.trace(), "threads");
    let mut tids = values(&threads, "tid");
    tids.sort();
    assert_eq!(tids, (1000..3000).collect::<Vec<i64>>());
    let launches = batches(&folder.trace(), "launches");
    let mut correlations = values(&launches, "correlation_id");
    correlations.sort();
    correlations.dedup();
    assert_eq!(correlations.len(), 2000);
}

#[test]
fn events_of_the_shared_chain_belong_to_their_threads() {
    let folder = Folder::new("shared");
    let running = collect(&folder);
    let mut target = Target::new(&folder.session());
    let (mut one, mut two) = (target.thread(11), target.thread(22));
    for _ in 0..700 {
        one.shared_event("cuLaunchKernel", [1, 0, 0, 0]);
        two.shared_event("cuLaunchKernel", [2, 0, 0, 0]);
    }
    one.exit();
    target.exit(0);
    let manifest = finish(running);
    assert_exact(&folder, &manifest);
    let launches = batches(&folder.trace(), "launches");
    let both = values(&launches, "tid").into_iter().zip(values(&launches, "function"));
    assert!(both.clone().all(|pair| pair == (11, 1) || pair == (22, 2)));
    assert_eq!(count(&folder.trace(), "launches"), 1400);
}

#[test]
fn calls_of_threads_without_a_row_are_seen_and_dropped() {
    let folder = Folder::new("rowless");
    let running = collect(&folder);
    let mut target = Target::new(&folder.session());
    target.memory.view.header().rowless[2].store(5, Ordering::Relaxed);
    target.exit(0);
    let manifest = finish(running);
    let syncs = manifest.processes[0].accounting["sync"];
    assert_eq!((syncs.seen, syncs.dropped), (5, 5));
}

#[test]
fn a_process_that_runs_on_is_marked_and_records_no_more() {
    let folder = Folder::new("daemon");
    let running = collect(&folder);
    let target = Target::new(&folder.session());
    let mut thread = target.thread(1);
    thread.call("cuLaunchKernel", [0; 4]);
    thread.begin("cuStreamSynchronize");
    target.wait_until_read();
    let manifest = finish(running);
    assert_exact(&folder, &manifest);
    assert!(manifest.processes[0].running);
    assert_eq!(manifest.processes[0].accounting["sync"].in_flight, 1);
    assert_ne!(target.memory.view.header().paused.load(Ordering::Relaxed), 0);
}

#[test]
fn calls_that_are_only_counted_were_seen_and_sampled_out() {
    let folder = Folder::new("counted");
    let running = collect(&folder);
    let mut target = Target::new(&folder.session());
    let view = target.memory.view;
    let counted = usize::from(hook(COUNTED));
    let blocks: Vec<u32> = (0..3).map(|_| view.take_counters().unwrap()).collect();
    for block in &blocks {
        view.counters(*block).unwrap()[counted].fetch_add(1000, Ordering::Relaxed);
        // What stands at a hook that has events are calls that were left out to keep to a budget.
        view.counters(*block).unwrap()[0].fetch_add(5, Ordering::Relaxed);
    }
    view.shared_counters().unwrap()[counted].fetch_add(7, Ordering::Relaxed);
    view.give_counters(blocks[1]);
    target.exit(0);
    let manifest = finish(running);
    let process = &manifest.processes[0];
    assert_eq!((process.accounting["api"].seen, process.accounting["api"].sampled_out), (3007, 3007));
    let launches = process.accounting["launch"];
    assert!(process.balanced && (launches.seen, launches.sampled_out) == (15, 15), "{launches:?}");
    let hooks = &process.coverage.hooks;
    let reached: Vec<_> = hooks.iter().map(|hook| (hook.calls, hook.counted, hook.left_out)).collect();
    assert_eq!(reached, [(15, false, 15), (3007, true, 0)]);
    assert_eq!(hooks[1].name, COUNTED);
}

#[test]
fn counts_beyond_all_measure_do_not_overflow() {
    let folder = Folder::new("overflow");
    let running = collect(&folder);
    let mut target = Target::new(&folder.session());
    let view = target.memory.view;
    for _ in 0..60 {
        let block = view.take_counters().unwrap();
        view.counters(block).unwrap().iter().for_each(|counter| counter.store(u64::MAX, Ordering::Relaxed));
    }
    view.header().counter_blocks.store(u32::MAX, Ordering::Relaxed);
    target.exit(0);
    let manifest = finish(running);
    assert!(manifest.processes[0].balanced);
}
