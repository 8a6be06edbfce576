//! A thread that writes into a segment.

use gputrace_abi::Class;
use gputrace_abi::clock::counter;
use gputrace_abi::event::{self, Event};
use gputrace_abi::layout::{CHUNKS_FOR_SHARED, ThreadRow, View, thread_state};
use gputrace_abi::metal::UNSCHEDULED;
use gputrace_abi::pending::Counts;
use gputrace_abi::ring::{CHUNK_SLOTS, Chunks, commit_word};

use super::{HOOKS, Target, hook};

/// A thread that writes events as the shim does.
pub(crate) struct Thread<'a> {
    view: View,
    number: u16,
    chunk: Option<(u32, u32)>,
    index: u32,
    life: std::marker::PhantomData<&'a ()>,
}

impl<'a> Thread<'a> {
    /// Number of its row.
    pub(crate) fn number(&self) -> u16 {
        self.number
    }

    /// Its counts of short lives, in a segment with a table for them.
    pub(crate) fn counts(&self) -> Option<&Counts> {
        let order = gputrace_abi::sync::Ordering::Relaxed;
        let row = self.view.thread(self.number.into())?;
        if row.counts.load(order) == 0 {
            let chunk = self.view.take_chunk(u32::MAX)?;
            self.view.chunk(chunk)?.lend();
            self.view.counts(chunk)?.clear();
            row.counts.store(chunk + 1, order);
        }
        self.view.counts(row.counts.load(order).checked_sub(1)?)
    }

