//! Activity records: an operation of the device, in the bytes that a client of the chosen version reads.
//!
//! The numbers beside the fields are their offsets, which no version has changed.

use crate::clock::recorded;
use crate::config::config;
use crate::kinds;
use crate::observed::{Operation, class, memory};
use std::collections::HashMap;
use std::ffi::{CString, c_char};
use std::sync::{LazyLock, Mutex};

pub(crate) struct Record {
    /// CUPTI's number of its stream.
    pub(crate) stream: u32,
    pub(crate) bytes: Vec<u8>,
}

/// CUPTI's number of the legacy stream of the first context.
const FIRST_STREAM: u32 = 7;
/// The others' numbers follow the order of their creation, and are not the driver's.
const LATER_STREAMS: u32 = 10;

/// A number in the bytes of a record.
pub(crate) trait Field {
    fn put(self, bytes: &mut [u8], offset: usize);
}

macro_rules! fields {
    ($($ty:ty)*) => {$(
        impl Field for $ty {
            fn put(self, bytes: &mut [u8], offset: usize) {
                bytes[offset..offset + size_of::<$ty>()].copy_from_slice(&self.to_ne_bytes());
            }
        }
    )*};
}

fields!(u8 u16 u32 u64);

/// A record that begins with its kind; the rest is 0.
pub(crate) struct Bytes(pub(crate) Vec<u8>);

impl Bytes {
    pub(crate) fn new(kind: u32) -> Bytes {
        let bytes = Bytes(vec![0; config().layout.size(kind).unwrap_or(0)]);
        bytes.with(0, kind)
    }

    pub(crate) fn with(mut self, offset: usize, value: impl Field) -> Bytes {
        value.put(&mut self.0, offset);
        self
    }
}

/// The kind of an operation's record: 0 for none.
pub(crate) fn kind(operation: &Operation) -> u32 {
    let [source, target] = [operation.source, operation.target].map(|side| (on_device(side.memory), side.device));
    match operation.class {
        class::KERNEL => kinds::CONCURRENT_KERNEL,
        class::COPY if source.0 && target.0 && source.1 != target.1 => kinds::MEMCPY2,
        class::COPY => kinds::MEMCPY,
        class::SET => kinds::MEMSET,
        _ => 0,
    }
}

/// The record of an operation, of this kind; without a time if `invalid`.
pub(crate) fn record(operation: &Operation, kind: u32, invalid: bool) -> Record {
    let times = if invalid { (0, 0) } else { (recorded(operation.start_ns), recorded(operation.end_ns)) };
    let stream = stream(operation.legacy, operation.context, operation.stream);
    let bytes = match kind {
        kinds::MEMCPY => memcpy(operation, times, stream),
        kinds::MEMCPY2 => memcpy2(operation, times, stream),
        kinds::MEMSET => memset(operation, times, stream),
        _ => kernel(operation, kind, times, stream),
    };
    Record { stream, bytes: bytes.0 }
}

/// CUPTI's number of a stream.
pub(crate) fn stream(legacy: u32, context: u32, id: u64) -> u32 {
    match (legacy, context) {
        (1, 1) => FIRST_STREAM,
        _ => id as u32 + LATER_STREAMS,
    }
}

fn graph_node(operation: &Operation) -> u64 {
    u64::from(operation.graph) << 32 | u64::from(operation.node)
}

fn kernel(operation: &Operation, kind: u32, (start, end): (u64, u64), stream: u32) -> Bytes {
    let [grid, block] = [operation.grid, operation.block];
    Bytes::new(kind)
        .with(6, operation.registers as u16)
        .with(16, start)
        .with(24, end)
        .with(32, end) // completed
        .with(40, operation.device)
        .with(44, operation.context)
        .with(48, stream)
        .with(52, grid[0])
        .with(56, grid[1])
        .with(60, grid[2])
        .with(64, block[0])
        .with(68, block[1])
        .with(72, block[2])
        .with(76, operation.static_shared)
        .with(80, operation.dynamic_shared)
        .with(92, operation.tag as u32) // correlation id
        .with(96, u64::from(operation.tag as u32)) // grid id
        .with(104, name(operation) as u64)
        .with(140, operation.static_shared + operation.dynamic_shared) // executed with
        .with(144, graph_node(operation))
        .with(156, operation.graph)
}

fn memcpy(operation: &Operation, (start, end): (u64, u64), stream: u32) -> Bytes {
    let (source, target) = (operation.source.memory, operation.target.memory);
    Bytes::new(kinds::MEMCPY)
        .with(4, copy_kind(source, target))
        .with(5, source as u8)
        .with(6, target as u8)
        .with(8, operation.bytes)
        .with(16, start)
        .with(24, end)
        .with(32, operation.device)
        .with(36, operation.context)
        .with(40, stream)
        .with(44, operation.tag as u32)
        .with(64, graph_node(operation))
        .with(72, operation.graph)
}

fn memcpy2(operation: &Operation, (start, end): (u64, u64), stream: u32) -> Bytes {
    const PEER_TO_PEER: u8 = 10;
    Bytes::new(kinds::MEMCPY2)
        .with(4, PEER_TO_PEER)
        .with(5, operation.source.memory as u8)
        .with(6, operation.target.memory as u8)
        .with(8, operation.bytes)
        .with(16, start)
        .with(24, end)
        .with(32, operation.device)
        .with(36, operation.context)
        .with(40, stream)
        .with(44, operation.source.device)
        .with(52, operation.target.device)
        .with(60, operation.tag as u32)
        .with(72, graph_node(operation))
        .with(80, operation.graph)
}

fn memset(operation: &Operation, (start, end): (u64, u64), stream: u32) -> Bytes {
    Bytes::new(kinds::MEMSET)
        .with(4, operation.value)
        .with(8, operation.bytes)
        .with(16, start)
        .with(24, end)
        .with(32, operation.device)
        .with(36, operation.context)
        .with(40, stream)
        .with(44, operation.tag as u32)
        .with(50, operation.target.memory as u16)
        .with(64, graph_node(operation))
        .with(72, operation.graph)
}

fn on_device(side: u32) -> bool {
    matches!(side, memory::DEVICE | memory::MANAGED | memory::ARRAY)
}

/// CUpti_ActivityMemcpyKind.
fn copy_kind(source: u32, target: u32) -> u8 {
    let [from, to] = [source, target].map(|side| match side {
        memory::PAGEABLE | memory::PINNED => 'H',
        memory::ARRAY => 'A',
        _ => 'D',
    });
    match (from, to) {
        ('H', 'D') => 1,
        ('D', 'H') => 2,
        ('H', 'A') => 3,
        ('A', 'H') => 4,
        ('A', 'A') => 5,
        ('A', 'D') => 6,
        ('D', 'A') => 7,
        ('D', 'D') => 8,
        _ => 9,
    }
}

/// A kernel's name as a C string that is never freed: a client may keep the pointer.
fn name(operation: &Operation) -> *const c_char {
    static NAMES: LazyLock<Mutex<HashMap<Box<[u8]>, usize>>> = LazyLock::new(Mutex::default);
    let bytes = unsafe { std::slice::from_raw_parts(operation.name.cast::<u8>(), operation.name_bytes) };
    let mut names = NAMES.lock().unwrap_or_else(|e| e.into_inner());
    if let Some(known) = names.get(bytes) {
        return *known as *const c_char;
    }
    let new = CString::new(bytes).unwrap_or_default().into_raw();
    names.insert(bytes.into(), new as usize);
    new
}
