//! A process that writes what it likes into its segment: events and texts of every kind as a shim does, and then any words anywhere.
//!
//! The input is a list of steps. What a shim would do comes first, so that names, graphs, stacks, GPU's work, malloc's blocks and counters are
//! there to be reached; words at any place come after it, and it is read before and after them, and once more as that of a process that
//! has ended. What comes out of it, batches, accounts and sums, must be what a manifest and a file can hold.

use std::os::fd::AsFd;
use std::time::Duration;

use gputrace_abi::event::{self, Event, text_kind};
use gputrace_abi::layout::{CHUNKS_AT, COUNTERS_AT, HOOKS_AT, INFO_AT, SMALLEST_BYTES, THREADS_AT, malloc_mode};
use gputrace_abi::pending::{SIZES, Word, owner};
use gputrace_abi::ring::{CHUNK_BYTES, CHUNK_SLOTS};
use gputrace_abi::sync::{AtomicU64, Ordering};
use gputrace_abi::text;

use super::input::Input;
use crate::clock::Clocks;
use crate::names::Written;
use crate::process::Process;
use crate::redact::Redact;
use crate::rollups::Rollups;
use crate::segment::Segment;
use crate::support::{HOOKS, Memory, Thread};
use crate::tables::Tables;

/// Slots that a shim's part may take: its threads' chunks are then never all taken.
const MOST_SLOTS: usize = 12 * CHUNK_SLOTS;
/// Threads.
const MOST_THREADS: usize = 4;
/// Kinds of texts.
const KINDS: u64 = text_kind::GPU_ACTIVITY + 2;

pub(super) fn segment(data: &[u8]) {
    let mut input = Input(data);
    let first = input.byte();
    let malloc = [malloc_mode::OFF, malloc_mode::SAMPLE, malloc_mode::FULL][usize::from(first % 3)];
    // Where short lives are summed up in the process the table for them lies behind what is as small.
    let memory =
        if first & 16 == 0 { Memory::new(SMALLEST_BYTES, malloc) } else { Memory::with_pending(SMALLEST_BYTES) };
    let Ok(segment) = Segment::map(memory.fd.as_fd()) else { return };
    let mut reader = Reader::new(segment, first);
    let mut threads: Vec<Thread<'_>> = vec![Thread::new(memory.view, 100)];
    let mut room = MOST_SLOTS;
    while !input.is_over() && room > 0 {
        let step = input.byte();
        let of = usize::from(step >> 4) % threads.len();
        let slots = match step & 15 {
            0..=2 => {
                threads[of].event(any_event(&mut input));
                1
            }
            3..=6 => told(&mut threads[of], &mut input),
            7 => {
                let (hook, payload) = (event::KIND_FIRST | u16::from(input.byte()), payload(&mut input));
                raw(&mut threads[of], Event { hook, payload, ..any_event(&mut input) });
                1
            }
            8 => {
                threads[of].shared(any_event(&mut input));
                1
            }
            9 | 10 if !threads[of].reserve(1) => MOST_SLOTS,
            9 => {
                let thread = &mut threads[of];
                thread.gpu_times(input.number(), input.number(), input.number(), (input.short(), 4));
                1
            }
            10 => {
                threads[of].tear();
                1
            }
            11 if threads.len() < MOST_THREADS => {
                threads.push(Thread::new(memory.view, 100 + u32::from(input.byte() % 8)));
                1
            }
            12 if threads.len() > 1 => {
                threads.swap_remove(of).exit();
                1
            }
            13 => {
                reader.pass();
                4
            }
            14 => break,
            _ => pending(&memory, &threads[of], &mut input),
        };
        room = room.saturating_sub(slots);
    }
    reader.pass();
    while !input.is_over() {
        poke(&memory, &mut input);
    }
    reader.pass();
    reader.finish();
}

/// An event of one of the hooks.
fn any_event(input: &mut Input<'_>) -> Event {
    let hook = u16::from(input.byte()) % HOOKS.len() as u16;
    let start = gputrace_abi::clock::counter().wrapping_sub(input.number());
    let end = start.wrapping_add(input.number());
    let odd = input.byte();
    Event {
        hook,
        start,
        end,
        context: u16::from(odd & 3),
        flags: if odd & 4 == 0 { 0 } else { input.short() },
        result: if odd & 8 == 0 { 0 } else { i32::from(input.short()) as _ },
        payload: payload(input),
        ..Event::default()
    }
}

fn payload(input: &mut Input<'_>) -> [u64; 4] {
    std::array::from_fn(|_| input.number())
}

