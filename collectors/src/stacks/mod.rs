//! Stacks of one process: which call has which, and what the numbers in them mean.
//!
//! A call's stack comes as a key right after the call; what the key stands for came before, in any of the process's
//! rings, each frame once with all that called it. Keys are hashes of addresses, so a stack's id in the trace is made of its content
//! instead, frame by frame from the outermost inwards: the same lines have the same id in every process, host and run.

mod lines;
mod python;
#[cfg(test)]
mod tests;

use std::collections::HashMap;
use std::sync::Arc;

use gputrace_abi::event::{Event, text_kind};
use gputrace_abi::stack::{CUT, Callers, DEPTH_MAX, FRAME_BYTES, Frame, PYTHON};

use crate::bindings::ByHandle;
use crate::chain::Text;
use crate::names::Written;
use crate::tables::{Joined, StackRow, Stacked, Tables};
pub(crate) use python::Code;

/// Bytes of memory for descriptions of one process, about. Imports of Python have millions of stacks which never come again, and a hostile
/// process could send them without end. So what was told before the last half of this is forgotten, and the process is told
/// ([`Header::stacks_forgotten`](gputrace_abi::layout::Header)): what it still uses it tells again. Tests come this far.
const MOST_BYTES: usize = if cfg!(debug_assertions) { 16 << 20 } else { 512 << 20 };
/// Code lies in no more libraries than that, in any process that is not hostile.
const MOST_MODULES: usize = 1 << 16;
/// Line tables that wait for their code objects: one for each thread that is just telling.
const MOST_TABLES: usize = 1 << 10;
/// What a stack, and a frame of one, take in a table of which two thirds are used.
const STACK: usize = 64;
const FRAME: usize = 96;
const _: () = assert!(size_of::<(u64, Told)>() * 3 / 2 <= STACK && size_of::<(u64, Node)>() * 3 / 2 <= FRAME);
/// Events that are looked through for the one that a stack follows: signal handlers may have recorded in between.
const LOOK_BACK: usize = 16;

/// A frame as it was described, and with all that called it a stack.
struct Node {
    /// Key and offset of the [`Frame`].
    key: u64,
    offset: u64,
    /// Number of the frame that called it; 0: of none that was taken.
    caller: u64,
    /// None was taken, and there were more.
    cut: bool,
    /// The stack's id, once its row was written.
    id: Option<i64>,
    /// Frames of native code are among them, known once there is the id.
    native: bool,
}

/// What was told of a stack.
#[derive(Clone, Copy)]
struct Told {
    /// Number of the innermost frame.
    innermost: u64,
    /// Key of the stack that called the outermost frame that called that one; 0: none did.
    outer: u64,
    /// The stack's id, once the rows that it needs were written.
    id: Option<i64>,
}

/// What a process told of its stacks.
#[derive(Default)]
struct Heard {
    /// Frames by number.
    nodes: ByHandle<Node>,
    /// By key.
    stacks: ByHandle<Told>,
    codes: ByHandle<Code>,
    /// Line tables whose code object has not come yet.
    tables: HashMap<u64, Vec<u8>>,
    bytes: usize,
}

/// What a row says about its stack.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct StackOf {
    /// `stacks.stack_id`.
    pub(crate) id: Option<i64>,
    /// Launches that it stands for.
    pub(crate) launches: Option<i64>,
}

/// The stacks of one process.
#[derive(Default)]
pub(crate) struct Stacks {
    process_id: i64,
    pid: i32,
    /// Path of the program, which the loader calls nothing.
    exe: Arc<str>,
    modules: ByHandle<Arc<str>>,
    heard: Heard,
    /// Before that.
    earlier: Heard,
    forgotten: u32,
    /// When the process knew of it, at the latest; none: it may not know yet.
    known_at: Option<u64>,
    lost: u64,
    /// Keys and numbers of launches, by thread and start of the call.
    calls: HashMap<(u32, u64), (u64, u64)>,
    /// Key of the last stack of each thread.
    last: HashMap<u32, u64>,
    /// Stacks whose call was read in the pass before: thread and start.
    late: Vec<(u32, u64)>,
}

impl Stacks {
    /// Of a process with these ids and this program.
    pub(crate) fn new(process_id: i64, pid: i32, exe: &str) -> Stacks {
        Stacks { process_id, pid, exe: exe.into(), ..Stacks::default() }
    }

