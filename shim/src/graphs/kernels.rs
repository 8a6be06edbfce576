//! Which functions the kernel nodes of a graph launch, and how many nodes each.

use core::cell::Cell;

use gputrace_abi::graph::{KERNELS_MAX, Kernel};

use super::room::{self, Room};

/// Places of the table of a graph with many functions: a power of two.
const PLACES: usize = 1024;

const _: () = assert!(2 * KERNELS_MAX <= PLACES);

/// The functions, each at the place that its handle says or after it. At most half of the places are used.
pub(super) struct Kernels {
    places: Room<[u64; 2]>,
    used: usize,
}

impl Kernels {
    pub(super) fn new() -> Kernels {
        Kernels { places: Room::few(), used: 0 }
    }

    /// Counts a node; `first` is called for a function's first one. False: there are too many functions.
    pub(super) fn add(&mut self, function: u64, conditional: bool, first: impl Fn()) -> bool {
        let Some(place) = self.place(function) else { return false };
        let mut kernel = Kernel::from_words(*place);
        if kernel.function == 0 {
            if self.used >= KERNELS_MAX || 2 * self.used >= self.places.count() && !self.grow() {
                return false;
            }
            self.used += 1;
            kernel.function = function;
            first();
        }
        let nodes = if conditional { &mut kernel.conditional_nodes } else { &mut kernel.nodes };
        *nodes = nodes.saturating_add(1);
        if let Some(place) = self.place(function) {
            *place = kernel.words();
        }
        true
    }

    /// The place of a function, or the free one that it would get.
    fn place(&mut self, function: u64) -> Option<&mut [u64; 2]> {
        let count = self.places.count();
        let home = (function >> 4 ^ function >> 16) as usize;
        let at = (0..count).map(|probe| home.wrapping_add(probe) % count).find(|at| {
            let known = self.places.seen().get(*at).map(|place| Kernel::from_words(*place).function);
            known.is_some_and(|known| known == 0 || known == function)
        })?;
        self.places.all().get_mut(at)
    }

    /// Moves to a larger table. False where the kernel has no memory for it.
    fn grow(&mut self) -> bool {
        let Some(larger) = Room::new(PLACES) else { return false };
        let smaller = core::mem::replace(&mut self.places, larger);
        for words in smaller.seen().iter().filter(|words| **words != [0; 2]) {
            if let Some(place) = self.place(Kernel::from_words(*words).function) {
                *place = *words;
            }
        }
        true
    }

    /// Moves the functions next to each other: none is added afterwards.
    pub(super) fn close(&mut self) {
        let places = Cell::from_mut(self.places.all()).as_slice_of_cells();
        let mut free = places.iter();
        for place in places.iter().filter(|place| place.get() != [0; 2]) {
            let kernel = place.take();
            if let Some(to) = free.next() {
                to.set(kernel);
            }
        }
    }

    /// As they travel, once closed.
    pub(super) fn bytes(&self) -> &[u8] {
        room::bytes(self.places.seen().get(..self.used).unwrap_or(&[]).as_flattened())
    }
}
