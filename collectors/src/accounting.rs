//! Where every call went: seen = recorded + dropped + sampled out + in flight + abandoned. Of what is recorded here
//! `--cull` and `--detail` may leave some out afterwards.
//!
//! A thread counts what it saw, dropped and abandoned in its row of the segment; the reader counts what it found in
//! the rings. The two agree but for the calls that a thread was in the middle of when it died, and for slots that it
//! reserved and never wrote: those are found here, by what is missing.

use std::collections::BTreeMap;

use gputrace_abi::Class;
use gputrace_abi::layout::{CLASSES, ThreadRow};
use gputrace_abi::sync::{AtomicU32, AtomicU64, Ordering};

use crate::manifest::Count;

/// Number by class.
pub(crate) type ByClass = [u64; CLASSES];

/// No thread calls anything more often; sums of what a hostile process claims stay inside 64 bits.
pub(crate) const MOST: u64 = 1 << 44;

const OS_WAIT: usize = Class::OsWait as usize;
/// Classes of which only chosen calls are recorded.
const SAMPLED: [usize; 3] = [Class::HostAlloc as usize, Class::HostFree as usize, OS_WAIT];
/// Classes whose calls do not mark themselves as running; and waits, which take their mark back when they have returned.
const UNMARKED: [usize; 4] = [Class::HostAlloc as usize, Class::HostFree as usize, Class::Range as usize, OS_WAIT];

/// What the threads of a process that have ended counted: seen, dropped, sampled out, in flight, abandoned.
pub(crate) type Retired = [ByClass; 5];

/// What a process did before a trace began that is not its first: dropped, sampled out, abandoned, and events that the other trace has.
pub(crate) type NotHere = [ByClass; 4];

/// A thread's own counters.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Counters {
    pub(crate) seen: ByClass,
    chosen: ByClass,
    dropped: ByClass,
    abandoned: ByClass,
    /// Hook and start of the calls that it is in, of the driver, of a library above it and of the operating system; start
    /// 0 for none.
    in_flight: [(u64, u64); 3],
}

impl Counters {
    /// Reads them.
    pub(crate) fn read(row: &ThreadRow) -> Counters {
        let wide = |from: &[AtomicU64; CLASSES]| std::array::from_fn(|n| from[n].load(Ordering::Relaxed).min(MOST));
        let narrow = |from: &[AtomicU32; CLASSES]| std::array::from_fn(|n| from[n].load(Ordering::Relaxed).into());
        let call = |hook: &AtomicU64, start: &AtomicU64| (hook.load(Ordering::Relaxed), start.load(Ordering::Relaxed));
        // Row 0 of the hook table is a driver function: no other call has begun.
        let other = |hook, start| Some(call(hook, start)).filter(|(hook, _)| *hook != 0).unwrap_or((u64::MAX, 0));
        Counters {
            seen: wide(&row.seen),
            chosen: wide(&row.chosen),
            dropped: narrow(&row.dropped),
            abandoned: narrow(&row.abandoned),
            in_flight: [
                call(&row.in_flight_hook, &row.in_flight_start),
                other(&row.library_hook, &row.library_start),
                other(&row.wait_hook, &row.wait_start),
            ],
        }
    }

    /// What it did not count as it went: blocks that it allocated and freed again soon, and those that others told of for it.
    pub(crate) fn add_pending(&mut self, pairs: u64, told: u64) {
        for (class, calls) in [(Class::HostAlloc, pairs.saturating_add(told)), (Class::HostFree, pairs)] {
            for count in [&mut self.seen, &mut self.chosen] {
                count[class as usize] = count[class as usize].saturating_add(calls).min(MOST);
            }
        }
    }

    /// Sets them to zero, for the row's next user.
    pub(crate) fn clear(row: &ThreadRow) {
        row.seen.iter().chain(&row.chosen).for_each(|n| n.store(0, Ordering::Relaxed));
        row.dropped.iter().chain(&row.abandoned).for_each(|n| n.store(0, Ordering::Relaxed));
        row.in_flight_start.store(0, Ordering::Relaxed);
        row.library_hook.store(0, Ordering::Relaxed);
        row.library_start.store(0, Ordering::Relaxed);
        row.wait_hook.store(0, Ordering::Relaxed);
        row.wait_start.store(0, Ordering::Relaxed);
    }
}

/// How a thread's use of its row came to its end.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Ending {
    /// The thread ended by itself: a call that it was in never returned.
    Exited,
    /// The process died, or the collector stops reading it: the call is in flight.
    Cut,
}

