//! Whether the steps that were found hold most of what their process launches.
//!
//! The loop is found in one thread ([`super::period`]), and others may launch as well: where autograd's thread does the
//! backward pass, the main thread's collectives, one after another, recur by themselves. All launches of the process are
//! counted by step in one more read, of few columns, and only where such steps are marked by a launch and several
//! threads call the driver. Steps that are not steps of the process's work are dropped.

use gputrace_collectors::schema::TableId;

use super::period::Name;
use super::steps::{Cursor, Steps};
use crate::trace::{Rows, Want};

/// Share of the launches between the first and the last mark that must lie in steps of usual size.
const MOST: f64 = 0.5;
/// A step with more launches than so many times the median is of unusual size.
const USUAL: u32 = 2;

/// The read.
#[derive(Debug)]
pub(crate) struct Covered {
    steps: Steps,
    /// By slot of [`Steps::all`]: launches in each step; empty where nothing is in doubt.
    launches: Vec<Vec<u32>>,
    cursor: Cursor,
}

impl Covered {
    /// What it reads.
    pub(crate) const WANT: Want = Want { table: TableId::Launches, columns: &["captured"] };

    /// Doubts these steps.
    pub(crate) fn new(steps: Steps) -> Covered {
        let launches = steps.all.iter().map(|of| {
            let doubted = matches!(of.anchor, Name::Launch(_)) && steps.several_callers(of.process_id);
            vec![0; if doubted { of.each().len() } else { 0 }]
        });
        Covered { launches: launches.collect(), steps, cursor: Cursor::default() }
    }

    /// Whether any steps are in doubt.
    pub(crate) fn is_needed(&self) -> bool {
        self.launches.iter().any(|steps| !steps.is_empty())
    }

    /// Takes rows in.
    pub(crate) fn rows(&mut self, rows: &Rows) {
        let (process, start, captured) = (rows.i64("process_id"), rows.i64("start_ns"), rows.flags("captured"));
        for row in (0..rows.len).filter(|row| !captured.get(*row)) {
            let Some((slot, step)) = self.steps.index(&mut self.cursor, process[row], start[row]) else { continue };
            if let Some(count) = self.launches[slot].get_mut(step) {
                *count += 1;
            }
        }
    }

    /// The steps that hold most of their process's launches.
    pub(crate) fn steps(self) -> Steps {
        let processes = self.steps.all.iter().map(|steps| steps.process_id);
        let doubted = processes.zip(self.launches).filter(|(_, launches)| !launches.is_empty());
        let dropped = doubted.filter(|(_, launches)| !hold_most(launches)).map(|(process_id, _)| process_id).collect();
        self.steps.without(dropped)
    }
}

fn hold_most(launches: &[u32]) -> bool {
    let mut sorted = launches.to_vec();
    sorted.sort_unstable();
    let limit = sorted.get(sorted.len() / 2).map_or(0, |median| median.saturating_mul(USUAL));
    let sum = |most: u32| sorted.iter().filter(|count| **count <= most).map(|count| u64::from(*count)).sum::<u64>();
    sum(limit) as f64 >= MOST * sum(u32::MAX) as f64
}

#[cfg(test)]
mod tests {
    use crate::analysis::Facts;
    use crate::trace::Filter;
    use crate::trace::testing::{START, TestTrace};

    /// Steps of forward and backward in two threads, then a collective for each of `buckets`.
    fn steps(count: usize, buckets: usize) -> Option<u64> {
        let mut trace = TestTrace::new();
        trace.process(1, 100, None, START + 1_000_000_000);
        let mut now = START;
        for _ in 0..count {
            for (tid, kernels) in [(11, 3), (12, 22)] {
                let mut thread = trace.thread(1, tid);
                thread.now = now;
                (0..kernels).for_each(|kernel| thread.launch(&format!("{tid} {kernel}"), 2_000));
                now = thread.now;
            }
            let mut thread = trace.thread(1, 11);
            thread.now = now;
            for _ in 0..buckets {
                thread.launch("ncclDevKernel_AllReduce", 2_000);
                thread.host(30_000);
            }
            now = thread.now;
        }
        trace.in_time();
        let (trace, filter) = (trace.open(), Filter::default());
        let facts = Facts::gather(&trace, &filter, &[]);
        facts.steps.of(1).map(|steps| steps.count)
    }

    #[test]
    fn a_collective_that_recurs_between_the_work_of_another_thread_marks_no_steps() {
        assert_eq!(steps(2, 12), None, "two steps are not found, and twenty-four collectives are none");
        assert_eq!(steps(20, 1), Some(20));
        assert_eq!(steps(20, 6), Some(20));
    }
}
