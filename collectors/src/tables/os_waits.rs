//! Rows of `os_waits`.

use gputrace_abi::Class;

use super::columns::{Coded, Optional, Plain, Rows, take};
use crate::schema::TableId;
use crate::writer::Message;

/// Texts of `kind`, by [`gputrace_abi::event::detail`].
const KINDS: [&str; 12] =
    ["unknown", "lock", "condition", "semaphore", "join", "poll", "read", "write", "sync", "sleep", "child", "futex"];

/// A row of `os_waits`.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct OsWait {
    pub(crate) start_ns: i64,
    pub(crate) wait_ns: i64,
    pub(crate) process_id: i64,
    pub(crate) pid: i32,
    pub(crate) tid: i32,
    pub(crate) api_id: i64,
    /// One of [`gputrace_abi::event::detail`].
    pub(crate) detail: u8,
    pub(crate) address: Option<i64>,
    pub(crate) fd: Option<i32>,
    pub(crate) bytes: Option<i64>,
    pub(crate) errno: i32,
    pub(crate) stack_id: Option<i64>,
}

pub(super) struct OsWaitColumns {
    pub(super) rows: Rows,
    start_ns: Plain<i64>,
    wait_ns: Plain<i64>,
    process_id: Plain<i64>,
    pid: Plain<i32>,
    tid: Plain<i32>,
    api_id: Plain<i64>,
    kind: Coded,
    address: Optional<i64>,
    fd: Optional<i32>,
    bytes: Optional<i64>,
    errno: Plain<i32>,
    stack_id: Optional<i64>,
}

impl Default for OsWaitColumns {
    fn default() -> OsWaitColumns {
        OsWaitColumns {
            rows: Rows::default(),
            start_ns: Plain::default(),
            wait_ns: Plain::default(),
            process_id: Plain::default(),
            pid: Plain::default(),
            tid: Plain::default(),
            api_id: Plain::default(),
            kind: Coded::new(&KINDS),
            address: Optional::default(),
            fd: Optional::default(),
            bytes: Optional::default(),
            errno: Plain::default(),
            stack_id: Optional::default(),
        }
    }
}

impl OsWaitColumns {
    pub(super) fn push(&mut self, wait: &OsWait) {
        self.rows.add(wait.process_id, Class::OsWait);
        self.start_ns.push(wait.start_ns);
        self.wait_ns.push(wait.wait_ns);
        self.process_id.push(wait.process_id);
        self.pid.push(wait.pid);
        self.tid.push(wait.tid);
        self.api_id.push(wait.api_id);
        self.kind.push(if usize::from(wait.detail) < KINDS.len() { wait.detail } else { 0 });
        self.address.push(wait.address);
        self.fd.push(wait.fd);
        self.bytes.push(wait.bytes);
        self.errno.push(wait.errno);
        self.stack_id.push(wait.stack_id);
    }

    /// A batch, when there are so many rows.
    pub(super) fn take(&mut self, rows: usize) -> Option<Message> {
        if self.rows.count < rows {
            return None;
        }
        let columns = take![
            self.start_ns,
            self.wait_ns,
            self.process_id,
            self.pid,
            self.tid,
            self.api_id,
            self.kind,
            self.address,
            self.fd,
            self.bytes,
            self.errno,
            self.stack_id
        ];
        self.rows.batch(TableId::OsWaits, columns)
    }
}
