//! Calls that wait, ask, or make a stream wait.
//!
//! **Spinning**: a run of queries on one stream or event, by one thread, each within [`SPIN_GAP_NS`] of the one before.
//! From the first to the end of the last the host did nothing but ask.

use gputrace_collectors::schema::TableId;
use rustc_hash::{FxHashMap, FxHashSet};

use super::Pass;
use super::groups::Groups;
use super::launches::OTHER;
use super::stats::Stats;
use super::steps::{Cursor, Steps, blocks};
use crate::trace::{Rows, Want};

/// Queries that follow each other this closely belong to one spin.
const SPIN_GAP_NS: i64 = 1_000_000;
/// A run of fewer queries is not a spin.
const SPIN_QUERIES: u64 = 3;

/// Kind of a call.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub(crate) enum Kind {
    /// The host waits for a whole context.
    Context,
    /// The host waits for a stream.
    Stream,
    /// The host waits for an event.
    Event,
    /// The host asks.
    Query,
    /// A stream waits for an event.
    StreamWait,
    /// The host waits until a Metal command buffer was handed to the GPU.
    Schedule,
    /// The host waits until a queue of Metal has room for another command buffer.
    Room,
    /// A kind that this version does not know.
    Unknown,
}

impl Kind {
    fn of(text: &str) -> Kind {
        match text {
            "context" => Kind::Context,
            "stream" => Kind::Stream,
            "event" => Kind::Event,
            "query" => Kind::Query,
            "stream_wait" => Kind::StreamWait,
            "schedule" => Kind::Schedule,
            "room" => Kind::Room,
            _ => Kind::Unknown,
        }
    }

    /// As in the table.
    pub(crate) fn text(self) -> &'static str {
        match self {
            Kind::Context => "context",
            Kind::Stream => "stream",
            Kind::Event => "event",
            Kind::Query => "query",
            Kind::StreamWait => "stream_wait",
            Kind::Schedule => "schedule",
            Kind::Room => "room",
            Kind::Unknown => "unknown",
        }
    }

    /// Whether the host waits in it.
    pub(crate) fn blocks(self) -> bool {
        blocks(self.text())
    }
}

/// Which calls are counted together.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(crate) struct Key {
    /// Process.
    pub(crate) process_id: i64,
    /// Kind.
    pub(crate) kind: Kind,
    /// Function.
    pub(crate) api_id: i64,
    /// Stream handle; -1 for contexts and events, which have none.
    pub(crate) stream: i64,
}

/// Calls of one key.
#[derive(Debug, Default)]
pub(crate) struct Calls {
    /// All.
    pub(crate) all: Stats,
    /// In steady steps.
    pub(crate) steady: u64,
    /// In steady steps of usual duration: calls and their time.
    pub(crate) middle: (u64, i64),
}

/// Spinning of one process.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub(crate) struct Spins {
    /// Runs of queries.
    pub(crate) runs: u64,
    /// Queries in them.
    pub(crate) queries: u64,
    /// From the first query of a run to the end of its last, summed.
    pub(crate) ns: i64,
}

#[derive(Clone, Copy, Debug)]
struct Run {
    target: (i64, i64),
    first_ns: i64,
    end_ns: i64,
    queries: u64,
}

/// The pass.
#[derive(Debug)]
pub(crate) struct Syncs {
    /// By process, kind, function and stream.
    pub(crate) calls: Groups<Key, Calls>,
    spins: FxHashMap<i64, Spins>,
    open: FxHashMap<(i64, i32), Run>,
    cursor: Cursor,
}

impl Default for Syncs {
    fn default() -> Self {
        let other = Key { process_id: OTHER, kind: Kind::Unknown, api_id: OTHER, stream: OTHER };
        Syncs {
            calls: Groups::new(10_000, other),
            spins: FxHashMap::default(),
            open: FxHashMap::default(),
            cursor: Cursor::default(),
        }
    }
}

impl Syncs {
    /// Spinning of a process.
    pub(crate) fn spins(&self, process_id: i64) -> Spins {
        let mut spins = self.spins.get(&process_id).copied().unwrap_or_default();
        self.open.iter().filter(|((process, _), _)| *process == process_id).for_each(|(_, run)| spins.close(run));
        spins
    }

    fn query(&mut self, process_id: i64, tid: i32, target: (i64, i64), start_ns: i64, end_ns: i64) {
        let fresh = Run { target, first_ns: start_ns, end_ns, queries: 1 };
        let run = self.open.entry((process_id, tid)).or_insert(Run { queries: 0, ..fresh });
        if run.target == target && start_ns - run.end_ns <= SPIN_GAP_NS {
            run.queries += 1;
            run.end_ns = run.end_ns.max(end_ns);
        } else {
            let done = std::mem::replace(run, fresh);
            self.spins.entry(process_id).or_default().close(&done);
        }
    }
}

impl Spins {
    fn close(&mut self, run: &Run) {
        if run.queries >= SPIN_QUERIES {
            self.runs += 1;
            self.queries += run.queries;
            self.ns += run.end_ns - run.first_ns;
        }
    }
}

impl Pass for Syncs {
    fn wants(&self) -> &'static [Want] {
        &[Want { table: TableId::Syncs, columns: &["tid", "api_ns", "api_id", "kind", "stream", "handle"] }]
    }

    fn rows(&mut self, rows: &Rows, steps: &Steps) {
        let (process, tid) = (rows.i64("process_id"), rows.i32_or("tid", 0));
        let (start, length) = (rows.i64("start_ns"), rows.i64("api_ns"));
        let (api, kind) = (rows.i64("api_id"), rows.texts("kind"));
        let (stream, handle) = (rows.i64("stream"), rows.i64("handle"));
        for row in 0..rows.len {
            let (process_id, ns) = (process[row], length[row].max(0));
            let kind = Kind::of(kind.get(row));
            let on_stream = !matches!(kind, Kind::Context | Kind::Event) && (kind != Kind::Query || handle[row] == 0);
            let stream = if on_stream { stream[row] } else { -1 };
            let calls = self.calls.at(Key { process_id, kind, api_id: api[row], stream });
            calls.all.add(ns);
            let place = steps.place(&mut self.cursor, process_id, start[row]);
            calls.steady += u64::from(place.is_steady());
            if place.is_middle() {
                calls.middle = (calls.middle.0 + 1, calls.middle.1 + ns);
            }
            if kind == Kind::Query {
                self.query(process_id, tid[row], (stream, handle[row]), start[row], start[row] + ns);
            }
        }
    }

    fn names(&self, ids: &mut FxHashSet<i64>) {
        ids.extend(self.calls.iter().map(|(key, _)| key.api_id));
    }
}
