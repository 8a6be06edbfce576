//! The columns that each table of driver calls has of its own.

use arrow::array::ArrayRef;
use gputrace_abi::Class;

use super::ACTIONS;
use super::calls::Own;
use super::columns::{Coded, Flags, Optional, Plain, take};
use crate::schema::TableId;

/// Texts of `syncs.kind`, by [`gputrace_abi::event::detail`].
const SYNC_KINDS: [&str; 8] = ["unknown", "context", "stream", "event", "query", "stream_wait", "schedule", "room"];
/// Texts of `transfers.kind`.
const TRANSFER_KINDS: [&str; 2] = ["copy", "set"];
/// Texts of `device_memory.kind`, by [`gputrace_abi::event::detail`].
const MEMORY_KINDS: [&str; 9] =
    ["unknown", "device", "async", "managed", "pinned", "registered", "virtual", "virtual", "array"];

/// Kind of one end of a copy: the place in [`End::NAMES`].
#[repr(u8)]
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum End {
    Unknown = 0,
    Pageable = 1,
    Pinned = 2,
    Device = 3,
    Managed = 4,
    Array = 5,
}

impl End {
    pub(super) const NAMES: [&'static str; 6] = ["unknown", "pageable", "pinned", "device", "managed", "array"];

    /// Host, device, array or not known.
    fn side(self) -> usize {
        match self {
            End::Pageable | End::Pinned => 0,
            End::Device | End::Managed => 1,
            End::Array => 2,
            End::Unknown => 3,
        }
    }
}

/// Texts of `transfers.direction`: three by three from source to destination, then the rest.
pub(super) const DIRECTIONS: [&str; 14] =
    ["HtoH", "HtoD", "HtoA", "DtoH", "DtoD", "DtoA", "AtoH", "AtoD", "AtoA", "PtoP", "unknown", "H", "D", "A"];
const PEER: u8 = 9;
const UNKNOWN: u8 = 10;
const SETS: u8 = 11;

/// A launch's own values.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Launch {
    pub(crate) name_id: Option<i64>,
    pub(crate) function: i64,
    pub(crate) grid: [u32; 3],
    pub(crate) block: [u32; 3],
    pub(crate) shared_bytes: u32,
    pub(crate) kernels: Option<i32>,
    pub(crate) graph_exec_id: Option<i64>,
    pub(crate) stack_launches: Option<i64>,
    pub(crate) stands_for: Option<i32>,
}

#[derive(Default)]
pub(super) struct LaunchColumns {
    name_id: Optional<i64>,
    function: Plain<i64>,
    grid: [Plain<i32>; 3],
    block: [Plain<i32>; 3],
    shared_bytes: Plain<i32>,
    kernels: Optional<i32>,
    graph_exec_id: Optional<i64>,
    stack_launches: Optional<i64>,
    stands_for: Optional<i32>,
}

pub(super) struct SyncColumns {
    kind: Coded,
    handle: Plain<i64>,
}

/// A transfer's own values.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Transfer {
    pub(crate) set: bool,
    pub(crate) peer: bool,
    pub(crate) src_kind: End,
    pub(crate) dst_kind: End,
    pub(crate) bytes: i64,
    pub(crate) dst: i64,
    pub(crate) src: i64,
    pub(crate) is_async: bool,
}

impl Transfer {
    /// Whether the call waits for its stream: none where it need not, and false where a small copy may be staged instead.
    /// As the driver does: a synchronous call with a side on the host, and a copy of pageable memory.
    pub(crate) fn waits(&self) -> Option<bool> {
        let host = |end: End| matches!(end, End::Pageable | End::Pinned);
        if self.set {
            return (!self.is_async && matches!(self.dst_kind, End::Pinned | End::Managed)).then_some(true);
        }
        if self.is_async {
            let pageable = [self.src_kind, self.dst_kind].contains(&End::Pageable);
            return pageable.then_some(self.dst_kind == End::Pageable);
        }
        (host(self.src_kind) || host(self.dst_kind)).then_some(true)
    }

    /// Whether the call may wait for work before it, as reports judge it: no copy within the device, and of what is queued only where
    /// pageable memory takes part.
    pub(crate) fn blocks(&self) -> bool {
        match (self.set, self.is_async) {
            (false, true) => [self.src_kind, self.dst_kind].contains(&End::Pageable),
            (false, false) => [self.src_kind, self.dst_kind].map(End::side) != [1, 1],
            (true, is_async) => !is_async && matches!(self.dst_kind, End::Pinned | End::Managed),
        }
    }

    pub(crate) fn direction(&self) -> u8 {
        direction(self.set, self.peer, [self.src_kind, self.dst_kind])
    }
}

/// Place in [`DIRECTIONS`].
pub(super) fn direction(set: bool, peer: bool, ends: [End; 2]) -> u8 {
    let [from, to] = ends.map(End::side);
    match (set, to) {
        (true, 3) => UNKNOWN,
        (true, to) => SETS + to as u8,
        _ if peer => PEER,
        _ if from == 3 || to == 3 => UNKNOWN,
        _ => (from * 3 + to) as u8,
    }
}

pub(super) struct TransferColumns {
    kind: Coded,
    direction: Coded,
    src_kind: Coded,
    dst_kind: Coded,
    bytes: Plain<i64>,
    dst: Plain<i64>,
    src: Plain<i64>,
    is_async: Flags,
}