/// The counts of a process.
#[derive(Clone, Debug, Default)]
pub(crate) struct Books {
    counts: [Count; CLASSES],
    /// Calls that the threads counted and nobody found; slots torn in the shared chain may be theirs.
    missing: ByClass,
    /// Slots torn in the shared chain.
    pub(crate) torn_shared: u64,
    /// An earlier collector, which was killed, began them: what is missing it had read, and not written.
    resumed: bool,
    lost: u64,
    /// What is missing of events because an earlier collector read them for another trace.
    elsewhere: ByClass,
}

impl Books {
    /// Those of a process that an earlier collector read: what its ended threads counted, what of its events is on the disk, and what
    /// it had left out on purpose.
    pub(crate) fn resume(retired: &Retired, kept: impl Iterator<Item = (usize, u64)>, left_out: &ByClass) -> Books {
        let mut books = Books { resumed: true, ..Books::default() };
        let [seen, dropped, sampled_out, in_flight, abandoned] = retired;
        for (class, count) in books.counts.iter_mut().enumerate() {
            (count.seen, count.dropped) = (seen[class].min(MOST), dropped[class].min(MOST));
            count.sampled_out = sampled_out[class].min(MOST);
            (count.in_flight, count.abandoned) = (in_flight[class].min(MOST), abandoned[class].min(MOST));
            count.left_out = left_out[class].min(MOST);
        }
        for (class, events) in kept {
            if let Some(count) = books.counts.get_mut(class) {
                count.recorded += events.min(MOST);
            }
        }
        books
    }

    /// Of what is missing so many events are another trace's.
    pub(crate) fn set_elsewhere(&mut self, elsewhere: ByClass) {
        self.elsewhere = elsewhere;
    }

    /// For the next one.
    pub(crate) fn retired(&self) -> Retired {
        let by = |of: fn(&Count) -> u64| std::array::from_fn(|class| of(&self.counts[class]));
        [by(|c| c.seen), by(|c| c.dropped), by(|c| c.sampled_out), by(|c| c.in_flight), by(|c| c.abandoned)]
    }

    /// Events that an earlier collector had read, and not written.
    pub(crate) fn lost(&self) -> u64 {
        self.lost
    }

    /// Enters a thread: its own counters, the events read from it, and the slots torn in its chain.
    /// `class_of` gives the class of a hook.
    pub(crate) fn enter(
        &mut self,
        counters: &Counters,
        recorded: &ByClass,
        torn: u64,
        ending: Ending,
        class_of: impl Fn(u64) -> Option<usize>,
    ) {
        let running = counters.in_flight.map(|(hook, start)| (class_of(hook), start != 0));
        let mut torn = torn;
        for (class, count) in self.counts.iter_mut().enumerate() {
            let sampled =
                if SAMPLED.contains(&class) { counters.seen[class].saturating_sub(counters.chosen[class]) } else { 0 };
            let found = recorded[class] + counters.dropped[class] + sampled;
            let mut missing = counters.seen[class].saturating_sub(found);
            count.seen += counters.seen[class];
            count.recorded += recorded[class];
            count.dropped += counters.dropped[class];
            count.sampled_out += sampled;
            let unfinished = |missing: &mut u64| {
                let one = 1.min(*missing);
                *missing -= one;
                one
            };
            let mut open = 0;
            let marked = running.contains(&(Some(class), true));
            if marked && class == OS_WAIT {
                count.seen += 1;
                missing += 1;
            }
            if marked {
                open += unfinished(&mut missing);
            }
            // The thread cannot know whether a call that it left had been counted, or its event written.
            let left = missing.min(counters.abandoned[class]);
            count.abandoned += left;
            missing -= left;
            let lost = missing.min(torn);
            torn -= lost;
            missing -= lost;
            // Killed after it counted and before it marked the call, or wrote the event of one that never marks itself.
            // Of a process that an earlier collector read nobody knows of how many that is true.
            let began = !self.resumed && (running.contains(&(Some(class), false)) || UNMARKED.contains(&class));
            // A thread that is cancelled may be anywhere in the hook of a wait.
            if (ending == Ending::Cut || class == OS_WAIT) && !marked && began {
                open += unfinished(&mut missing);
            }
            match ending {
                Ending::Exited => count.abandoned += open,
                Ending::Cut => count.in_flight += open,
            }
            count.dropped += lost;
            self.missing[class] += missing;
        }
    }