/// An event as it is, counted by no class.
fn raw(thread: &mut Thread<'_>, event: Event) {
    if thread.reserve(1) {
        thread.put(event);
    }
}

/// A text of any kind, by its own key or another one. How many slots it took.
fn told(thread: &mut Thread<'_>, input: &mut Input<'_>) -> usize {
    let (kind, how, number) = (u64::from(input.byte()) % KINDS, input.byte(), input.number());
    let length = usize::from(if how & 2 == 0 { u16::from(input.byte()) } else { input.short() });
    let bytes = input.bytes(length.min(event::TEXT_MAX_BYTES));
    let key = if how & 1 == 0 { text::key(kind, bytes) } else { input.number() };
    if !thread.bytes(kind, key, number, bytes) {
        return MOST_SLOTS;
    }
    if how & 4 != 0 {
        // The call before it has this stack.
        raw(thread, Event { hook: event::KIND_STACK, payload: [key, input.number(), 0, 0], ..Event::default() });
    }
    2 + bytes.len() / event::TEXT_SLOT_BYTES
}

/// Blocks that a thread has counted, and one in the table, of this thread or another one. How many slots that took.
fn pending(memory: &Memory, thread: &Thread<'_>, input: &mut Input<'_>) -> usize {
    let Some(table) = memory.view.pending() else { return 1 };
    let (sized, row, many) = (usize::from(input.short()) % SIZES, u16::from(input.byte()) % 8, input.number());
    let row = if row == 0 { thread.number() } else { row };
    let index = usize::from(input.short()) * 2;
    let word = Word(input.number() << 37 | owner(row) | table.stamp.load(Ordering::Relaxed) | sized as u64);
    table.exchange(index, table.at(index), word);
    let Some(counts) = thread.counts() else { return CHUNK_SLOTS };
    counts.pairs[sized].fetch_add(many, Ordering::Relaxed);
    counts.aged.fetch_add(many >> 3, Ordering::Relaxed);
    1
}

/// A word at a place where it matters, or anywhere.
fn poke(memory: &Memory, input: &mut Input<'_>) {
    let (part, place, value) = (input.byte(), usize::from(input.short()), input.number());
    let at = match part % 8 {
        0 => place % 4096,
        1 => INFO_AT + place % 512,
        2 => HOOKS_AT + place,
        3 => THREADS_AT + place % (8 * 512),
        4 => COUNTERS_AT + place,
        5 => CHUNKS_AT + place % 32 * CHUNK_BYTES + place / 32 % 8 * 8,
        6 => CHUNKS_AT + place % 32 * CHUNK_BYTES + place / 32 % 96 * 8,
        // What stands behind the last chunk is the table, if there is one.
        _ if part & 128 != 0 => SMALLEST_BYTES as usize + place * 16,
        _ => place * 61,
    };
    let at = (at & !7).min(memory.bytes() - 8);
    // SAFETY: inside the mapping, aligned; all its words are atomics.
    let word = unsafe { &*memory.view.base().add(at).cast::<AtomicU64>() };
    word.store(value, Ordering::Relaxed);
}

/// The collector's side.
struct Reader {
    clocks: Clocks,
    tables: Tables,
    written: Written,
    process: Process,
    batches: usize,
}

impl Reader {
    fn new(segment: Segment, odd: u8) -> Reader {
        let mut tables = Tables::new();
        tables.sum_up((odd & 4 != 0).then(|| Rollups::new(Duration::from_secs(1))));
        let mut process = Process::new(1, 1, segment, &Redact::default());
        if odd & (8 | 16) != 0 {
            process.cull(1_000_000);
        }
        Reader { clocks: Clocks::start(), tables, written: Written::default(), process, batches: 0 }
    }

    fn pass(&mut self) {
        self.process.pass(&mut self.clocks, &mut self.tables, &mut self.written, false);
        let _ = self.process.describe(&self.clocks);
    }

    fn finish(&mut self) {
        self.process.finish(&mut self.clocks, &mut self.tables, &mut self.written, Some(1));
        self.tables.write_worked(i64::MAX);
        self.tables.settle_rollups(self.clocks.now_ns(), true);
        drop(self.tables.take_natives());
        self.batches += self.tables.take_full().len() + self.tables.take(1).count();
        assert!(self.batches < 2000);
        let _ = self.process.row(&self.clocks, "h");
        let described = self.process.describe(&self.clocks);
        let text = serde_json::to_string(&described).expect("a manifest can be written");
        assert_eq!(serde_json::from_str::<crate::manifest::Process>(&text).expect("and read").pid, described.pid);
    }
}
