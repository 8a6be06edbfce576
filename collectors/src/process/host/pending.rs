//! Blocks of which the process has told nothing yet ([`gputrace_abi::pending`]): what a thread counted becomes sums, what stands in the table
//! for longer than a short life, or at the end, becomes an event.

use std::collections::VecDeque;
use std::time::{Duration, Instant};

use gputrace_abi::Class;
use gputrace_abi::clock::{self, ClockKind};
use gputrace_abi::event::Event;
use gputrace_abi::layout::{ThreadRow, View};
use gputrace_abi::pending::{self, BEATS, Counts, SLOTS, UNKNOWN, Word};
use gputrace_abi::sync::Ordering;

use super::super::Process;
use crate::clock::{self as clocks_of, Clocks};
use crate::names::Written;
use crate::tables::{HostCall, Tables};

/// How often the table is looked through for blocks that have lived long; 0.1 ms each time, and the program gets the lines that it changes
/// anew: ten times a second took 3 % of a program of small objects.
const LOOK: Duration = Duration::from_millis(500);
/// A block is told of so much after the end of what is a short life, at most, unless the collector does not get to work.
pub(super) const LATE_NS: i64 = 700_000_000;
/// So long the free of a block waits of which nothing is known; rows wait longer, so that it still stands in its place.
const ORPHAN_NS: i64 = LATE_NS - 100_000_000;
/// How often, at most, that is done for threads that have ended.
const SWEEP: Duration = Duration::from_millis(200);
/// How often what threads have counted is taken.
const TAKE: Duration = Duration::from_millis(500);

/// Which blocks are taken out of the table.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Take {
    /// Those that are older than a short life.
    Old,
    /// Those of threads that have ended, and what these counted.
    Ended,
    /// All, and what all threads counted.
    All,
}

/// When was looked last.
#[derive(Debug, Default)]
pub(in super::super) struct Pending {
    looked: Option<Instant>,
    taken: Option<Instant>,
    /// When the table was looked through for blocks of threads that have ended, and whether there are more such threads.
    swept: Option<Instant>,
    more_ended: bool,
    /// None until the collector has made the first one.
    beats: Option<Beats>,
    /// Blocks that threads have counted.
    pairs: u64,
    /// Addresses and times of the latest frees, in a bucket that follows from the address; none where nothing is told late.
    freed: Vec<Bucket>,
    /// Frees of blocks of which nothing is known, by address, in the order of their time: who told of such a block may have been held up before
    /// that stood in a ring.
    orphans: VecDeque<Orphan>,
    /// Functions of which blocks were counted since their names were asked for, by bit.
    functions: u8,
}

/// A free that waits for its block, and when a block with that address was freed before.
type Orphan = (HostCall, i64);
/// So many frees wait, at most.
const MOST_ORPHANS: usize = 256;

type Bucket = [(u64, i64); 8];
/// 65,536 frees are remembered. One a bucket was tried: of 50,000 blocks that were told late 20 stood before the free of the block before.
const BUCKETS: usize = 1 << 13;

impl Pending {
    /// An earlier collector has left so many blocks out: nearly all of them were only counted, if any was.
    pub(in super::super) fn resume(&mut self, culled: u64) {
        self.pairs = culled;
    }

    /// A block is freed of which nothing is known. What is given back has waited enough.
    pub(super) fn orphan(&mut self, call: &HostCall, freed_ns: i64) -> Option<HostCall> {
        self.orphans.push_back((*call, freed_ns));
        if self.orphans.len() > MOST_ORPHANS { self.orphans.pop_front().map(|(call, _)| call) } else { None }
    }

    /// The next free that has waited enough at that time.
    pub(super) fn given_up(&mut self, now_ns: i64) -> Option<HostCall> {
        self.orphans.pop_front_if(|(call, _)| now_ns.saturating_sub(call.start_ns) >= ORPHAN_NS).map(|(call, _)| call)
    }

    /// The free of a block that was there at that time, and is told of only now.
    pub(super) fn free_of(&mut self, address: u64, there_ns: i64) -> Option<Orphan> {
        let own = |(call, freed_ns): &Orphan| {
            call.address as u64 == address && (*freed_ns..=call.start_ns).contains(&there_ns)
        };
        let place = self.orphans.iter().position(own)?;
        self.orphans.remove(place)
    }

