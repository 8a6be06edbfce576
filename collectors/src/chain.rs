//! Reading one chain of chunks: slots to events, texts put together, chunks given back.
//!
//! Nothing that stands in the chain is trusted. A chain that leads out of the pool is not read on; one that leads in a
//! circle is left after as many steps as the pool has slots, and goes on at the next pass; a slot that was reserved
//! and never written holds the chain up for a second at most, and its chunk is not used again before it is written or
//! the process ends, because a writer that was only stopped may still write there.

use std::time::{Duration, Instant};

use gputrace_abi::event::{
    self, Event, KIND_COMMUNICATOR, KIND_CONTEXT, KIND_FIRST, KIND_GPU_CLOCK, KIND_GPU_TIMES, KIND_NAME, KIND_STACK,
    KIND_TEXT, KIND_TEXT_MORE, TEXT_MAX_BYTES,
};
use gputrace_abi::layout::{CHUNKS_MAX, View};
use gputrace_abi::metal::BEHIND;
use gputrace_abi::ring::{CHUNK_SLOTS, Chunks, Cursor, Step, index_of};

use crate::heir::told::Slot;

/// How long a hole may hold up a chain.
const PATIENCE: Duration = Duration::from_secs(1);

/// What passing over a hole costs, in steps.
const HOLE_STEPS: usize = 64;

/// A text with what it is about.
#[derive(Debug, PartialEq, Eq)]
pub(crate) struct Text {
    /// One of [`event::text_kind`].
    pub(crate) kind: u64,
    pub(crate) key: u64,
    pub(crate) number: u64,
    pub(crate) ticks: u64,
    bytes: Vec<u8>,
    missing: usize,
}

impl Text {
    fn begin(event: &Event) -> Text {
        let [key, kind, bytes, number] = event.payload;
        let missing = bytes.min(TEXT_MAX_BYTES as u64) as usize;
        Text { kind, key, number, ticks: event.start, bytes: Vec::with_capacity(missing), missing }
    }

    /// One without a number, whose slot holds its first bytes.
    fn begin_name(event: &Event) -> Text {
        let payload = [event.end, u64::from(event.context), u64::from(event.flags), 0];
        let mut text = Text::begin(&Event { payload, ..*event });
        text.add(&event.payload);
        text
    }

    fn add(&mut self, words: &[u64]) {
        let part = self.missing.min(size_of_val(words));
        self.bytes.extend(words.iter().flat_map(|w| w.to_le_bytes()).take(part));
        self.missing -= part;
    }

    /// Its bytes.
    pub(crate) fn bytes(&self) -> &[u8] {
        &self.bytes
    }

    /// The text itself; what is not UTF-8 in it is replaced.
    pub(crate) fn text(&self) -> std::borrow::Cow<'_, str> {
        String::from_utf8_lossy(&self.bytes)
    }
}

/// Whether such a text says what later events mean. Others are events themselves, or labels that are written with each; graphs would
/// become rows once more.
fn is_told_once(text: &Text) -> bool {
    use event::text_kind::*;
    let is_event = matches!(text.kind, GPU_WORK | GPU_SAMPLES | GPU_SAMPLING | GPU_ACTIVITY | GRAPH);
    !is_event && (text.kind, text.key) != (LABEL, BEHIND)
}

/// What a chain yields.
#[derive(Debug)]
pub(crate) enum Item {
    /// A call of a hook.
    Event(Event),
    /// A name.
    Text(Text),
    /// A context got its number.
    Context(Event),
    /// The stack of an event of the same thread, which came before.
    Stack(Event),
    /// A communicator was made.
    Communicator(Event),
    /// When the GPU ran a Metal command buffer, or a pair of host and GPU time.
    GpuTimes(Event),
    /// Slots of what is told once, for a collector that comes later.
    Told(Vec<Slot>),
    /// The name bound to `key` at `ticks` was learned in a call that began at `start`.
    Learned { key: u64, ticks: u64, start: u64 },
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum State {
    Open,
    Ended,
    Broken,
}

/// A chain and how far it was read.
#[derive(Debug)]
pub(crate) struct Chain {
    cursor: Cursor,
    state: State,
    hole_since: Option<Instant>,
    /// It was read to its end the last time.
    whole: bool,
    /// Commit words of holes of the present chunk that were passed over.
    holes: Vec<u32>,
    /// Chunks that were read, with the holes whose writers may still come.
    held: Vec<(u32, Vec<u32>)>,
    words: Assembler,
    /// Slots that were reserved and never written.
    pub(crate) torn: u64,
    /// Slots that were read or passed over.
    pub(crate) passed: u64,
}

/// Puts slots together that belong together.
#[derive(Debug, Default)]
pub(crate) struct Assembler {
    text: Option<Text>,
    /// Its slots.
    slots: Vec<Slot>,
    learned: Option<(u64, u64)>,
}

/// Gives a chunk back if every hole of it was written after all.
fn let_go(view: &View, chunk: u32, holes: &[u32]) -> bool {
    let written = |commit: &u32| {
        let slot = view.chunk(chunk).and_then(|chunk| chunk.slot(index_of(*commit)));
        slot.is_some_and(|slot| slot.committed(*commit).is_some())
    };
    let whole = holes.iter().all(written);
    if whole {
        view.give_chunk(chunk);
    }
    whole
}

impl Chain {
    /// The chain that begins at this chunk.
    pub(crate) fn new(view: &View, first: u32) -> Option<Chain> {
        let cursor = Cursor::new(view, first)?;
        Some(Chain {
            cursor,
            state: State::Open,
            hole_since: None,
            whole: true,
            holes: Vec::new(),
            held: Vec::new(),
            words: Assembler::default(),
            torn: 0,
            passed: 0,
        })
    }

