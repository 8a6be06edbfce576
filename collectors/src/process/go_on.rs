//! What a process leaves to a collector that comes later, and how that one goes on with it.
//!
//! A chunk that was read to its end is back in the pool, so a chain is found again by its owner: it begins with the chunk that no
//! other one of that owner leads to. Where its reader was, the chunk says ([`gputrace_abi::ring::Chunk::consumed`]).

use std::collections::{BTreeMap, BTreeSet, HashSet};
use std::os::fd::OwnedFd;
use std::path::PathBuf;

use gputrace_abi::Class;
use gputrace_abi::layout::{View, thread_state};
use gputrace_abi::ring::{CHUNK_SLOTS, Chunk, Chunks, SHARED, commit_word};
use gputrace_abi::sync::Ordering;

use super::host::pending::taken_before;
use super::{NOBODY, Process};
use crate::accounting::{Books, ByClass, Counters, Retired};
use crate::chain::{Assembler, Chain, Item};
use crate::heir::Will;
use crate::heir::told::{Slot, Told};

impl Process {
    /// Keeps what this pass read that is told once. Returns a descriptor that the heir does not have yet.
    pub(crate) fn leave(&mut self) -> Option<OwnedFd> {
        let slots = std::mem::take(&mut self.intake.told);
        if !slots.is_empty()
            && let Some(told) = self.told()
        {
            told.add(&slots);
        }
        self.heirs.take()
    }

    /// Tells a new heir of it.
    pub(crate) fn leave_to(&self, will: &mut Will) {
        let Some(memory) = self.memory.as_ref().and_then(|memory| memory.try_clone().ok()) else { return };
        will.process(self.id, self.pid, self.foreign, memory, self.pidfd.as_ref());
        self.told.iter().filter_map(Told::descriptor).for_each(|told| will.told(self.id, told));
    }

    /// Keeps the account of the threads that have ended.
    pub(super) fn leave_account(&mut self) {
        let retired = self.books.retired();
        if let Some(told) = self.told() {
            told.retired(&retired);
        }
    }

    /// What its threads counted is in a trace that is whole, and not of the next one's account.
    pub(crate) fn close_account(&mut self) {
        if let Some(told) = self.told() {
            told.retired(&Retired::default());
        }
    }

    /// Keeps it in a file from now on: of every process, for the file's name says which one it is.
    pub(crate) fn keep_in(&mut self, file: PathBuf) {
        if self.told.is_none() {
            self.told = Told::at(&file).ok();
        }
        (self.has_heir, self.kept) = (self.told.is_some(), Some(file));
    }

    /// Most processes tell nothing and have one thread: it is made when there is something to be kept.
    pub(super) fn told(&mut self) -> Option<&mut Told> {
        if self.told.is_none() && self.has_heir {
            match Told::new() {
                Ok((told, heirs)) => (self.told, self.heirs) = (Some(told), Some(heirs)),
                // There is no descriptor left, or no memory: names are missing after a change of collectors.
                Err(_) => self.has_heir = false,
            }
        }
        self.told.as_mut()
    }

    /// Goes on where an earlier collector was. `kept`: what is on the disk, by class: events, and events summed. `left_out`: what
    /// that one had left out on purpose.
    pub(crate) fn go_on(
        &mut self,
        told: Option<OwnedFd>,
        kept: impl Iterator<Item = (Class, u64, u64)>,
        left_out: &ByClass,
    ) {
        let view = *self.segment.view();
        self.told = told.and_then(|fd| Told::resume(fd).ok());
        let (retired, elsewhere, mut slots) = self.told.as_ref().and_then(|told| told.read().ok()).unwrap_or_default();
        let kept: Vec<(Class, u64, u64)> = kept.collect();
        self.resume_books(&retired, &kept, left_out);
        self.resume_elsewhere(elsewhere);
        if !self.foreign {
            // Whoever waits for room looks whether this process lives.
            view.header().listener.store(std::process::id(), Ordering::Relaxed);
        }
        let heads = heads(&view);
        self.shared = heads.get(&SHARED).and_then(|first| Chain::new(&view, *first));
        self.find_threads(true);
        for place in 1..self.threads.len() {
            let thread = &mut self.threads[place];
            let Some(row) = view.thread(thread.row) else { continue };
            // Numbers of its calls go on after any that an earlier row can have.
            let seen = Counters::read(row).seen;
            (thread.calls, thread.earlier) = (numbered(&seen), seen.iter().sum());
            [thread.pairs, thread.told] = taken_before(&view, row);
            thread.chain = heads.get(&(thread.row as u32)).and_then(|first| Chain::new(&view, *first));
            let ended = row.state.load(Ordering::Acquire) == thread_state::EXITED;
            if thread.chain.is_none()
                && (ended || leads_nowhere(&view, row.first_chunk.load(Ordering::Acquire), thread.row))
            {
                row.first_chunk.store(0, Ordering::Relaxed);
            }
        }
        let untold = untold(&view, &heads, &slots);
        slots.extend(&untold);
        let mut words = Assembler::default();
        self.intake.read_hooks();
        self.intake.stacks.go_on(view.header().stacks_forgotten.load(Ordering::Relaxed));
        for slot in &slots {
            words.take(slot, &mut |item| self.intake.take(item, &mut ByClass::default(), NOBODY));
        }
        // The next heir has what stood there before already.
        self.intake.told = untold;
    }

