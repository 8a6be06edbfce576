//! What a reader of a foreign format has found, before it is sorted, joined and written.
//!
//! Rows ([`events`](super::events)) are kept in memory: formats do not promise any order, and a GPU's interval is joined with
//! the call that caused it, which may stand anywhere.

use std::collections::{BTreeMap, HashMap};

use gputrace_collectors::manifest::Device;
use gputrace_collectors::names::{NameKind, id};

use super::events::{Beside, Call, Caller, Collective, Copy, Function, Group, Kernel, Named, Range, TorchMemory, Work};
use super::known::Known;
use super::stacks::Stacks;

/// Times of a profile lie between these, and nothing in it takes longer than that: what says otherwise is damage. Sums of a time, a length, what a
/// profile's clock began at and what brings times before 1970 behind it are numbers then.
pub(super) const TIMES_NS: std::ops::Range<i64> = -(1 << 60)..1 << 62;
/// 36 years.
const LONGEST_NS: i64 = 1 << 60;
/// A profile's clock begins before this, in 2043.
pub(super) const LATEST_BASE_NS: i64 = 1 << 61;

/// A process of the trace.
#[derive(Clone, Debug, Default)]
pub(crate) struct Process {
    pub(crate) pid: i64,
    pub(crate) name: String,
    /// By tid.
    pub(crate) threads: BTreeMap<i32, String>,
}

/// All that was found in one file.
#[derive(Debug, Default)]
pub(crate) struct Gathered {
    /// The format, in words.
    pub(crate) format: &'static str,
    pub(crate) host: Option<String>,
    pub(crate) rank: Option<i32>,
    pub(crate) world_size: Option<i32>,
    pub(crate) processes: Vec<Process>,
    pub(crate) calls: Vec<Call>,
    pub(crate) callers: Known<Caller>,
    /// Streams of waits, by process and correlation, where the format tells them apart from the calls.
    pub(crate) sync_streams: HashMap<i64, (i64, i32)>,
    pub(crate) kernels: Vec<Work>,
    pub(crate) kernel_kinds: Known<Kernel>,
    pub(crate) copies: Vec<Work>,
    pub(crate) copy_kinds: Known<Copy>,
    pub(crate) ranges: Vec<Range>,
    pub(crate) named: Known<Named>,
    pub(crate) collectives: Vec<Collective>,
    pub(crate) groups: Vec<Group>,
    pub(crate) torch: Vec<TorchMemory>,
    pub(crate) functions: Vec<Function>,
    pub(crate) beside: Vec<Beside>,
    pub(crate) stacks: Stacks,
    /// By ordinal.
    pub(crate) devices: BTreeMap<i32, Device>,
    pub(crate) names: BTreeMap<i64, (NameKind, String)>,
    /// Events that have no place in the tables, by what the format calls them.
    pub(crate) left_out: BTreeMap<String, u64>,
    /// Operators of which shapes and types of their inputs are told, which are left out.
    pub(crate) shapes: u64,
    /// Events that could not be read.
    pub(crate) broken: u64,
    /// Events whose end was told to be before their begin.
    pub(crate) negative: u64,
    /// Times without events that are far longer than all that happened, and how far time runs back: jumps of the clock.
    pub(crate) pauses: Vec<(i64, i64)>,
    pub(crate) back_ns: Option<i64>,
    /// What else must be known of the file, a sentence each.
    pub(crate) notes: Vec<String>,
}

impl Gathered {
    /// Nothing yet, in this format.
    pub(crate) fn new(format: &'static str) -> Gathered {
        Gathered { format, ..Gathered::default() }
    }

    /// The id of a name.
    pub(crate) fn name(&mut self, kind: NameKind, name: &str) -> i64 {
        let id = id(kind, name);
        self.names.entry(id).or_insert_with(|| (kind, name.to_owned()));
        id
    }

    /// The place of the process with this pid.
    pub(crate) fn process(&mut self, pid: i64) -> usize {
        // The last one is asked for most.
        let known = self.processes.iter().rposition(|process| process.pid == pid);
        known.unwrap_or_else(|| {
            self.processes.push(Process { pid, ..Process::default() });
            self.processes.len() - 1
        })
    }

    /// How long something took. It never took less than nothing: what says so is counted, and took nothing.
    pub(crate) fn length(&mut self, ns: i64) -> i64 {
        self.negative += u64::from(ns < 0);
        ns.clamp(0, LONGEST_NS)
    }

    /// The stream and context that a call waits for, where the format tells them apart from the calls.
    pub(crate) fn sync_stream(&self, call: &Call) -> Option<(i64, i32)> {
        self.sync_streams.get(&call.correlation?.get()).copied()
    }

    /// The number of a group: its place, from 1 on.
    pub(crate) fn group(&mut self, group: Group) -> i32 {
        let same = |known: &Group| {
            (known.process, known.unique_id) == (group.process, group.unique_id)
                && (&known.name, &known.members) == (&group.name, &group.members)
        };
        let known = self.groups.iter().position(same).unwrap_or_else(|| {
            self.groups.push(group.clone());
            self.groups.len() - 1
        });
        self.groups[known].start_ns = self.groups[known].start_ns.min(group.start_ns);
        known as i32 + 1
    }

    /// Counts an event that has no place.
    pub(crate) fn leave_out(&mut self, what: &str) {
        self.leave_out_many(what, 1);
    }

    /// The same of several.
    pub(crate) fn leave_out_many(&mut self, what: &str, events: u64) {
        match self.left_out.get_mut(what) {
            Some(count) => *count += events,
            None => drop(self.left_out.insert(what.to_owned(), events)),
        }
    }

    /// Rows so far.
    pub(crate) fn rows(&self) -> usize {
        self.calls.len()
            + self.kernels.len()
            + self.copies.len()
            + self.ranges.len()
            + self.collectives.len()
            + self.torch.len()
    }

    /// Rows of what other profilers have beside these.
    pub(crate) fn more_rows(&self) -> usize {
        self.functions.len() + self.beside.len()
    }

    /// Moves all times by so much.
    pub(crate) fn shift(&mut self, ns: i64) {
        self.calls.iter_mut().for_each(|call| call.start_ns += ns);
        self.kernels.iter_mut().chain(&mut self.copies).for_each(|work| work.start_ns += ns);
        self.collectives.iter_mut().for_each(|collective| collective.start_ns += ns);
        self.groups.iter_mut().for_each(|group| group.start_ns += ns);
        self.beside.iter_mut().for_each(|beside| beside.start_ns += ns);
        for function in &mut self.functions {
            function.start_ns += ns;
            function.end_ns += ns;
        }
        for range in &mut self.ranges {
            range.start_ns += ns;
            range.end_ns += ns;
        }
    }

    /// Begin of the first row and end of the last one; none without rows.
    pub(crate) fn span_ns(&self) -> Option<(i64, i64)> {
        let calls = self.calls.iter().map(|call| (call.start_ns, call.start_ns + call.api_ns));
        let works = self.kernels.iter().chain(&self.copies).map(|work| (work.start_ns, work.start_ns + work.gpu_ns));
        let ranges = self.ranges.iter().map(|range| (range.start_ns, range.end_ns));
        let torch = self.torch.iter().map(|row| (row.start_ns, row.start_ns));
        calls.chain(works).chain(ranges).chain(torch).reduce(|all, one| (all.0.min(one.0), all.1.max(one.1)))
    }
}
