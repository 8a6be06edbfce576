//! A thread of a traced process, for the time that it has its row.

use std::time::Instant;

use gputrace_abi::layout::{CLASSES, ThreadRow};

use super::named::Named;
use super::ranges::Pushed;
use crate::accounting::{ByClass, Counters};
use crate::chain::Chain;

/// A thread, for the time that it has its row.
pub(crate) struct Thread {
    pub(super) row: usize,
    pub(super) generation: u32,
    pub(crate) tid: i32,
    /// As the program named it with NVTX.
    pub(super) name: Option<String>,
    /// As the kernel has it.
    pub(super) named: Named,
    pub(super) started: u64,
    pub(super) ended: Option<u64>,
    pub(super) chain: Option<Chain>,
    /// All its events up to then are read.
    pub(super) read_to: u64,
    /// Events read, by class.
    pub(super) recorded: ByClass,
    /// Calls that it had counted when this collector came: an earlier one read most of them.
    pub(super) earlier: u64,
    /// Blocks that lived for a moment and were counted only, and those of its blocks that a collector told of itself, this one or an earlier one.
    pub(super) pairs: u64,
    pub(super) told: u64,
    /// Driver calls and ranges that have their correlation id.
    pub(crate) calls: u64,
    pub(super) pushed: Pushed,
    /// When its latest call began and ended, and the latest one that gave the GPU something or waited for it.
    pub(super) latest_start: u64,
    pub(super) latest: u64,
    pub(super) worked: u64,
    pub(super) exited: Option<Instant>,
    /// Nothing of what it allocated is pending any more, since it ended.
    pub(super) is_swept: bool,
    /// How much of the shared chain was read when it was noticed that it had ended.
    pub(super) shared_at_exit: u64,
    pub(super) stage: Stage,
}

/// How far a thread's end has come.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Stage {
    /// It runs, or has just ended.
    Live,
    /// Its books are closed, but events that this many passes hold back still need it.
    Closed(u8),
    /// Nothing needs it: the place is vacant.
    Left,
}

impl Thread {
    pub(super) fn new(row: usize, generation: u32, tid: i32, started: u64) -> Thread {
        Thread {
            row,
            generation,
            tid,
            name: None,
            named: Named::default(),
            started,
            ended: None,
            chain: None,
            read_to: 0,
            recorded: [0; CLASSES],
            earlier: 0,
            pairs: 0,
            told: 0,
            calls: 0,
            pushed: Pushed::default(),
            latest_start: 0,
            latest: 0,
            worked: 0,
            exited: None,
            is_swept: false,
            shared_at_exit: 0,
            stage: Stage::Live,
        }
    }

    /// Its counters.
    pub(super) fn counters(&self, row: &ThreadRow) -> Counters {
        let mut counters = Counters::read(row);
        counters.add_pending(self.pairs, self.told);
        counters
    }

    /// The start of the thread's correlation ids.
    pub(crate) fn correlation(&self) -> i64 {
        ((u64::from(self.generation) & 0x7_ffff) << 44 | (self.row as u64) << 32) as i64
    }

    pub(super) fn events(&self) -> u64 {
        self.recorded.iter().sum()
    }

    pub(super) fn is_live(&self) -> bool {
        self.stage == Stage::Live
    }
}
