//! Metal: messages to objects, put together into command buffers.
//!
//! The shim remembers no object. Which encoder belongs to which command buffer, what a commit gave to the GPU, and when the
//! GPU did it, is found here, by address and time. Addresses are used again and threads' rings are read one after the
//! other, so messages are put into the order of their begin first, and wait until every ring was read that far.
//!
//! A message whose object was not seen made, or came so much later than others that its object was forgotten, has its row
//! without what it belongs to. A process that makes objects without end has the oldest ones forgotten.
//!
//! Metal 4 commits several command buffers at once, under a number: which ones, messages of their own say.

mod content;
mod gpu_clock;
mod join;
mod labels;
mod members;
mod memory;
mod recent;
mod rows;
mod signals;
mod unseen;
mod waiting;

use std::collections::{HashMap, HashSet};

use gputrace_abi::Class;
use gputrace_abi::clock::ClockKind;
use gputrace_abi::event::{Event, KIND_GPU_CLOCK, detail};

use crate::bindings::Names;
use crate::clock::Clocks;
use crate::facts::{Hook, Role};
use crate::manifest::GpuClock;
use crate::names::Written;
use crate::process::Recording;
use crate::process::pending::Pending;
use crate::tables::{Call, Tables};
use content::Content;
use gpu_clock::GpuClocks;
use members::Members;
use memory::Memory;
use recent::Recent;
use rows::{Committed, Completed};
use signals::Signals;
use unseen::Unseen;
use waiting::Waiting;

/// Objects that are remembered: command buffers that are being encoded, their encoders, those that run, queues.
const MOST_OPEN: usize = 1 << 13;
const MOST_ENCODERS: usize = 1 << 14;
const MOST_COMMITTED: usize = 1 << 14;
const MOST_QUEUES: usize = 1 << 8;
/// Dispatches that wait for their commit.
const MOST_HELD: usize = 1 << 17;
/// Names of pipelines, and of several in one command buffer.
const MOST_NAMES: usize = 1 << 16;

/// A call of Metal.
#[derive(Debug)]
pub(super) struct Message {
    pub(super) call: Call,
    /// One of [`gputrace_abi::event::detail`].
    pub(super) detail: u8,
    pub(super) role: Role,
    /// A commit of Metal 4's: what it is about is a number.
    pub(super) numbered: bool,
    /// Ticks at its begin.
    pub(super) at: u64,
    pub(super) end_ns: i64,
    pub(super) payload: [u64; 4],
    pub(super) stack_launches: Option<i64>,
}

impl Message {
    /// The command buffer of a commit, as [`Times::key`].
    fn key(&self) -> u64 {
        key(self.payload[0], self.numbered)
    }

    fn context(&self) -> u16 {
        self.call.context as u16
    }
}

/// When the GPU ran a command buffer.
#[derive(Clone, Copy, Debug)]
struct Times {
    key: u64,
    told_ns: i64,
    /// Begin and end; none of what failed before the GPU took it.
    gpu_ns: Option<(i64, i64)>,
    /// The same where they are of a clock of the GPU's own.
    right_ns: Option<(i64, i64)>,
    schedule_ns: Option<i64>,
    completed: bool,
}

#[derive(Debug)]
enum What {
    Message(Box<Message>),
    Times(Box<Times>),
    /// A queue is asked for a command buffer.
    Asks {
        queue: u64,
        correlation_id: i64,
    },
}

/// A command buffer that is being encoded.
#[derive(Debug, Default)]
struct Open {
    /// Its queue; 0 where it was not seen made.
    queue: u64,
    /// When it was there first.
    since_ns: i64,
    /// Its label, if it has one.
    label: Option<i64>,
    /// The host waited for it.
    waited_for: bool,
    content: Content,
}

#[derive(Clone, Copy, Debug)]
struct Encoder {
    buffer: u64,
    pipeline: u64,
    /// When it was set.
    set_ns: i64,
    label: Option<i64>,
}

/// A queue, and how many of its command buffers have not completed.
#[derive(Clone, Copy, Debug, Default)]
struct Queue {
    /// Most of them; 0 where the queue was not seen made.
    limit: u64,
    label: Option<i64>,
    open: u32,
    /// Of those the ones that are gone without a commit, which shows when there is room where there should be none.
    gone: u32,
    committed: u32,
}

/// What else of the process it needs.
pub(super) struct Around<'a> {
    pub(super) names: &'a Names,
    pub(super) pending: &'a mut Pending,
    pub(super) tables: &'a mut Tables,
    pub(super) written: &'a mut Written,
    pub(super) recording: &'a Recording,
}

