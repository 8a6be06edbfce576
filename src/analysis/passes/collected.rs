//! Whether rare long steps at even distances wait for the work of the others, and so belong to them.
//!
//! A host that runs ahead of the GPU gives it the work of many steps and waits once for all: the step in which it does takes as
//! long as the GPU needs for all of them. No step alone tells how long one takes, their mean does. It shows in what steps wait: the
//! short ones next to nothing, the long ones for most of what they take more. It takes a read of what steps do, made only where
//! there are such steps, on the host's clock.

use std::sync::Arc;

use super::Pass;
use super::step_sums::{Cause, StepSums};
use super::steps::{ProcessSteps, Steps};
use super::waiting::Idle;
use crate::trace::{Filter, Trace};

/// Short steps that wait for less than this share of the median wait for nothing.
const SHORT: f64 = 0.1;
/// Long ones wait for so much of what they take beyond it.
const LONG: f64 = 0.5;

/// The steps, of which those that collect the work of others are usual ones too.
pub(crate) fn collected(trace: &Trace, filter: &Filter, mut steps: Steps, idle: &Arc<Idle>) -> Steps {
    let doubted = |steps: &ProcessSteps| !steps.is_ahead() && steps.rhythm.is_some_and(|rhythm| !rhythm.usual);
    if !steps.all.iter().any(doubted) {
        return steps;
    }
    let mut sums = StepSums::new(&steps, idle.clone());
    trace.scan(sums.wants(), filter, &mut |rows| sums.rows(rows, &steps));
    sums.end(&steps);
    let collect = |slot: usize, steps: &ProcessSteps| {
        let median = steps.quantile_ns(0.5);
        let wait_ns = |ns: &[i64; 7]| ns[Cause::Wait as usize] as f64;
        let is_long =
            |index: usize| sums.outliers.binary_search_by_key(&(slot, index), |of| (of.slot, of.index)).is_ok();
        let short: Vec<f64> =
            sums.tallies(slot).filter(|(index, _)| !is_long(*index)).map(|(_, tally)| wait_ns(&tally.ns)).collect();
        let short_ns = short.iter().sum::<f64>() / short.len().max(1) as f64;
        let long = sums.outliers.iter().filter(|of| of.slot == slot);
        let (beyond, waited) = long.fold((0.0, 0.0), |(beyond, waited), of| {
            (beyond + (of.ns - median) as f64, waited + (wait_ns(&of.tally.ns) - short_ns).max(0.0))
        });
        short_ns <= SHORT * median as f64 && waited >= LONG * beyond
    };
    let found: Vec<bool> =
        steps.all.iter().enumerate().map(|(slot, steps)| doubted(steps) && collect(slot, steps)).collect();
    steps.all.iter_mut().zip(found).filter(|(_, found)| *found).for_each(|(steps, _)| steps.follow_rhythm());
    steps
}

#[cfg(test)]
mod tests {
    use crate::analysis::Facts;
    use crate::trace::Filter;
    use crate::trace::testing::{START, TestTrace, Thread};

    /// Two hundred steps of 30 us, of which every twentieth does more; whether these are usual, and the mean of usual steps.
    fn of(waits_ns: i64, more: impl Fn(&mut Thread<'_>)) -> (bool, f64) {
        let mut trace = TestTrace::new();
        trace.process(1, 100, None, START + 1_000_000_000);
        let mut thread = trace.thread(1, 11);
        for step in 0..200 {
            let began = thread.range_begin();
            thread.launch("k", 5_000);
            thread.sync("cuStreamSynchronize", "stream", waits_ns);
            thread.host(25_000 - waits_ns);
            if step % 20 == 19 {
                more(&mut thread);
            }
            thread.range_end(None, "step", began, true);
        }
        let (trace, filter) = (trace.open(), Filter::default());
        let facts = Facts::gather(&trace, &filter, &[]);
        let steps = facts.steps.of(1).expect("steps");
        (steps.rhythm.expect("a rhythm").usual, steps.middle_ns)
    }

    #[test]
    fn steps_in_which_the_host_waits_for_the_work_of_the_others_are_usual_ones() {
        assert_eq!(of(100, |thread| thread.sync("cuStreamSynchronize", "stream", 6_000_000)), (true, 330_000.0));
        // An evaluation that is waited for, where each step is waited for; a checkpoint.
        assert_eq!(of(20_000, |thread| thread.sync("cuStreamSynchronize", "stream", 6_000_000)), (false, 30_000.0));
        assert_eq!(of(100, |thread| thread.host(6_000_000)), (false, 30_000.0));
    }
}