    /// The chain's last slot was read.
    pub(crate) fn has_ended(&self) -> bool {
        self.state == State::Ended
    }

    /// Whether everything that stood in it when it was read is known: it is not where more was written than is read at once, or
    /// where a slot holds it up.
    pub(crate) fn is_whole(&self) -> bool {
        self.whole || self.state != State::Open
    }

    /// It leads out of the pool, and what came after that is not read.
    pub(crate) fn is_broken(&self) -> bool {
        self.state == State::Broken
    }

    /// Reads to the end of what is there, or `most` steps. `dead`: the process writes no more. Returns the steps.
    pub(crate) fn read(&mut self, view: &View, dead: bool, most: usize, mut take: impl FnMut(Item)) -> usize {
        if self.state != State::Open {
            return 0;
        }
        self.held.retain(|(chunk, holes)| !let_go(view, *chunk, holes));
        let mut steps = 0;
        self.whole = false;
        while steps < most {
            steps += 1;
            match self.cursor.step(view, dead) {
                Step::Words(words) => {
                    self.hole_since = None;
                    self.passed += 1;
                    self.words.take(&words, &mut take);
                }
                Step::Empty if dead || !self.is_reserved(view) => {
                    self.hole_since = None;
                    self.whole = true;
                    break;
                }
                Step::Empty | Step::Hole => {
                    let since = *self.hole_since.get_or_insert_with(Instant::now);
                    if !dead && since.elapsed() < PATIENCE {
                        break;
                    }
                    // A hole of a dead process is found by looking at the rest of its chunk.
                    steps += HOLE_STEPS;
                    self.holes.push(self.cursor.commit());
                    self.cursor.skip();
                    self.torn += 1;
                    self.passed += 1;
                    self.words.text = None;
                    self.hole_since = None;
                }
                Step::Finished(chunk) => self.give_back(view, chunk),
                Step::Ended(chunk) => {
                    self.give_back(view, chunk);
                    self.state = State::Ended;
                    return steps;
                }
                Step::Broken => {
                    self.state = State::Broken;
                    return steps;
                }
            }
        }
        if let Some(chunk) = view.chunk(self.cursor.chunk) {
            chunk.set_consumed(self.cursor.index.min(CHUNK_SLOTS as u32));
        }
        steps
    }

    /// Whether the next place is one of the shared chain that somebody took, behind which others may have written theirs.
    fn is_reserved(&self, view: &View) -> bool {
        view.chunk(self.cursor.chunk).is_some_and(|chunk| chunk.is_reserved_from(self.cursor.index))
    }

    fn give_back(&mut self, view: &View, chunk: u32) {
        let holes = std::mem::take(&mut self.holes);
        // A later reader finds it so, should its holes keep it from being given back.
        if let Some(read) = view.chunk(chunk) {
            read.set_consumed(CHUNK_SLOTS as u32);
        }
        // What leads in circles has more than there are chunks.
        if !let_go(view, chunk, &holes) && self.held.len() < CHUNKS_MAX {
            self.held.push((chunk, holes));
        }
    }
}

impl Assembler {
    /// Takes the next slot.
    #[inline(always)]
    pub(crate) fn take(&mut self, words: &[u64; 8], take: &mut impl FnMut(Item)) {
        let event = Event::from_words(*words);
        if event.hook < KIND_FIRST && self.text.is_none() && self.learned.is_none() {
            return take(Item::Event(event));
        }
        self.take_slowly(event, words, take);
    }

