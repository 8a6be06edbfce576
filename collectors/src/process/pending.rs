//! Streams with work that nobody was seen to wait for: what a call that waits had to wait for.
//!
//! The host does not see when work ends, only when it was given and who waited for it. A stream is **pending** from the
//! first work given to it until a call that waits for that work. The legacy stream (0 and 1) waits for every stream that
//! was created without CU_STREAM_NON_BLOCKING, and those wait for it; of streams whose creation was not seen that is
//! not assumed.
//!
//! Calls of several threads come one thread after another, so times decide and not the order: work that is older than a
//! wait for it counts as waited for, whichever came first. A call that another thread's later wait overtook may find
//! too little pending. Streams that the program joins by events (cuStreamWaitEvent) are not followed: a wait for the
//! one leaves the other pending.

use std::collections::HashMap;

use crate::bindings::ByHandle;

/// Streams of a context that are followed, and events.
const MOST_STREAMS: usize = 256;
const MOST_EVENTS: usize = 1 << 14;
/// Contexts that are followed.
const MOST_CONTEXTS: usize = 64;

/// CU_STREAM_PER_THREAD: another stream in each thread.
const PER_THREAD: u64 = 2;
const LEGACY: u64 = 1;
/// CU_STREAM_NON_BLOCKING.
const NON_BLOCKING: u64 = 1;

/// What a call had to wait for, or is queued behind.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Ahead {
    /// Pending streams.
    pub(crate) streams: i32,
    /// Streams other than its own are among them because of the legacy stream.
    pub(crate) legacy: bool,
}

/// Pending work of a process, by context.
#[derive(Debug, Default)]
pub(crate) struct Pending {
    contexts: HashMap<u16, Context>,
}

/// A stream as the events name it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct StreamId(u64);

impl StreamId {
    /// `thread` tells the per-thread streams apart.
    pub(crate) fn new(handle: u64, thread: u32) -> StreamId {
        match handle {
            0 | LEGACY => StreamId(LEGACY),
            PER_THREAD => StreamId(PER_THREAD | u64::from(thread) << 2),
            handle => StreamId(handle),
        }
    }
}

#[derive(Debug, Default)]
struct Context {
    streams: Vec<Stream>,
    /// Where the last stream stands.
    last: usize,
    /// Streams, but for the legacy one, that wait for it.
    blocking: usize,
    /// Events: the stream that each was recorded in, and when.
    events: ByHandle<(StreamId, u64)>,
}

#[derive(Clone, Copy, Debug)]
struct Stream {
    id: StreamId,
    blocking: bool,
    /// First work that nobody waited for.
    first: Option<u64>,
    last: u64,
    /// Start of the last wait for it.
    waited: u64,
}

impl Stream {
    fn is_pending(&self, at: u64) -> bool {
        self.first.is_some_and(|first| first < at)
    }

    fn work(&mut self, at: u64) {
        if at > self.waited {
            self.first = Some(self.first.map_or(at, |first| first.min(at)));
            self.last = self.last.max(at);
        }
    }

    fn wait(&mut self, at: u64) {
        self.waited = self.waited.max(at);
        if self.last <= at {
            self.first = None;
        } else if self.first.is_some_and(|first| first <= at) {
            // Some of its work is younger; when that began is not kept.
            self.first = Some(at + 1);
        }
    }
}

impl Context {
    fn stream(&mut self, id: StreamId) -> Option<&mut Stream> {
        if self.streams.get(self.last).is_none_or(|stream| stream.id != id) {
            self.last = match self.streams.iter().position(|stream| stream.id == id) {
                Some(known) => known,
                None if self.streams.len() < MOST_STREAMS => {
                    // The per-thread streams are ordinary ones in this; others say so when they are made.
                    let blocking = id.0 & 3 == PER_THREAD;
                    self.blocking += usize::from(blocking);
                    self.streams.push(Stream { id, blocking, first: None, last: 0, waited: 0 });
                    self.streams.len() - 1
                }
                None => {
                    // One on which nothing is pending gives its place to the new one: programs make and destroy streams.
                    let idle = self.streams.iter().position(|s| s.first.is_none() && s.id != StreamId(LEGACY))?;
                    let blocking = id.0 & 3 == PER_THREAD;
                    let place = self.streams.get_mut(idle)?;
                    self.blocking = self.blocking + usize::from(blocking) - usize::from(place.blocking);
                    *place = Stream { id, blocking, first: None, last: 0, waited: 0 };
                    idle
                }
            };
        }
        self.streams.get_mut(self.last)
    }

