//! The streams of one context, with the rule of the legacy stream.

use super::{LEGACY, PER_THREAD, StreamId};

/// Streams of a context that are followed.
const MOST_STREAMS: usize = 256;

/// Streams of a context.
#[derive(Debug, Default)]
pub(super) struct Context {
    streams: Vec<Stream>,
    /// Where the last stream stands.
    last: usize,
    /// Streams, but for the legacy one, that wait for it.
    blocking: usize,
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
    /// What it was given.
    given: Given,
}

/// What a stream was given, as far as calls tell.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Given {
    /// Operations, and those of them that were waited for.
    pub(crate) operations: u64,
    pub(crate) done: u64,
    /// Hook of the last one, and of the last one that was waited for.
    pub(crate) last: u16,
    pub(crate) last_done: u16,
    /// When the last call about it returned.
    pub(crate) touched: u64,
}

impl Stream {
    fn new(id: StreamId, blocking: bool) -> Stream {
        Stream { id, blocking, first: None, last: 0, waited: 0, given: Given::default() }
    }

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
            (self.given.done, self.given.last_done) = (self.given.operations, self.given.last);
        } else if self.first.is_some_and(|first| first <= at) {
            // Some of its work is younger; when that began is not kept.
            self.first = Some(at + 1);
        }
    }
}

impl Context {
    fn find(&self, id: StreamId) -> Option<&Stream> {
        self.streams
            .get(self.last)
            .filter(|stream| stream.id == id)
            .or_else(|| self.streams.iter().find(|s| s.id == id))
    }

    fn stream(&mut self, id: StreamId) -> Option<&mut Stream> {
        if self.streams.get(self.last).is_none_or(|stream| stream.id != id) {
            self.last = match self.streams.iter().position(|stream| stream.id == id) {
                Some(known) => known,
                None if self.streams.len() < MOST_STREAMS => {
                    // The per-thread streams are ordinary ones in this; others say so when they are made.
                    let blocking = id.0 & 3 == PER_THREAD;
                    self.blocking += usize::from(blocking);
                    self.streams.push(Stream::new(id, blocking));
                    self.streams.len() - 1
                }
                None => {
                    // One on which nothing is pending gives its place to the new one: programs make and destroy streams.
                    let idle = self.streams.iter().position(|s| s.first.is_none() && s.id != LEGACY)?;
                    let blocking = id.0 & 3 == PER_THREAD;
                    let place = self.streams.get_mut(idle)?;
                    self.blocking = self.blocking + usize::from(blocking) - usize::from(place.blocking);
                    *place = Stream::new(id, blocking);
                    idle
                }
            };
        }
        self.streams.get_mut(self.last)
    }

    /// A stream was made.
    pub(super) fn create(&mut self, id: StreamId, blocking: bool) {
        if let Some(stream) = self.stream(id) {
            let before = std::mem::replace(stream, Stream::new(id, blocking));
            self.blocking = self.blocking + usize::from(blocking) - usize::from(before.blocking);
        }
    }

    /// A stream got work.
    #[inline]
    pub(super) fn work(&mut self, id: StreamId, at: u64) {
        if let Some(stream) = self.stream(id) {
            stream.work(at);
        }
    }

    /// A call about a stream returned, which gave it an operation of this hook, or none.
    #[inline]
    pub(super) fn returned(&mut self, id: StreamId, hook: Option<u16>, end: u64) {
        if let Some(stream) = self.stream(id) {
            let given = &mut stream.given;
            given.touched = given.touched.max(end);
            if let Some(hook) = hook {
                (given.operations, given.last) = (given.operations + 1, hook);
            }
        }
    }

    /// What its streams were given, and since when they have work that nobody waited for.
    pub(super) fn given(&self) -> impl Iterator<Item = (StreamId, Given, Option<u64>)> + '_ {
        self.streams.iter().map(|stream| (stream.id, stream.given, stream.first))
    }

    /// Whether a stream has work from before that time.
    pub(super) fn is_pending(&self, id: StreamId, at: u64) -> bool {
        self.find(id).is_some_and(|stream| stream.is_pending(at))
    }

    /// Streams with work from before that time.
    pub(super) fn pending(&self, at: u64) -> i32 {
        self.streams.iter().filter(|stream| stream.is_pending(at)).count() as i32
    }

    /// Streams that wait for the legacy one.
    pub(super) fn blocking_streams(&self) -> impl Iterator<Item = StreamId> + '_ {
        self.streams.iter().filter(|stream| stream.blocking).map(|stream| stream.id)
    }

    /// Pending streams that this one waits for by the rule of the legacy stream.
    #[inline]
    pub(super) fn others(&mut self, id: StreamId, at: u64) -> i32 {
        if self.blocking == 0 {
            return 0;
        }
        if id == LEGACY {
            return self.streams.iter().filter(|s| s.blocking && s.is_pending(at)).count() as i32;
        }
        let own = self.stream(id).is_some_and(|stream| stream.blocking);
        i32::from(own && self.streams.iter().any(|s| s.id == LEGACY && s.is_pending(at)))
    }

    /// Whether a wait for the one is a wait for the other: they are the same, or by the rule of the legacy stream.
    pub(super) fn follows(&self, id: StreamId, other: StreamId) -> bool {
        let blocking = |id| self.find(id).is_some_and(|stream| stream.blocking);
        id == other || id == LEGACY && blocking(other) || other == LEGACY && blocking(id)
    }

    /// The host waited for a stream.
    pub(super) fn wait_for(&mut self, id: StreamId, at: u64) {
        if id == LEGACY && self.blocking > 0 {
            self.streams.iter_mut().filter(|s| s.blocking).for_each(|s| s.wait(at));
        }
        if let Some(stream) = self.stream(id) {
            stream.wait(at);
        }
    }

    /// The host waited for all of them.
    pub(super) fn wait_for_all(&mut self, at: u64) {
        self.streams.iter_mut().for_each(|stream| stream.wait(at));
    }

    #[cfg(test)]
    pub(super) fn is_bounded(&self) -> bool {
        self.streams.len() <= MOST_STREAMS
    }
}
