//! Loading of code for the GPU: calls for it, and what the first launch of each kernel takes longer than its later ones.

use gputrace_collectors::schema::TableId;
use rustc_hash::FxHashSet;

use super::Pass;
use super::groups::Groups;
use super::launches::OTHER;
use super::metal;
use super::stats::Stats;
use super::steps::{Cursor, Steps};
use crate::trace::{NO_NAME, Rows, Want};

/// Kernels whose first launch is told from the later ones.
const KERNELS: usize = 20_000;

/// Which calls are counted together.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub(crate) struct Key {
    /// Process.
    pub(crate) process_id: i64,
    /// Function.
    pub(crate) api_id: i64,
    /// Whether the driver compiled or linked code in it.
    pub(crate) jit: bool,
}

/// Calls that load.
#[derive(Debug, Default)]
pub(crate) struct Loads {
    /// All.
    pub(crate) all: Stats,
    /// Before the first steady step: calls and their time. All, where there are no steps.
    pub(crate) before: (u64, i64),
    /// In steady steps.
    pub(crate) steady: (u64, i64),
}

/// Launches of one kernel by one process.
#[derive(Debug, Default)]
pub(crate) struct Kernel {
    /// Its name.
    pub(crate) name_id: i64,
    /// When the first launch began.
    pub(crate) first_start_ns: i64,
    /// What it took.
    pub(crate) first_ns: i64,
    /// The others.
    pub(crate) later: Stats,
    /// Whether the first one lies in a steady step.
    pub(crate) steady: bool,
}

impl Kernel {
    /// What the first launch took beyond the median of the later ones; nothing where there are none.
    pub(crate) fn beyond_ns(&self) -> i64 {
        if self.later.count == 0 { 0 } else { (self.first_ns - self.later.median()).max(0) }
    }
}

/// The pass.
#[derive(Debug)]
pub(crate) struct Modules {
    /// Calls that load modules, libraries, kernels and functions.
    pub(crate) loads: Groups<Key, Loads>,
    /// Kernels by process and handle; by process and name where the trace has no handles.
    pub(crate) kernels: Groups<(i64, i64), Kernel>,
    cursors: [Cursor; 2],
}

impl Default for Modules {
    fn default() -> Self {
        let other = Key { process_id: OTHER, api_id: OTHER, jit: false };
        let kernels = Groups::new(KERNELS, (OTHER, OTHER));
        Modules { loads: Groups::new(10_000, other), kernels, cursors: Default::default() }
    }
}

/// What tells a kernel from the others of its process. Imported traces know names only, which have other numbers than handles.
pub(super) fn kernel_of(function: i64, name_id: i64) -> i64 {
    if function != 0 { function } else { name_id }
}

impl Modules {
    /// Kernels whose first launch is known, by process.
    pub(crate) fn kernels(&self) -> impl Iterator<Item = (i64, &Kernel)> {
        self.kernels.iter().filter(|((process, _), _)| *process != OTHER).map(|((process, _), k)| (*process, k))
    }

    fn launches(&mut self, rows: &Rows, steps: &Steps) {
        let (process, start, length) = (rows.i64("process_id"), rows.i64("start_ns"), rows.i64("api_ns"));
        let (function, name) = (rows.i64("function"), rows.i64_or("name_id", NO_NAME));
        let (captured, grid) = (rows.flags("captured"), rows.i32_or("grid_x", 0));
        let (api, commits) = (rows.i64("api_id"), metal::commits());
        let is_kernel = |row: &usize| grid[*row] > 0 && !captured.get(*row) && !commits.contains(&api[*row]);
        for row in (0..rows.len).filter(is_kernel) {
            let (at, ns) = (start[row], length[row].max(0));
            let kernel = self.kernels.at((process[row], kernel_of(function[row], name[row])));
            if kernel.first_start_ns == 0 {
                kernel.name_id = name[row];
            } else if at < kernel.first_start_ns {
                // Another thread's earlier launch, whose rows come later.
                kernel.later.add(kernel.first_ns);
            } else {
                kernel.later.add(ns);
                continue;
            }
            (kernel.first_start_ns, kernel.first_ns) = (at, ns);
            kernel.steady = steps.place(&mut self.cursors[0], process[row], at).is_steady();
        }
    }
}

impl Pass for Modules {
    fn wants(&self) -> &'static [Want] {
        const LAUNCHES: &[&str] = &["api_ns", "api_id", "name_id", "function", "captured", "grid_x"];
        &[
            Want { table: TableId::Api, columns: &["api_ns", "api_id", "class", "jit"] },
            Want { table: TableId::Launches, columns: LAUNCHES },
        ]
    }

    fn rows(&mut self, rows: &Rows, steps: &Steps) {
        if rows.table == TableId::Launches {
            return self.launches(rows, steps);
        }
        let (process, start, length) = (rows.i64("process_id"), rows.i64("start_ns"), rows.i64("api_ns"));
        let (api, class, jit) = (rows.i64("api_id"), rows.texts("class"), rows.flags("jit"));
        for row in (0..rows.len).filter(|row| class.get(*row) == "module") {
            let (process_id, ns) = (process[row], length[row].max(0));
            let loads = self.loads.at(Key { process_id, api_id: api[row], jit: jit.get(row) });
            loads.all.add(ns);
            let steady_from = steps.of(process_id).map_or(i64::MAX, |steps| steps.steady_span().0);
            if start[row] < steady_from {
                loads.before = (loads.before.0 + 1, loads.before.1 + ns);
            }
            if steps.place(&mut self.cursors[1], process_id, start[row]).is_steady() {
                loads.steady = (loads.steady.0 + 1, loads.steady.1 + ns);
            }
        }
    }

    fn names(&self, ids: &mut FxHashSet<i64>) {
        ids.extend(self.loads.iter().map(|(key, _)| key.api_id));
        ids.extend(self.kernels().map(|(_, kernel)| kernel.name_id));
    }
}