/// The Metal objects of a process.
#[derive(Debug)]
pub(crate) struct Metal {
    /// The hook table is one of Metal's.
    pub(crate) is_here: bool,
    /// When the last pass began.
    horizon: u64,
    /// Times as they were read, and pairs of host and GPU time.
    fresh: Vec<Event>,
    gpu_clocks: GpuClocks,
    waiting: Waiting,
    open: Recent<Open>,
    encoders: Recent<Encoder>,
    committed: Recent<Committed>,
    /// Times whose commit was not read yet.
    early: Recent<Times>,
    /// What completed, until nothing that began before it can complete.
    ran: Vec<Completed>,
    queues: Recent<Queue>,
    memory: Memory,
    /// Calls that found their queue full.
    waits_for_room: HashSet<i64>,
    members: Members,
    signals: Signals,
    /// Dispatches in `open`.
    held: usize,
    texts: HashMap<i64, String>,
    /// Names of command buffers, by their first pipeline and how many more they have.
    several: HashMap<(i64, usize), i64>,
    /// Classes that are not seen in full.
    unseen: Unseen,
    /// Messages whose encoder or command buffer is not known.
    strays: u64,
    /// Commits that were forgotten before their times came.
    forgotten: u64,
    /// Commits of command buffers that were committed already.
    again: u64,
    /// Command buffers that were waited for, and whose commit was not seen.
    unseen_commits: u64,
    /// Dispatches that did not wait for their commit: too many did.
    not_held: u64,
}

impl Default for Metal {
    fn default() -> Metal {
        Metal {
            is_here: false,
            horizon: 0,
            fresh: Vec::new(),
            gpu_clocks: GpuClocks::default(),
            waiting: Waiting::default(),
            open: Recent::new(MOST_OPEN),
            encoders: Recent::new(MOST_ENCODERS),
            committed: Recent::new(MOST_COMMITTED),
            early: Recent::new(MOST_COMMITTED),
            ran: Vec::new(),
            queues: Recent::new(MOST_QUEUES),
            memory: Memory::default(),
            waits_for_room: HashSet::new(),
            members: Members::default(),
            signals: Signals::default(),
            held: 0,
            texts: HashMap::new(),
            several: HashMap::new(),
            unseen: Unseen::default(),
            strays: 0,
            forgotten: 0,
            again: 0,
            unseen_commits: 0,
            not_held: 0,
        }
    }
}

/// Numbers live in a space of their own, beside addresses.
fn key(object: u64, numbered: bool) -> u64 {
    if numbered { object ^ 1 << 63 } else { object }
}

/// Whether a call has to wait for the objects that it is about.
pub(super) fn takes(hook: &Hook) -> bool {
    match hook.class {
        Class::Commit | Class::Encode => true,
        Class::Sync | Class::Transfer | Class::Alloc | Class::Free => hook.metal,
        _ => matches!(hook.role, Role::SignalsEvent | Role::MakesQueue | Role::BeginsBuffer | Role::Labels(_)),
    }
}

impl Metal {
    pub(super) fn take_times(&mut self, event: Event) {
        self.fresh.push(event);
    }

    pub(super) fn take(&mut self, message: Message) {
        let [_, buffer, number, _] = message.payload;
        if message.call.class == Class::Encode && message.detail == detail::COMMITTED {
            // Told after the commit returned, and before its own event: known when that comes, whatever their times.
            return self.members.take(number, buffer);
        }
        let call = &message.call;
        let (begin_ns, end_ns) = (call.start_ns, message.end_ns);
        // What it returns is there at its end: where it waited for room, another one may have had that address at its begin.
        let at = match (call.class, message.detail) {
            (Class::Sync, detail::ROOM) => {
                let asks = What::Asks { queue: buffer, correlation_id: call.correlation_id };
                self.waiting.push(begin_ns, asks);
                end_ns
            }
            (Class::Encode, detail::ENCODER) | (Class::Alloc, _) => end_ns,
            _ => begin_ns,
        };
        self.waiting.push(at, What::Message(Box::new(message)));
    }

    /// A pipeline's name is this text.
    pub(super) fn name(&mut self, id: i64, text: &str) {
        if self.is_here && self.texts.len() < MOST_NAMES {
            self.texts.entry(id).or_insert_with(|| text.to_owned());
        }
    }