    #[cold]
    #[inline(never)]
    fn take_slowly(&mut self, event: Event, words: &[u64; 8], take: &mut impl FnMut(Item)) {
        if event.hook == KIND_TEXT_MORE {
            if let Some(text) = &mut self.text {
                text.add(&words[1..]);
                self.slots.push(*words);
            }
        } else {
            self.text = None; // the rest of an unfinished one never came
        }
        match event.hook {
            KIND_TEXT | KIND_NAME => {
                let begin = if event.hook == KIND_TEXT { Text::begin } else { Text::begin_name };
                self.text = Some(begin(&event));
                self.slots.clear();
                self.slots.push(*words);
            }
            KIND_CONTEXT => {
                take(Item::Told(vec![*words]));
                take(Item::Context(event));
            }
            KIND_STACK => take(Item::Stack(event)),
            KIND_COMMUNICATOR => {
                take(Item::Told(vec![*words]));
                take(Item::Communicator(event));
            }
            KIND_GPU_TIMES | KIND_GPU_CLOCK => take(Item::GpuTimes(event)),
            hook if hook < KIND_FIRST => {
                if let Some((key, ticks)) = self.learned.take()
                    && event.payload[0] == key
                    && event.start < ticks
                {
                    take(Item::Learned { key, ticks, start: event.start });
                }
                take(Item::Event(event));
            }
            _ => {}
        }
        if let Some(text) = self.text.take_if(|t| t.missing == 0) {
            if is_told_once(&text) {
                take(Item::Told(self.slots.clone()));
            }
            if matches!(text.kind, event::text_kind::FUNCTION | event::text_kind::ALIAS) {
                self.learned = Some((text.key, text.ticks));
            }
            take(Item::Text(text));
        }
    }
}

#[cfg(test)]
mod tests {
    use gputrace_abi::event::{NAME_BYTES, TEXT_SLOT_BYTES, text_kind};
    use gputrace_abi::ring::Chunk;

    use super::*;

    /// A label with this key as the shim writes one, in slots of a chunk of which others stood before.
    fn slots(text: &[u8], key: u64) -> Vec<[u64; 8]> {
        let chunk = Box::new(Chunk::<CHUNK_SLOTS>::default());
        let first = |hook, commit| Event { hook, commit, ..Event::default() }.words()[0];
        let (here, rest) = text.split_at(text.len().min(NAME_BYTES));
        let about = text_kind::LABEL | (text.len() as u64) << 16;
        let mut slots = vec![];
        let mut read = |commit| slots.push(chunk.slot(commit).unwrap().committed(commit).unwrap());
        let slot = |nth| chunk.slot(nth).unwrap();
        (0..4).for_each(|nth| slot(nth).write_text(u64::MAX, [u64::MAX; 7]));
        slot(0).write_name([first(KIND_NAME, 0), 5, key, about], here);
        read(0);
        for (nth, part) in (1..).zip(rest.chunks(TEXT_SLOT_BYTES)) {
            slot(nth).write_bytes(first(KIND_TEXT_MORE, nth), part);
            read(nth);
        }
        slots
    }

    #[test]
    fn names_of_each_length_come_as_they_were_written_whatever_stood_there_before() {
        let bytes: Vec<u8> = (0..150).map(|at| b'a' + at % 26).collect();
        for length in 0..bytes.len() {
            let mut found = vec![];
            let mut assembler = Assembler::default();
            for words in slots(&bytes[..length], 7) {
                assembler.take(&words, &mut |item| {
                    if let Item::Text(text) = item {
                        found.push(text);
                    }
                });
            }
            let [text] = &found[..] else { panic!("{length}: {found:?}") };
            assert_eq!(text.bytes(), &bytes[..length]);
            assert_eq!((text.kind, text.key, text.number, text.ticks), (text_kind::LABEL, 7, 0, 5));
        }
    }

    /// Of those that are written with each event an hour's would fill the memory that others need.
    #[test]
    fn a_label_is_kept_for_a_later_collector_only_where_it_is_written_once() {
        for (key, wanted) in [(7, 1), (BEHIND, 0)] {
            let (mut assembler, mut told) = (Assembler::default(), 0);
            for words in slots(&[b'a'; 80], key) {
                assembler.take(&words, &mut |item| told += usize::from(matches!(item, Item::Told(_))));
            }
            assert_eq!(told, wanted, "{key:x}");
        }
    }
}
