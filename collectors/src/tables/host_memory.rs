//! Rows of `host_memory`.

use gputrace_abi::Class;

use super::columns::{Coded, Optional, Plain, Rows, take};
use crate::schema::TableId;
use crate::writer::Message;

/// What a row of `host_memory` is about; its number is the place of its text.
#[repr(u8)]
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) enum HostAction {
    /// A block of malloc's.
    #[default]
    Alloc = 0,
    /// Its end.
    Free = 1,
    /// Memory of the kernel's.
    Map = 2,
    /// Addresses of the kernel's without memory.
    Reserve = 3,
    /// The end of either.
    Unmap = 4,
    /// Blocks that lived shortly, together.
    Culled = 5,
}

impl HostAction {
    const NAMES: [&'static str; 6] = ["alloc", "free", "map", "reserve", "unmap", "culled"];

    fn class(self) -> Class {
        match self {
            HostAction::Free | HostAction::Unmap => Class::HostFree,
            _ => Class::HostAlloc,
        }
    }
}

/// A row of `host_memory`.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct HostCall {
    pub(crate) action: HostAction,
    pub(crate) start_ns: i64,
    pub(crate) api_ns: Option<i64>,
    pub(crate) process_id: i64,
    pub(crate) pid: i32,
    pub(crate) tid: i32,
    pub(crate) api_id: i64,
    pub(crate) address: i64,
    pub(crate) bytes: i64,
    pub(crate) weight_bytes: f64,
    pub(crate) stack_id: Option<i64>,
    pub(crate) age_ns: Option<i64>,
    pub(crate) calls: i64,
}

/// The rows that are not yet in a batch.
pub(super) struct HostColumns {
    pub(super) rows: Rows,
    start_ns: Plain<i64>,
    api_ns: Optional<i64>,
    process_id: Plain<i64>,
    pid: Plain<i32>,
    tid: Plain<i32>,
    api_id: Plain<i64>,
    action: Coded,
    address: Plain<i64>,
    bytes: Plain<i64>,
    weight_bytes: Plain<f64>,
    stack_id: Optional<i64>,
    age_ns: Optional<i64>,
    calls: Plain<i64>,
}

impl Default for HostColumns {
    fn default() -> HostColumns {
        HostColumns {
            rows: Rows::default(),
            start_ns: Plain::default(),
            api_ns: Optional::default(),
            process_id: Plain::default(),
            pid: Plain::default(),
            tid: Plain::default(),
            api_id: Plain::default(),
            action: Coded::new(&HostAction::NAMES),
            address: Plain::default(),
            bytes: Plain::default(),
            weight_bytes: Plain::default(),
            stack_id: Optional::default(),
            age_ns: Optional::default(),
            calls: Plain::default(),
        }
    }
}

impl HostColumns {
    #[inline]
    pub(super) fn push(&mut self, call: &HostCall) {
        let calls = call.calls.max(0) as u64;
        match call.action {
            HostAction::Culled => self.rows.add_culled(call.process_id, calls),
            action => self.rows.add_events(call.process_id, action.class(), calls),
        }
        self.start_ns.push(call.start_ns);
        self.api_ns.push(call.api_ns);
        self.process_id.push(call.process_id);
        self.pid.push(call.pid);
        self.tid.push(call.tid);
        self.api_id.push(call.api_id);
        self.action.push(call.action as u8);
        self.address.push(call.address);
        self.bytes.push(call.bytes);
        self.weight_bytes.push(call.weight_bytes);
        self.stack_id.push(call.stack_id);
        self.age_ns.push(call.age_ns);
        self.calls.push(call.calls);
    }

    /// A batch, if there are at least so many rows.
    pub(super) fn take(&mut self, rows: usize) -> Option<Message> {
        if self.rows.count < rows {
            return None;
        }
        let columns = take![
            self.start_ns,
            self.api_ns,
            self.process_id,
            self.pid,
            self.tid,
            self.api_id,
            self.action,
            self.address,
            self.bytes,
            self.weight_bytes,
            self.stack_id,
            self.age_ns,
            self.calls,
        ];
        self.rows.batch(TableId::HostMemory, columns)
    }
}