    /// A block is freed: when one of this address was before, as far as that is known. None: nothing is told late.
    #[inline]
    pub(super) fn frees(&mut self, address: u64, ns: i64) -> Option<i64> {
        self.beats?;
        self.freed.resize(BUCKETS, [(0, i64::MIN); 8]);
        let bucket = &mut self.freed[bucket_of(address)];
        // That of the same address, else the oldest.
        let place = bucket.iter_mut().min_by_key(|(of, ns)| (*of != address, *ns))?;
        let before = if place.0 == address { place.1 } else { i64::MIN };
        *place = (address, ns);
        Some(before)
    }

    /// When the last block with this address was freed, if that was not long ago: the next one, told late by a clock that is coarse, came after it.
    pub(super) fn freed_ns(&self, address: u64) -> i64 {
        let known = self.freed.get(bucket_of(address)).into_iter().flatten().find(|(of, _)| *of == address);
        known.map_or(i64::MIN, |(_, ns)| *ns)
    }
}

fn bucket_of(address: u64) -> usize {
    ((address >> 4).wrapping_mul(0x9e37_79b9_7f4a_7c15) >> 48) as usize & (BUCKETS - 1)
}

#[derive(Clone, Copy, Debug)]
struct Beats {
    /// Ticks of one, as a power of two.
    shift: u32,
    /// How many are a short life.
    limit: u64,
    /// Ticks of the clock in a second.
    second: u64,
}

/// The counts of the thread that has this row.
fn counts<'a>(view: &'a View, row: &ThreadRow) -> Option<&'a Counts> {
    view.counts(row.counts.load(Ordering::Relaxed).checked_sub(1)?)
}

/// What an earlier collector took of a thread's counts, and how many of its blocks it told of.
pub(in super::super) fn taken_before(view: &View, row: &ThreadRow) -> [u64; 2] {
    counts(view, row).map_or([0; 2], |counts| [counts.taken(), counts.told.load(Ordering::Relaxed)])
}

/// Gives back the chunk of a thread that has ended, and of which everything was taken.
pub(in super::super) fn release_counts(view: &View, row: &ThreadRow) {
    let chunk = row.counts.swap(0, Ordering::Relaxed).checked_sub(1);
    if let Some((chunk, counts)) = chunk.and_then(|chunk| Some((chunk, view.counts(chunk)?))) {
        // Nothing that stands there is ever to look like an event.
        counts.clear();
        view.give_chunk(chunk);
    }
}

/// A beat's ticks, as a power of two: as few as go round in no less than four short lives and four seconds.
fn shift_of(ticks: u64) -> u32 {
    let least = ticks / BEATS + 1;
    least.next_power_of_two().trailing_zeros()
}

/// How many beats are a short life in the present one: as many as were asked for, and no fewer than lie between it and the one before, 0 for none.
fn short_in(asked: u64, before: u64, beat: u64) -> u64 {
    if before == 0 { asked } else { asked.max(pending::beats_between(before, beat)) }
}

/// Ticks of a clock in a second.
fn ticks_of_second(kind: ClockKind, now: u64, clocks: &Clocks) -> u64 {
    const TICKS: u64 = 1 << 24;
    let ns = clocks.span_ns(kind, now.saturating_sub(TICKS), now).max(1) as u64;
    TICKS * 1_000_000_000 / ns
}

impl Process {
    /// Whether blocks are put into the table.
    pub(crate) fn has_pending(&self) -> bool {
        self.host.pending.beats.is_some()
    }

    /// Blocks that threads only counted: calls of malloc, and as many of free.
    pub(in super::super) fn pairs(&self) -> u64 {
        if self.segment.view().pending().is_some() { self.host.pending.pairs } else { 0 }
    }

