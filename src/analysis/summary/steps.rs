//! The summary's step line: how long steps take, which are far longer, and what was left out; or why there are none.

use super::super::{Facts, ProcessSteps, STEP_CURE, loss, outliers};
use crate::findings::Subject;
use crate::render::{number, ordinal};

/// What the numbers below are of; `shown`: a time in this unit.
pub(super) fn lines(facts: &Facts<'_>, main: &Subject<'_>, unit: &str, shown: &dyn Fn(f64) -> String) -> String {
    let (ranges, cut) = (facts.filter.projects(), facts.steps.cut(main.process_id));
    let Some(steps) = main.steps else {
        let of = shown(main.unit_ns);
        let mut out = match () {
            () if ranges && facts.steps.of(main.process_id).is_some() => {
                format!("the ranges lie in no usual step: times are of all of them, {of} {unit}\n")
            }
            () if cut > 0 => {
                format!("no whole step lies in that span: times are of the span, {of} {unit} of driver calls\n")
            }
            () if main.without_steps().is_some() => {
                format!("steps not known: times are of the run, {of} {unit} of driver calls\n")
            }
            () => format!("no steps detected: times are of the run, {of} {unit} of driver calls\n"),
        };
        if let Some(why) = main.without_steps() {
            out.push_str(&format!("  {why}\n  {STEP_CURE}\n"));
        }
        return out;
    };
    let mut out = step_line(facts, steps, unit, shown) + "\n";
    if ranges {
        let inside = match main.unit_ns > main.host_ns {
            true => format!("{} of the host, {} with what it launched there", shown(main.host_ns), shown(main.unit_ns)),
            false => shown(main.unit_ns),
        };
        out.push_str(&format!("  of it inside the range {inside}: all below is of that\n"));
    }
    out
}

/// The step line.
fn step_line(facts: &Facts<'_>, steps: &ProcessSteps, unit: &str, shown: &dyn Fn(f64) -> String) -> String {
    let is_gap = |(start, ns): &(i64, i64)| loss::is_gap(facts.trace, steps.process_id, (*start, start + ns));
    let left_out = [
        (steps.warm_up, "warm-up"),
        (facts.steps.cut(steps.process_id), "cut by the span's ends"),
        (steps.each().filter(is_gap).count(), "around a kill of gputrace"),
    ];
    let left_out = left_out.iter().filter(|(count, _)| *count > 0).map(|(count, what)| format!("{count} {what}"));
    let left_out = match left_out.collect::<Vec<_>>().join(", ") {
        none if none.is_empty() => none,
        some => format!(" ({some} left out)"),
    };
    let (p50, p99) = (steps.quantile_ns(0.5) as f64, steps.quantile_ns(0.99) as f64);
    let outliers = match steps.outliers() {
        0 => String::new(),
        n => {
            let causes = outliers::causes(facts, steps.process_id);
            let are_even = |every: usize| n * every * 5 >= steps.sorted_ns.len() * 4;
            let every = steps.rhythm.map(|rhythm| rhythm.every).filter(|every| are_even(*every));
            let every = every.map(|every| format!(", every {}", ordinal(every))).unwrap_or_default();
            format!("; outliers {}{every}{}{causes}", number(n as f64), if causes.is_empty() { "" } else { ": " })
        }
    };
    // Some steps may be long and most short: the usual one says little then.
    let mean = match steps.mean_ns() {
        mean if mean > 1.5 * p50 => format!("; mean {}", shown(mean)),
        _ => String::new(),
    };
    let (of, ahead) = match steps.is_ahead() {
        true => (
            " of the GPU",
            format!("\n  the host runs ahead: its own p50 is {}; below: means", shown(steps.host_p50_ns() as f64)),
        ),
        false => ("", String::new()),
    };
    format!("step{of}{left_out}  p50 {} {unit}  p99 {}{mean}{outliers}{ahead}", shown(p50), shown(p99))
}