    /// Claims the lowest free row. The view must stay mapped.
    pub(crate) fn new(view: View, tid: u32) -> Thread<'a> {
        let order = gputrace_abi::sync::Ordering::Relaxed;
        let claim = |n: &usize| {
            let state = &view.thread(*n).unwrap().state;
            state.compare_exchange(thread_state::FREE, thread_state::CLAIMED, order, order).is_ok()
        };
        let number = (0..4096).find(claim).expect("a free row");
        let row = view.thread(number).unwrap();
        row.tid.store(tid, order);
        row.started.store(counter(), order);
        row.first_chunk.store(0, order);
        row.generation.fetch_add(1, order);
        row.state.store(thread_state::LIVE, gputrace_abi::sync::Ordering::Release);
        Thread { view, number: number as u16, chunk: None, index: 0, life: std::marker::PhantomData }
    }

    pub(super) fn at<'b>(self, _: &'b Target) -> Thread<'b> {
        Thread { view: self.view, number: self.number, chunk: self.chunk, index: self.index, life: Default::default() }
    }

    /// The thread's row.
    pub(crate) fn row(&self) -> &ThreadRow {
        self.view.thread(usize::from(self.number)).unwrap()
    }

    /// Makes room for `n` slots next to each other; false when the pool is empty.
    pub(crate) fn reserve(&mut self, n: u32) -> bool {
        let full = CHUNK_SLOTS as u32;
        if self.chunk.is_some() && self.index + n <= full {
            return true;
        }
        while self.chunk.is_some() && self.index < full {
            let padding = Event { hook: event::KIND_PADDING, ..Event::default() };
            self.put(padding);
        }
        let limit = self.view.chunk_count() - CHUNKS_FOR_SHARED as u32;
        let Some(taken) = self.view.take_chunk(limit) else { return false };
        let generation = self.view.chunk(taken).unwrap().open(u32::from(self.number));
        match self.chunk {
            Some((old, _)) => {
                let old = self.view.chunk(old).unwrap();
                old.close(full);
                old.link(taken);
            }
            None => self.row().first_chunk.store(taken + 1, gputrace_abi::sync::Ordering::Release),
        }
        self.chunk = Some((taken, generation));
        self.index = 0;
        true
    }

    /// Writes an event into a place that was reserved.
    pub(crate) fn put(&mut self, mut event: Event) {
        let (chunk, generation) = self.chunk.unwrap();
        event.commit = commit_word(generation, self.index);
        event.thread = self.number;
        self.view.chunk(chunk).unwrap().slot(self.index).unwrap().write(&event);
        self.index += 1;
    }

    /// Writes an event into the shared chain, as a thread does that found the pool empty.
    pub(crate) fn shared_event(&mut self, name: &str, payload: [u64; 4]) {
        let now = counter();
        self.shared(Event { hook: hook(name), start: now, end: now + 100, payload, ..Event::default() });
    }

    /// The same with this event.
    pub(crate) fn shared(&mut self, event: Event) {
        let class = HOOKS[usize::from(event.hook)].1 as usize;
        let order = gputrace_abi::sync::Ordering::Relaxed;
        let view = self.view;
        let row = view.thread(usize::from(self.number)).unwrap();
        row.seen[class].store(row.seen[class].load(order) + 1, order);
        let (chunk, index, commit) = self.shared_place();
        view.chunk(chunk).unwrap().slot(index).unwrap().write(&Event { commit, thread: self.number, ..event });
    }

    /// Takes a place in the shared chain, and never writes it.
    pub(crate) fn tear_shared(&mut self) {
        self.shared_place();
    }

    fn shared_place(&mut self) -> (u32, u32, u32) {
        let order = gputrace_abi::sync::Ordering::Relaxed;
        let view = self.view;
        let header = view.header();
        loop {
            let current = header.shared.load(order);
            let chunk = current.checked_sub(1).map(|c| view.chunk(c).unwrap());
            if let Some(chunk) = chunk
                && let Some((commit, index)) = chunk.reserve_shared(1)
            {
                return (current - 1, index, commit);
            }
            let taken = view.take_chunk(view.chunk_count()).expect("a free chunk");
            view.chunk(taken).unwrap().open(gputrace_abi::ring::SHARED);
            match chunk {
                Some(old) => {
                    old.close(old.full_at().expect("it is full"));
                    old.link(taken);
                }
                None => header.shared_first.store(taken + 1, gputrace_abi::sync::Ordering::Release),
            }
            header.shared.store(taken + 1, gputrace_abi::sync::Ordering::Release);
        }
    }

    /// Marks a call as running, as the shim does before it calls the original.
    pub(crate) fn begin(&mut self, name: &str) {
        let class = HOOKS[usize::from(hook(name))].1 as usize;
        let order = gputrace_abi::sync::Ordering::Relaxed;
        let row = self.row();
        row.seen[class].store(row.seen[class].load(order) + 1, order);
        row.in_flight_hook.store(hook(name).into(), order);
        row.in_flight_start.store(counter(), order);
    }

    /// Passes over a slot without ever writing it.
    pub(crate) fn tear(&mut self) {
        assert!(self.reserve(1));
        self.index += 1;
    }

    /// Enters a call, which is counted with its event. Returns its start.
    pub(crate) fn enter(&mut self, name: &str) -> u64 {
        let order = gputrace_abi::sync::Ordering::Relaxed;
        let start = counter();
        self.row().in_flight_hook.store(hook(name).into(), order);
        self.row().in_flight_start.store(start, order);
        start
    }

    /// Writes an event and counts it as the shim does. False: it was dropped.
    pub(crate) fn event(&mut self, event: Event) -> bool {
        let class = HOOKS[usize::from(event.hook)].1 as usize;
        let order = gputrace_abi::sync::Ordering::Relaxed;
        let view = self.view;
        let row = view.thread(usize::from(self.number)).unwrap();
        row.seen[class].store(row.seen[class].load(order) + 1, order);
        if matches!(HOOKS[usize::from(event.hook)].1, Class::HostAlloc | Class::HostFree) {
            row.chosen[class].store(row.chosen[class].load(order) + 1, order);
        }
        if !self.reserve(1) {
            row.dropped[class].store(row.dropped[class].load(order) + 1, order);
            return false;
        }
        self.put(event);
        true
    }

    /// A call that takes 2,000 ticks, after which the thread goes on.
    pub(crate) fn call(&mut self, name: &str, payload: [u64; 4]) -> bool {
        let start = self.enter(name);
        let end = start + 2000;
        let recorded = self.leave(start, end, name, payload);
        while counter() < end {
            std::hint::spin_loop();
        }
        recorded
    }

    /// A call that began at that tick and returns now.
    pub(crate) fn call_since(&mut self, start: u64, name: &str, payload: [u64; 4]) -> bool {
        self.leave(start, counter(), name, payload)
    }

    fn leave(&mut self, start: u64, end: u64, name: &str, payload: [u64; 4]) -> bool {
        let recorded = self.event(Event { hook: hook(name), start, end, context: 1, payload, ..Event::default() });
        self.row().in_flight_start.store(0, gputrace_abi::sync::Ordering::Relaxed);
        recorded
    }

    /// Says when the GPU ran a Metal command buffer: how many ns ago it began, and ended.
    pub(crate) fn gpu_times(&mut self, object: u64, begin_ns: u64, end_ns: u64, (flags, result): (u16, u16)) {
        assert!(self.reserve(1));
        let (now, payload) = (counter(), [object, begin_ns, end_ns, if flags == 0 { 7_000 } else { UNSCHEDULED }]);
        self.put(Event {
            hook: event::KIND_GPU_TIMES,
            start: now,
            context: 1,
            flags,
            result,
            payload,
            ..Event::default()
        });
    }

    /// Writes a pair of host and GPU time: the GPU's is so far ahead, and reading it took as long as that.
    pub(crate) fn gpu_clock(&mut self, context: u16, ahead_ns: i64, took_ns: u64) {
        assert!(self.reserve(1));
        let payload = [(ahead_ns + took_ns as i64 / 2) as u64, 0, took_ns, 0];
        self.put(Event { hook: event::KIND_GPU_CLOCK, start: counter(), context, payload, ..Event::default() });
    }

    /// Writes a text.
    pub(crate) fn text(&mut self, kind: u64, key: u64, number: u64, text: &str) {
        assert!(self.bytes(kind, key, number, text.as_bytes()));
    }

    /// The same, of any bytes. False: there was no room.
    pub(crate) fn bytes(&mut self, kind: u64, key: u64, number: u64, bytes: &[u8]) -> bool {
        let more = bytes.len().div_ceil(event::TEXT_SLOT_BYTES) as u32;
        if !self.reserve(1 + more) {
            return false;
        }
        let now = counter();
        let payload = [key, kind, bytes.len() as u64, number];
        self.put(Event { hook: event::KIND_TEXT, start: now, end: now, payload, ..Event::default() });
        for part in bytes.chunks(event::TEXT_SLOT_BYTES) {
            let mut padded = part.to_vec();
            padded.resize(event::TEXT_SLOT_BYTES, 0);
            let (chunk, generation) = self.chunk.unwrap();
            let commit = commit_word(generation, self.index);
            let first = Event { commit, hook: event::KIND_TEXT_MORE, thread: self.number, ..Event::default() };
            let mut words = [0u64; 7];
            for (word, bytes) in words.iter_mut().zip(padded.chunks_exact(8)) {
                *word = u64::from_le_bytes(bytes.try_into().unwrap());
            }
            self.view.chunk(chunk).unwrap().slot(self.index).unwrap().write_text(first.words()[0], words);
            self.index += 1;
        }
        true
    }

    /// Says on which device context 1 is.
    pub(crate) fn context(&mut self, number: u16, device: u64) {
        assert!(self.reserve(1));
        let payload = [0xc0, 0, device, 0];
        self.put(Event { hook: event::KIND_CONTEXT, context: number, payload, ..Event::default() });
    }

    /// Ends the thread as the shim's exit handler does.
    pub(crate) fn exit(self) {
        if let Some((chunk, _)) = self.chunk {
            let chunk = self.view.chunk(chunk).unwrap();
            chunk.close(self.index);
            chunk.link_end();
        }
        self.row().ended.store(counter(), gputrace_abi::sync::Ordering::Relaxed);
        self.row().state.store(thread_state::EXITED, gputrace_abi::sync::Ordering::Release);
    }
}