    /// A stack came, for the call of this thread that began when the record says.
    pub(crate) fn attach(&mut self, record: &Event, thread: u32, fresh: &mut [Event]) {
        let call = (thread, record.start);
        let owner = fresh.iter_mut().rev().take(LOOK_BACK).find(|e| (e.commit, e.start) == call);
        match owner {
            Some(event) => event.spare = 1,
            None => self.late.push(call),
        }
        self.calls.insert(call, (record.payload[0], record.payload[2]));
        self.last.insert(thread, record.payload[0]);
    }

    /// A place among the threads has a new one.
    pub(crate) fn forget_thread(&mut self, thread: u32) {
        self.last.remove(&thread);
    }

    /// The stack that was taken last in a thread; empty where there is none.
    pub(crate) fn last_of(&self, thread: u32) -> Vec<StackRow> {
        let Some(told) = self.last.get(&thread).and_then(|key| self.told(*key)) else { return Vec::new() };
        let outer = self.told(told.outer).map_or(0, |outer| outer.innermost);
        let numbers = [told.innermost, outer].map(|number| self.outwards(number, |_| false));
        let rows = numbers.into_iter().map(|part| {
            part.and_then(|(numbers, _)| numbers.iter().map(|number| self.row(self.node(*number)?)).collect())
        });
        rows.collect::<Option<Vec<Vec<StackRow>>>>().unwrap_or_default().concat()
    }

    fn told(&self, key: u64) -> Option<Told> {
        self.heard.stacks.get(&key).or_else(|| self.earlier.stacks.get(&key)).copied()
    }

    fn node(&self, number: u64) -> Option<&Node> {
        self.heard.nodes.get(&number).or_else(|| self.earlier.nodes.get(&number))
    }

    /// The numbers of frames from this one outwards, up to one that is not wanted any more, and that one's. None where one of them was
    /// not described, and where there is no end.
    fn outwards(&self, number: u64, enough: impl Fn(&Node) -> bool) -> Option<(Vec<u64>, u64)> {
        let (mut numbers, mut next) = (Vec::new(), number);
        while next != 0 {
            let node = self.node(next)?;
            if enough(node) {
                break;
            }
            if numbers.len() == DEPTH_MAX {
                return None;
            }
            numbers.push(next);
            next = node.caller;
        }
        Some((numbers, next))
    }

    /// What is known of a frame; none where its code was not described.
    fn row(&self, node: &Node) -> Option<StackRow> {
        let Node { key, offset, cut, .. } = node;
        let row = match offset & PYTHON {
            0 => native_row(self.modules.get(key), *offset),
            _ => self.heard.codes.get(key).or_else(|| self.earlier.codes.get(key))?.row(offset ^ PYTHON),
        };
        Some(StackRow { cut: *cut, ..row })
    }

    /// Marks the calls that were read in the pass before their stack.
    pub(crate) fn attach_late(&mut self, held: &mut [Event]) {
        for call in std::mem::take(&mut self.late) {
            if let Some(event) = held.iter_mut().rev().find(|e| (e.commit, e.start) == call) {
                event.spare = 1;
            }
        }
    }

    /// The calls of a pass have their rows: what was not asked for belongs to none of them.
    pub(crate) fn end_pass(&mut self, fresh: &[Event]) {
        if self.calls.is_empty() {
            return;
        }
        let next: HashMap<_, _> = fresh
            .iter()
            .filter(|e| e.spare != 0)
            .filter_map(|e| Some(((e.commit, e.start), self.calls.remove(&(e.commit, e.start))?)))
            .collect();
        self.calls = next;
    }

    /// The stack of a call.
    #[inline]
    pub(crate) fn of(&mut self, event: &Event, tables: &mut Tables, written: &mut Written) -> StackOf {
        if event.spare == 0 { StackOf::default() } else { self.find(event, tables, written) }
    }

    #[cold]
    fn find(&mut self, event: &Event, tables: &mut Tables, written: &mut Written) -> StackOf {
        let Some((key, launches)) = self.calls.remove(&(event.commit, event.start)) else { return StackOf::default() };
        let id = self.id(key, tables, written);
        self.lost += u64::from(id.is_none());
        StackOf { id, launches: id.map(|_| launches as i64) }
    }

    /// The id of the stack with this key, which the call itself says; none for 0.
    pub(crate) fn by_key(&mut self, key: u64, tables: &mut Tables, written: &mut Written) -> Option<i64> {
        if key == 0 {
            return None;
        }
        let id = self.id(key, tables, written);
        self.lost += u64::from(id.is_none());
        id
    }

