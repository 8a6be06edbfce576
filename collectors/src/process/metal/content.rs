//! What was encoded into a command buffer, until it is committed.

use gputrace_abi::event::{detail, unpack_block, unpack_grid};
use gputrace_abi::metal::{HOST_IS_SOURCE, encoder, levels};

use super::Message;
use super::memory::Memory;
use crate::process::resolve::size;
use crate::tables::{Call, Copies, Dispatch, DispatchKind, End, Transfer};

/// Names of pipelines, and labels of encoders, that are told apart in one command buffer.
const MOST_NAMES: usize = 256;
/// Events that a command buffer signals when it has run.
const MOST_SIGNALS: usize = 16;

/// What a command buffer holds.
#[derive(Debug, Default)]
pub(super) struct Content {
    /// Its dispatches, which wait for the commit's number.
    pub(super) dispatches: Vec<Dispatch>,
    /// Kernels of all dispatches.
    pub(super) kernels: u32,
    /// Names of their pipelines, each once, in the order of their first use.
    pub(super) pipelines: Vec<i64>,
    /// Labels of its encoders, likewise.
    pub(super) labels: Vec<i64>,
    /// Compute, blit, render, other.
    pub(super) encoders: [i32; 4],
    pub(super) copies: Option<Copies>,
    /// Events and the values that they are given.
    pub(super) signals: Vec<(u64, u64)>,
    pub(super) encode_ns: i64,
    /// Messages that have no row of their own.
    pub(super) events: u64,
    /// Grid and block of the last dispatch.
    shape: ([u32; 3], [u32; 3]),
}

impl Content {
    /// A message about one of its encoders.
    pub(super) fn took(&mut self, call: &Call) {
        self.encode_ns = self.encode_ns.saturating_add(call.api_ns);
    }

    pub(super) fn encoder(&mut self, kind: u64) {
        let place = match kind {
            encoder::COMPUTE => 0,
            encoder::BLIT => 1,
            encoder::RENDER => 2,
            _ => 3,
        };
        self.encoders[place] = self.encoders[place].saturating_add(1);
    }

    pub(super) fn dispatch(&mut self, dispatch: &Dispatch) {
        self.kernels = self.kernels.saturating_add(dispatch.kernels());
        self.shape = (dispatch.grid(), dispatch.group);
        dispatch.name_id.into_iter().for_each(|name| add(&mut self.pipelines, name));
    }

    /// One of its encoders has this label.
    pub(super) fn label(&mut self, label: i64) {
        add(&mut self.labels, label);
    }

    /// Grid and block of the only dispatch.
    pub(super) fn shape(&self) -> ([u32; 3], [u32; 3]) {
        if self.kernels == 1 { self.shape } else { ([0; 3], [0; 3]) }
    }

    pub(super) fn copy(&mut self, transfer: &Transfer) {
        let direction = Some(transfer.direction());
        let (src_kind, dst_kind) = (Some(transfer.src_kind).filter(|_| !transfer.set), Some(transfer.dst_kind));
        let one = Copies { sets: transfer.set, direction, src_kind, dst_kind, bytes: transfer.bytes };
        self.copies = Some(self.copies.map_or(one, |all| all.with(one)));
    }

    pub(super) fn signal(&mut self, event: u64, value: u64) {
        if self.signals.len() < MOST_SIGNALS {
            self.signals.push((event, value));
        }
    }

    /// What another command buffer holds, which was committed with it.
    pub(super) fn append(&mut self, other: Content) {
        other.dispatches.iter().for_each(|dispatch| self.dispatch(dispatch));
        self.dispatches.extend(other.dispatches);
        other.labels.into_iter().for_each(|label| self.label(label));
        self.copies = match (self.copies, other.copies) {
            (Some(all), Some(more)) => Some(all.with(more)),
            (all, more) => all.or(more),
        };
        self.encoders.iter_mut().zip(other.encoders).for_each(|(sum, more)| *sum = sum.saturating_add(more));
        self.encode_ns = self.encode_ns.saturating_add(other.encode_ns);
        self.events += other.events;
        other.signals.into_iter().for_each(|(event, value)| self.signal(event, value));
    }

    /// Its copies, where it holds nothing else.
    pub(super) fn only_copies(&self) -> Option<Copies> {
        let [compute, blit, render, other] = self.encoders;
        // Metal 4 copies in encoders of kernels.
        self.copies.filter(|_| blit.saturating_add(compute) > 0 && self.kernels == 0 && render == 0 && other == 0)
    }
}

/// A name that is not yet among others.
fn add(names: &mut Vec<i64>, name: i64) {
    if names.last() != Some(&name) && names.len() < MOST_NAMES && !names.contains(&name) {
        names.push(name);
    }
}

/// The dispatch that a message is, of a pipeline with this name, by an encoder with this label.
pub(super) fn dispatch(message: &Message, name_id: Option<i64>, encoder_id: Option<i64>) -> Option<Dispatch> {
    let [_, _, size, group] = message.payload;
    let kind = match message.detail {
        detail::THREADS => DispatchKind::Threads,
        detail::GROUPS => DispatchKind::Groups,
        detail::INDIRECT => DispatchKind::Indirect,
        detail::COMMANDS => DispatchKind::Commands,
        _ => return None,
    };
    let call = &message.call;
    Some(Dispatch {
        start_ns: call.start_ns,
        api_ns: call.api_ns,
        process_id: call.process_id,
        pid: call.pid,
        tid: call.tid,
        api_id: call.api_id,
        device: call.device,
        name_id,
        encoder_id,
        kind,
        size: match kind {
            DispatchKind::Commands => [size.min(i32::MAX as u64) as u32, 0, 0],
            DispatchKind::Indirect => [0; 3],
            DispatchKind::Threads | DispatchKind::Groups => unpack_grid(size),
        },
        group: if kind == DispatchKind::Commands { [0; 3] } else { unpack_block(group).0 },
        discarded: false,
    })
}

/// The copy or set that a message is.
pub(super) fn transfer(message: &Message, memory: &Memory) -> Transfer {
    let [destination, encoder, source, bytes] = message.payload;
    let set = matches!(message.detail, detail::SET | detail::SET_ASYNC);
    let by_host = message.detail == detail::COPY;
    let of_host = |source: bool| by_host && source == (encoder == HOST_IS_SOURCE);
    let kind = |object, source| match memory.kind(object) {
        _ if of_host(source) => End::Pageable,
        Some(detail::MANAGED) => End::Managed,
        Some(detail::REGISTERED | detail::PINNED) => End::Pinned,
        Some(_) => End::Device,
        None => End::Unknown,
    };
    Transfer {
        set,
        peer: false,
        src_kind: if set { End::Unknown } else { kind(source, true) },
        dst_kind: kind(destination, false),
        bytes: size(levels::bytes(bytes)),
        dst: destination as i64,
        src: source as i64,
        is_async: !by_host,
    }
}
