//! Communicators: a rank's own half of one. Handles are addresses of these.

use std::ffi::c_void;

use crate::region::{RANKS, Region};

/// One rank of a communicator.
pub(crate) struct Communicator {
    pub(crate) id: u64,
    pub(crate) rank: usize,
    pub(crate) ranks: usize,
    pub(crate) region: &'static Region,
    /// Operations so far.
    pub(crate) operations: u64,
    /// Communicators that were made of it.
    children: u64,
}

impl Communicator {
    /// Joins the communicator with this id; null when that is not possible.
    pub(crate) fn join(id: u64, rank: i32, ranks: i32) -> *mut Communicator {
        let (rank, ranks) = (rank as usize, ranks as usize);
        if rank >= ranks || ranks > RANKS {
            return std::ptr::null_mut();
        }
        let Some(region) = Region::join(id, ranks) else { return std::ptr::null_mut() };
        Box::into_raw(Box::new(Communicator { id, rank, ranks, region, operations: 0, children: 0 }))
    }

    /// The communicator of the ranks with this rank's color, in the order of their keys; null for no color.
    pub(crate) fn split(&mut self, color: i32, all: impl Iterator<Item = (i32, i32)>) -> *mut Communicator {
        self.children += 1;
        if color < 0 {
            return std::ptr::null_mut();
        }
        let mut members: Vec<(i32, usize)> =
            all.enumerate().filter(|(_, (other, _))| *other == color).map(|(rank, (_, key))| (key, rank)).collect();
        members.sort_unstable();
        let rank = members.iter().position(|(_, rank)| *rank == self.rank).unwrap_or(0);
        Communicator::join(self.child_id(color as u64), rank as i32, members.len() as i32)
    }

    /// The communicator without these ranks.
    pub(crate) fn shrink(&mut self, excluded: &[i32]) -> *mut Communicator {
        self.children += 1;
        let left: Vec<usize> = (0..self.ranks).filter(|rank| !excluded.contains(&(*rank as i32))).collect();
        let Some(rank) = left.iter().position(|rank| *rank == self.rank) else { return std::ptr::null_mut() };
        Communicator::join(self.child_id(u64::MAX), rank as i32, left.len() as i32)
    }

    fn child_id(&self, color: u64) -> u64 {
        mix(mix(self.id ^ self.children) ^ color)
    }
}

/// Scatters the bits of a number.
pub(crate) fn mix(number: u64) -> u64 {
    let number = (number ^ number >> 31).wrapping_mul(0x9e37_79b9_7f4a_7c15);
    number ^ number >> 29
}

/// The communicator of a handle.
pub(crate) fn of(comm: *mut c_void) -> Option<&'static mut Communicator> {
    // SAFETY: null, or a handle that was given out and not destroyed.
    unsafe { comm.cast::<Communicator>().as_mut() }
}