    /// The id of a stack; its rows are written with its first use.
    #[inline]
    fn id(&mut self, key: u64, tables: &mut Tables, written: &mut Written) -> Option<i64> {
        let told = self.told(key)?;
        if told.id.is_some() {
            return told.id;
        }
        let id = self.write_both(told, tables, written);
        for heard in [&mut self.heard, &mut self.earlier] {
            if let Some(told) = heard.stacks.get_mut(&key) {
                told.id = id;
            }
        }
        id
    }

    /// Writes the rows that a stack needs and that were not written; none where it was not described.
    #[cold]
    fn write_both(&mut self, told: Told, tables: &mut Tables, written: &mut Written) -> Option<i64> {
        let inner = self.write(told.innermost, tables, written)?;
        if told.outer == 0 {
            return Some(inner);
        }
        let outer = self.told(told.outer).filter(|outer| outer.outer == 0)?;
        let outer = self.write(outer.innermost, tables, written)?;
        let own = both(inner, outer);
        if written.stack(own) {
            let innermost = self.node(told.innermost)?;
            let caller = self.node(innermost.caller).and_then(|caller| caller.id);
            let joint = Stacked { id: own, caller, joined: Some(Joined { inner, outer }), frame: self.row(innermost)? };
            tables.native(self.pid, joint);
        }
        Some(own)
    }

    /// Writes the rows that the stack of the frame with this number needs and that were not written; none where it was not described.
    fn write(&mut self, number: u64, tables: &mut Tables, written: &mut Written) -> Option<i64> {
        let (new, known) = self.outwards(number, |node| node.id.is_some())?;
        let known = self.node(known);
        let (mut id, mut native) = (known.and_then(|node| node.id), known.is_some_and(|node| node.native));
        let rows: Vec<StackRow> = new.iter().map(|number| self.row(self.node(*number)?)).collect::<Option<_>>()?;
        for (number, frame) in new.iter().zip(rows).rev() {
            let caller = id;
            let mut own = content(caller, &frame);
            native |= frame.language == "native";
            // An address in no file means something in its own process only.
            if frame.language == "native" && frame.module.is_none() {
                own = (own ^ self.process_id) & i64::MAX;
            }
            match (written.stack(own), native) {
                (false, _) => {}
                (true, true) => tables.native(self.pid, Stacked { id: own, caller, joined: None, frame }),
                (true, false) => tables.stack(Stacked { id: own, caller, joined: None, frame }),
            }
            id = Some(own);
            for heard in [&mut self.heard, &mut self.earlier] {
                if let Some(node) = heard.nodes.get_mut(number) {
                    (node.id, node.native) = (id, native);
                }
            }
        }
        id
    }

    /// Calls whose stack was never described.
    pub(crate) fn lost(&self) -> u64 {
        self.lost
    }

    /// The rows of stacks must be written again.
    pub(crate) fn announce_again(&mut self) {
        for heard in [&mut self.heard, &mut self.earlier] {
            heard.nodes.values_mut().for_each(|node| node.id = None);
            heard.stacks.values_mut().for_each(|told| told.id = None);
        }
    }

    /// Another collector heard of the process's stacks, and forgot so often.
    pub(crate) fn go_on(&mut self, forgotten: u32) {
        self.forgotten = forgotten.wrapping_add(1);
    }

    /// Forgets where much was told. A pass that began at this time, in ticks, has resolved what was recorded up to that one. How often it
    /// forgot, which the process is to know.
    pub(crate) fn make_room(&mut self, began: u64, resolved: u64) -> u32 {
        let known_at = *self.known_at.get_or_insert(began);
        // What was recorded before that names what was told before.
        let is_free = resolved >= known_at || self.heard.bytes > MOST_BYTES;
        if self.heard.bytes > MOST_BYTES / 2 && is_free {
            // Their code objects come next, but for those of a hostile process.
            let tables = Some(std::mem::take(&mut self.heard.tables)).filter(|tables| tables.len() < MOST_TABLES);
            let heard = Heard { tables: tables.unwrap_or_default(), ..Heard::default() };
            self.earlier = std::mem::replace(&mut self.heard, heard);
            self.forgotten = self.forgotten.wrapping_add(1);
            self.known_at = None;
        }
        self.forgotten
    }