    /// Makes rows of what began before the last pass did, which read every ring as far as that. `horizon`: when this pass
    /// began.
    pub(super) fn settle(&mut self, horizon: u64, clocks: &Clocks, kind: ClockKind, around: &mut Around<'_>) {
        self.gpu_clocks.host_error_ns = clocks.error_ns(kind);
        for event in std::mem::take(&mut self.fresh) {
            let now_ns = clocks.ns(kind, event.start);
            if event.hook == KIND_GPU_CLOCK {
                self.gpu_clocks.take(&event, now_ns);
                continue;
            }
            let mut times = Times::of(&event, now_ns);
            times.right_ns = self.gpu_clocks.put_right(event.context, times.gpu_ns);
            // By the end on the GPU: what began after that finds it completed, however late its handler ran.
            let at = GpuClocks::end_ns(&times);
            self.waiting.push(at, What::Times(Box::new(times)));
        }
        let all = horizon == u64::MAX;
        // What began before the last pass, and has ended, was read by it.
        let read_to = std::mem::replace(&mut self.horizon, horizon);
        // What memory was taken before this pass has its label, if it gets one at once.
        let memory_rows = if all { usize::MAX } else { self.memory.unwritten() };
        if self.waiting.is_empty() {
            return self.memory.write(memory_rows, around);
        }
        let read_to = if all { i64::MAX } else { clocks.ns(kind, read_to) };
        while let Some(what) = self.waiting.next(read_to) {
            match what {
                What::Message(message) => self.message(*message, around),
                What::Times(times) => self.times(*times, around),
                What::Asks { queue, correlation_id } => {
                    if self.is_full(queue) {
                        self.waits_for_room.insert(correlation_id);
                    }
                }
            }
        }
        self.write_ran(all, around);
        self.memory.write(memory_rows, around);
        around.tables.settle();
    }

    fn message(&mut self, message: Message, around: &mut Around<'_>) {
        match message.call.class {
            Class::Encode => self.encode(&message, around),
            Class::Commit => self.commit(message, around),
            Class::Sync => self.sync(message, around),
            Class::Transfer => self.transfer(message, around),
            Class::Alloc | Class::Free => self.memory(message, around),
            _ => self.other(&message, around),
        }
    }

    /// Makes rows of all that is left: no other message comes.
    pub(super) fn finish(&mut self, clocks: &Clocks, kind: ClockKind, around: &mut Around<'_>) {
        self.settle(u64::MAX, clocks, kind, around);
        let open = self.open.take_all();
        self.unseen_commits += open.iter().filter(|open| open.waited_for).count() as u64;
        for open in open {
            self.discard(Open { waited_for: false, ..open }, around);
        }
        for committed in self.committed.take_all() {
            self.close(&committed, None, around);
        }
        self.write_ran(true, around);
        self.memory.write(usize::MAX, around);
    }

    /// The shim tells of a class, as [`gputrace_abi::metal::unseen`] says.
    pub(super) fn is_unseen(&mut self, why: u64, text: &str, objects: u64) {
        self.unseen.take(why, text, objects);
    }

    /// Notes of the shim's that [`Metal::notes`] says better.
    pub(super) fn known_notes(&self) -> u32 {
        self.unseen.bits()
    }

    /// What the manifest says of the clocks of its devices.
    pub(super) fn gpu_clocks(&self) -> Vec<GpuClock> {
        self.gpu_clocks.describe()
    }

    /// What the manifest says of messages that could not be put together.
    pub(super) fn notes(&self) -> impl Iterator<Item = String> {
        let strays = (self.strays > 0)
            .then(|| format!("{} messages to Metal encoders whose command buffer was not seen", self.strays));
        let forgotten = (self.forgotten > 0).then(|| {
            format!("{} Metal command buffers were forgotten before they were seen to complete", self.forgotten)
        });
        let again = (self.again > 0).then(|| {
            format!(
                "{} commits of Metal command buffers that had been committed already: the first one gave the GPU its work and has the \
                 launch and the times; these stand in api alone",
                self.again
            )
        });
        let unseen_commits = (self.unseen_commits > 0).then(|| {
            format!(
                "{} Metal command buffers were waited for and their commit was not seen: something put another commit in the place of \
                 gputrace's. What else was committed so is missing too, and no dispatch from then on is called never committed",
                self.unseen_commits
            )
        });
        let not_held = (self.not_held > 0).then(|| {
            format!(
                "{} Metal dispatches beyond {MOST_HELD} in command buffers that were not committed yet: their rows are of no commit",
                self.not_held
            )
        });
        let lost = unseen_commits.into_iter().chain(not_held);
        self.unseen
            .notes()
            .chain(strays)
            .chain(forgotten)
            .chain(again)
            .chain(lost)
            .chain(self.members.notes())
            .chain(self.memory.note())
            .chain(self.gpu_clocks.describe().into_iter().flat_map(|clock| clock.notes().collect::<Vec<_>>()))
    }
}
