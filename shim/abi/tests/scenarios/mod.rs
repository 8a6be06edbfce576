//! What may happen in a ring, told once: small programs of writers and a reader, run by loom in every order of their
//! steps (`loom.rs`) and by real threads many times (`threads.rs`, also under ThreadSanitizer and Miri).
//!
//! The writers here do what the shim does around the ring: take a chunk when theirs is full, close, link, go on.
//! Each scenario panics when an event is missing, twice, out of order or torn. Beside each chunk stands an ordinary
//! variable that its owner of the moment, writer or reader, changes: a hand-over that synchronizes too little is a
//! data race on it, which loom and ThreadSanitizer report.

mod pending;

#[cfg(not(loom))]
use std::{sync::Arc, thread};

use gputrace_abi::arenas::{Arenas, Look};
use gputrace_abi::event::Event;
use gputrace_abi::pool;
use gputrace_abi::ring::{Chunk, Chunks, Cursor, SHARED, Step, Tail, commit_word};
use gputrace_abi::sync::{AtomicU32, AtomicU64, Ordering};
#[cfg(loom)]
use loom::{sync::Arc, thread};

pub(crate) use pending::pending;

/// A variable that only the chunk's owner may touch.
#[cfg(loom)]
struct Owned(loom::cell::UnsafeCell<u64>);
#[cfg(not(loom))]
struct Owned(std::cell::UnsafeCell<u64>);

// SAFETY: the tests' subject: the ring hands a chunk from one thread to another.
unsafe impl Sync for Owned {}

impl Owned {
    #[cfg(loom)]
    fn touch(&self) {
        // SAFETY: the chunk has one owner; loom checks just this.
        self.0.with_mut(|value| unsafe { *value += 1 });
    }

    #[cfg(not(loom))]
    fn touch(&self) {
        // SAFETY: the chunk has one owner; ThreadSanitizer checks just this.
        unsafe { *self.0.get() += 1 };
    }
}

/// A segment's chunks, pool and the heads of its chains.
struct Segment<const N: usize> {
    chunks: Vec<Chunk<N>>,
    owned: Vec<Owned>,
    free: [AtomicU64; 1],
    first: AtomicU32,
    shared: AtomicU32,
    shared_first: AtomicU32,
    shared_lock: AtomicU32,
}

impl<const N: usize> Chunks<N> for Segment<N> {
    fn chunk(&self, number: u32) -> Option<&Chunk<N>> {
        self.chunks.get(number as usize)
    }
}

impl<const N: usize> Segment<N> {
    fn new(chunks: u32) -> Arc<Segment<N>> {
        Arc::new(Segment {
            chunks: (0..chunks).map(|_| Chunk::default()).collect(),
            owned: (0..chunks).map(|_| Owned(Default::default())).collect(),
            free: [AtomicU64::new((1 << chunks) - 1)],
            first: AtomicU32::new(0),
            shared: AtomicU32::new(0),
            shared_first: AtomicU32::new(0),
            shared_lock: AtomicU32::new(0),
        })
    }

    fn at(&self, number: u32) -> &Chunk<N> {
        &self.chunks[number as usize]
    }

    fn take(&self) -> Option<u32> {
        let taken = pool::take(&self.free, self.chunks.len() as u32)?;
        self.owned[taken as usize].touch();
        Some(taken)
    }

    fn give(&self, chunk: u32) {
        self.owned[chunk as usize].touch();
        pool::give(&self.free, chunk);
    }

    /// What a thread without a chunk of its own does: the shim's `with_shared_places` and `next_shared_chunk`.
    fn write_shared(&self, event: Event) -> bool {
        for _ in 0..2 {
            let current = self.shared.load(Ordering::Acquire);
            if let Some((commit, index)) = current.checked_sub(1).and_then(|c| self.at(c).reserve_shared(1)) {
                self.at(current - 1).slot(index).expect("reserved").write(&Event { commit, ..event });
                return true;
            }
            if !self.next_shared(current) {
                return false;
            }
        }
        false
    }

    fn next_shared(&self, current: u32) -> bool {
        if self.shared_lock.compare_exchange(0, 1, Ordering::Acquire, Ordering::Relaxed).is_err() {
            return false;
        }
        let end = current.checked_sub(1).map(|c| self.at(c));
        let has_room = |chunk: &Chunk<N>| chunk.full_at().is_none();
        let mut ready = self.shared.load(Ordering::Relaxed) != current || end.is_some_and(has_room);
        if !ready && let Some(taken) = self.take() {
            self.at(taken).open(SHARED);
            match end {
                Some(old) => {
                    old.close(old.full_at().expect("it is full"));
                    old.link(taken);
                }
                None => self.shared_first.store(taken + 1, Ordering::Release),
            }
            self.shared.store(taken + 1, Ordering::Release);
            ready = true;
        }
        self.shared_lock.store(0, Ordering::Release);
        ready
    }
}

