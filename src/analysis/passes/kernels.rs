//! Kernels that launches give the GPU: one each, or as many as a graph holds.

use super::groups::Groups;
use super::launches::OTHER;
use super::stats::Stats;
use crate::trace::Rows;

/// Kernels of one process's launches.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Kernels {
    /// All that are known.
    pub(crate) all: u64,
    /// Those launched in steady steps of usual duration.
    pub(crate) middle: u64,
    /// Launches of graphs.
    pub(crate) graphs: u64,
    /// Those of them whose kernels are not known: they were instantiated before recording, or not read in full.
    pub(crate) unknown: u64,
}

/// Launches of one instantiated graph.
#[derive(Debug, Default)]
pub(crate) struct Replays {
    /// The calls.
    pub(crate) calls: Stats,
    /// Kernels that they gave the GPU.
    pub(crate) kernels: u64,
}

/// Launches of graphs, by process and instantiation.
#[derive(Debug)]
pub(crate) struct Graphs(pub(crate) Groups<(i64, i64), Replays>);

impl Default for Graphs {
    fn default() -> Graphs {
        Graphs(Groups::new(20_000, (OTHER, OTHER)))
    }
}

/// The columns of some launches that say so.
pub(crate) struct Columns<'a> {
    kernels: std::borrow::Cow<'a, [i32]>,
    graph: std::borrow::Cow<'a, [i64]>,
}

/// Their names.
pub(crate) const COLUMNS: [&str; 2] = ["kernels", "graph_exec_id"];
const UNKNOWN: i32 = -1;
pub(super) const NO_GRAPH: i64 = -1;

impl Columns<'_> {
    pub(crate) fn of(rows: &Rows) -> Columns<'_> {
        Columns { kernels: rows.i32_or(COLUMNS[0], UNKNOWN), graph: rows.i64_or(COLUMNS[1], NO_GRAPH) }
    }

    /// Adds a row, which stands for `times` launches, lies in a step of usual duration or not, and whose call took `ns`.
    #[inline]
    #[expect(clippy::too_many_arguments, reason = "the row's own columns, which the pass has at hand")]
    pub(crate) fn add(
        &self,
        row: usize,
        times: u64,
        process: i64,
        middle: bool,
        ns: i64,
        to: &mut Kernels,
        graphs: &mut Graphs,
    ) {
        let (kernels, graph) = (self.kernels[row], self.graph[row]);
        let known = kernels.max(0) as u64 * times;
        to.all = to.all.saturating_add(known);
        to.middle = to.middle.saturating_add(if middle { known } else { 0 });
        if kernels == UNKNOWN || graph != NO_GRAPH {
            to.graphs += 1;
            to.unknown += u64::from(kernels == UNKNOWN);
            let replays = graphs.0.at((process, graph));
            replays.calls.add(ns);
            replays.kernels += known;
        }
    }
}
