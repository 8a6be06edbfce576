//! How long kernels ran: by name, and by name and shape.

use rustc_hash::FxHashSet;

use super::order::Operation;
use crate::analysis::passes::groups::Groups;
use crate::analysis::passes::launches::OTHER;
use crate::analysis::passes::stats::Stats;

/// Grid x, y, z and block x, y, z.
pub(crate) type Shape = [i32; 6];

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
        Executions { kernels: Groups::new(KERNELS, OTHER), shapes: Groups::new(KERNELS, (OTHER, [0; 6])) }
    }
}

impl Executions {
    #[inline]
    pub(super) fn add(&mut self, of: &Operation, shape: Shape) {
        let ns = of.end - of.start;
        self.kernels.at(of.name_id).add(ns);
        self.shapes.at((of.name_id, shape)).add(ns);
    }

    pub(super) fn names(&self, ids: &mut FxHashSet<i64>) {
        ids.extend(self.kernels.iter().map(|(id, _)| *id));
    }
}