/// An event whose words all say its number, so that a mixture of two is seen.
fn event(writer: u16, number: u64) -> Event {
    Event { thread: writer, start: number, end: number, payload: [number; 4], ..Event::default() }
}

/// Writer and number of an event; panics when it is a mixture.
fn number(words: [u64; 8]) -> (u16, u64) {
    let read = Event::from_words(words);
    assert_eq!(Event { commit: read.commit, ..event(read.thread, read.start) }, read, "torn");
    (read.thread, read.start)
}

/// One thread with a chain of its own.
struct Writer<const N: usize> {
    segment: Arc<Segment<N>>,
    tail: Tail,
}

impl<const N: usize> Writer<N> {
    fn new(segment: &Arc<Segment<N>>) -> Writer<N> {
        Writer { segment: segment.clone(), tail: Tail::none() }
    }

    /// Writes the event, or says that no chunk is free.
    fn write(&self, event: Event) -> bool {
        loop {
            let place = self.tail.reserve(1);
            if place.index < N as u32 {
                let slot = self.segment.at(place.chunk).slot(place.index).expect("reserved");
                slot.write(&Event { commit: place.commit, ..event });
                return true;
            }
            let had_chunk = self.tail.has_chunk();
            let Some(taken) = self.segment.take() else {
                if had_chunk {
                    self.tail.park(N as u32);
                }
                return false;
            };
            let generation = self.segment.at(taken).open(0);
            if had_chunk {
                let full = self.segment.at(place.chunk);
                full.close(N as u32);
                full.link(taken);
            } else {
                self.segment.first.store(taken + 1, Ordering::Release);
            }
            self.tail.set(taken, generation);
        }
    }

    fn end(&self) {
        let end = self.tail.peek();
        self.segment.at(end.chunk).close(end.index);
        self.segment.at(end.chunk).link_end();
    }
}

/// The reader of one chain.
struct Reader<const N: usize> {
    segment: Arc<Segment<N>>,
    cursor: Option<Cursor>,
    seen: Vec<(u16, u64)>,
}

impl<const N: usize> Reader<N> {
    fn new(segment: &Arc<Segment<N>>) -> Reader<N> {
        Reader { segment: segment.clone(), cursor: None, seen: Vec::new() }
    }

    /// One step; what was an event is noted, a finished chunk given back. None: the chain has not begun.
    fn step(&mut self, head: &AtomicU32, dead: bool) -> Option<Step> {
        if self.cursor.is_none() {
            let first = head.load(Ordering::Acquire).checked_sub(1)?;
            self.cursor = Cursor::new(&*self.segment, first);
        }
        let step = self.cursor.as_mut()?.step(&*self.segment, dead);
        match &step {
            Step::Words(words) => self.seen.push(number(*words)),
            Step::Finished(chunk) | Step::Ended(chunk) => self.segment.give(*chunk),
            Step::Broken => panic!("the chain is broken"),
            Step::Hole | Step::Empty => {}
        }
        Some(step)
    }

    /// Reads until nothing more is there, and returns why it stopped.
    fn rest(&mut self, head: &AtomicU32, dead: bool) -> Step {
        loop {
            match self.step(head, dead) {
                Some(Step::Words(_) | Step::Finished(_)) => {}
                Some(step) => return step,
                None => return Step::Empty,
            }
        }
    }

    /// The reader's thread: tries a while, as the writer runs.
    fn try_own(&mut self, steps: u32) {
        let segment = self.segment.clone();
        for _ in 0..steps {
            match self.step(&segment.first, false) {
                Some(Step::Hole) => panic!("no slot of a living writer was left out"),
                Some(Step::Ended(_)) => return self.cursor = None,
                Some(Step::Empty) | None => thread::yield_now(),
                _ => {}
            }
        }
    }
}

/// One writer crosses chunk boundaries and ends; the reader sees every event once, in order, and the end.
pub(crate) fn crossing<const N: usize>(events: u64, chunks: u32, steps: u32) {
    let segment = Segment::<N>::new(chunks);
    let writer = Writer::new(&segment);
    let writing = thread::spawn(move || {
        assert!((0..events).all(|n| writer.write(event(0, n))), "the pool is large enough");
        writer.end();
    });
    let mut reader = Reader::new(&segment);
    reader.try_own(steps);
    writing.join().expect("the writer");
    if reader.cursor.is_some() || reader.seen.len() < events as usize {
        assert_eq!(reader.rest(&segment.first, false), Step::Ended(reader.cursor.expect("a chain").chunk));
    }
    assert!(reader.seen.iter().map(|seen| seen.1).eq(0..events));
    assert_eq!(segment.free[0].load(Ordering::Relaxed), (1 << chunks) - 1, "every chunk came back");
}

