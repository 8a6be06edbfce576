//! Tables of driver calls: the columns that all of them have.

use arrow::array::ArrayRef;
use gputrace_abi::Class;

use super::columns::{Flags, Optional, Plain, Rows, take};
use crate::process::pending::Ahead;
use crate::schema::TableId;
use crate::writer::Message;

/// What every driver call has.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Call {
    pub(crate) class: Class,
    pub(crate) start_ns: i64,
    pub(crate) api_ns: i64,
    pub(crate) process_id: i64,
    pub(crate) pid: i32,
    pub(crate) tid: i32,
    pub(crate) correlation_id: i64,
    pub(crate) api_id: i64,
    pub(crate) context: i32,
    pub(crate) device: Option<i32>,
    pub(crate) stream: i64,
    pub(crate) captured: bool,
    pub(crate) result: i32,
    pub(crate) ahead: Ahead,
    pub(crate) stack_id: Option<i64>,
}

/// Columns at the start of the tables of driver calls.
#[derive(Default)]
struct Front {
    start_ns: Plain<i64>,
    api_ns: Plain<i64>,
    process_id: Plain<i64>,
    pid: Plain<i32>,
    tid: Plain<i32>,
    correlation_id: Plain<i64>,
    api_id: Plain<i64>,
}

/// Columns about where a call went and how it ended.
#[derive(Default)]
struct Back {
    context: Plain<i32>,
    device: Optional<i32>,
    stream: Plain<i64>,
    captured: Flags,
    pending_streams: Plain<i32>,
    legacy: Flags,
    result: Plain<i32>,
    stack_id: Optional<i64>,
}

/// A table of driver calls: common columns, and those of its own between them.
#[derive(Default)]
pub(super) struct Calls<T> {
    pub(super) rows: Rows,
    front: Front,
    own: T,
    back: Back,
}

/// The columns that one table of driver calls has of its own.
pub(super) trait Own {
    const TABLE: TableId;

    /// The columns before the context, and those after the stream.
    fn take(&mut self) -> [Vec<ArrayRef>; 2];
}

impl<T: Own> Calls<T> {
    #[inline]
    pub(super) fn push(&mut self, call: &Call) -> &mut T {
        self.rows.add(call.process_id, call.class);
        let (front, back) = (&mut self.front, &mut self.back);
        front.start_ns.push(call.start_ns);
        front.api_ns.push(call.api_ns);
        front.process_id.push(call.process_id);
        front.pid.push(call.pid);
        front.tid.push(call.tid);
        front.correlation_id.push(call.correlation_id);
        front.api_id.push(call.api_id);
        back.context.push(call.context);
        back.device.push(call.device);
        back.stream.push(call.stream);
        back.captured.push(call.captured);
        back.pending_streams.push(call.ahead.streams);
        back.legacy.push(call.ahead.legacy);
        back.result.push(call.result);
        back.stack_id.push(call.stack_id);
        &mut self.own
    }

    /// A batch, when there are so many rows.
    pub(super) fn take(&mut self, rows: usize) -> Option<Message> {
        if self.rows.count < rows {
            return None;
        }
        let (front, back) = (&mut self.front, &mut self.back);
        let [before, after] = self.own.take();
        let mut columns = take![
            front.start_ns,
            front.api_ns,
            front.process_id,
            front.pid,
            front.tid,
            front.correlation_id,
            front.api_id
        ];
        columns.extend(before);
        columns.extend(take![back.context, back.device, back.stream]);
        columns.extend(after);
        columns.extend(take![back.captured, back.pending_streams, back.legacy, back.result, back.stack_id]);
        self.rows.batch(T::TABLE, columns)
    }
}
