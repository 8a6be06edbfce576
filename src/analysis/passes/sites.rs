//! Costly calls and drawn launches by the stack that made them.
//!
//! The traced program takes a stack of calls that took long, so what is counted by stack are those; the others of a kind
//! are counted without one. A drawn launch's stack stands for as many launches as its row says.

use std::sync::Arc;

use gputrace_collectors::schema::TableId;
use rustc_hash::FxHashSet;

use super::Pass;
use super::first_launches::{FirstLaunches, Load};
use super::groups::Groups;
use super::launches::OTHER;
use super::stats::Stats;
use super::steps::{Cursor, Place, Steps, blocks};
use super::texts::Texts;
use super::waiting::{Idle, Memory, Pending, Transfer};
use crate::trace::{NO_STACK, Rows, Want};

/// What a call cost time with.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(crate) enum What {
    /// Waiting: a call that does nothing else, or the part of a copy that waited for earlier work.
    Wait,
    /// Waiting of calls that one does not expect to wait: the part of a set, a free or an allocation.
    Hidden,
    /// A copy or set, without its waiting.
    Copy,
    /// Memory taken or given back, without its waiting.
    Memory,
    /// Loading and compiling code, in calls for that and in first launches that took long.
    Load,
    /// Waiting for the operating system, of threads that give the GPU work.
    System,
    /// The same of other threads, which may have nothing to do.
    Helper,
}

/// Which calls are counted together.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(crate) struct Key {
    /// Process.
    pub(crate) process_id: i64,
    /// What they cost time with.
    pub(crate) what: What,
    /// Function.
    pub(crate) api_id: i64,
    /// Direction of a copy, a number of [`Sites::texts`].
    pub(crate) direction: u16,
    /// Their stack, or [`NO_STACK`].
    pub(crate) stack_id: i64,
}

/// Calls of one key.
#[derive(Debug, Default)]
pub(crate) struct Cost {
    /// All.
    pub(crate) all: Stats,
    /// Bytes that they copied, set, took or gave back.
    pub(crate) bytes: i64,
    /// In steady steps.
    pub(crate) steady: u64,
    /// In steady steps of usual duration: calls and their time. Of waits for the operating system those that hold the
    /// loop up ([`Steps::holds_up`]).
    pub(crate) middle: (u64, i64),
}

impl Cost {
    fn add(&mut self, ns: i64, place: Place, middle: bool) {
        self.all.add(ns);
        self.steady += u64::from(place.is_steady());
        if middle {
            self.middle = (self.middle.0 + 1, self.middle.1 + ns);
        }
    }
}

/// Launches of one process and stack.
#[derive(Debug, Default)]
pub(crate) struct Drawn {
    /// Launches that were drawn at random.
    pub(crate) samples: u64,
    /// Launches that they stand for.
    pub(crate) launches: i64,
    /// Others with this stack: they took long, or followed a pause of their thread.
    pub(crate) others: u64,
}

/// The pass.
#[derive(Debug)]
pub(crate) struct Sites {
    /// Costly calls.
    pub(crate) costs: Groups<Key, Cost>,
    /// Launches with a stack, by process and stack.
    pub(crate) launches: Groups<(i64, i64), Drawn>,
    /// Directions.
    pub(crate) texts: Texts,
    /// First launches that loaded their kernel's module, with their stack and place.
    pub(super) lazy: Vec<Load<(i64, Place)>>,
    first: FirstLaunches<(i64, Place)>,
    idle: Arc<Idle>,
    cursors: [Cursor; 6],
}

impl Sites {
    /// Judges frees and allocations by what they take when nothing is pending.
    pub(crate) fn new(idle: Arc<Idle>) -> Sites {
        let other = Key { process_id: OTHER, what: What::Wait, api_id: OTHER, direction: 0, stack_id: NO_STACK };
        Sites {
            costs: Groups::new(50_000, other),
            launches: Groups::new(50_000, (OTHER, NO_STACK)),
            texts: Texts::default(),
            lazy: Vec::new(),
            first: FirstLaunches::default(),
            idle,
            cursors: Default::default(),
        }
    }

    /// Whether any call has a stack.
    pub(crate) fn any(&self) -> bool {
        self.launches.iter().next().is_some() || self.costs.iter().any(|(key, _)| key.stack_id != NO_STACK)
    }

    /// Ids of all stacks.
    pub(crate) fn stacks(&self) -> FxHashSet<i64> {
        let costs = self.costs.iter().map(|(key, _)| key.stack_id);
        costs.chain(self.launches.iter().map(|((_, stack_id), _)| *stack_id)).filter(|id| *id != NO_STACK).collect()
    }

    /// Adds a row's time by what it went to.
    fn costs<const N: usize>(
        &mut self,
        rows: &Rows,
        steps: &Steps,
        cursor: usize,
        parts: impl Fn(&Self, usize) -> [(What, i64); N],
    ) {
        let (process, start) = (rows.i64("process_id"), rows.i64("start_ns"));
        let (api, stack) = (rows.i64("api_id"), rows.i64_or("stack_id", NO_STACK));
        let (bytes, direction) = (rows.i64_or("bytes", 0), rows.texts("direction"));
        let tid = rows.i32_or("tid", 0);
        let holds_up = |row: usize, ns: i64| steps.holds_up(process[row], tid[row], start[row], start[row] + ns);
        for row in 0..rows.len {
            let direction = self.texts.number(direction.get(row));
            for (what, ns) in parts(self, row).into_iter().filter(|(_, ns)| *ns > 0) {
                let place = steps.place(&mut self.cursors[cursor], process[row], start[row]);
                let key = Key { process_id: process[row], what, api_id: api[row], direction, stack_id: stack[row] };
                let cost = self.costs.at(key);
                cost.bytes = cost.bytes.saturating_add(bytes[row].max(0));
                cost.add(ns, place, place.is_middle() && (what != What::System || holds_up(row, ns)));
            }
        }
    }

