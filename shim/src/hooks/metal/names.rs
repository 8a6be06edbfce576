//! Names of pipelines, and labels of queues, command buffers, encoders and memory: each is written once.
//!
//! What was written is remembered in small tables; where one is full of others, a name is written again.

use core::ffi::CStr;
use core::hint::cold_path;
use core::sync::atomic::{AtomicU64, Ordering};

use gputrace_abi::event::{NAME_BYTES, text_kind};
use gputrace_abi::metal::BEHIND;
use gputrace_abi::text::key;

use super::resources::pipeline::PIPELINE;
use crate::interpose::objc::{self, Id, send};
use crate::record::At;
use crate::thread::Reserved;
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

/// The text of an NSString; none of an empty one.
#[inline(always)]
pub(super) fn text<'a>(name: Id) -> Option<&'a CStr> {
    objc::text(name).filter(|name| !name.is_empty())
}

/// A pipeline was made, and has this name: its label or that of its function. What was known of its address was of one that
/// is gone. The place for the message's event, where one was reserved with the name.
#[inline(always)]
pub(super) fn pipeline<'a>(made: Id, name: impl FnOnce() -> Option<&'a CStr>, at: At) -> Option<Reserved<'static>> {
    if made.is_null() {
        return None;
    }
    PIPELINE.meet(made);
    let name = name()?.to_bytes();
    let place = match at.recorded() {
        Some((state, now)) => state.write_name_before::<1>([text_kind::FUNCTION, made as u64, now], name)?,
        None => {
            name_alone(made, name)?;
            None
        }
    };
    of_pipeline(made).store(made as u64, Ordering::Relaxed);
    place
}

/// The name of a pipeline whose message is not recorded.
#[cold]
#[inline(never)]
fn name_alone(made: Id, name: &[u8]) -> Option<()> {
    let (state, now) = At::UNKNOWN.get()?;
    state.write_name(text_kind::FUNCTION, made as u64, name, now).then_some(())
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
    pipeline(used, || text(send!(used, "label"; Id)), At::UNKNOWN);
    // It has no other name: nobody asks again.
    if !used.is_null() {
        of_pipeline(used).store(used as u64, Ordering::Relaxed);
    }
}

/// What the event of a message says that gives an object this label (an NSString; nil takes it away), and its place where one
/// was reserved with the label's text. A long one is written with each event: to look whether it is known takes longer.
#[inline(always)]
pub(super) fn labelled(object: Id, label: Id, at: At) -> ([u64; 4], Option<Reserved<'static>>) {
    let told = |key, place| ([object as u64, 0, key, 0], place);
    let Some(text) = label_text(label) else { return told(0, None) };
    let Some((state, now)) = at.recorded() else { return told(key_of(text, at), None) };
    if text.len() > NAME_BYTES {
        return match state.write_name_before::<1>([text_kind::LABEL, BEHIND, now], text) {
            Some(Some(place)) => told(BEHIND, Some(place)),
            // The event may come to stand in another ring than the text, and be read first.
            Some(None) => told(apart(text), None),
            None => told(0, None),
        };
    }
    let key = key(text_kind::LABEL, text);
    let known = place(&LABELS, key);
    if known.load(Ordering::Relaxed) == key {
        return told(key, None);
    }
    let written = state.write_name_before::<1>([text_kind::LABEL, key, now], text);
    if written.is_some() {
        known.store(key, Ordering::Relaxed);
    }
    told(key, written.flatten())
}

/// The key of a label that does not stand right before its event.
#[cold]
#[inline(never)]
fn apart(text: &[u8]) -> u64 {
    key(text_kind::LABEL, text)
}

/// Longer labels are cut: to read one each time it is set takes so long as it is.
const LABEL_MAX_BYTES: usize = 88;

#[inline(always)]
fn label_text<'a>(label: Id) -> Option<&'a [u8]> {
    objc::text_up_to(label, LABEL_MAX_BYTES).filter(|text| !text.is_empty())
}

/// The key of a label; 0 for none.
#[inline(never)]
pub(super) fn label(label: Id, at: At) -> u64 {
    label_text(label).map_or(0, |text| key_of(text, at))
}

/// The key of a label, whose text is written once.
#[inline(never)]
fn key_of(text: &[u8], at: At) -> u64 {
    let key = key(text_kind::LABEL, text);
    let known = place(&LABELS, key);
    if known.load(Ordering::Relaxed) != key
        && let Some((state, now)) = at.get()
        && state.write_name(text_kind::LABEL, key, text, now)
    {
        known.store(key, Ordering::Relaxed);
    }
    key
}
