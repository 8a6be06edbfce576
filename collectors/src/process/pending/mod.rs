//! Streams with work that nobody was seen to wait for: what a call that waits had to wait for.
//!
//! The host does not see when work ends, only when it was given and who waited for it. A stream is **pending** from the
//! first work given to it until a call that waits for that work. The legacy stream (0 and 1) waits for every stream that
//! was created without CU_STREAM_NON_BLOCKING, and those wait for it; of streams whose creation was not seen that is
//! not assumed. A stream that waits for an event of another one (cuStreamWaitEvent) takes over what was pending there
//! when the event was recorded: who waits for the one waits for both.
//!
//! Calls of several threads come one thread after another, so times decide and not the order: work that is older than a
//! wait for it counts as waited for, whichever came first. A call that another thread's later wait overtook may find
//! too little pending, and a stream that waits for an event which another thread recorded in the same milliseconds may
//! take over too little.

mod context;
mod joins;
#[cfg(test)]
mod tests;

use std::collections::HashMap;

use crate::bindings::ByHandle;
use context::Context;
pub(crate) use context::Given;
use joins::Joins;

/// Contexts that are followed, and events.
const MOST_CONTEXTS: usize = 64;
const MOST_EVENTS: usize = 1 << 14;

/// CU_STREAM_PER_THREAD: another stream in each thread.
const PER_THREAD: u64 = 2;
const LEGACY: StreamId = StreamId(1);
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

/// A stream as the events name it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct StreamId(u64);

impl StreamId {
    /// `thread` tells the per-thread streams apart.
    pub(crate) fn new(handle: u64, thread: u32) -> StreamId {
        match handle {
            0 => LEGACY,
            PER_THREAD => StreamId(PER_THREAD | u64::from(thread) << 2),
            handle => StreamId(handle),
        }
    }

    /// The stream's handle, as calls name it.
    pub(crate) fn handle(self) -> u64 {
        if self.0 & 3 == PER_THREAD { PER_THREAD } else { self.0 }
    }
}

/// Work of a stream: all that it was given before a time.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Work {
    context: u16,
    stream: StreamId,
    until: u64,
}

/// What an event stands for: the work of the stream that it was recorded in, and what that had taken over.
#[derive(Debug)]
struct Recorded {
    own: Work,
    joined: Vec<Work>,
}