    fn resume_books(&mut self, retired: &Retired, kept: &[(Class, u64, u64)], left_out: &ByClass) {
        let events = kept.iter().map(|(class, rows, culled)| (*class as usize, rows + culled));
        self.books = Books::resume(retired, events, left_out);
        self.culled_before =
            kept.iter().filter(|(class, ..)| *class == Class::HostAlloc).map(|(.., culled)| culled).sum();
        self.host.pending.resume(self.culled_before);
        self.events = kept.iter().map(|(_, rows, culled)| rows + culled).sum();
    }

    /// Events that an earlier collector had read and not written.
    pub(crate) fn lost(&self) -> u64 {
        self.books.lost()
    }
}

fn is_free(view: &View, chunk: u32) -> bool {
    let word = view.header().free_chunks.get(chunk as usize / 64);
    word.is_none_or(|word| word.load(Ordering::Acquire) >> (chunk % 64) & 1 != 0)
}

/// How many of the events that a thread has seen may have a number of their own. Those of malloc and waits for the system have none, and are many: where they
/// were among them, a step's waits stood in so small a part of all calls that its launches were taken for it.
fn numbered(seen: &ByClass) -> u64 {
    let has_none = |class: &Class| matches!(class, Class::HostAlloc | Class::HostFree | Class::OsWait);
    Class::ALL.iter().filter(|class| !has_none(class)).filter_map(|class| seen.get(*class as usize)).sum()
}

/// Whether what a row calls its thread's first chunk is another's by now.
fn leads_nowhere(view: &View, first: u32, row: usize) -> bool {
    let chunk = first.checked_sub(1).filter(|chunk| !is_free(view, *chunk)).and_then(|chunk| view.chunk(chunk));
    chunk.is_none_or(|chunk| chunk.owner() != row as u32)
}

/// What is told once and was read by a collector that ended before it had passed it on: it stands in the chunks where its readers were.
fn untold(view: &View, heads: &BTreeMap<u32, u32>, told: &[Slot]) -> Vec<Slot> {
    let told: HashSet<&Slot> = told.iter().collect();
    let mut untold = Vec::new();
    for chunk in heads.values().filter_map(|number| view.chunk(*number)) {
        let mut words = Assembler::default();
        for index in 0..chunk.consumed() {
            let slot = chunk.slot(index).and_then(|slot| slot.committed(commit_word(chunk.generation(), index)));
            let Some(slot) = slot else { continue };
            words.take(&slot, &mut |item| match item {
                Item::Told(slots) if slots.first().is_some_and(|first| !told.contains(first)) => untold.extend(slots),
                _ => {}
            });
        }
    }
    untold
}

/// Where each owner's chain begins. Owners go on writing meanwhile, and take chunks that were free a moment ago.
fn heads(view: &View) -> BTreeMap<u32, u32> {
    let mut used: BTreeMap<u32, BTreeSet<u32>> = BTreeMap::new();
    for number in (0..view.chunk_count()).filter(|number| !is_free(view, *number)) {
        let Some(chunk) = view.chunk(number).filter(|chunk| chunk.generation() != 0) else { continue };
        let owner = chunk.owner();
        match chunk.next().filter(|_| chunk.consumed() >= CHUNK_SLOTS as u32) {
            None => drop(used.entry(owner).or_default().insert(number)),
            // It was read to its end, and kept for the holes in it, or because nobody knew yet how it goes on.
            Some(next) if !is_free(view, next) && view.chunk(next).is_some_and(|next| next.owner() == owner) => {
                used.entry(owner).or_default().insert(next);
            }
            Some(_) => {}
        }
    }
    let head = |chunks: &BTreeSet<u32>| {
        let next: BTreeSet<u32> = chunks.iter().filter_map(|number| view.chunk(*number)?.next()).collect();
        let first = chunks.iter().filter(|number| !next.contains(number));
        // One that was taken and is not linked yet is empty.
        first.copied().max_by_key(|number| view.chunk(*number).is_some_and(Chunk::is_begun))
    };
    used.iter().filter_map(|(owner, chunks)| Some((*owner, head(chunks)?))).collect()
}