    /// Pending streams that this one waits for by the rule of the legacy stream.
    #[inline]
    fn others(&mut self, id: StreamId, at: u64) -> i32 {
        if self.blocking == 0 {
            return 0;
        }
        let legacy = StreamId(LEGACY);
        if id == legacy {
            return self.streams.iter().filter(|s| s.blocking && s.is_pending(at)).count() as i32;
        }
        let own = self.stream(id).is_some_and(|stream| stream.blocking);
        i32::from(own && self.streams.iter().any(|s| s.id == legacy && s.is_pending(at)))
    }

    fn wait_for(&mut self, id: StreamId, at: u64) {
        if id == StreamId(LEGACY) && self.blocking > 0 {
            self.streams.iter_mut().filter(|s| s.blocking).for_each(|s| s.wait(at));
        }
        if let Some(stream) = self.stream(id) {
            stream.wait(at);
        }
    }
}

impl Pending {
    fn context(&mut self, number: u16) -> Option<&mut Context> {
        if self.contexts.len() >= MOST_CONTEXTS && !self.contexts.contains_key(&number) {
            return None;
        }
        Some(self.contexts.entry(number).or_default())
    }

    /// A stream was made.
    pub(crate) fn create(&mut self, context: u16, id: StreamId, flags: u64) {
        let Some(context) = self.context(context) else { return };
        let blocking = flags & NON_BLOCKING == 0;
        if let Some(stream) = context.stream(id) {
            let before = std::mem::replace(stream, Stream { id, blocking, first: None, last: 0, waited: 0 });
            context.blocking = context.blocking + usize::from(blocking) - usize::from(before.blocking);
        }
    }

    /// An event was recorded in a stream.
    pub(crate) fn record(&mut self, context: u16, event: u64, id: StreamId, at: u64) {
        let Some(context) = self.context(context) else { return };
        // Most of so many are events that were destroyed.
        if context.events.len() >= MOST_EVENTS && !context.events.contains_key(&event) {
            context.events.clear();
        }
        context.events.insert(event, (id, at));
    }

    /// Work was given to a stream: what it is queued behind beside its own stream's.
    #[inline]
    pub(crate) fn work(&mut self, context: u16, id: StreamId, at: u64) -> Ahead {
        let Some(context) = self.context(context) else { return Ahead::default() };
        let streams = context.others(id, at);
        if let Some(stream) = context.stream(id) {
            stream.work(at);
        }
        Ahead { streams, legacy: streams > 0 }
    }

    /// What a call has to wait for that waits for a stream. `done`: it did wait.
    pub(crate) fn wait_stream(&mut self, context: u16, id: StreamId, at: u64, done: bool) -> Ahead {
        let Some(context) = self.context(context) else { return Ahead::default() };
        let others = context.others(id, at);
        let own = context.stream(id).is_some_and(|stream| stream.is_pending(at));
        if done {
            context.wait_for(id, at);
        }
        Ahead { streams: others + i32::from(own), legacy: others > 0 }
    }

    /// The same for an event.
    pub(crate) fn wait_event(&mut self, context: u16, event: u64, at: u64, done: bool) -> Ahead {
        let recorded = self.context(context).and_then(|c| c.events.get(&event).copied());
        match recorded {
            Some((id, recorded)) => self.wait_stream(context, id, at.min(recorded), done),
            None => Ahead::default(),
        }
    }

