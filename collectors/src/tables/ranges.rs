//! The table of ranges.

use gputrace_abi::Class;

use super::columns::{Coded, Optional, Plain, Rows, take};
use crate::schema::TableId;
use crate::writer::Message;

/// Texts of `ranges.kind`.
const KINDS: [&str; 3] = ["push_pop", "start_end", "mark"];

/// What a range is: the place in [`KINDS`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum RangeKind {
    PushPop = 0,
    StartEnd = 1,
    Mark = 2,
}

/// A row of `ranges`.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Range {
    pub(crate) start_ns: i64,
    pub(crate) end_ns: Option<i64>,
    pub(crate) process_id: i64,
    pub(crate) pid: i32,
    pub(crate) tid: i32,
    pub(crate) correlation_id: i64,
    pub(crate) kind: RangeKind,
    pub(crate) name_id: Option<i64>,
    pub(crate) domain_id: Option<i64>,
    pub(crate) level: Option<i32>,
    pub(crate) category: Option<i32>,
    pub(crate) category_id: Option<i64>,
    pub(crate) color: Option<i64>,
    pub(crate) payload_int: Option<i64>,
    pub(crate) payload_float: Option<f64>,
}

/// Its columns.
pub(super) struct RangeColumns {
    pub(super) rows: Rows,
    start_ns: Plain<i64>,
    end_ns: Optional<i64>,
    process_id: Plain<i64>,
    pid: Plain<i32>,
    tid: Plain<i32>,
    correlation_id: Plain<i64>,
    kind: Coded,
    name_id: Optional<i64>,
    domain_id: Optional<i64>,
    level: Optional<i32>,
    category: Optional<i32>,
    category_id: Optional<i64>,
    color: Optional<i64>,
    payload_int: Optional<i64>,
    payload_float: Optional<f64>,
}

impl Default for RangeColumns {
    fn default() -> RangeColumns {
        RangeColumns {
            rows: Rows::default(),
            start_ns: Plain::default(),
            end_ns: Optional::default(),
            process_id: Plain::default(),
            pid: Plain::default(),
            tid: Plain::default(),
            correlation_id: Plain::default(),
            kind: Coded::new(&KINDS),
            name_id: Optional::default(),
            domain_id: Optional::default(),
            level: Optional::default(),
            category: Optional::default(),
            category_id: Optional::default(),
            color: Optional::default(),
            payload_int: Optional::default(),
            payload_float: Optional::default(),
        }
    }
}

impl RangeColumns {
    pub(super) fn push(&mut self, range: &Range) {
        let both_ends = range.kind != RangeKind::Mark && range.end_ns.is_some();
        self.rows.add_events(range.process_id, Class::Range, 1 + u64::from(both_ends));
        self.start_ns.push(range.start_ns);
        self.end_ns.push(range.end_ns);
        self.process_id.push(range.process_id);
        self.pid.push(range.pid);
        self.tid.push(range.tid);
        self.correlation_id.push(range.correlation_id);
        self.kind.push(range.kind as u8);
        self.name_id.push(range.name_id);
        self.domain_id.push(range.domain_id);
        self.level.push(range.level);
        self.category.push(range.category);
        self.category_id.push(range.category_id);
        self.color.push(range.color);
        self.payload_int.push(range.payload_int);
        self.payload_float.push(range.payload_float);
    }

    /// A batch, when there are so many rows.
    pub(super) fn take(&mut self, rows: usize) -> Option<Message> {
        if self.rows.count < rows {
            return None;
        }
        let columns = take![
            self.start_ns,
            self.end_ns,
            self.process_id,
            self.pid,
            self.tid,
            self.correlation_id,
            self.kind,
            self.name_id,
            self.domain_id,
            self.level,
            self.category,
            self.category_id,
            self.color,
            self.payload_int,
            self.payload_float
        ];
        self.rows.batch(TableId::Ranges, columns)
    }
}