    /// Takes in a description. False: it is none of a stack.
    pub(crate) fn take_text(&mut self, text: &Text) -> bool {
        let bytes = text.bytes();
        const OURS: [u64; 4] = [text_kind::STACK, text_kind::PYTHON_CODE, text_kind::PYTHON_LINES, text_kind::MODULE];
        if !OURS.contains(&text.kind) {
            return false;
        }
        if text.kind == text_kind::STACK {
            self.heard.take_stack(text);
            return true;
        }
        self.heard.bytes += bytes.len() + 128;
        match text.kind {
            text_kind::MODULE => {
                let path = match bytes.first() {
                    None => self.exe.clone(),
                    Some(b'/') => text.text().into_owned().into(),
                    // As it was given to dlopen: the process is where it was, or no longer there.
                    Some(_) => absolute(self.pid, &text.text()).into(),
                };
                if self.modules.len() < MOST_MODULES {
                    self.modules.insert(text.key, path);
                }
            }
            text_kind::PYTHON_LINES => {
                let table = self.heard.tables.entry(text.key).or_default();
                // The first part begins anew; one that does not follow the last is of a table with a hole.
                table.truncate(text.number.min(usize::MAX as u64) as usize);
                if table.len() as u64 == text.number {
                    table.extend_from_slice(bytes);
                }
            }
            _ => {
                let table = self.heard.tables.remove(&text.key);
                if let Some(code) = Code::read(bytes, table.unwrap_or_default()) {
                    self.heard.codes.insert(text.key, code);
                }
            }
        }
        true
    }
}

impl Heard {
    /// A stack may be told of several times: what fell out of the shim's memory is told again, and where two threads tell of the same one,
    /// the other's frames may be all that one of them says, and be read after that.
    fn take_stack(&mut self, text: &Text) {
        let Some((callers, frames)) = text.bytes().split_first_chunk() else { return };
        let Callers { outer, inner: mut caller } = Callers::from_bytes(*callers);
        for frame in frames.as_chunks::<FRAME_BYTES>().0.iter().take(DEPTH_MAX).rev() {
            let Frame { number, key, offset } = Frame::from_bytes(frame);
            let cut = caller == 0 && text.number & CUT != 0;
            self.nodes.entry(number).or_insert_with(|| {
                self.bytes += FRAME;
                Node { key, offset, caller, cut, id: None, native: false }
            });
            caller = number;
        }
        if text.key != 0 {
            self.stacks.entry(text.key).or_insert_with(|| {
                self.bytes += STACK;
                Told { innermost: caller, outer, id: None }
            });
        }
    }
}

/// A path that begins in a process's working directory, as far as that can be read. A name without a folder is none (the vdso).
fn absolute(pid: i32, path: &str) -> String {
    let folder = std::fs::read_link(format!("/proc/{pid}/cwd")).ok().filter(|_| path.contains('/'));
    folder.map_or_else(|| path.to_owned(), |folder| folder.join(path).to_string_lossy().into_owned())
}

/// A frame of native code before its symbol is known; of code that lies in no file where there is no module.
fn native_row(module: Option<&Arc<str>>, offset: u64) -> StackRow {
    StackRow { language: "native", module: module.cloned(), offset: Some(offset as i64), ..StackRow::default() }
}

/// The id of a stack: a hash of that of the stack that called its innermost frame, and of what the row says of that one.
pub(crate) fn content(caller: Option<i64>, row: &StackRow) -> i64 {
    let mut hash = crate::names::Hash::new("stack");
    hash.number(caller.map_or(u64::MAX, |caller| caller as u64));
    for text in [Some(row.language), Some(&*row.function), row.file.as_deref(), row.module.as_deref()] {
        hash.text(text.unwrap_or("\0"));
    }
    hash.number(row.line.map_or(u64::MAX, |l| l as u64));
    hash.number(row.offset.map_or(u64::MAX, |o| o as u64));
    hash.number(u64::from(row.cut));
    hash.id()
}

/// The id of a stack that has the frames of one, and outside of them those of another.
fn both(inner: i64, outer: i64) -> i64 {
    let mut hash = crate::names::Hash::new("joined");
    hash.number(inner as u64);
    hash.number(outer as u64);
    hash.id()
}

/// The id of the stack of a function that has another one inlined, so many of them, in the frame of the stack with this id.
pub(crate) fn around(id: i64, inlined: usize) -> i64 {
    let mut hash = crate::names::Hash::new("inlined");
    hash.number(id as u64);
    hash.number(inlined as u64);
    hash.id()
}
