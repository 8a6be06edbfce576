//! The whole state of the simulated driver, behind one lock, and the helpers that every function begins with.
//!
//! No lock is held while a client's function runs (host functions, callbacks).

use crate::capture::Capture;
use crate::codes::*;
use crate::context::Context;
use crate::event::Event;
use crate::graph::{Exec, Graph};
use crate::memory::Memory;
use crate::module::{Function, Library, Module};
use crate::observe::Tag;
use crate::pool::Pool;
use crate::slab::Slab;
use crate::stream::Stream;
use crate::table::R;
use crate::timeline::Timeline;
use crate::vmm::Physical;
use std::collections::HashMap;
use std::sync::atomic::{AtomicBool, AtomicU32, Ordering};
use std::sync::{LazyLock, Mutex, MutexGuard};

/// The first part of a handle, by the kind of its object.
pub(crate) mod kinds {
    pub(crate) const CONTEXT: u64 = 1;
    pub(crate) const STREAM: u64 = 2;
    pub(crate) const EVENT: u64 = 3;
    pub(crate) const MODULE: u64 = 4;
    pub(crate) const LIBRARY: u64 = 5;
    pub(crate) const FUNCTION: u64 = 6;
    pub(crate) const GRAPH: u64 = 7;
    pub(crate) const EXEC: u64 = 8;
    pub(crate) const NODE: u64 = 9;
    pub(crate) const POOL: u64 = 10;
    pub(crate) const PHYSICAL: u64 = 11;
    pub(crate) const ARRAY: u64 = 12;
    pub(crate) const CAPTURE: u64 = 13;
    pub(crate) const USER_OBJECT: u64 = 14;
}

pub(crate) struct Driver {
    pub(crate) contexts: Slab<Context>,
    pub(crate) streams: Slab<Stream>,
    pub(crate) events: Slab<Event>,
    pub(crate) modules: Slab<Module>,
    pub(crate) libraries: Slab<Library>,
    pub(crate) functions: Slab<Function>,
    pub(crate) graphs: Slab<Graph>,
    pub(crate) execs: Slab<Exec>,
    /// Graph nodes: the graph and the position in it.
    pub(crate) nodes: Slab<(u64, usize)>,
    pub(crate) pools: Slab<Pool>,
    pub(crate) physical: Slab<Physical>,
    pub(crate) arrays: Slab<crate::array::Array>,
    pub(crate) captures: Slab<Capture>,
    pub(crate) user_objects: Slab<crate::graph::UserObject>,
    pub(crate) memory: Memory,
    pub(crate) timeline: Timeline,
    /// Per device: the primary context and how often it is retained.
    pub(crate) primary: [(u64, u32); 8],
    pub(crate) primary_flags: [u32; 8],
    /// Per device: its default pool and the current one.
    pub(crate) device_pools: [(u64, u64); 8],
    /// The per-thread default stream of (thread, context).
    pub(crate) thread_streams: HashMap<(u64, u64), u64>,
    pub(crate) next_id: u64,
    /// How many contexts there have been.
    pub(crate) contexts_made: u32,
    /// The call whose operation's effect is happening.
    pub(crate) cause: Cause,
}

/// The call that an operation comes from.
#[derive(Clone, Copy, Default)]
pub(crate) struct Cause {
    /// When it was made, and by which thread.
    pub(crate) issued_ns: u64,
    pub(crate) tid: i32,
    /// What an observer calls it.
    pub(crate) tag: Tag,
}

/// Bounds of the slabs that are read without the lock.
pub(crate) static STREAMS: AtomicU32 = AtomicU32::new(0);
pub(crate) static FUNCTIONS: AtomicU32 = AtomicU32::new(0);
static UNREAD: AtomicU32 = AtomicU32::new(0);

static DRIVER: LazyLock<Mutex<Driver>> = LazyLock::new(|| Mutex::new(Driver::new()));

