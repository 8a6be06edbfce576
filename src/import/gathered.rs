//! What a reader of a foreign format has found, before it is sorted, joined and written.
//!
//! Rows are kept in memory, about a hundred bytes each: formats do not promise any order, and a GPU's interval is joined
//! with the call that caused it, which may stand anywhere.

use std::collections::{BTreeMap, HashMap};

use gputrace_collectors::manifest::Device;
use gputrace_collectors::names::{NameKind, id};

use super::calls::Kind;
use super::stacks::Stacks;

/// A call of a host thread.
#[derive(Clone, Debug)]
pub(crate) struct Call {
    pub(crate) start_ns: i64,
    pub(crate) api_ns: i64,
    /// Place in [`Gathered::processes`].
    pub(crate) process: usize,
    pub(crate) tid: i32,
    pub(crate) correlation: Option<i64>,
    pub(crate) api_id: i64,
    /// What it launches, where the format says it of the call.
    pub(crate) kernel_id: Option<i64>,
    pub(crate) kind: Kind,
    pub(crate) result: i32,
    /// Who made it, a number of [`Gathered::stacks`].
    pub(crate) stack: Option<u32>,
}

/// When and where the GPU did something.
#[derive(Clone, Debug, Default)]
pub(crate) struct Work {
    pub(crate) start_ns: i64,
    pub(crate) gpu_ns: i64,
    /// Where the format says it; else it is the process with that correlation.
    pub(crate) process: Option<usize>,
    pub(crate) device: Option<i32>,
    pub(crate) context: i32,
    pub(crate) stream: i64,
    pub(crate) correlation: Option<i64>,
    pub(crate) graph_node: Option<i64>,
}

/// A kernel.
#[derive(Clone, Debug, Default)]
pub(crate) struct Kernel {
    pub(crate) work: Work,
    pub(crate) name_id: Option<i64>,
    pub(crate) grid: [i32; 3],
    pub(crate) block: [i32; 3],
    pub(crate) registers: Option<i32>,
    pub(crate) static_shared_bytes: Option<i32>,
    pub(crate) shared_bytes: Option<i32>,
}

/// A copy or a set.
#[derive(Clone, Debug)]
pub(crate) struct Copy {
    pub(crate) work: Work,
    pub(crate) set: bool,
    pub(crate) direction: &'static str,
    pub(crate) src_kind: Option<&'static str>,
    pub(crate) dst_kind: Option<&'static str>,
    pub(crate) bytes: i64,
}

/// A range that the program named.
#[derive(Clone, Debug)]
pub(crate) struct Range {
    pub(crate) start_ns: i64,
    pub(crate) end_ns: i64,
    pub(crate) process: usize,
    pub(crate) tid: i32,
    /// `ranges.kind`.
    pub(crate) kind: &'static str,
    pub(crate) name_id: Option<i64>,
    pub(crate) domain_id: Option<i64>,
}

/// A call of a function of Python, which calls inside of it have as a frame.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Function {
    pub(crate) process: usize,
    pub(crate) tid: i32,
    pub(crate) start_ns: i64,
    pub(crate) end_ns: i64,
    /// A number of [`Stacks`].
    pub(crate) frame: u32,
}

/// A call of NCCL.
#[derive(Clone, Debug)]
pub(crate) struct Collective {
    pub(crate) start_ns: i64,
    pub(crate) api_ns: i64,
    pub(crate) process: usize,
    pub(crate) tid: i32,
    pub(crate) api_id: i64,
    /// `collectives.kind`.
    pub(crate) kind: &'static str,
    /// Number of its communicator.
    pub(crate) group: i32,
    pub(crate) count: i64,
    pub(crate) data_type: Option<&'static str>,
    pub(crate) bytes: i64,
    pub(crate) stack: Option<u32>,
}

/// Ranks that talk with each other: a communicator, at its first use.
#[derive(Clone, Debug)]
pub(crate) struct Group {
    pub(crate) process: usize,
    pub(crate) name: String,
    /// The ranks, as text: `[0, 1]`.
    pub(crate) members: String,
    pub(crate) ranks: Option<i32>,
    /// What made it.
    pub(crate) api_id: i64,
    pub(crate) start_ns: i64,
    pub(crate) tid: i32,
}

/// What PyTorch's allocator did or held: a row of `torch_memory`.
#[derive(Clone, Debug, Default)]
pub(crate) struct TorchMemory {
    pub(crate) start_ns: i64,
    pub(crate) process: usize,
    pub(crate) device: i32,
    pub(crate) stream: i64,
    pub(crate) action: &'static str,
    pub(crate) address: i64,
    pub(crate) segment: Option<i64>,
    pub(crate) bytes: i64,
    pub(crate) requested_bytes: Option<i64>,
    pub(crate) free_bytes: Option<i64>,
    pub(crate) stack: Option<u32>,
}

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
    /// Streams of waits, by process and correlation, where the format tells them apart from the calls.
    pub(crate) sync_streams: HashMap<i64, (i64, i32)>,
    pub(crate) kernels: Vec<Kernel>,
    pub(crate) copies: Vec<Copy>,
    pub(crate) ranges: Vec<Range>,
    pub(crate) collectives: Vec<Collective>,
    pub(crate) groups: Vec<Group>,
    pub(crate) torch: Vec<TorchMemory>,
    pub(crate) functions: Vec<Function>,
    pub(crate) stacks: Stacks,
    /// By ordinal.
    pub(crate) devices: BTreeMap<i32, Device>,
    pub(crate) names: BTreeMap<i64, (NameKind, String)>,
    /// Events that have no place in the tables, by what the format calls them.
    pub(crate) left_out: BTreeMap<String, u64>,
    /// Events that could not be read.
    pub(crate) broken: u64,
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

    /// The number of a group: its place, from 1 on.
    pub(crate) fn group(&mut self, group: Group) -> i32 {
        let same = |known: &Group| {
            (known.process, &known.name, &known.members) == (group.process, &group.name, &group.members)
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

    /// Moves all times by so much.
    pub(crate) fn shift(&mut self, ns: i64) {
        self.calls.iter_mut().for_each(|call| call.start_ns += ns);
        self.kernels.iter_mut().for_each(|kernel| kernel.work.start_ns += ns);
        self.copies.iter_mut().for_each(|copy| copy.work.start_ns += ns);
        self.collectives.iter_mut().for_each(|collective| collective.start_ns += ns);
        self.groups.iter_mut().for_each(|group| group.start_ns += ns);
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
        let works = self.kernels.iter().map(|k| &k.work).chain(self.copies.iter().map(|c| &c.work));
        let works = works.map(|work| (work.start_ns, work.start_ns + work.gpu_ns));
        let ranges = self.ranges.iter().map(|range| (range.start_ns, range.end_ns));
        let torch = self.torch.iter().map(|row| (row.start_ns, row.start_ns));
        calls.chain(works).chain(ranges).chain(torch).reduce(|all, one| (all.0.min(one.0), all.1.max(one.1)))
    }
}
