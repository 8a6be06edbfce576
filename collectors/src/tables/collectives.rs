//! The columns of NCCL's calls, and of its communicators.

use arrow::array::ArrayRef;
use gputrace_abi::collective::{NO_OPERATOR, NO_PARTY, NO_TYPE};
use gputrace_abi::event::detail;

use super::calls::Own;
use super::columns::{Coded, Flags, Optional, Plain, Rows, Texts, take};
use crate::schema::TableId;
use crate::writer::Message;

/// Texts of `collectives.kind`, by [`gputrace_abi::event::detail`].
const KINDS: [&str; 6] = ["unknown", "collective", "point_to_point", "group", "communicator", "memory"];
/// NCCL's data types by number, and the bytes of an element.
const TYPES: [(&str, u64); 12] = [
    ("int8", 1),
    ("uint8", 1),
    ("int32", 4),
    ("uint32", 4),
    ("int64", 8),
    ("uint64", 8),
    ("float16", 2),
    ("float32", 4),
    ("float64", 8),
    ("bfloat16", 2),
    ("float8e4m3", 1),
    ("float8e5m2", 1),
];
/// A type that a newer version of NCCL has.
const UNKNOWN_TYPE: u8 = TYPES.len() as u8;
/// NCCL's operators by number; larger numbers are those that the program made.
const OPERATORS: [&str; 6] = ["sum", "prod", "max", "min", "avg", "custom"];
const CUSTOM: u16 = 5;

/// The own values of a call of NCCL.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Collective {
    /// One of [`detail`].
    pub(crate) detail: u8,
    pub(crate) communicator: u32,
    pub(crate) count: u64,
    pub(crate) data_type: u8,
    pub(crate) operator: u16,
    /// Root or peer.
    pub(crate) party: i32,
    pub(crate) in_group: bool,
}

impl Collective {
    /// Bytes that the count stands for; 0 when the type is not known.
    pub(super) fn bytes(&self) -> u64 {
        let size = match self.data_type {
            NO_TYPE => 1,
            known => TYPES.get(usize::from(known)).map_or(0, |(_, bytes)| *bytes),
        };
        self.count.saturating_mul(size)
    }
}

pub(super) struct CollectiveColumns {
    kind: Coded,
    communicator: Plain<i32>,
    count: Plain<i64>,
    data_type: Coded,
    bytes: Plain<i64>,
    op: Coded,
    root: Optional<i32>,
    peer: Optional<i32>,
    in_group: Flags,
}

impl Default for CollectiveColumns {
    fn default() -> CollectiveColumns {
        let types: Vec<&str> = TYPES.iter().map(|(name, _)| *name).chain(["unknown"]).collect();
        CollectiveColumns {
            kind: Coded::new(&KINDS),
            communicator: Plain::default(),
            count: Plain::default(),
            data_type: Coded::new(&types),
            bytes: Plain::default(),
            op: Coded::new(&OPERATORS),
            root: Optional::default(),
            peer: Optional::default(),
            in_group: Flags::default(),
        }
    }
}

impl CollectiveColumns {
    pub(super) fn push(&mut self, call: &Collective) {
        self.kind.push(if usize::from(call.detail) < KINDS.len() { call.detail } else { 0 });
        self.communicator.push(call.communicator as i32);
        self.count.push(call.count as i64);
        match call.data_type {
            NO_TYPE => self.data_type.push_none(),
            known => self.data_type.push(known.min(UNKNOWN_TYPE)),
        }
        self.bytes.push(call.bytes() as i64);
        match call.operator {
            NO_OPERATOR => self.op.push_none(),
            operator => self.op.push(operator.min(CUSTOM) as u8),
        }
        let party = Some(call.party).filter(|party| *party != NO_PARTY);
        let to_peer = call.detail == detail::POINT_TO_POINT;
        self.root.push(party.filter(|_| !to_peer));
        self.peer.push(party.filter(|_| to_peer));
        self.in_group.push(call.in_group);
    }
}

impl Own for CollectiveColumns {
    const TABLE: TableId = TableId::Collectives;

    fn take(&mut self) -> [Vec<ArrayRef>; 2] {
        let CollectiveColumns { kind, communicator, count, data_type, bytes, op, root, peer, in_group } = self;
        let before = take![*kind, *communicator, *count, *data_type, *bytes, *op, *root, *peer];
        [before, take![*in_group]]
    }
}

/// A row of `communicators`.
#[derive(Clone, Debug)]
pub(crate) struct Communicator {
    pub(crate) start_ns: i64,
    pub(crate) process_id: i64,
    pub(crate) pid: i32,
    pub(crate) tid: i32,
    pub(crate) number: u32,
    pub(crate) unique_id: Option<i64>,
    pub(crate) rank: Option<i32>,
    pub(crate) ranks: Option<i32>,
    pub(crate) parent: Option<i32>,
    pub(crate) device: Option<i32>,
    pub(crate) api_id: i64,
    pub(crate) handle: i64,
    pub(crate) library: String,
    pub(crate) version: i32,
}

#[derive(Default)]
pub(super) struct CommunicatorColumns {
    rows: Rows,
    start_ns: Plain<i64>,
    process_id: Plain<i64>,
    pid: Plain<i32>,
    tid: Plain<i32>,
    communicator: Plain<i32>,
    unique_id: Optional<i64>,
    rank: Optional<i32>,
    ranks: Optional<i32>,
    parent: Optional<i32>,
    device: Optional<i32>,
    api_id: Plain<i64>,
    handle: Plain<i64>,
    library: Texts,
    version: Plain<i32>,
}

impl CommunicatorColumns {
    pub(super) fn push(&mut self, row: &Communicator) {
        self.rows.count += 1;
        self.start_ns.push(row.start_ns);
        self.process_id.push(row.process_id);
        self.pid.push(row.pid);
        self.tid.push(row.tid);
        self.communicator.push(row.number as i32);
        self.unique_id.push(row.unique_id);
        self.rank.push(row.rank);
        self.ranks.push(row.ranks);
        self.parent.push(row.parent);
        self.device.push(row.device);
        self.api_id.push(row.api_id);
        self.handle.push(row.handle);
        self.library.push(Some(&row.library));
        self.version.push(row.version);
    }

    /// A batch, when there are rows.
    pub(super) fn take(&mut self) -> Option<Message> {
        if self.rows.count == 0 {
            return None;
        }
        let columns = take![
            self.start_ns,
            self.process_id,
            self.pid,
            self.tid,
            self.communicator,
            self.unique_id,
            self.rank,
            self.ranks,
            self.parent,
            self.device,
            self.api_id,
            self.handle,
            self.library,
            self.version
        ];
        self.rows.batch(TableId::Communicators, columns)
    }
}
