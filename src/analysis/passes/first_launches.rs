//! First launches of kernels that took long: where loading is lazy, they load the kernel's module.
//!
//! Long is much longer than the function's launches usually take, which is known at the end; until then the long ones are
//! held, one a kernel at most. Graphs and host functions are launched too, and load nothing then.

use super::groups::Groups;
use super::launches::OTHER;
use super::metal;
use super::modules::kernel_of;
use super::stats::Stats;
use crate::trace::{NO_NAME, Rows};

/// A first launch that is shorter loaded nothing.
const LEAST_NS: i64 = 50_000;
/// Nor one that takes less than so many times the usual.
const TIMES: i64 = 10;
/// Kernels whose first launch is known.
const KERNELS: usize = 1 << 20;

/// First launches; of each long one `T` is kept.
#[derive(Debug)]
pub(super) struct FirstLaunches<T> {
    /// Whether a kernel was launched before, by process and what tells it apart.
    launched: Groups<(i64, i64), bool>,
    /// Launches of kernels by process and function of the driver.
    usual: Groups<(i64, i64), Stats>,
    long: Vec<Load<T>>,
}

/// A launch that loaded its kernel's module.
#[derive(Clone, Copy, Debug)]
pub(super) struct Load<T> {
    pub(super) process_id: i64,
    /// Function of the driver.
    pub(super) api_id: i64,
    /// What it took, of [`FirstLaunches::loads`] beyond a usual launch.
    pub(super) ns: i64,
    pub(super) with: T,
}

impl<T> Default for FirstLaunches<T> {
    fn default() -> Self {
        let mut launched = Groups::new(KERNELS, (OTHER, OTHER));
        // Of further kernels it is not known which launch is the first.
        *launched.at((OTHER, OTHER)) = true;
        FirstLaunches { launched, usual: Groups::new(10_000, (OTHER, OTHER)), long: Vec::new() }
    }
}

impl<T> FirstLaunches<T> {
    /// Takes rows of `launches` in, with the columns that stand here; `with` tells what is kept of one.
    pub(super) fn rows(&mut self, rows: &Rows, mut with: impl FnMut(usize) -> T) {
        let (process, api, length) = (rows.i64("process_id"), rows.i64("api_id"), rows.i64("api_ns"));
        let (function, name) = (rows.i64("function"), rows.i64_or("name_id", NO_NAME));
        let (captured, grid) = (rows.flags("captured"), rows.i32_or("grid_x", 0));
        let commits = metal::commits();
        let is_kernel = |row: &usize| grid[*row] > 0 && !captured.get(*row) && !commits.contains(&api[*row]);
        for row in (0..rows.len).filter(is_kernel) {
            let (process_id, api_id, ns) = (process[row], api[row], length[row]);
            self.usual.at((process_id, api_id)).add(ns);
            let launched = self.launched.at((process_id, kernel_of(function[row], name[row])));
            if !std::mem::replace(launched, true) && ns > LEAST_NS {
                self.long.push(Load { process_id, api_id, ns, with: with(row) });
            }
        }
    }

    /// After the last row: those that loaded something.
    pub(super) fn loads(&mut self) -> impl Iterator<Item = Load<T>> {
        let (usual, long) = (&mut self.usual, std::mem::take(&mut self.long));
        long.into_iter().filter_map(|load| {
            let median = usual.at((load.process_id, load.api_id)).median();
            (load.ns > median.saturating_mul(TIMES)).then(|| Load { ns: load.ns - median, ..load })
        })
    }
}