    /// Makes the present beat, and takes what is due. At each pass.
    pub(in super::super) fn tend_pending(&mut self, horizon: u64, clocks: &Clocks, dead: bool) {
        let view = *self.segment.view();
        let (Some(table), Some(within_ns)) = (view.pending(), self.host.culling.as_ref().map(|c| c.within_ns())) else {
            return;
        };
        let Beats { shift, limit, .. } = *self.host.pending.beats.get_or_insert_with(|| {
            let second = ticks_of_second(self.clock, horizon, clocks);
            let ticks = |ns: i64| (ns as u128 * u128::from(second) / 1_000_000_000) as u64;
            // What stands in the table may bear the numbers of an earlier collector.
            let made = Some(table.shift.load(Ordering::Relaxed)).filter(|shift| (1..48).contains(shift));
            let shift = made.unwrap_or_else(|| shift_of(ticks(4 * within_ns + 4_000_000_000)));
            Beats { shift, limit: ticks(within_ns) >> shift, second }
        });
        if dead {
            return;
        }
        table.shift.store(shift, Ordering::Relaxed);
        let (beat, made) = (pending::beat_of(horizon, shift), table.made.load(Ordering::Relaxed));
        // Nobody made beats for so long that their numbers may have gone round: what is there is of the last one, or before it.
        let late = table.beat() != 0 && horizon.saturating_sub(made) >> shift > BEATS / 4;
        if late {
            self.take_pending(Take::All);
        }
        if late || beat != table.beat() {
            // What was put there in the beat before may be new, however long that was: else a pass that comes late would find all that lives old.
            let before = if late { 0 } else { table.beat() };
            table.limit.store(short_in(limit, before, beat) as u32, Ordering::Relaxed);
            table.made.store(horizon, Ordering::Relaxed);
            self.set_beat(pending::stamp(beat));
        }
        let due = |last: &mut Option<Instant>, every| {
            let is_due = last.is_none_or(|last| last.elapsed() >= every);
            if is_due {
                *last = Some(Instant::now());
            }
            is_due
        };
        if due(&mut self.host.pending.looked, LOOK) {
            self.take_pending(Take::Old);
        }
        if due(&mut self.host.pending.taken, TAKE) {
            for place in 1..self.threads.len() {
                self.take_counts(place);
            }
        }
    }

    /// Takes everything: the process has ended, or nobody reads on.
    pub(in super::super) fn end_pending(&mut self) {
        if self.has_pending() {
            self.set_beat(0);
            self.take_pending(Take::All);
        }
    }

    /// Sets the present beat, which each thread sees at its next call.
    fn set_beat(&self, stamp: u64) {
        let view = self.segment.view();
        let Some(table) = view.pending() else { return };
        table.stamp.store(stamp, Ordering::Release);
        for row in self.threads.iter().filter(|thread| thread.is_live()).filter_map(|thread| view.thread(thread.row)) {
            counts(view, row).into_iter().for_each(|counts| counts.known.store(UNKNOWN, Ordering::Relaxed));
        }
    }

    /// Takes what threads have left that have ended. Their rows wait for it: a thread that is made for each of many requests must not have the
    /// table looked through a thousand times a second.
    pub(in super::super) fn take_of_ended(&mut self, have_ended: bool) {
        self.host.pending.more_ended |= have_ended;
        if !self.host.pending.more_ended || self.host.pending.swept.is_some_and(|at| at.elapsed() < SWEEP) {
            return;
        }
        self.host.pending.swept = Some(Instant::now());
        self.host.pending.more_ended = false;
        self.take_pending(Take::Ended);
        self.threads.iter_mut().filter(|thread| thread.exited.is_some()).for_each(|thread| thread.is_swept = true);
    }

    /// Takes blocks out of the table: events, of the threads that allocated them.
    fn take_pending(&mut self, what: Take) {
        let view = *self.segment.view();
        let Some(table) = view.pending().filter(|_| self.has_pending()) else { return };
        let (beat, limit) = (table.beat(), table.limit.load(Ordering::Relaxed).into());
        for index in 0..SLOTS {
            let word = table.at(index);
            if word == Word::NONE {
                continue;
            }
            let taken = match what {
                Take::Old => pending::beats_between(word.beat(), beat) > limit,
                Take::Ended => {
                    let place = self.rows.get(word.thread()).copied().flatten();
                    place.is_some_and(|place| self.threads[place].exited.is_some())
                }
                Take::All => true,
            };
            let Some(place) = (if taken { self.adopt(word.thread()) } else { None }) else { continue };
            // Before it is taken, when it is there: its free comes later.
            let now = clocks_of::now(self.clock);
            clock::in_order();
            if table.exchange(index, word, Word::NONE) {
                self.tell(place, index, word, [table.began(word, now), now]);
            }
        }
        if what != Take::Old {
            for place in 1..self.threads.len() {
                if what == Take::All || self.threads[place].exited.is_some() {
                    self.take_counts(place);
                }
            }
        }
    }

