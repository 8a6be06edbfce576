//! Which functions the kernel nodes of a graph launch, and how many nodes each.

use core::cell::Cell;

use gputrace_abi::graph::{KERNELS_MAX, Kernel};

use super::pages::{self, Pages};

/// Places of the table: a power of two, at most half of it used.
const PLACES: usize = 1024;

const _: () = assert!(2 * KERNELS_MAX <= PLACES);

/// The functions, each at the place that its handle says or after it.
pub(super) struct Kernels {
    places: Pages<[u64; 2]>,
    used: usize,
}

impl Kernels {
    pub(super) fn new() -> Option<Kernels> {
        Some(Kernels { places: Pages::new(PLACES)?, used: 0 })
    }

    /// Counts a node; `first` is called for a function's first one. False: there are too many functions.
    pub(super) fn add(&mut self, function: u64, conditional: bool, first: impl Fn()) -> bool {
        let home = (function >> 4 ^ function >> 16) as usize;
        let (places, used) = (self.places.all(), &mut self.used);
        for probe in 0..PLACES {
            let Some(place) = places.get_mut(home.wrapping_add(probe) % PLACES) else { return false };
            let mut kernel = Kernel::from_words(*place);
            if kernel.function == 0 {
                if *used == KERNELS_MAX {
                    return false;
                }
                *used += 1;
                kernel.function = function;
                first();
            }
            if kernel.function == function {
                let nodes = if conditional { &mut kernel.conditional_nodes } else { &mut kernel.nodes };
                *nodes = nodes.saturating_add(1);
                *place = kernel.words();
                return true;
            }
        }
        false
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
        pages::bytes(self.places.seen().get(..self.used).unwrap_or(&[]).as_flattened())
    }
}
