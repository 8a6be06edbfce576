//! What a line of the list says of its call, from the arguments alone.

use core::ffi::c_void;

use gputrace_abi::collective::{NO_OPERATOR, NO_PARTY, NO_TYPE};

use crate::names;

/// ncclComm_t.
pub(crate) type Comm = *mut c_void;

/// ncclUniqueId, which is passed by value.
#[repr(C)]
#[derive(Clone, Copy)]
pub(crate) struct UniqueId([u8; 128]);

/// What a call changes besides doing its work.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Effect {
    /// Nothing.
    Nothing,
    /// A group of calls begins.
    BeginsGroup,
    /// A group ends and does its work.
    EndsGroup,
    /// A communicator is made of a unique id.
    Makes,
    /// One for each of several devices, all in this process.
    MakesAll,
    /// A communicator is made of some ranks of another one.
    Derives,
    /// The communicator is no more.
    Ends,
}

/// A call. Built with the names of what it is given, in the lines of [`crate::hooks::nccl`].
#[derive(Clone, Copy)]
pub(crate) struct Operation {
    /// The communicator that it is about; null: none.
    pub(super) comm: Comm,
    pub(super) stream: u64,
    /// Elements; bytes where there is no data type.
    pub(super) count: u64,
    pub(super) data_type: u8,
    pub(super) operator: u16,
    /// Root or peer.
    pub(super) party: i32,
    pub(super) effect: Effect,
    pub(super) birth: Birth,
}

/// Where a new communicator's handle is put, and which one it is.
#[derive(Clone, Copy)]
pub(super) struct Birth {
    pub(super) place: *mut Comm,
    /// Hash of the unique id; 0: none was given.
    pub(super) id: u64,
    /// -1: not known.
    pub(super) rank: i32,
    /// Number of ranks, or of places; -1: not known.
    pub(super) ranks: i32,
    pub(super) color: i32,
    pub(super) devices: *const i32,
}

const UNBORN: Birth =
    Birth { place: core::ptr::null_mut(), id: 0, rank: -1, ranks: -1, color: 0, devices: core::ptr::null() };

impl Operation {
    /// What stands in the place for a new communicator's handle.
    #[inline(always)]
    pub(super) fn place_before(&self) -> usize {
        // SAFETY: null, or the program's place, which NCCL is about to write to.
        unsafe { self.birth.place.as_ref() }.map_or(0, |handle| *handle as usize)
    }

    /// A call about nothing in particular.
    #[inline(always)]
    pub(crate) fn none() -> Operation {
        Operation {
            comm: core::ptr::null_mut(),
            stream: 0,
            count: 0,
            data_type: NO_TYPE,
            operator: NO_OPERATOR,
            party: NO_PARTY,
            effect: Effect::Nothing,
            birth: UNBORN,
        }
    }

    /// A call about a communicator.
    #[inline(always)]
    pub(crate) fn about(comm: Comm) -> Operation {
        Operation { comm, ..Operation::none() }
    }

    /// Work for a stream.
    #[inline(always)]
    pub(crate) fn on(comm: Comm, stream: *mut c_void) -> Operation {
        Operation { stream: stream as usize as u64, ..Operation::about(comm) }
    }

    /// So many elements of a data type.
    #[inline(always)]
    pub(crate) fn elements(self, count: usize, data_type: i32) -> Operation {
        let data_type = data_type.clamp(0, i32::from(NO_TYPE)) as u8;
        Operation { count: count as u64, data_type, ..self }
    }

    /// So many bytes.
    #[inline(always)]
    pub(crate) fn bytes(self, bytes: usize) -> Operation {
        Operation { count: bytes as u64, ..self }
    }

    /// A reduction by this operator. Numbers of the program's own operators are large.
    #[inline(always)]
    pub(crate) fn operator(self, operator: i32) -> Operation {
        Operation { operator: operator.clamp(0, i32::from(NO_OPERATOR) - 1) as u16, ..self }
    }

    /// The root, or the peer.
    #[inline(always)]
    pub(crate) fn with(self, party: i32) -> Operation {
        Operation { party, ..self }
    }

    /// ncclGroupStart.
    #[inline(always)]
    pub(crate) fn begins_group() -> Operation {
        Operation { effect: Effect::BeginsGroup, ..Operation::none() }
    }

    /// ncclGroupEnd and its simulation.
    #[inline(always)]
    pub(crate) fn ends_group() -> Operation {
        Operation { effect: Effect::EndsGroup, ..Operation::none() }
    }

    /// The end of a communicator.
    #[inline(always)]
    pub(crate) fn ends(comm: Comm) -> Operation {
        Operation { effect: Effect::Ends, ..Operation::about(comm) }
    }

    /// A new communicator.
    #[inline(always)]
    pub(crate) fn makes(place: *mut Comm) -> Operation {
        Operation { effect: Effect::Makes, birth: Birth { place, ..UNBORN }, ..Operation::none() }
    }

    /// A new communicator for each of `count` devices.
    #[inline(always)]
    pub(crate) fn makes_all(place: *mut Comm, count: i32, devices: *const i32) -> Operation {
        let birth = Birth { place, ranks: count, devices, ..UNBORN };
        Operation { effect: Effect::MakesAll, birth, ..Operation::none() }
    }

    /// A new communicator of ranks of `comm`.
    #[inline(always)]
    pub(crate) fn derives(comm: Comm, place: *mut Comm) -> Operation {
        Operation { effect: Effect::Derives, birth: Birth { place, ..UNBORN }, ..Operation::about(comm) }
    }

    /// Whether it makes a communicator whose kernels will wait for other ranks.
    #[inline(always)]
    pub(super) fn joins_others(&self) -> bool {
        matches!(self.effect, Effect::Makes | Effect::MakesAll | Effect::Derives) && self.birth.ranks != 1
    }

    /// The new communicator's rank and number of ranks.
    #[inline(always)]
    pub(crate) fn ranked(self, rank: i32, ranks: i32) -> Operation {
        Operation { birth: Birth { rank, ranks, ..self.birth }, ..self }
    }

    /// Ranks of one color make a communicator.
    #[inline(always)]
    pub(crate) fn colored(self, color: i32) -> Operation {
        Operation { birth: Birth { color, ..self.birth }, ..self }
    }

    /// The unique ids that the new communicator's ranks find each other by.
    pub(crate) fn by_ids(self, ids: *const UniqueId, count: i32) -> Operation {
        if ids.is_null() || count < 1 {
            return self;
        }
        // SAFETY: the program's list of so many ids, which NCCL is about to read.
        let bytes = unsafe { core::slice::from_raw_parts(ids.cast::<u8>(), count as usize * size_of::<UniqueId>()) };
        Operation { birth: Birth { id: names::hash(bytes), ..self.birth }, ..self }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_communicator_of_one_rank_joins_nobody() {
        let of = |ranks| Operation::makes(core::ptr::null_mut()).ranked(0, ranks);
        assert!(!of(1).joins_others() && of(2).joins_others());
        assert!(Operation::makes_all(core::ptr::null_mut(), 2, core::ptr::null()).joins_others());
        // How many ranks of the other one are in it is not said.
        assert!(Operation::derives(core::ptr::null_mut(), core::ptr::null_mut()).joins_others());
        assert!(!Operation::none().joins_others());
    }
}
