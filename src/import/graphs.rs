//! Which graph each launch of a graph launched, by what the GPU did for it.
//!
//! Formats number the graph in each of its operations, or only the graph's nodes, which no other graph has. Where they do
//! neither, launches of one process that do as many operations and begin with the same one are taken for launches of one graph.

use rustc_hash::FxHashMap;

use super::calls::Kind;
use super::events::{Lane, NOWHERE};
use super::gathered::Gathered;

/// What tells a graph from others, the best first.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
enum Mark {
    /// Its own number.
    Graph(i64),
    /// The first of its nodes.
    Node(i64),
    /// How many operations, and which one came first.
    Alike(u32, u32),
}

impl Mark {
    fn of(lane: Lane, what: u32) -> Mark {
        lane.graph.map(Mark::Graph).or(lane.graph_node.map(Mark::Node)).unwrap_or(Mark::Alike(1, what))
    }

    fn and(self, other: Mark) -> Mark {
        match (self, other) {
            // Kernels come before copies, and each in the order of time.
            (Mark::Alike(first, what), Mark::Alike(more, _)) => Mark::Alike(first + more, what),
            (one, other) => one.min(other),
        }
    }
}

/// The place of each call that launched a graph, and the graph's number, from 1 in each process in the order of their first
/// launches. `causes`: the call of each kernel, then of each copy.
pub(super) fn launched(found: &Gathered, causes: &[u32]) -> Vec<(u32, i32)> {
    let caller = |at: u32| found.callers.get(found.calls[at as usize].caller);
    let lanes = found.kernels.iter().map(|work| (found.kernel_kinds.get(work.what).lane, work.what));
    let lanes = lanes.chain(found.copies.iter().map(|work| (found.copy_kinds.get(work.what).lane, work.what)));
    let mut marks: FxHashMap<u32, Mark> = FxHashMap::default();
    let causes = causes.iter().copied();
    for (at, (lane, what)) in causes.zip(lanes).filter(|(at, _)| *at != NOWHERE && caller(*at).kind == Kind::Graph) {
        let mark = Mark::of(lane, what);
        marks.entry(at).and_modify(|known| *known = known.and(mark)).or_insert(mark);
    }
    let mut launches: Vec<(u32, Mark)> = marks.into_iter().collect();
    launches.sort_unstable();
    let mut numbers: FxHashMap<(usize, Mark), i32> = FxHashMap::default();
    let mut graphs: FxHashMap<usize, i32> = FxHashMap::default();
    let number = |(at, mark): (u32, Mark)| {
        let process = caller(at).process;
        let number = numbers.entry((process, mark)).or_insert_with(|| {
            let graphs = graphs.entry(process).or_default();
            *graphs += 1;
            *graphs
        });
        (at, *number)
    };
    launches.into_iter().map(number).collect()
}