    /// The same for all of a context.
    pub(crate) fn wait_context(&mut self, context: u16, at: u64, done: bool) -> Ahead {
        let Some(context) = self.context(context) else { return Ahead::default() };
        let streams = context.streams.iter().filter(|s| s.is_pending(at)).count() as i32;
        if done {
            context.streams.iter_mut().for_each(|s| s.wait(at));
        }
        Ahead { streams, legacy: false }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn id(handle: u64) -> StreamId {
        StreamId::new(handle, 0)
    }

    #[test]
    fn a_stream_is_pending_from_its_work_to_the_wait_for_it() {
        let mut pending = Pending::default();
        assert_eq!(pending.wait_stream(1, id(0x50), 5, true).streams, 0);
        pending.work(1, id(0x50), 10);
        assert_eq!(pending.wait_context(2, 15, true).streams, 0, "another context");
        assert_eq!(pending.wait_context(1, 15, false).streams, 1);
        assert_eq!(pending.wait_stream(1, id(0x60), 16, true).streams, 0, "another stream");
        assert_eq!(pending.wait_stream(1, id(0x50), 20, true).streams, 1);
        assert_eq!(pending.wait_context(1, 25, true).streams, 0);
    }

    #[test]
    fn times_decide_and_not_the_order_in_which_threads_are_read() {
        let mut pending = Pending::default();
        pending.work(1, id(0x50), 10);
        pending.work(1, id(0x50), 30);
        assert_eq!(pending.wait_stream(1, id(0x50), 20, true).streams, 1);
        assert_eq!(pending.wait_context(1, 25, false).streams, 1, "younger work is left");
        pending.wait_stream(1, id(0x50), 40, true);
        // Another thread's work before that wait.
        pending.work(1, id(0x50), 35);
        assert_eq!(pending.wait_context(1, 50, false).streams, 0);
    }

    #[test]
    fn the_legacy_stream_and_ordinary_ones_wait_for_each_other() {
        let mut pending = Pending::default();
        pending.create(1, id(0x50), 0);
        pending.create(1, id(0x60), NON_BLOCKING);
        assert_eq!(pending.work(1, id(0x50), 10), Ahead::default());
        pending.work(1, id(0x60), 11);
        pending.work(1, id(0x70), 12); // not seen made
        assert_eq!(pending.work(1, id(0), 20), Ahead { streams: 1, legacy: true });
        assert_eq!(pending.work(1, id(0x50), 21), Ahead { streams: 1, legacy: true });
        assert_eq!(pending.work(1, id(0x60), 22), Ahead::default());
        assert_eq!(pending.wait_stream(1, id(1), 30, true), Ahead { streams: 2, legacy: true });
        assert_eq!(pending.wait_stream(1, id(0x50), 31, true), Ahead::default(), "that one waited for it too");
        assert_eq!(pending.wait_context(1, 40, true).streams, 2);
    }

    #[test]
    fn each_thread_has_a_stream_of_its_own() {
        let mut pending = Pending::default();
        let of = |thread| StreamId::new(PER_THREAD, thread);
        pending.work(1, of(3), 10);
        assert_eq!(pending.wait_stream(1, of(4), 20, true).streams, 0);
        assert_eq!(pending.wait_stream(1, id(0), 21, true), Ahead { streams: 1, legacy: true });
    }

    #[test]
    fn an_event_stands_for_what_its_stream_had_when_it_was_recorded() {
        let mut pending = Pending::default();
        pending.work(1, id(0x50), 10);
        pending.record(1, 0xe0, id(0x50), 15);
        pending.work(1, id(0x50), 20);
        assert_eq!(pending.wait_event(1, 0xe0, 30, true).streams, 1);
        assert_eq!(pending.wait_event(1, 0xe0, 40, true).streams, 0);
        assert_eq!(pending.wait_stream(1, id(0x50), 50, true).streams, 1, "what came after it");
        assert_eq!(pending.wait_event(1, 0xff, 60, true), Ahead::default());
    }

    #[test]
    fn what_a_process_invents_takes_bounded_memory() {
        let mut pending = Pending::default();
        for n in 0..100_000u64 {
            pending.create(n as u16, id(n << 4), 0);
            pending.work(0, id(n << 4), n);
            pending.record(0, n, id(n << 4), n);
        }
        assert!(pending.contexts.len() <= MOST_CONTEXTS && pending.contexts[&0].streams.len() <= MOST_STREAMS);
        assert!(pending.contexts[&0].events.len() <= MOST_EVENTS);
    }
}
