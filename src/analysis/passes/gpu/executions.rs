//! How long kernels ran: by name, and by name and shape.

use rustc_hash::FxHashSet;

use super::order::Operation;
use crate::analysis::passes::groups::Groups;
use crate::analysis::passes::launches::OTHER;
use crate::analysis::passes::stats::Stats;
use crate::trace::Axes;

/// Grid and block.
pub(crate) type Shape = (Axes, Axes);

/// Names, and names with shapes, that are kept apart.
const KERNELS: usize = 20_000;

/// Executions of kernels.
#[derive(Debug)]
pub(crate) struct Executions {
    /// By name.
    pub(crate) kernels: Groups<i64, Stats>,
    /// By name and shape.
    pub(crate) shapes: Groups<(i64, Shape), Stats>,
}

impl Default for Executions {
    fn default() -> Executions {
        Executions { kernels: Groups::new(KERNELS, OTHER), shapes: Groups::new(KERNELS, (OTHER, Shape::default())) }
    }
}

impl Executions {
    #[inline]
    pub(super) fn add(&mut self, of: &Operation) {
        self.kernels.at(of.name_id).add(of.end - of.start);
    }

    #[inline]
    pub(super) fn add_shape(&mut self, of: &Operation, shape: Shape) {
        self.shapes.at((of.name_id, shape)).add(of.end - of.start);
    }

    pub(super) fn names(&self, ids: &mut FxHashSet<i64>) {
        ids.extend(self.kernels.iter().map(|(id, _)| *id));
    }
}