    fn launches(&mut self, rows: &Rows, steps: &Steps) {
        let (process, stack) = (rows.i64("process_id"), rows.i64_or("stack_id", NO_STACK));
        let stands_for = rows.i64("stack_launches");
        for row in (0..rows.len).filter(|row| stack[*row] != NO_STACK) {
            let drawn = self.launches.at((process[row], stack[row]));
            if stands_for[row] > 0 {
                drawn.samples += 1;
                drawn.launches = drawn.launches.saturating_add(stands_for[row]);
            } else {
                drawn.others += 1;
            }
        }
        let (start, cursor) = (rows.i64("start_ns"), &mut self.cursors[3]);
        self.first.rows(rows, |row| (stack[row], steps.place(cursor, process[row], start[row])));
    }

    fn transfers(&mut self, rows: &Rows, steps: &Steps) {
        let (length, bytes, queued) = (rows.i64("api_ns"), rows.i64("bytes"), rows.flags("async"));
        let (kind, src, dst) = (rows.texts("kind"), rows.texts("src_kind"), rows.texts("dst_kind"));
        let direction = rows.texts("direction");
        let pending = rows.i32_or("pending_streams", Pending::MISSING);
        self.costs(rows, steps, 1, |_, row| {
            let (set, memory) = (kind.get(row) == "set", [src.get(row), dst.get(row)]);
            let (queued, direction) = (queued.get(row), direction.get(row));
            let transfer = Transfer { set, queued, memory, direction, pending: Pending::of(pending[row]) };
            let waited = transfer.waited_ns(bytes[row], length[row]);
            [(if set { What::Hidden } else { What::Wait }, waited), (What::Copy, length[row] - waited)]
        });
    }

    fn memory(&mut self, rows: &Rows, steps: &Steps) {
        let (process, api, kind) = (rows.i64("process_id"), rows.i64("api_id"), rows.texts("kind"));
        let (length, bytes) = (rows.i64("api_ns"), rows.i64("bytes"));
        let pending = rows.i32_or("pending_streams", Pending::MISSING);
        self.costs(rows, steps, 2, |sites, row| {
            let (process_id, api_id, pending) = (process[row], api[row], Pending::of(pending[row]));
            let memory = Memory { process_id, api_id, kind: kind.get(row), bytes: bytes[row], pending };
            let waited = memory.waited_ns(&sites.idle, length[row]);
            [(What::Hidden, waited), (What::Memory, length[row] - waited)]
        });
    }
}

impl Pass for Sites {
    fn wants(&self) -> &'static [Want] {
        const TRANSFERS: &[&str] = &[
            "api_ns",
            "api_id",
            "stack_id",
            "kind",
            "direction",
            "src_kind",
            "dst_kind",
            "bytes",
            "async",
            "pending_streams",
        ];
        const LAUNCHES: &[&str] = &["api_ns", "api_id", "stack_id", "stack_launches", "function", "captured", "grid_x"];
        const MEMORY: &[&str] = &["api_ns", "api_id", "stack_id", "kind", "bytes", "pending_streams"];
        &[
            Want { table: TableId::Launches, columns: LAUNCHES },
            Want { table: TableId::Api, columns: &["api_ns", "api_id", "stack_id", "class"] },
            Want { table: TableId::Syncs, columns: &["api_ns", "api_id", "stack_id", "kind"] },
            Want { table: TableId::Transfers, columns: TRANSFERS },
            Want { table: TableId::DeviceMemory, columns: MEMORY },
            Want { table: TableId::OsWaits, columns: &["tid", "wait_ns", "api_id", "stack_id", "bytes"] },
        ]
    }

    fn rows(&mut self, rows: &Rows, steps: &Steps) {
        match rows.table {
            TableId::Launches => self.launches(rows, steps),
            TableId::Api => {
                let (length, class) = (rows.i64("api_ns"), rows.texts("class"));
                let loads = |row: usize| if class.get(row) == "module" { length[row] } else { 0 };
                self.costs(rows, steps, 4, |_, row| [(What::Load, loads(row))]);
            }
            TableId::Syncs => {
                let (length, kind) = (rows.i64("api_ns"), rows.texts("kind"));
                let waited = |row: usize| if blocks(kind.get(row)) { length[row] } else { 0 };
                self.costs(rows, steps, 0, |_, row| [(What::Wait, waited(row))]);
            }
            TableId::Transfers => self.transfers(rows, steps),
            TableId::OsWaits => {
                let (length, process, tid) = (rows.i64("wait_ns"), rows.i64("process_id"), rows.i32_or("tid", 0));
                let gives = |row: usize| steps.givers().gives(process[row], tid[row]);
                let what = |row: usize| if gives(row) { What::System } else { What::Helper };
                self.costs(rows, steps, 5, |_, row| [(what(row), length[row])]);
            }
            _ => self.memory(rows, steps),
        }
    }

    fn end(&mut self, _: &Steps) {
        let direction = self.texts.number("");
        self.lazy = self.first.loads().collect();
        for load in &self.lazy {
            let (stack_id, place) = load.with;
            let key = Key { process_id: load.process_id, what: What::Load, api_id: load.api_id, direction, stack_id };
            self.costs.at(key).add(load.ns, place, place.is_middle());
        }
    }

    fn names(&self, ids: &mut FxHashSet<i64>) {
        ids.extend(self.costs.iter().map(|(key, _)| key.api_id));
    }
}
