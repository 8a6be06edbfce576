//! Launches of graphs one after another: how long from one to the next, of each graph and of each thread.

use gputrace_collectors::schema::TableId;

use super::Pass;
use super::groups::Groups;
use super::launches::OTHER;
use super::stats::Stats;
use super::steps::{Cursor, Steps};
use crate::trace::{Rows, Want};

/// A launch of a graph that was not seen being made; not [`OTHER`], which stands for too many.
pub(crate) const UNKNOWN: i64 = -1;

/// Launches of one graph, or of all graphs of a thread.
#[derive(Debug, Default)]
pub(crate) struct Replays {
    /// Launches.
    pub(crate) launches: u64,
    /// From the begin of one launch to the begin of the next.
    pub(crate) interval: Stats,
    /// From the end of one launch call to the begin of the next.
    pub(crate) between: Stats,
    /// Launches in steady steps.
    pub(crate) steady: u64,
    last: Option<(i64, i64)>,
}

impl Replays {
    fn add(&mut self, start: i64, end: i64, steady: bool) {
        self.launches += 1;
        self.steady += u64::from(steady);
        // Another thread's rows may come after later ones of the first: no interval is told from them.
        match self.last {
            Some((last, ended)) if start >= last => {
                self.interval.add(start - last);
                self.between.add(start - ended);
            }
            Some(_) => return,
            None => {}
        }
        self.last = Some((start, end));
    }
}

/// The pass.
#[derive(Debug)]
pub(crate) struct GraphReplays {
    /// By process and graph.
    pub(crate) graphs: Groups<(i64, i64), Replays>,
    /// By process and thread, whatever the graph.
    pub(crate) threads: Groups<(i64, i32), Replays>,
    cursor: Cursor,
}

impl Default for GraphReplays {
    fn default() -> Self {
        let (graphs, threads) = (Groups::new(10_000, (OTHER, OTHER)), Groups::new(10_000, (OTHER, -1)));
        GraphReplays { graphs, threads, cursor: Cursor::default() }
    }
}

impl Pass for GraphReplays {
    fn wants(&self) -> &'static [Want] {
        const COLUMNS: &[&str] = &["tid", "api_ns", "graph_exec_id", "kernels", "captured"];
        &[Want { table: TableId::Launches, columns: COLUMNS }]
    }

    fn rows(&mut self, rows: &Rows, steps: &Steps) {
        let (process, tid, start) = (rows.i64("process_id"), rows.i32_or("tid", 0), rows.i64("start_ns"));
        let (length, graph) = (rows.i64("api_ns"), rows.i64_or("graph_exec_id", UNKNOWN));
        let (kernels, captured) = (rows.i32_or("kernels", -1), rows.flags("captured"));
        for row in 0..rows.len {
            // Without a number it is a graph only where its kernels are not known either.
            if (graph[row] == UNKNOWN && kernels[row] >= 0) || captured.get(row) {
                continue;
            }
            let (start, end) = (start[row], start[row] + length[row].max(0));
            let steady = steps.place(&mut self.cursor, process[row], start).is_steady();
            self.graphs.at((process[row], graph[row])).add(start, end, steady);
            self.threads.at((process[row], tid[row])).add(start, end, steady);
        }
    }
}