/// The pool is too small: the writer drops, the reader gives chunks back; what was written is read, in order.
pub(crate) fn recycling<const N: usize>(events: u64, chunks: u32, steps: u32) {
    let segment = Segment::<N>::new(chunks);
    let writer = Writer::new(&segment);
    let writing = thread::spawn(move || {
        let written: Vec<u64> = (0..events).filter(|n| writer.write(event(0, *n))).collect();
        writer.end();
        written
    });
    let mut reader = Reader::new(&segment);
    reader.try_own(steps);
    let written = writing.join().expect("the writer");
    if reader.cursor.is_some() || reader.seen.len() < written.len() {
        assert!(matches!(reader.rest(&segment.first, false), Step::Ended(_)));
    }
    assert!(reader.seen.iter().map(|seen| seen.1).eq(written));
    assert_eq!(segment.free[0].load(Ordering::Relaxed), (1 << chunks) - 1, "every chunk came back");
}

/// Two threads without chunks of their own share a chain and one of them closes it for both.
pub(crate) fn shared<const N: usize>(events: u64, chunks: u32, steps: u32) {
    let segment = Segment::<N>::new(chunks);
    let writing = [1, 2].map(|name| {
        let segment = segment.clone();
        thread::spawn(move || (0..events).filter(|n| segment.write_shared(event(name, *n))).collect::<Vec<u64>>())
    });
    let mut reader = Reader::new(&segment);
    for _ in 0..steps {
        // A hole is a thread between reserving and writing: it is waited for.
        if matches!(reader.step(&segment.shared_first, false), Some(Step::Empty | Step::Hole) | None) {
            thread::yield_now();
        }
    }
    let written = writing.map(|thread| thread.join().expect("a writer"));
    assert_eq!(reader.rest(&segment.shared_first, false), Step::Empty);
    for (name, written) in [1, 2].into_iter().zip(&written) {
        assert!(reader.seen.iter().filter(|seen| seen.0 == name).map(|seen| seen.1).eq(written.iter().copied()));
    }
    assert_eq!(reader.seen.len(), written.iter().map(Vec::len).sum::<usize>(), "nothing came from nowhere");
}

/// A thread that is about to reserve in a shared chunk sleeps while the chunk is filled, read, given back and used
/// again, by the shared chain or by another thread alone.
pub(crate) fn late_sharer<const N: usize>(next_owner: u32) {
    let segment = Segment::<N>::new(1);
    segment.at(0).open(SHARED);
    let late = {
        let segment = segment.clone();
        thread::spawn(move || {
            let reserved = segment.at(0).reserve_shared(1);
            if let Some((commit, index)) = reserved {
                segment.at(0).slot(index).expect("reserved").write(&Event { commit, ..event(2, 7) });
            }
            reserved
        })
    };
    while let Some((commit, index)) = segment.at(0).reserve_shared(1) {
        segment.at(0).slot(index).expect("reserved").write(&Event { commit, ..event(1, 0) });
    }
    let mut cursor = Cursor::new(&*segment, 0).expect("the chunk");
    while let Step::Words(words) = cursor.step(&*segment, false) {
        assert!(matches!(number(words), (1, 0) | (2, 7)));
    }
    if (cursor.index as usize) < N {
        // The sleeper has its place in this use, and the reader waits for it: nothing is used again.
        late.join().expect("the late thread");
        return;
    }
    let generation = segment.at(0).open(next_owner);
    if next_owner != SHARED {
        let tail = Tail::none();
        tail.set(0, generation);
        let place = tail.reserve(1);
        segment.at(0).slot(place.index).expect("reserved").write(&Event { commit: place.commit, ..event(3, 9) });
    }
    let reserved = late.join().expect("the late thread");
    let mut cursor = Cursor::new(&*segment, 0).expect("the chunk");
    let in_this_use = reserved.is_some_and(|(commit, _)| commit == commit_word(generation, 0));
    match cursor.step(&*segment, false) {
        Step::Words(words) if next_owner == SHARED => assert_eq!((number(words), in_this_use), ((2, 7), true)),
        Step::Words(words) => assert_eq!((number(words), in_this_use), ((3, 9), false)),
        other => assert_eq!((other, next_owner, in_this_use), (Step::Empty, SHARED, false)),
    }
}

