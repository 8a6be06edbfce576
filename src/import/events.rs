//! Rows as a reader finds them.
//!
//! A row of which there may be millions has its times and its correlation, 24 or 32 bytes; what many have in common (thread and
//! function, kernel and stream) is kept once ([`Known`](super::known::Known)), and the row has its number.

use std::num::{NonZeroI64, NonZeroU32};

use super::calls::Kind;

/// A call of a host thread.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Call {
    pub(crate) start_ns: i64,
    pub(crate) api_ns: i64,
    pub(crate) correlation: Option<NonZeroI64>,
    /// Number of its [`Caller`].
    pub(crate) caller: u32,
    /// Who made it, a number of [`Stacks`](super::stacks::Stacks).
    pub(crate) stack: Option<NonZeroU32>,
    pub(crate) external: External,
}

/// Kineto's number for what belongs to which operator.
pub(crate) type External = Option<NonZeroI64>;

/// Who calls what: the same for many calls.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(crate) struct Caller {
    /// Place in [`Gathered::processes`](super::gathered::Gathered).
    pub(crate) process: usize,
    pub(crate) tid: i32,
    pub(crate) api_id: i64,
    /// What it launches, where the format says it of the call.
    pub(crate) kernel_id: Option<i64>,
    pub(crate) kind: Kind,
    pub(crate) result: i32,
}

/// When the GPU did something.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Work {
    pub(crate) start_ns: i64,
    pub(crate) gpu_ns: i64,
    pub(crate) correlation: Option<NonZeroI64>,
    /// Place of its process; [`NOWHERE`] where the format does not say it, until a call with its correlation is found.
    pub(crate) process: u32,
    /// Number of its [`Kernel`] or [`struct@Copy`].
    pub(crate) what: u32,
    pub(crate) external: External,
}

/// No place at all.
pub(crate) const NOWHERE: u32 = u32::MAX;

impl Work {
    /// The place of its process, where that is known.
    pub(crate) fn process(&self) -> Option<usize> {
        (self.process != NOWHERE).then_some(self.process as usize)
    }
}

/// Where the GPU does something.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub(crate) struct Lane {
    pub(crate) device: Option<i32>,
    pub(crate) context: i32,
    pub(crate) stream: i64,
    /// The graph that it was part of, and its node there, as the format numbers them.
    pub(crate) graph: Option<i64>,
    pub(crate) graph_node: Option<i64>,
}

/// A kernel in a stream: the same for many executions.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(crate) struct Kernel {
    pub(crate) lane: Lane,
    pub(crate) name_id: Option<i64>,
    pub(crate) grid: [i32; 3],
    pub(crate) block: [i32; 3],
    pub(crate) registers: Option<i32>,
    pub(crate) static_shared_bytes: Option<i32>,
    pub(crate) shared_bytes: Option<i32>,
    /// It stands for all that a launch of a graph did.
    pub(crate) whole_graph: bool,
}

/// A copy or a set.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(crate) struct Copy {
    pub(crate) lane: Lane,
    pub(crate) set: bool,
    pub(crate) direction: &'static str,
    pub(crate) src_kind: Option<&'static str>,
    pub(crate) dst_kind: Option<&'static str>,
    pub(crate) bytes: i64,
}

/// A range that the program named.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Range {
    pub(crate) start_ns: i64,
    pub(crate) end_ns: i64,
    /// Number of its [`Named`].
    pub(crate) named: u32,
    /// How many push_pop ranges of its thread and domain are open around it; none for other kinds, and until that is found out.
    pub(crate) level: i32,
    pub(crate) external: External,
}

/// Who names a range, and how.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(crate) struct Named {
    pub(crate) process: usize,
    pub(crate) tid: i32,
    /// `ranges.kind`.
    pub(crate) kind: &'static str,
    pub(crate) name_id: Option<i64>,
    pub(crate) domain_id: Option<i64>,
    /// Its end was not seen: what is told for it is that of the process.
    pub(crate) open: bool,
}

/// A call of a function of Python, which calls inside of it have as a frame.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Function {
    pub(crate) process: usize,
    pub(crate) tid: i32,
    pub(crate) start_ns: i64,
    pub(crate) end_ns: i64,
    /// A number of [`Stacks`](super::stacks::Stacks).
    pub(crate) frame: u32,
    /// What it is called as the format has it, and its number, its caller's and its module's there.
    pub(crate) name_id: i64,
    pub(crate) numbers: [Option<i32>; 3],
}

/// What a profiler tells of the GPU beside its work: a row of `profiler_events`.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Beside {
    pub(crate) start_ns: i64,
    pub(crate) event_ns: i64,
    /// `profiler_events.kind`.
    pub(crate) kind: &'static str,
    pub(crate) name_id: Option<i64>,
    pub(crate) lane: Lane,
    pub(crate) correlation: Option<i64>,
    pub(crate) external: External,
    /// What was waited for: a stream, an event, and the call that recorded it.
    pub(crate) waits_for: [Option<i64>; 3],
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
    pub(crate) stack: Option<NonZeroU32>,
    pub(crate) external: External,
}

/// Ranks that talk with each other: a communicator, at its first use.
#[derive(Clone, Debug)]
pub(crate) struct Group {
    pub(crate) process: usize,
    pub(crate) name: String,
    /// The ranks, as text: `[0, 1]`.
    pub(crate) members: String,
    pub(crate) ranks: Option<i32>,
    /// Its identity on all ranks and the own rank, where the format says them instead of name and members.
    pub(crate) unique_id: Option<i64>,
    pub(crate) rank: Option<i32>,
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
    pub(crate) stack: Option<NonZeroU32>,
}