/// Pending work of a process.
#[derive(Debug, Default)]
pub(crate) struct Pending {
    contexts: HashMap<u16, Context>,
    events: ByHandle<Recorded>,
    joins: Joins,
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
        self.joins.forget(context, id);
        if let Some(context) = self.context(context) {
            context.create(id, flags & NON_BLOCKING == 0);
        }
    }

    /// An event was recorded in a stream.
    pub(crate) fn record(&mut self, context: u16, event: u64, id: StreamId, at: u64) {
        // Most of so many are events that were destroyed.
        if self.events.len() >= MOST_EVENTS && !self.events.contains_key(&event) {
            self.events.clear();
        }
        let mut joined = self.joined(context, id, at);
        joined.retain(|work| is_pending(&self.contexts, *work));
        self.events.insert(event, Recorded { own: Work { context, stream: id, until: at }, joined });
    }

    /// A stream was made to wait for an event: the pending streams that it waits for from now on.
    pub(crate) fn join(&mut self, context: u16, id: StreamId, event: u64, at: u64) -> Ahead {
        let Some(recorded) = self.events.get(&event) else { return Ahead::default() };
        let contexts = &self.contexts;
        let own = Work { until: recorded.own.until.min(at), ..recorded.own };
        let joined = recorded.joined.iter().copied().chain([own]);
        let pending = |work: &Work| is_pending(contexts, *work);
        let works = joined.filter(|work| (work.context, work.stream) != (context, id)).filter(pending);
        Ahead { streams: self.joins.add((context, id), works, at, pending), legacy: false }
    }

    /// Work was given to a stream: what it is queued behind by the rule of the legacy stream.
    #[inline]
    pub(crate) fn work(&mut self, context: u16, id: StreamId, at: u64) -> Ahead {
        let Some(context) = self.context(context) else { return Ahead::default() };
        let streams = context.others(id, at);
        context.work(id, at);
        Ahead { streams, legacy: streams > 0 }
    }

    /// A call about a stream returned, which gave it an operation of this hook, or none.
    #[inline]
    pub(crate) fn returned(&mut self, context: u16, id: StreamId, hook: Option<u16>, end: u64) {
        if let Some(context) = self.context(context) {
            context.returned(id, hook, end);
        }
    }

    /// A wait for an event returned.
    pub(crate) fn event_returned(&mut self, event: u64, end: u64) {
        if let Some(own) = self.events.get(&event).map(|recorded| recorded.own) {
            self.returned(own.context, own.stream, None, end);
        }
    }

    /// What each stream was given, by its context, and since when it has work that nobody waited for.
    pub(crate) fn given(&self) -> impl Iterator<Item = (u16, StreamId, Given, Option<u64>)> + '_ {
        self.contexts
            .iter()
            .flat_map(|(number, context)| context.given().map(|(id, given, since)| (*number, id, given, since)))
    }

    /// The stream whose work an event stands for.
    pub(crate) fn stream_of_event(&self, event: u64) -> Option<StreamId> {
        self.events.get(&event).map(|recorded| recorded.own.stream)
    }

    /// What a call has to wait for that waits for a stream. `done`: it did wait.
    pub(crate) fn wait_stream(&mut self, context: u16, id: StreamId, at: u64, done: bool) -> Ahead {
        let joined = self.joined(context, id, at);
        self.wait(Work { context, stream: id, until: at }, &joined, done)
    }

    /// The same for an event.
    pub(crate) fn wait_event(&mut self, event: u64, at: u64, done: bool) -> Ahead {
        let Some(Recorded { own, joined }) = self.events.get(&event) else { return Ahead::default() };
        let (own, joined) = (Work { until: own.until.min(at), ..*own }, joined.clone());
        self.wait(own, &joined, done)
    }

    /// The same for all of a context.
    pub(crate) fn wait_context(&mut self, number: u16, at: u64, done: bool) -> Ahead {
        let Some(context) = self.context(number) else { return Ahead::default() };
        let mut streams = context.pending(at);
        if done {
            context.wait_for_all(at);
        }
        for work in self.joins.of_context(number, at) {
            streams += wait_for(&mut self.contexts, work, done, |_| work.context != number);
        }
        Ahead { streams, legacy: false }
    }

    /// What a stream, and those that it waits for by the rule of the legacy stream, took over from others.
    fn joined(&self, context: u16, id: StreamId, at: u64) -> Vec<Work> {
        if self.joins.is_empty() {
            return Vec::new();
        }
        let known = self.contexts.get(&context).filter(|_| id == LEGACY);
        let others = known.into_iter().flat_map(Context::blocking_streams);
        self.joins.of(others.chain([id]).map(|stream| (context, stream)), at)
    }

    fn wait(&mut self, own: Work, joined: &[Work], done: bool) -> Ahead {
        let Some(context) = self.context(own.context) else { return Ahead::default() };
        let others = context.others(own.stream, own.until);
        let mut streams = others + i32::from(context.is_pending(own.stream, own.until));
        if done {
            context.wait_for(own.stream, own.until);
        }
        for work in joined {
            // Streams that the legacy stream's rule counts are counted already.
            let counts = |context: &Context| work.context != own.context || !context.follows(own.stream, work.stream);
            streams += wait_for(&mut self.contexts, *work, done, counts);
        }
        Ahead { streams, legacy: others > 0 }
    }
}

fn is_pending(contexts: &HashMap<u16, Context>, work: Work) -> bool {
    contexts.get(&work.context).is_some_and(|context| context.is_pending(work.stream, work.until))
}

/// 1 for work that was pending and counts. `done`: it was waited for.
fn wait_for(contexts: &mut HashMap<u16, Context>, work: Work, done: bool, counts: impl Fn(&Context) -> bool) -> i32 {
    let Some(context) = contexts.get_mut(&work.context) else { return 0 };
    let pending = context.is_pending(work.stream, work.until) && counts(context);
    if done {
        context.wait_for(work.stream, work.until);
    }
    i32::from(pending)
}