#[cfg(test)]
mod tests {
    use gputrace_abi::event::text_kind;
    use gputrace_abi::layout::malloc_mode;

    use super::*;
    use crate::support::{Memory, Thread as Writer};

    /// Reads all that is there; returns the numbers of the launches.
    fn read(view: &View, chain: &mut Chain) -> Vec<u64> {
        let mut found = Vec::new();
        chain.read(view, false, usize::MAX, |item| {
            if let Item::Event(event) = item {
                found.push(event.payload[1]);
            }
        });
        found
    }

    #[test]
    fn calls_are_numbered_on_by_the_driver_s_calls_alone() {
        let mut seen = ByClass::default();
        for (class, count) in [(Class::Launch, 1200), (Class::Sync, 100), (Class::Range, 7), (Class::HostAlloc, 50_000)]
        {
            seen[class as usize] = count;
        }
        (seen[Class::HostFree as usize], seen[Class::OsWait as usize]) = (49_000, 100);
        assert_eq!(numbered(&seen), 1307);
    }

    #[test]
    fn what_was_read_and_not_passed_on_is_found_where_the_reader_was() {
        let memory = Memory::new(16 << 20, malloc_mode::SAMPLE);
        let view = memory.view;
        let mut writer = Writer::new(view, 1);
        for (key, name) in
            [(1, &b"saxpy"[..]), (2, b"a name of a kernel that takes more than one slot of sixty-four bytes")]
        {
            assert!(writer.bytes(text_kind::FUNCTION, key, 0, name));
        }
        assert!(writer.reserve(1));
        writer.call("cuLaunchKernel", [0xf0, 1, 0, 0]);
        let mut chain = Chain::new(&view, writer.row().first_chunk.load(Ordering::Relaxed) - 1).unwrap();
        let mut told: Vec<Vec<Slot>> = Vec::new();
        chain.read(&view, false, usize::MAX, |item| {
            if let Item::Told(slots) = item {
                told.push(slots);
            }
        });
        let heads = heads(&view);
        assert_eq!(told.len(), 2);
        assert_eq!(untold(&view, &heads, &[]), told.concat());
        assert_eq!(untold(&view, &heads, &told[0]), told[1]);
        assert_eq!(untold(&view, &heads, &told.concat()), Vec::<Slot>::new());
        assert!(writer.bytes(text_kind::FUNCTION, 3, 0, b"later"));
        assert_eq!(untold(&view, &heads, &told.concat()), Vec::<Slot>::new(), "which is still to be read");
    }

    #[test]
    fn a_chain_is_found_again_wherever_its_reader_was() {
        // Chunks have 511 slots: before, at and after their ends, and where several were given back and are used again.
        for read_to in [0u64, 1, 510, 511, 512, 1021, 1022, 1023, 3000] {
            for more in [0u64, 1, 600] {
                let memory = Memory::new(16 << 20, malloc_mode::SAMPLE);
                let view = memory.view;
                let mut writer = Writer::new(view, 1);
                let mut other = Writer::new(view, 2);
                let write = |writer: &mut Writer<'_>, numbers: std::ops::Range<u64>| {
                    for n in numbers {
                        assert!(writer.reserve(1));
                        writer.call("cuLaunchKernel", [0xf0, n, 0, 0]);
                    }
                };
                write(&mut other, 0..7);
                write(&mut writer, 0..read_to.max(1));
                let mut chain = Chain::new(&view, writer.row().first_chunk.load(Ordering::Relaxed) - 1).unwrap();
                if read_to > 0 {
                    assert_eq!(read(&view, &mut chain).len() as u64, read_to);
                }
                drop(chain);
                write(&mut writer, read_to.max(1)..read_to.max(1) + more);
                let heads = heads(&view);
                assert_eq!(heads.len(), 2);
                let mut chain = Chain::new(&view, heads[&0]).unwrap();
                let wanted: Vec<u64> = (read_to..read_to.max(1) + more).collect();
                assert_eq!(read(&view, &mut chain), wanted, "{read_to} {more}");
                let mut chain = Chain::new(&view, heads[&1]).unwrap();
                assert_eq!(read(&view, &mut chain).len(), 7);
            }
        }
    }
}