    /// Enters events of threads that the reader could not tell.
    pub(crate) fn enter_recorded(&mut self, recorded: &ByClass) {
        for (count, n) in self.counts.iter_mut().zip(recorded) {
            count.recorded += n;
        }
    }

    /// Enters calls of threads that found no row: seen and dropped.
    pub(crate) fn enter_rowless(&mut self, rowless: &[AtomicU64; CLASSES]) {
        for (count, n) in self.counts.iter_mut().zip(rowless) {
            let n = n.load(Ordering::Relaxed).min(MOST);
            count.seen += n;
            count.dropped += n;
        }
    }

    /// Enters calls that were counted only: seen and sampled out.
    pub(crate) fn enter_counted(&mut self, class: usize, calls: u64) {
        if let Some(count) = self.counts.get_mut(class) {
            count.seen += calls;
            count.sampled_out += calls;
        }
    }

    /// All of it has been entered: what is missing of a process that an earlier collector read, that one had read and not
    /// written.
    pub(crate) fn settle(&mut self) {
        if !self.resumed {
            return;
        }
        // In the order in which `close` shares them out: each is one class's.
        let mut torn = self.torn_shared;
        for (class, count) in self.counts.iter_mut().enumerate() {
            let lost = self.missing[class].min(torn);
            torn -= lost;
            let known = count.kept() + count.left_out + count.dropped;
            let known = known + count.sampled_out + count.in_flight + count.abandoned + lost + self.elsewhere[class];
            // A row may be on the disk of a call that its thread had not yet counted.
            count.seen = count.seen.max(known);
            count.dropped += count.seen - known;
            self.lost += count.seen - known;
        }
    }