/// 0 before cuInit, 1 after, 2 in a fork child of an initialised process.
pub(crate) static PHASE: AtomicU32 = AtomicU32::new(0);

impl Driver {
    fn new() -> Driver {
        Driver {
            contexts: Slab::new(kinds::CONTEXT, &UNREAD),
            streams: Slab::new(kinds::STREAM, &STREAMS),
            events: Slab::new(kinds::EVENT, &UNREAD),
            modules: Slab::new(kinds::MODULE, &UNREAD),
            libraries: Slab::new(kinds::LIBRARY, &UNREAD),
            functions: Slab::new(kinds::FUNCTION, &FUNCTIONS),
            graphs: Slab::new(kinds::GRAPH, &UNREAD),
            execs: Slab::new(kinds::EXEC, &UNREAD),
            nodes: Slab::new(kinds::NODE, &UNREAD),
            pools: Slab::new(kinds::POOL, &UNREAD),
            physical: Slab::new(kinds::PHYSICAL, &UNREAD),
            arrays: Slab::new(kinds::ARRAY, &UNREAD),
            captures: Slab::new(kinds::CAPTURE, &UNREAD),
            user_objects: Slab::new(kinds::USER_OBJECT, &UNREAD),
            memory: Memory::new(),
            timeline: Timeline::new(),
            primary: [(0, 0); 8],
            primary_flags: [0; 8],
            device_pools: [(0, 0); 8],
            thread_streams: HashMap::new(),
            next_id: 1,
            contexts_made: 0,
            cause: Cause::default(),
        }
    }

    pub(crate) fn id(&mut self) -> u64 {
        self.next_id += 1;
        self.next_id
    }
}

pub(crate) type Guard = MutexGuard<'static, Driver>;

/// Takes the lock; the driver must have been initialised.
pub(crate) fn driver() -> R<Guard> {
    ready()?;
    Ok(locked())
}

pub(crate) fn locked() -> Guard {
    DRIVER.lock().unwrap_or_else(|e| e.into_inner())
}

/// The same in a fork's child, where another thread of the parent may have held the lock for ever.
pub(crate) fn locked_if_free() -> Option<Guard> {
    DRIVER.try_lock().ok()
}

#[inline]
pub(crate) fn ready() -> R {
    if PHASE.load(Ordering::Acquire) == 1 { Ok(()) } else { Err(NOT_INITIALIZED) }
}

pub(crate) fn initialise() -> R {
    match PHASE.load(Ordering::Acquire) {
        1 => Ok(()),
        2 => Err(NOT_INITIALIZED),
        _ if crate::config::config().devices == 0 => Err(NO_DEVICE),
        _ => {
            LazyLock::force(&DRIVER);
            let _ = PHASE.compare_exchange(0, 1, Ordering::AcqRel, Ordering::Acquire);
            Ok(())
        }
    }
}

static IS_CHILD: AtomicBool = AtomicBool::new(false);

/// Whether this process is a fork's child.
pub(crate) fn is_child() -> bool {
    IS_CHILD.load(Ordering::Relaxed)
}

/// Runs in a fork's child, which cannot use its parent's contexts: every call fails from here on, as with the vendor's
/// driver.
pub(crate) extern "C" fn forked() {
    IS_CHILD.store(true, Ordering::Relaxed);
    let _ = PHASE.compare_exchange(1, 2, Ordering::AcqRel, Ordering::Acquire);
    crate::truth::forget();
}

/// A pointer for a result, which must not be null.
pub(crate) unsafe fn out<'a, T>(pointer: *mut T) -> R<&'a mut T> {
    unsafe { pointer.as_mut() }.ok_or(INVALID_VALUE)
}

/// Stores a result if the caller asked for it.
pub(crate) unsafe fn put<T>(pointer: *mut T, value: T) {
    if !pointer.is_null() {
        unsafe { pointer.write(value) };
    }
}