/// The writer is thrown out between reserving a slot and committing it, goes on, and ends or dies.
///
/// The reader waits at the hole while the chunk is open, and reads on behind it when it is closed or the writer dead.
pub(crate) fn hole<const N: usize>(dies: bool, steps: u32) {
    let segment = Segment::<N>::new(1);
    let writer = Writer::new(&segment);
    let writing = thread::spawn(move || {
        assert!(writer.write(event(0, 0)));
        writer.tail.reserve(1);
        assert!(writer.write(event(0, 1)));
        if !dies {
            writer.end();
        }
    });
    let mut reader = Reader::new(&segment);
    for _ in 0..steps {
        match reader.step(&segment.first, false) {
            Some(Step::Hole) => assert!(!dies && segment.at(0).is_closed(), "nobody closed the chunk"),
            Some(Step::Empty) | None => thread::yield_now(),
            _ => {}
        }
        assert!(reader.seen.len() < 2, "nothing behind the hole before somebody skips it");
    }
    writing.join().expect("the writer");
    assert_eq!(reader.rest(&segment.first, dies), Step::Hole);
    reader.cursor.as_mut().expect("a chain").skip();
    let end = if dies { Step::Empty } else { Step::Ended(0) };
    assert_eq!(reader.rest(&segment.first, dies), end);
    assert_eq!(reader.seen, [(0, 0), (0, 1)]);
}

/// A thread is thrown out of its slow path and begins it again. Meanwhile the reader may have followed the link, given the
/// old chunk back, and another thread may use it: the thread must not take that for its own chunk without a link.
pub(crate) fn thrown_out<const N: usize>() {
    let segment = Segment::<N>::new(2);
    let writer = Writer::new(&segment);
    for n in 0..N as u64 {
        assert!(writer.write(event(0, n)));
    }
    let (old, generation) = (writer.tail.peek().chunk, writer.tail.generation());
    assert!(segment.at(old).is_unlinked(generation));
    let taken = segment.take().expect("a free chunk");
    segment.at(taken).open(0);
    segment.at(old).close(N as u32);
    segment.at(old).link(taken);
    let reading = {
        let segment = segment.clone();
        thread::spawn(move || {
            let mut reader = Reader::new(&segment);
            assert_eq!(reader.rest(&segment.first, false), Step::Empty);
            assert!(reader.seen.iter().map(|seen| seen.1).eq(0..N as u64));
            let again = segment.take().expect("the old chunk came back");
            segment.at(again).open(1);
        })
    };
    assert!(!segment.at(old).is_unlinked(generation), "it was linked");
    reading.join().expect("the reader");
    assert!(!segment.at(old).is_unlinked(generation), "it was linked");
}

/// A thread tells of malloc's arenas again and again; each look that is read is one that was told, and none comes before an earlier one.
pub(crate) fn arenas(looks: u64) {
    let arenas = Arc::new(Arenas::default());
    let told = Arc::clone(&arenas);
    let reader = thread::spawn(move || {
        let mut last = 0;
        for _ in 0..looks {
            if let Some((turn, Look { at, took, held, free, at_end, mapped })) = told.read() {
                assert!(
                    [took, held, free, at_end, mapped] == [at; 5] && turn == 2 * at && at >= last,
                    "{last} {at} {mapped}"
                );
                last = at;
            }
        }
    });
    for n in 1..=looks {
        arenas.tell(&Look { at: n, took: n, held: n, free: n, at_end: n, mapped: n });
    }
    reader.join().unwrap();
    assert_eq!(arenas.read().map(|(turn, look)| (turn, look.mapped)), Some((2 * looks, looks)));
}

/// A thread was thrown out after it wrote a slot of the shared chain, and before it forgot that it had reserved it. The chunk may
/// have been read since, and another thread may write in it.
pub(crate) fn thrown_out_of_a_shared_chunk<const N: usize>() {
    let segment = Segment::<N>::new(1);
    let taken = segment.take().expect("a free chunk");
    segment.at(taken).open(SHARED);
    let (commit, index) = segment.at(taken).reserve_shared(1).expect("room");
    assert!(segment.at(taken).awaits(commit));
    segment.at(taken).slot(index).expect("a slot").write(&Event { commit, ..event(0, 0) });
    let reading = {
        let segment = segment.clone();
        thread::spawn(move || {
            segment.at(taken).open(SHARED);
            let (commit, index) = segment.at(taken).reserve_shared(1).expect("room");
            segment.at(taken).slot(index).expect("a slot").write(&Event { commit, ..event(1, 0) });
            commit
        })
    };
    assert!(!segment.at(taken).awaits(commit), "it was written");
    let later = reading.join().expect("the reader");
    assert!(!segment.at(taken).awaits(commit) && !segment.at(taken).awaits(later), "both were written");
}
