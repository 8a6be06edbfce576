//! Names of pipelines, and labels of queues, command buffers, encoders and memory: each is written once.
//!
//! What was written is remembered in small tables; where one is full of others, a name is written again.

use core::hint::cold_path;
use core::sync::atomic::{AtomicU64, Ordering};

use gputrace_abi::event::text_kind;
use gputrace_abi::text::key;

use super::resources::pipeline::PIPELINE;
use crate::interpose::objc::{self, Id, send};
use crate::record::At;
use crate::{session, thread};

/// Pipelines whose names were written.
static PIPELINES: [AtomicU64; 1024] = [const { AtomicU64::new(0) }; 1024];
/// Keys of labels that were written.
static LABELS: [AtomicU64; 1024] = [const { AtomicU64::new(0) }; 1024];
static NOWHERE: AtomicU64 = AtomicU64::new(0);

#[inline(always)]
fn place(table: &'static [AtomicU64; 1024], hash: u64) -> &'static AtomicU64 {
    // The mask keeps the index inside; `get` with a fallback costs nothing and cannot panic.
    table.get(hash as usize & 1023).unwrap_or(&NOWHERE)
}

fn of_pipeline(pipeline: Id) -> &'static AtomicU64 {
    let address = pipeline as u64;
    place(&PIPELINES, (address >> 4) ^ (address >> 14))
}

/// A pipeline was made, and has this name (an NSString): its label or that of its function. Whether it was written. What
/// was known of its address was of one that is gone.
#[inline(always)]
pub(super) fn pipeline(made: Id, name: Id, at: At) -> bool {
    if made.is_null() {
        return false;
    }
    PIPELINE.meet(made);
    let Some(name) = objc::text(name).filter(|name| !name.is_empty()) else { return false };
    let Some((state, now)) = at.get() else { return false };
    let written = state.write_name(text_kind::FUNCTION, made as u64, name.to_bytes(), now);
    if written {
        of_pipeline(made).store(made as u64, Ordering::Relaxed);
    }
    written
}

/// A pipeline is used: one that was made in the background has its label for a name, if it has one.
#[inline(always)]
pub(super) fn pipeline_used(used: Id) {
    if of_pipeline(used).load(Ordering::Relaxed) != used as u64 {
        cold_path();
        learn(used);
    }
}

/// A pipeline is about to end: what stands at its address next has a name of its own, or none (an empty one is told).
pub(super) fn pipeline_gone(gone: Id) {
    let _ = of_pipeline(gone).compare_exchange(gone as u64, 0, Ordering::Relaxed, Ordering::Relaxed);
    if let Some(state) = thread::state_slow() {
        state.write_name(text_kind::FUNCTION, gone as u64, &[], session::now());
    }
}

#[cold]
#[inline(never)]
fn learn(used: Id) {
    pipeline(used, send!(used, "label"; Id), At::UNKNOWN);
    // It has no other name: nobody asks again.
    if !used.is_null() {
        of_pipeline(used).store(used as u64, Ordering::Relaxed);
    }
}

/// The payload of a message that gives an object this label (an NSString; nil takes it away).
#[inline(always)]
pub(super) fn labelled(object: Id, label: Id, at: At) -> [u64; 4] {
    [object as u64, 0, self::label(label, at), 0]
}

/// Longer labels are cut: to read one each time it is set takes so long as it is.
const LABEL_MAX_BYTES: usize = 88;

/// The key of a label; 0 for none.
#[inline(never)]
pub(super) fn label(label: Id, at: At) -> u64 {
    let Some(text) = objc::text_up_to(label, LABEL_MAX_BYTES).filter(|text| !text.is_empty()) else { return 0 };
    let key = key(text_kind::LABEL, text);
    let place = place(&LABELS, key);
    if place.load(Ordering::Relaxed) != key
        && let Some((state, now)) = at.get()
        && state.write_name(text_kind::LABEL, key, text, now)
    {
        place.store(key, Ordering::Relaxed);
    }
    key
}
