//! What an observer is told, and how: shared with the stand-in for CUPTI, whose sources include this file.

use std::ffi::c_char;

/// What an observer wants to be called for. Neither function may call the driver: `ended` runs under its lock.
#[repr(C)]
pub(crate) struct Observer {
    /// A call begins that gives the device work, of this [`class`]. What it returns comes back with each operation of the
    /// call; 0: its operations are not told.
    pub(crate) begun: extern "C" fn(u32) -> u64,
    /// An operation of the device has ended.
    pub(crate) ended: extern "C" fn(*const Operation),
    /// A call begins that waits, of this kind ([`wait`]). What it returns comes back with its end; 0: its end is not told.
    pub(crate) waits: extern "C" fn(u32) -> u64,
    /// Such a call ends.
    pub(crate) waited: extern "C" fn(*const Wait),
}

/// What a call or an operation is.
pub(crate) mod class {
    pub(crate) const KERNEL: u32 = 1;
    pub(crate) const COPY: u32 = 2;
    pub(crate) const SET: u32 = 3;
    /// Of a call only: a graph's nodes are operations of the other kinds.
    pub(crate) const GRAPH: u32 = 4;
}

/// Where an address is, numbered as CUPTI numbers it.
pub(crate) mod memory {
    pub(crate) const PAGEABLE: u32 = 1;
    pub(crate) const PINNED: u32 = 2;
    pub(crate) const DEVICE: u32 = 3;
    pub(crate) const ARRAY: u32 = 4;
    pub(crate) const MANAGED: u32 = 5;
}

/// Which call waits, numbered as CUPTI numbers it.
pub(crate) mod wait {
    /// It waits for nothing: an event is recorded.
    pub(crate) const RECORD: u32 = 0;
    pub(crate) const EVENT: u32 = 1;
    /// A stream waits for an event.
    pub(crate) const STREAM_EVENT: u32 = 2;
    pub(crate) const STREAM: u32 = 3;
    pub(crate) const CONTEXT: u32 = 4;
}

/// A call that waited. Times are CLOCK_MONOTONIC.
#[repr(C)]
#[derive(Clone, Copy)]
pub(crate) struct Wait {
    /// What `waits` said of it.
    pub(crate) tag: u64,
    /// One of [`wait`].
    pub(crate) kind: u32,
    /// The context's number.
    pub(crate) context: u32,
    /// 1: the stream is the legacy one.
    pub(crate) legacy: u32,
    /// cuStreamGetId's; u64::MAX for none.
    pub(crate) stream: u64,
    pub(crate) start_ns: u64,
    pub(crate) end_ns: u64,
}

/// One side of a copy, or the target of a set.
#[repr(C)]
#[derive(Clone, Copy, Default)]
pub(crate) struct Side {
    pub(crate) memory: u32,
    /// The device that owns it; 0 for the host's memory.
    pub(crate) device: u32,
}

/// An operation that has ended. Times are CLOCK_MONOTONIC.
#[repr(C)]
#[derive(Clone, Copy)]
pub(crate) struct Operation {
    /// What `begun` said of its call.
    pub(crate) tag: u64,
    pub(crate) class: u32,
    pub(crate) device: u32,
    /// Contexts are numbered from 1 in the order of their creation.
    pub(crate) context: u32,
    /// 1 in the legacy stream.
    pub(crate) legacy: u32,
    /// cuStreamGetId's.
    pub(crate) stream: u64,
    pub(crate) start_ns: u64,
    pub(crate) end_ns: u64,
    /// The executable graph, and its node, which counts from 0 through all graphs inside; both 0 outside graphs.
    pub(crate) graph: u32,
    pub(crate) node: u32,
    /// Of a copy or a set.
    pub(crate) bytes: u64,
    pub(crate) source: Side,
    pub(crate) target: Side,
    /// Of a set.
    pub(crate) value: u32,
    /// Of a kernel, like all that follows.
    pub(crate) registers: u32,
    pub(crate) name: *const c_char,
    pub(crate) name_bytes: usize,
    pub(crate) grid: [u32; 3],
    pub(crate) block: [u32; 3],
    pub(crate) dynamic_shared: u32,
    pub(crate) static_shared: u32,
}