    fn tell(&mut self, place: usize, index: usize, word: Word, [start, end]: [u64; 2]) {
        let view = *self.segment.view();
        let hook = view.pending().map_or(0, |table| table.hooks[word.function()].load(Ordering::Relaxed));
        let thread = &mut self.threads[place];
        thread.told += 1;
        if let Some(counts) = view.thread(thread.row).and_then(|row| counts(&view, row)) {
            counts.told.store(thread.told, Ordering::Relaxed);
        }
        thread.recorded[Class::HostAlloc as usize] += 1;
        self.events += 1;
        let payload = [pending::address(index, word), pending::late(thread.tid as u32), 0, word.bytes()];
        self.host.take(
            &Event { hook: hook as u16, start, end, payload, ..Event::default() },
            Class::HostAlloc,
            thread.tid,
        );
    }

    /// Names the functions of blocks that were only counted: no event of theirs may ever come.
    pub(in super::super) fn name_pending(&mut self, tables: &mut Tables, written: &mut Written) {
        let functions = std::mem::take(&mut self.host.pending.functions);
        let view = *self.segment.view();
        let Some(table) = view.pending().filter(|_| functions != 0) else { return };
        for (_, hook) in table.hooks.iter().enumerate().filter(|(function, _)| functions >> function & 1 != 0) {
            self.announce(hook.load(Ordering::Relaxed) as usize, tables, written);
        }
    }

    /// Takes what a thread has counted since.
    fn take_counts(&mut self, place: usize) {
        let view = *self.segment.view();
        let thread = &mut self.threads[place];
        let Some(row) = view.thread(thread.row).filter(|_| thread.is_live()) else { return };
        let (Some(counts), Some(table), Some(beats)) = (counts(&view, row), view.pending(), self.host.pending.beats)
        else {
            return;
        };
        let Some(culling) = &mut self.host.culling else { return };
        let (mut taken, mut pairs) = (Vec::new(), 0);
        counts.take(|sized, calls| {
            taken.push((sized, calls));
            pairs += calls;
        });
        // What is known of ages is the thread's mean: that of each size would cost an addition for each block.
        let ticks = u128::from(counts.take_aged() << beats.shift);
        let age_ns = (ticks * 1_000_000_000 / u128::from(beats.second.max(1)) / u128::from(pairs.max(1)))
            .min(i64::MAX as u128) as i64;
        for (sized, calls) in taken {
            let word = Word(sized as u64);
            let hook = table.hooks[word.function()].load(Ordering::Relaxed) as usize;
            let Some(hook) = self.intake.hooks.get(hook) else { continue };
            self.host.pending.functions |= 1 << word.function();
            culling.add((thread.tid, hook.api_id), word.bytes() as i64, calls as i64, age_ns);
        }
        thread.pairs = thread.pairs.saturating_add(pairs);
        self.host.pending.pairs = self.host.pending.pairs.saturating_add(pairs);
        for class in [Class::HostAlloc, Class::HostFree] {
            thread.recorded[class as usize] += pairs;
        }
        self.events += 2 * pairs;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_was_put_there_in_the_beat_before_has_had_a_short_life_however_late_the_pass_was() {
        let lives = |before: u64, beat: u64| short_in(40, before, beat);
        assert_eq!((lives(0, 9000), lives(100, 105), lives(100, 170)), (40, 40, 70));
        assert_eq!(lives(BEATS - 30, 40), 70);
    }

    #[test]
    fn a_free_waits_for_the_block_that_was_there_before_it_and_after_the_free_before() {
        let mut pending = Pending::default();
        let free = |address: i64, start_ns: i64| HostCall { address, start_ns, ..HostCall::default() };
        for (address, start_ns, freed_ns) in [(16, 1_000, 500), (32, 1_100, i64::MIN), (16, 2_000, 1_000)] {
            assert!(pending.orphan(&free(address, start_ns), freed_ns).is_none());
        }
        assert!(pending.free_of(16, 499).is_none() && pending.free_of(48, 600).is_none());
        let found = |orphan: Option<Orphan>| orphan.map(|(call, freed_ns)| (call.start_ns, freed_ns));
        assert_eq!(found(pending.free_of(16, 1_500)), Some((2_000, 1_000)));
        assert_eq!(found(pending.free_of(16, 900)), Some((1_000, 500)));
        assert!(pending.free_of(16, 900).is_none() && pending.given_up(ORPHAN_NS).is_none());
        assert_eq!(pending.given_up(1_100 + ORPHAN_NS).map(|call| call.address), Some(32));
        assert!(pending.given_up(i64::MAX).is_none());
        let mut waited = |n: i64| pending.orphan(&free(n, n), 0).map(|call| call.start_ns);
        let given: Vec<i64> = (0..MOST_ORPHANS as i64 + 2).filter_map(&mut waited).collect();
        assert_eq!(given, [0, 1]);
    }
}
