//! Lets one observer see which calls give the device work, and what the device then does: the stand-in for CUPTI.
//!
//! Without an observer a call pays one load of a word for it.

use crate::kernel::Kernel;
use crate::memory::Place;
use crate::observed::{Observer, Operation, Side, Wait, memory};
pub(crate) use crate::observed::{class, wait};
use crate::state::{Driver, locked, ready};
use crate::timeline::now;
use crate::work::{Copy, Direction, Set, Span};
use std::cell::Cell;
use std::sync::atomic::{AtomicPtr, Ordering};

/// Who is told of calls, and who was the last to be: operations of calls that it was told of are still told to it.
static NOW: AtomicPtr<Observer> = AtomicPtr::new(std::ptr::null_mut());
static LAST: AtomicPtr<Observer> = AtomicPtr::new(std::ptr::null_mut());

/// What the observer calls a call, and the executable graph that the call launches.
#[derive(Clone, Copy, Default)]
pub(crate) struct Tag {
    tag: u64,
    graph: u32,
}

thread_local! {
    /// Of the thread's last call that gave the device work.
    static CALL: Cell<Tag> = const { Cell::new(Tag { tag: 0, graph: 0 }) };
}

/// Somebody is told of calls.
#[inline]
pub(crate) fn observed() -> bool {
    !NOW.load(Ordering::Acquire).is_null()
}

/// A call begins that gives the device work; a fork child's calls give it none.
#[inline]
pub(crate) fn begin(class: u32) {
    let observer = NOW.load(Ordering::Acquire);
    if !observer.is_null() && ready().is_ok() {
        // An observer is never freed.
        let tag = unsafe { ((*observer).begun)(class) };
        CALL.set(Tag { tag, graph: 0 });
    }
}

/// The calling thread's call launches an executable graph of this number.
pub(crate) fn launches(graph: u32) {
    CALL.set(Tag { graph, ..CALL.get() });
}

/// The calling thread's call.
pub(crate) fn call() -> Tag {
    if observed() { CALL.get() } else { Tag::default() }
}

/// A call that waits, until this is dropped.
pub(crate) struct Waiting(Option<Wait>);

/// A call begins that waits, of this kind.
pub(crate) fn waits(kind: u32) -> Waiting {
    let observer = NOW.load(Ordering::Acquire);
    if observer.is_null() || ready().is_err() {
        return Waiting(None);
    }
    // An observer is never freed.
    let tag = unsafe { ((*observer).waits)(kind) };
    let wait = Wait { tag, kind, context: 0, legacy: 0, stream: u64::MAX, start_ns: now(), end_ns: 0 };
    Waiting((tag != 0).then_some(wait))
}

impl Waiting {
    /// What it waits in, by handle: a context, and perhaps a stream.
    pub(crate) fn within(&mut self, driver: &Driver, context: u64, stream: Option<u64>) {
        let Some(wait) = &mut self.0 else { return };
        wait.context = driver.contexts.get(context).map_or(0, |context| context.number);
        if let Some(stream) = stream.and_then(|stream| driver.streams.get(stream)) {
            (wait.stream, wait.legacy) = (stream.id, u32::from(stream.raw == Some(0)));
        }
    }
}

impl Drop for Waiting {
    fn drop(&mut self) {
        let observer = LAST.load(Ordering::Acquire);
        if let Some(wait) = self.0.filter(|_| !observer.is_null()) {
            unsafe { ((*observer).waited)(&Wait { end_ns: now(), ..wait }) };
        }
    }
}

/// Makes `observer` the one that is told of calls, or nobody if it is null; then tells what has ended until now, so that
/// an observer that asks for itself once more is up to date. It must never be freed.
#[unsafe(no_mangle)]
extern "C" fn fakeCudaObserve(observer: *mut Observer) {
    if !observer.is_null() {
        LAST.store(observer, Ordering::Release);
    }
    NOW.store(observer, Ordering::Release);
    if ready().is_ok() {
        locked().advance(now());
    }
}

/// Who is told of calls, or was last.
#[unsafe(no_mangle)]
extern "C" fn fakeCudaObserved() -> *const Observer {
    LAST.load(Ordering::Acquire)
}

/// Every context fails with this error from now on, as when a kernel of it did.
#[unsafe(no_mangle)]
extern "C" fn fakeCudaFail(code: u32) {
    if ready().is_ok() {
        let mut driver = locked();
        let contexts: Vec<u64> = driver.contexts.iter().map(|(handle, _)| handle).collect();
        contexts.into_iter().for_each(|context| driver.fault(context, code));
    }
}

/// Tells of an operation, unless nobody was told of its call; `details` adds what its class has.
fn ended(driver: &Driver, span: Span, class: u32, details: impl FnOnce(&mut Operation)) {
    let Tag { tag, graph } = driver.cause.tag;
    let observer = LAST.load(Ordering::Acquire);
    if tag == 0 || observer.is_null() {
        return;
    }
    let Some(stream) = driver.streams.get(span.stream) else { return };
    let mut operation = Operation {
        tag,
        class,
        device: stream.device as u32,
        context: driver.contexts.get(stream.context).map_or(0, |context| context.number),
        legacy: u32::from(stream.raw == Some(0)),
        stream: stream.id,
        start_ns: span.start,
        end_ns: span.end,
        graph,
        node: span.node.saturating_sub(1),
        bytes: 0,
        source: Side::default(),
        target: Side::default(),
        value: 0,
        registers: 0,
        name: std::ptr::null(),
        name_bytes: 0,
        grid: [0; 3],
        block: [0; 3],
        dynamic_shared: 0,
        static_shared: 0,
    };
    details(&mut operation);
    unsafe { ((*observer).ended)(&raw const operation) };
}

pub(crate) fn kernel(driver: &Driver, span: Span, kernel: &Kernel) {
    ended(driver, span, class::KERNEL, |operation| {
        (operation.name, operation.name_bytes) = (kernel.name.as_ptr().cast(), kernel.name.len());
        (operation.grid, operation.block) = (kernel.geometry.grid, kernel.geometry.block);
        operation.dynamic_shared = kernel.geometry.shared;
        (operation.static_shared, operation.registers) = (kernel.static_shared, kernel.registers);
    });
}

/// A copy within the host is none of the device's.
pub(crate) fn copy(driver: &Driver, span: Span, copy: &Copy) {
    if copy.direction == Direction::HostToHost {
        return;
    }
    ended(driver, span, class::COPY, |operation| {
        operation.bytes = copy.shape.bytes();
        (operation.source, operation.target) = (side(driver, copy.shape.src), side(driver, copy.shape.dst));
    });
}

pub(crate) fn set(driver: &Driver, span: Span, set: &Set) {
    ended(driver, span, class::SET, |operation| {
        (operation.bytes, operation.value) = (set.bytes(), set.value);
        operation.target = side(driver, set.dst);
    });
}

/// Whose memory an address is. What is freed with work to do is freed after that, so it is still known.
fn side(driver: &Driver, address: u64) -> Side {
    let base = driver.memory.find(address).map(|(base, _)| base);
    let memory = match driver.memory.place(address) {
        Place::Pageable => memory::PAGEABLE,
        Place::Pinned => memory::PINNED,
        Place::Managed => memory::MANAGED,
        Place::Device if driver.arrays.iter().any(|(_, array)| Some(array.base) == base) => memory::ARRAY,
        Place::Device => memory::DEVICE,
    };
    let device = driver.memory.find(address).map_or(0, |(_, allocation)| allocation.device as u32);
    Side { memory, device }
}
