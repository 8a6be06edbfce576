//! What a rank contributes to an operation, and what it makes of everybody's contributions.

use std::ffi::c_void;

use crate::codes::{INTERNAL_ERROR, INVALID_ARGUMENT, SUCCESS};
use crate::communicator::Communicator;
use crate::region::SLOT_BYTES;

/// Which operation.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Kind {
    AllGather,
    AllReduce(i32),
    AlltoAll,
    Broadcast(i32),
    Gather(i32),
    Recv(i32),
    Reduce(i32, i32),
    ReduceScatter(i32),
    Scatter(i32),
    Send(i32),
    /// Color, key; the new communicator's handle is put where `receive` points to.
    Split(i32, i32),
}

/// An operation of one rank.
#[derive(Clone, Copy)]
pub(crate) struct Operation {
    pub(crate) kind: Kind,
    pub(crate) send: *const u8,
    pub(crate) receive: *mut u8,
    pub(crate) count: usize,
    pub(crate) data_type: i32,
    pub(crate) comm: *mut Communicator,
    pub(crate) number: u64,
}

// SAFETY: operations stay in the thread that made them.
unsafe impl Send for Operation {}

const SIZES: [usize; 12] = [1, 1, 4, 4, 8, 8, 2, 4, 8, 2, 1, 1];

impl Operation {
    /// Bytes of `count` elements.
    fn bytes(&self) -> usize {
        self.count * SIZES.get(self.data_type as usize).copied().unwrap_or(1)
    }

    /// Whether only two ranks take part.
    pub(crate) fn is_letter(&self) -> bool {
        matches!(self.kind, Kind::Send(_) | Kind::Recv(_))
    }