    /// The counts of the classes that were called.
    pub(crate) fn close(&self) -> BTreeMap<String, Count> {
        let mut torn = self.torn_shared;
        let mut all = BTreeMap::new();
        for (class, count) in self.counts.iter().enumerate() {
            let mut count = *count;
            let lost = self.missing[class].min(torn);
            torn -= lost;
            count.dropped += lost;
            if count == Count::default() {
                continue;
            }
            let name = Class::from_u8(class as u8).map_or_else(|| format!("class {class}"), |c| c.name().to_owned());
            all.insert(name, count);
        }
        all
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const LAUNCH: usize = Class::Launch as usize;
    const MALLOC: usize = Class::HostAlloc as usize;

    fn books(seen: u64, recorded: u64, torn: u64, in_flight: u64, ending: Ending) -> Count {
        let running = [(LAUNCH as u64, in_flight), (Class::Collective as u64, 0), (u64::MAX, 0)];
        let mut counters = Counters { in_flight: running, ..Counters::default() };
        counters.seen[LAUNCH] = seen;
        let mut found = ByClass::default();
        found[LAUNCH] = recorded;
        let mut books = Books::default();
        books.enter(&counters, &found, torn, ending, |hook| Some(hook as usize));
        books.close().get("launch").copied().unwrap_or_default()
    }

    #[test]
    fn the_call_that_a_thread_died_in_is_in_flight() {
        let count = books(10, 9, 0, 77, Ending::Cut);
        assert_eq!((count.in_flight, count.is_balanced()), (1, true));
        // Killed after the event was written, before the mark was taken back.
        let count = books(10, 10, 0, 77, Ending::Cut);
        assert_eq!((count.in_flight, count.is_balanced()), (0, true));
    }

    #[test]
    fn a_torn_slot_is_a_drop_and_an_exit_inside_a_call_an_abandoned_one() {
        let count = books(10, 7, 2, 77, Ending::Cut);
        assert_eq!((count.in_flight, count.dropped, count.is_balanced()), (1, 2, true));
        let count = books(10, 9, 0, 77, Ending::Exited);
        assert_eq!((count.abandoned, count.is_balanced()), (1, true));
    }

    #[test]
    fn of_calls_that_a_thread_left_those_are_abandoned_that_are_missing() {
        let count = |seen: u64, recorded: u64| {
            let mut counters = Counters { in_flight: [(u64::MAX, 0); 3], ..Counters::default() };
            (counters.seen[LAUNCH], counters.abandoned[LAUNCH]) = (seen, 3);
            let mut found = ByClass::default();
            found[LAUNCH] = recorded;
            let mut books = Books::default();
            books.enter(&counters, &found, 0, Ending::Exited, |_| None);
            books.close()["launch"]
        };
        assert_eq!((count(10, 7).abandoned, count(10, 7).is_balanced()), (3, true));
        assert_eq!((count(10, 9).abandoned, count(10, 9).is_balanced()), (1, true));
        assert!(!count(10, 6).is_balanced());
    }

    #[test]
    fn a_slot_torn_in_the_shared_chain_is_one_classs_also_after_a_killed_collector() {
        const MODULE: usize = Class::Module as usize;
        let mut books = Books { resumed: true, torn_shared: 1, ..Books::default() };
        let mut counters = Counters { in_flight: [(u64::MAX, 0); 3], ..Counters::default() };
        (counters.seen[LAUNCH], counters.seen[MODULE]) = (4, 3);
        books.enter(&counters, &ByClass::default(), 0, Ending::Exited, |_| None);
        books.settle();
        let all = books.close();
        assert!(all.values().all(Count::is_balanced), "{all:?}");
        assert_eq!((all["launch"].dropped, all["module"].dropped, books.lost()), (4, 3, 6));
    }

    #[test]
    fn a_launch_inside_a_collective_leaves_both_in_flight() {
        const COLLECTIVE: usize = Class::Collective as usize;
        let running = [(LAUNCH as u64, 77), (COLLECTIVE as u64, 70), (u64::MAX, 0)];
        let mut counters = Counters { in_flight: running, ..Counters::default() };
        (counters.seen[LAUNCH], counters.seen[COLLECTIVE]) = (3, 2);
        let mut recorded = ByClass::default();
        (recorded[LAUNCH], recorded[COLLECTIVE]) = (2, 1);
        let mut books = Books::default();
        books.enter(&counters, &recorded, 0, Ending::Cut, |hook| Some(hook as usize));
        let all = books.close();
        for class in ["launch", "collective"] {
            assert_eq!((all[class].in_flight, all[class].is_balanced()), (1, true), "{class}");
        }
    }

    #[test]
    fn a_wait_is_counted_by_its_mark_until_it_returns() {
        let count = |ending, start| {
            let running = [(u64::MAX, 0), (u64::MAX, 0), (OS_WAIT as u64, start)];
            let mut counters = Counters { in_flight: running, ..Counters::default() };
            (counters.seen[OS_WAIT], counters.chosen[OS_WAIT]) = (10, 3);
            let mut recorded = ByClass::default();
            recorded[OS_WAIT] = 3;
            let mut books = Books::default();
            books.enter(&counters, &recorded, 0, ending, |hook| Some(hook as usize));
            let count = books.close()["os_wait"];
            assert!(count.is_balanced() && count.sampled_out == 7);
            (count.seen, count.in_flight, count.abandoned)
        };
        assert_eq!(count(Ending::Cut, 77), (11, 1, 0));
        assert_eq!(count(Ending::Exited, 77), (11, 0, 1));
        assert_eq!(count(Ending::Cut, 0), (10, 0, 0));
    }

    #[test]
    fn what_an_earlier_collector_had_read_and_is_not_on_the_disk_is_dropped() {
        let (mut retired, mut left_out) = (Retired::default(), ByClass::default());
        (retired[0][LAUNCH], retired[1][LAUNCH], left_out[LAUNCH]) = (40, 2, 5);
        let mut books = Books::resume(&retired, [(LAUNCH, 30)].into_iter(), &left_out);
        let mut counters = Counters { in_flight: [(u64::MAX, 0); 3], ..Counters::default() };
        counters.seen[LAUNCH] = 50;
        let mut found = ByClass::default();
        found[LAUNCH] = 45;
        books.enter(&counters, &found, 0, Ending::Exited, |_| None);
        books.settle();
        let count = books.close()["launch"];
        assert_eq!((count.seen, count.recorded, count.left_out), (90, 75, 5));
        assert_eq!((count.dropped, books.lost()), (10, 8));
        assert!(count.is_balanced());
    }

    #[test]
    fn what_nothing_explains_stays_unbalanced() {
        assert!(!books(10, 7, 1, 77, Ending::Cut).is_balanced());
    }

    #[test]
    fn sampled_out_calls_are_those_that_were_not_chosen() {
        let mut counters = Counters::default();
        (counters.seen[MALLOC], counters.chosen[MALLOC], counters.dropped[MALLOC]) = (1000, 10, 1);
        let mut recorded = ByClass::default();
        recorded[MALLOC] = 9;
        let mut books = Books::default();
        books.enter(&counters, &recorded, 0, Ending::Exited, |_| None);
        let count = books.close()["host_alloc"];
        assert_eq!((count.sampled_out, count.recorded, count.is_balanced()), (990, 9, true));
    }
}
