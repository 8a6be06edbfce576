//! Groups: operations between ncclGroupStart and ncclGroupEnd are done together, at its end.
//!
//! Everything is done in rounds, each with the next operation of every communicator: one thread may be several ranks,
//! and all of them must have contributed before one of them waits.

use std::cell::RefCell;
use std::time::{Duration, Instant};

use crate::codes::SUCCESS;
use crate::operation::Operation;

/// A handle that old versions write when the group ends.
pub(crate) type Late = (usize, usize);

#[derive(Default)]
struct Group {
    depth: u32,
    queue: Vec<Operation>,
    late: Vec<Late>,
}

thread_local! {
    static GROUP: RefCell<Group> = RefCell::default();
}

/// ncclGroupStart.
pub(crate) fn start() {
    GROUP.with_borrow_mut(|group| group.depth += 1);
}

/// ncclGroupEnd; `simulate` does nothing of what was queued.
pub(crate) fn end(simulate: bool) -> i32 {
    let (queue, late) = GROUP.with_borrow_mut(|group| {
        group.depth = group.depth.saturating_sub(1);
        if group.depth > 0 {
            Default::default()
        } else {
            (std::mem::take(&mut group.queue), std::mem::take(&mut group.late))
        }
    });
    for (place, handle) in late {
        // SAFETY: the program's place, which it keeps until the group ends.
        unsafe { (place as *mut usize).write(handle) };
    }
    if simulate { SUCCESS } else { run(queue) }
}

/// Writes a handle: now, or when the group ends, as versions before 2.14 do.
pub(crate) fn publish(place: usize, handle: usize) {
    let old = std::env::var_os("FAKE_NCCL_OLD").is_some();
    GROUP.with_borrow_mut(|group| {
        if old && group.depth > 0 {
            group.late.push((place, handle));
        } else {
            // SAFETY: the program's place.
            unsafe { (place as *mut usize).write(handle) };
        }
    });
}

/// Does an operation, or queues it.
pub(crate) fn add(operation: Operation) -> i32 {
    let queued = GROUP.with_borrow_mut(|group| {
        if group.depth > 0 {
            group.queue.push(operation);
        }
        group.depth > 0
    });
    if queued { SUCCESS } else { run(vec![operation]) }
}

fn run(mut queue: Vec<Operation>) -> i32 {
    let mut result = SUCCESS;
    while !queue.is_empty() {
        let (mut round, mut rest): (Vec<Operation>, Vec<Operation>) = Default::default();
        for operation in queue {
            // Letters do not wait for their turn: all are sent before one is read.
            let letter = operation.is_letter();
            let taken = !letter && round.iter().any(|o| o.comm == operation.comm && !o.is_letter());
            if taken { &mut rest } else { &mut round }.push(operation);
        }
        for operation in &mut round {
            take_time();
            result = result.max(operation.post());
        }
        if result == SUCCESS {
            for operation in &mut round {
                result = result.max(operation.finish());
            }
        }
        queue = rest;
    }
    result
}

/// FAKE_NCCL_US: microseconds that an operation takes at least.
fn take_time() {
    let time = std::env::var("FAKE_NCCL_US").ok().and_then(|us| us.parse().ok()).map(Duration::from_micros);
    let start = Instant::now();
    while time.is_some_and(|time| start.elapsed() < time) {
        std::hint::spin_loop();
    }
}