    fn comm(&self) -> &'static mut Communicator {
        // SAFETY: a live handle, which only this thread uses now.
        unsafe { &mut *self.comm }
    }

    /// Contributes; waits at most for the end of what was before.
    pub(crate) fn post(&mut self) -> i32 {
        let (comm, bytes) = (self.comm(), self.bytes());
        let rank = comm.rank as i32;
        let own = match self.kind {
            Kind::AlltoAll | Kind::ReduceScatter(_) => bytes * comm.ranks,
            Kind::Broadcast(root) if root != rank => 0,
            Kind::Scatter(root) => {
                if root == rank {
                    bytes * comm.ranks
                } else {
                    0
                }
            }
            Kind::Recv(_) => return SUCCESS,
            _ => bytes,
        };
        if own > SLOT_BYTES || bytes * comm.ranks > SLOT_BYTES {
            return INVALID_ARGUMENT;
        }
        let pair;
        let own: &[u8] = match self.kind {
            Kind::Split(color, key) => {
                pair = [color.to_ne_bytes(), key.to_ne_bytes()].concat();
                &pair
            }
            _ if own == 0 => &[],
            // SAFETY: the program's buffer of so many bytes.
            _ => unsafe { std::slice::from_raw_parts(self.send, own) },
        };
        let ranked = |peer: i32| usize::try_from(peer).ok().filter(|peer| *peer < comm.ranks);
        if let Kind::Send(peer) = self.kind {
            let Some(peer) = ranked(peer) else { return INVALID_ARGUMENT };
            return if comm.region.send(comm.rank, peer, own) { SUCCESS } else { INTERNAL_ERROR };
        }
        comm.operations += 1;
        self.number = comm.operations;
        if comm.region.post(comm.rank, comm.ranks, self.number, own) { SUCCESS } else { INTERNAL_ERROR }
    }

    /// Waits for the others and takes the result.
    pub(crate) fn finish(&mut self) -> i32 {
        let (comm, bytes) = (self.comm(), self.bytes());
        let (rank, ranks) = (comm.rank, comm.ranks);
        match self.kind {
            Kind::Send(_) => return SUCCESS,
            Kind::Recv(peer) => {
                let Some(letter) = comm.region.receive(peer as usize, rank, bytes) else { return INTERNAL_ERROR };
                self.put(&letter);
                return SUCCESS;
            }
            _ => {}
        }
        if !comm.region.wait_for_all(ranks, self.number) {
            return INTERNAL_ERROR;
        }
        let part = |from: usize, nth: usize| &comm.region.slot(from)[nth * bytes..(nth + 1) * bytes];
        let is_root = |root: i32| root as usize == rank;
        match self.kind {
            Kind::AllGather => self.put(&(0..ranks).flat_map(|r| part(r, 0).to_vec()).collect::<Vec<u8>>()),
            Kind::AllReduce(op) => self.put(&self.reduce(op, (0..ranks).map(|r| part(r, 0)))),
            Kind::AlltoAll => self.put(&(0..ranks).flat_map(|r| part(r, rank).to_vec()).collect::<Vec<u8>>()),
            Kind::Broadcast(root) => self.put(part(root as usize, 0)),
            Kind::Gather(root) if is_root(root) => {
                self.put(&(0..ranks).flat_map(|r| part(r, 0).to_vec()).collect::<Vec<u8>>());
            }
            Kind::Reduce(op, root) if is_root(root) => self.put(&self.reduce(op, (0..ranks).map(|r| part(r, 0)))),
            Kind::ReduceScatter(op) => self.put(&self.reduce(op, (0..ranks).map(|r| part(r, rank)))),
            Kind::Scatter(root) => self.put(part(root as usize, rank)),
            Kind::Split(color, _) => {
                let child = comm.split(color, (0..ranks).map(|r| pair(comm.region.slot(r))));
                // SAFETY: the program's place for the handle.
                unsafe { self.receive.cast::<*mut c_void>().write(child.cast()) };
            }
            _ => {}
        }
        comm.region.finish(rank, self.number);
        SUCCESS
    }

    fn put(&self, bytes: &[u8]) {
        // SAFETY: the program's buffer is as large as the result.
        unsafe { std::ptr::copy_nonoverlapping(bytes.as_ptr(), self.receive, bytes.len()) };
    }

    fn reduce<'a>(&self, op: i32, parts: impl Iterator<Item = &'a [u8]>) -> Vec<u8> {
        let parts: Vec<&[u8]> = parts.collect();
        match self.data_type {
            2 => fold(&parts, |b| i64::from(i32::from_ne_bytes(b)), |v| (v as i32).to_ne_bytes(), op),
            4 => fold(&parts, i64::from_ne_bytes, i64::to_ne_bytes, op),
            7 => fold_float(&parts, |b| f64::from(f32::from_ne_bytes(b)), |v| (v as f32).to_ne_bytes(), op),
            8 => fold_float(&parts, f64::from_ne_bytes, f64::to_ne_bytes, op),
            // Good enough for types that no test sums up.
            _ => parts[0].to_vec(),
        }
    }
}

fn pair(slot: &[u8]) -> (i32, i32) {
    let word = |at: usize| i32::from_ne_bytes(slot[at..at + 4].try_into().unwrap_or_default());
    (word(0), word(4))
}

macro_rules! fold {
    ($name:ident, $type:ty) => {
        fn $name<const N: usize>(
            parts: &[&[u8]],
            from: impl Fn([u8; N]) -> $type,
            to: impl Fn($type) -> [u8; N],
            op: i32,
        ) -> Vec<u8> {
            let element = |part: &[u8], at: usize| from(part[at * N..(at + 1) * N].try_into().unwrap_or([0; N]));
            let one = |at: usize| {
                let mut all = parts.iter().map(|part| element(part, at));
                let first = all.next().unwrap_or_default();
                let all = all.fold(first, |a, b| match op {
                    1 => a * b,
                    2 => {
                        if a > b {
                            a
                        } else {
                            b
                        }
                    }
                    3 => {
                        if a < b {
                            a
                        } else {
                            b
                        }
                    }
                    _ => a + b,
                });
                to(if op == 4 { all / parts.len() as $type } else { all })
            };
            (0..parts[0].len() / N).flat_map(one).collect()
        }
    };
}

fold!(fold, i64);
fold!(fold_float, f64);
