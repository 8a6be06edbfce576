//! What is launched when a graph is launched: the nodes of a graph, read when it is instantiated or updated.
//!
//! An executable graph cannot be asked what it holds, but the graph that it is made of can, by the thread that has just
//! done so. What it holds is written as one text ([`gputrace_abi::graph`]); the launch itself stays as cheap as any
//! other, and the collector finds by handle and time which instantiation it launched.
//!
//! Nothing here is called while a graph is launched, and nothing that a capture forbids: reading a graph touches no
//! stream, and happens in the capture mode that leaves other threads' captures alone.

pub(crate) mod bodies;
mod driver;
mod kernels;
mod read;
mod room;

use core::sync::atomic::{AtomicU64, Ordering};

use gputrace_abi::event::text_kind;
use gputrace_abi::graph::{KERNEL, action, pack_action};

pub(crate) use driver::bind;

use crate::thread::State;
use crate::{session, tls};

/// Instantiations so far: what tells an executable graph from an earlier one with its handle.
static INSTANTIATIONS: AtomicU64 = AtomicU64::new(0);

fn state() -> Option<&'static State> {
    tls::get().filter(|state| state.row().is_some())
}

/// A graph was instantiated; `exec` is 0 when that failed.
#[cold]
#[inline(never)]
pub(crate) fn instantiated(exec: u64, graph: u64) {
    if exec != 0 {
        let number = INSTANTIATIONS.fetch_add(1, Ordering::Relaxed) + 1;
        describe(exec, graph, pack_action(action::INSTANTIATE, KERNEL, number));
    }
}

/// An executable graph was updated from a whole graph.
#[cold]
#[inline(never)]
pub(crate) fn updated(result: u32, exec: u64, graph: u64) {
    if result == 0 {
        describe(exec, graph, pack_action(action::UPDATE, KERNEL, 0));
    }
}

fn describe(exec: u64, graph: u64, number: u64) {
    let Some(state) = state() else { return };
    let began = session::now();
    let reading = read::read(graph, exec);
    let words = reading.contents.words();
    // The time is taken now: whoever launches it can do so only after the hook has returned.
    let (texts, now) = ([room::bytes(&words), reading.kernels(), &[]], session::now());
    state.write_texts(text_kind::GRAPH, exec, number, texts, now);
    state.header().graph_ticks.fetch_add(now.saturating_sub(began), Ordering::Relaxed);
}

/// A node of an executable graph was switched on or off.
#[cold]
#[inline(never)]
pub(crate) fn switched(result: u32, exec: u64, node: u64, on: bool) {
    let Some(state) = state().filter(|_| result == 0) else { return };
    let what = if on { action::ENABLE } else { action::DISABLE };
    let kind = driver::relaxed(|| driver::kind(node)).flatten().unwrap_or(gputrace_abi::graph::UNKNOWN);
    state.write_text(text_kind::GRAPH, exec, pack_action(what, kind, node), &[], session::now());
}