pub(super) struct MemoryColumns {
    action: Coded,
    kind: Coded,
    address: Plain<i64>,
    bytes: Plain<i64>,
    label_id: Optional<i64>,
}

pub(super) struct ApiColumns {
    class: Coded,
    handle: Plain<i64>,
    jit: Flags,
}

impl LaunchColumns {
    #[inline]
    pub(super) fn push(&mut self, launch: &Launch) {
        self.name_id.push(launch.name_id);
        self.function.push(launch.function);
        for n in 0..3 {
            self.grid[n].push(launch.grid[n] as i32);
            self.block[n].push(launch.block[n] as i32);
        }
        self.shared_bytes.push(launch.shared_bytes as i32);
        self.kernels.push(launch.kernels);
        self.graph_exec_id.push(launch.graph_exec_id);
        self.stack_launches.push(launch.stack_launches);
        self.stands_for.push(launch.stands_for);
    }
}

impl Own for LaunchColumns {
    const TABLE: TableId = TableId::Launches;

    fn take(&mut self) -> [Vec<ArrayRef>; 2] {
        let LaunchColumns {
            name_id,
            function,
            grid: [gx, gy, gz],
            block: [bx, by, bz],
            shared_bytes,
            kernels,
            graph_exec_id,
            stack_launches,
            stands_for,
        } = self;
        let mut after = take![*function, *gx, *gy, *gz, *bx, *by, *bz, *shared_bytes, *kernels, *graph_exec_id];
        after.extend(take![*stack_launches, *stands_for]);
        [take![*name_id], after]
    }
}

impl Default for SyncColumns {
    fn default() -> SyncColumns {
        SyncColumns { kind: Coded::new(&SYNC_KINDS), handle: Plain::default() }
    }
}

impl SyncColumns {
    #[inline]
    pub(super) fn push(&mut self, detail: u8, handle: i64) {
        self.kind.push(if usize::from(detail) < SYNC_KINDS.len() { detail } else { 0 });
        self.handle.push(handle);
    }
}

impl Own for SyncColumns {
    const TABLE: TableId = TableId::Syncs;

    fn take(&mut self) -> [Vec<ArrayRef>; 2] {
        [take![self.kind], take![self.handle]]
    }
}

impl Default for TransferColumns {
    fn default() -> TransferColumns {
        TransferColumns {
            kind: Coded::new(&TRANSFER_KINDS),
            direction: Coded::new(&DIRECTIONS),
            src_kind: Coded::new(&End::NAMES),
            dst_kind: Coded::new(&End::NAMES),
            bytes: Plain::default(),
            dst: Plain::default(),
            src: Plain::default(),
            is_async: Flags::default(),
        }
    }
}

impl TransferColumns {
    #[inline]
    pub(super) fn push(&mut self, transfer: &Transfer) {
        self.kind.push(u8::from(transfer.set));
        self.direction.push(transfer.direction());
        if transfer.set {
            self.src_kind.push_none()
        } else {
            self.src_kind.push(transfer.src_kind as u8)
        }
        self.dst_kind.push(transfer.dst_kind as u8);
        self.bytes.push(transfer.bytes);
        self.dst.push(transfer.dst);
        self.src.push(transfer.src);
        self.is_async.push(transfer.is_async);
    }
}

impl Own for TransferColumns {
    const TABLE: TableId = TableId::Transfers;

    fn take(&mut self) -> [Vec<ArrayRef>; 2] {
        let before = take![self.kind, self.direction, self.src_kind, self.dst_kind, self.bytes, self.dst, self.src];
        [before, take![self.is_async]]
    }
}

impl Default for MemoryColumns {
    fn default() -> MemoryColumns {
        MemoryColumns {
            action: Coded::new(&ACTIONS),
            kind: Coded::new(&MEMORY_KINDS),
            address: Plain::default(),
            bytes: Plain::default(),
            label_id: Optional::default(),
        }
    }
}

impl MemoryColumns {
    pub(super) fn push(&mut self, class: Class, detail: u8, address: i64, bytes: i64, label: Option<i64>) {
        self.action.push(u8::from(class == Class::Free));
        self.kind.push(if usize::from(detail) < MEMORY_KINDS.len() { detail } else { 0 });
        self.address.push(address);
        self.bytes.push(bytes);
        self.label_id.push(label);
    }
}

impl Own for MemoryColumns {
    const TABLE: TableId = TableId::DeviceMemory;

    fn take(&mut self) -> [Vec<ArrayRef>; 2] {
        [take![self.action, self.kind, self.address, self.bytes, self.label_id], Vec::new()]
    }
}

impl Default for ApiColumns {
    fn default() -> ApiColumns {
        ApiColumns { class: Coded::new(&Class::ALL.map(Class::name)), handle: Plain::default(), jit: Flags::default() }
    }
}

impl ApiColumns {
    #[inline]
    pub(super) fn push(&mut self, class: Class, handle: i64, jit: bool) {
        self.class.push(class as u8);
        self.handle.push(handle);
        self.jit.push(jit);
    }
}

impl Own for ApiColumns {
    const TABLE: TableId = TableId::Api;

    fn take(&mut self) -> [Vec<ArrayRef>; 2] {
        [take![self.class], take![self.handle, self.jit]]
    }
}
