//! The hang watch: calls that stand still are reported once, on stderr and in the trace, and tracing goes on.
//!
//! The drain looks at the threads' rows about once a second (`drain/hangs.rs`); `process/in_flight.rs` says what stands still.
//! What is behind it is looked at by a thread of its own (`reporter.rs`), which nobody waits for: a process that hangs may keep
//! whoever reads its memory waiting too.

mod peers;
mod reporter;
mod text;

use serde::{Deserialize, Serialize};

pub(crate) use peers::{Peer, missing};
pub(crate) use reporter::Reporter;

use crate::tables::StackRow;

/// A call that stood still for longer than `--hang-after`.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Hang {
    /// Its process.
    pub process_id: i64,
    /// Process id in the collector's pid namespace.
    pub pid: i32,
    /// Rank in a distributed run.
    pub rank: Option<i32>,
    /// Its thread.
    pub tid: i32,
    /// The thread's name.
    pub thread: Option<String>,
    /// The function.
    pub call: String,
    /// The driver's function in which a library's call stands.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub inside: Option<String>,
    /// Handle of the stream that it waits for, where that is known.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub stream: Option<i64>,
    /// When it began, ns since the Unix epoch.
    pub start_ns: i64,
    /// When it was reported.
    pub noticed_ns: i64,
    /// When it ended; missing where it had not when the trace did.
    pub ended_ns: Option<i64>,
    /// It ended by returning; else its process ended in it.
    pub returned: bool,
    /// The program's line, innermost Python frame: `file:line function`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub line: Option<String>,
    /// The thread's frames, innermost first, as the same texts.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub stack: Vec<String>,
    /// The frames could not be read from outside: they are of the thread's last call of which a stack was taken.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub earlier: bool,
    /// Ranks that have not come to what others wait in, a sentence each.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub missing: Vec<String>,
    /// File of the whole report, relative to the trace.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub report: Option<String>,
}

impl Hang {
    /// How long the call took; to `until_ns` where it did not end.
    pub fn took_ns(&self, until_ns: i64) -> i64 {
        self.ended_ns.unwrap_or(until_ns).saturating_sub(self.start_ns).max(0)
    }
}

/// What the drain knows of a process in which calls hang.
#[derive(Debug, Default)]
pub(crate) struct Case {
    /// Number of the first hang among all; the others follow.
    pub(crate) first: usize,
    pub(crate) hangs: Vec<Hang>,
    pub(crate) exe: String,
    pub(crate) command: String,
    /// Its pid means nothing here.
    pub(crate) foreign: bool,
    pub(crate) now_ns: i64,
    /// The threads that have a row.
    pub(crate) threads: Vec<OneThread>,
    /// What is known of streams and communicators, a line each.
    pub(crate) streams: Vec<String>,
    pub(crate) communicators: Vec<String>,
    /// It is also said on stderr.
    pub(crate) is_said: bool,
    /// No other will be.
    pub(crate) is_last_said: bool,
}

/// A thread as its row says.
#[derive(Clone, Debug, Default)]
pub(crate) struct OneThread {
    pub(crate) tid: i32,
    pub(crate) name: String,
    /// The calls that it is in, outermost first.
    pub(crate) calls: Vec<String>,
    /// The stack that was last taken of it from inside.
    pub(crate) last_stack: Vec<StackRow>,
}
