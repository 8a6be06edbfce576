//! The verdict: one word for the run, and one sentence that says what was measured.
//!
//! The worst finding decides where it is worth a tenth of the step or run ([`BOUND`]): verdict and findings are of the same numbers.
//! Where none is, the GPU's times say what limits the run if the trace has them ([`super::verdict_gpu`]). Host times alone show
//! that the GPU limits it where the host mostly waits, and that the host does where it is mostly outside the driver. Where they do
//! not show it the verdict is UNKNOWN, and says why.

use super::{Finding, Findings, IMBALANCE, Subject, WORTH, verdict_gpu};
use crate::analysis::{Part, long_steps, outlier_causes};
use crate::render::{counted, number, ordinal, share, time};

/// What is worth a smaller part of the unit bounds nothing.
pub(super) const BOUND: f64 = 0.1;
/// A wait in a step of which it is the larger part is the GPU's work, as far as the host's times tell.
const MOSTLY: f64 = 0.5;
/// Fewer waits in a step may be what the step is about.
const FEW_WAITS: f64 = 3.0;

/// Words that decide about a finding's place.
pub(super) const IDLE_GPU: &str = "IDLE GPU";
pub(super) const GPU_ERRORS: &str = "GPU ERRORS";
pub(super) const LOADING: &str = "LOADING";

/// The verdict.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct Verdict {
    /// `LAUNCH BOUND`, `HEALTHY` ...
    pub(crate) word: &'static str,
    /// What was measured.
    pub(crate) text: String,
}

/// The verdict on a process.
pub(crate) fn verdict(subject: &Subject<'_>, findings: &Findings) -> Verdict {
    if let Some(verdict) = findings.found.first().and_then(|first| of_finding(subject, first)) {
        return verdict;
    }
    if let Some(gpu) = &subject.on_gpu {
        return verdict_gpu::verdict(subject, gpu, findings);
    }
    let row = ROWS.iter().find(|row| (row.fits)(subject, findings));
    row.map_or(Verdict { word: "UNKNOWN", text: String::new() }, |row| Verdict {
        word: row.word,
        text: (row.text)(subject),
    })
}

/// The verdict that the worst finding is, where it is worth so much.
fn of_finding(s: &Subject<'_>, first: &Finding) -> Option<Verdict> {
    let word = first.rule.verdict.filter(|_| first.share >= BOUND || !first.rule.gain_known)?;
    let waits_for_gpu = s.on_gpu.is_none() && s.waits() < FEW_WAITS && s.share(Part::Wait) >= MOSTLY;
    if first.rule.name == "wait-every-step" && waits_for_gpu {
        return None;
    }
    let own = first.process_id == s.process_id || first.rule.name == IMBALANCE;
    let measured = own.then(|| match &s.on_gpu {
        Some(gpu) => verdict_gpu::measured(s, gpu, first),
        None => measured(s, first),
    });
    let text = measured.flatten().unwrap_or_else(|| {
        if let Some(line) = first.lines.first().filter(|_| !first.rule.gain_known) {
            return line.clone();
        }
        let (unit, label) = (if first.per_step { "step" } else { "run" }, s.facts.label(first.process_id));
        let whose = if own { String::new() } else { format!(" of {label}") };
        format!("{}: up to {} of a {unit}{whose}", first.title(), share(first.share))
    });
    Some(Verdict { word, text })
}

/// What was measured on the host that the finding is about.
fn measured(s: &Subject<'_>, first: &Finding) -> Option<String> {
    let (unit, waits) = (s.unit(), share(s.share(Part::Wait)));
    Some(match first.rule.name {
        "pageable-copies" | "sync-copies" | "small-transfers" => {
            format!("the host spends {} of a {unit} in copies", share(s.share(Part::Copy)))
        }
        "allocation-in-loop" => {
            format!("the host spends {} of a {unit} allocating and freeing memory", share(s.share(Part::Memory)))
        }
        "wait-every-step" => format!("the host waits {} a {unit}, {waits} of it", counted(s.waits(), "time", "times")),
        "launch-bound" => {
            let (launches, taken) = (number(s.calls(Part::Launch)), share(s.share(Part::Launch)));
            format!("{launches} launch calls take {taken} of a {unit}; the host waits {waits}")
        }
        IMBALANCE => {
            format!("the other ranks wait for {} {} of a {unit}", s.facts.label(first.process_id), share(first.share))
        }
        "system-waits" => {
            let system = share(s.system_ns.unwrap_or(0.0) / s.unit_ns.max(1.0));
            format!("the host waits for data, locks or threads {system} of a {unit}, and for the GPU {waits}")
        }
        "outlier-steps" => long_text(s),
        _ => return None,
    })
}

/// A row: the word, when it fits, and what was measured.
struct Row {
    word: &'static str,
    fits: fn(&Subject<'_>, &Findings) -> bool,
    text: fn(&Subject<'_>) -> String,
}

/// Without a finding that is worth it the first row that fits is the verdict.
const ROWS: &[Row] = &[
    Row {
        word: "GPU BOUND",
        fits: |s, f| {
            f.found.is_empty()
                && s.calls(Part::Launch) >= 1.0
                && mean_launch_ns(s) > 50_000.0
                && s.share(Part::Launch) >= 0.5
        },
        text: |s| {
            let (each, taken) = (time(mean_launch_ns(s)), share(s.share(Part::Launch)));
            format!("launch calls take {each} each, {taken} of a {}, as they do when the queue is full", s.unit())
        },
    },
    Row {
        word: "HEALTHY",
        fits: |s, f| f.found.is_empty() && s.share(Part::Wait) >= MOSTLY,
        text: |s| {
            let waits = share(s.share(Part::Wait));
            format!("no finding above {}; the host waits for the GPU {waits} of a {}", share(WORTH), s.unit())
        },
    },
    Row {
        word: "HOST BOUND",
        fits: |s, _| s.per_step && s.waits() >= 0.9 && s.share(Part::Wait) < 0.25 && outside(s) >= MOSTLY,
        text: |s| {
            let waits = share(s.share(Part::Wait));
            format!("the host is outside the driver {} of a step and waits for the GPU {waits}", share(outside(s)))
        },
    },
    Row {
        word: "GPU BOUND",
        fits: |s, _| s.per_step && s.share(Part::Wait) >= MOSTLY,
        text: |s| format!("the host waits for the GPU {} of a step", share(s.share(Part::Wait))),
    },
    Row {
        word: "HEALTHY",
        fits: |s, f| f.found.is_empty() && s.per_step,
        text: |_| format!("no finding above {} of a step in the host's times", share(WORTH)),
    },
    Row {
        word: "UNKNOWN",
        fits: |_, f| !f.found.is_empty(),
        text: |s| format!("nothing that the host does takes most of a {}; {}", s.unit(), gpu(s)),
    },
    Row {
        word: "UNKNOWN",
        fits: |_, _| true,
        text: |s| {
            let steps = match s.without_steps() {
                Some(why) => format!("steps are not known ({why})"),
                None => "no steps detected".to_owned(),
            };
            format!("{steps}, and {}; no finding in the host's times", gpu(s))
        },
    },
];

/// What is known of the GPU where no times of it are in the trace.
fn gpu(s: &Subject<'_>) -> String {
    match &s.busy {
        Some(busy) => format!("the GPU is busy about {} of a {}", share(busy.ns / s.unit_ns.max(1.0)), s.unit()),
        None => "GPU times are not recorded".to_owned(),
    }
}

/// `4 of 104 steps take 52 % of the time: 4 copies train.py:212`
pub(super) fn long_text(s: &Subject<'_>) -> String {
    let long = long_steps(s.facts, s.process_id).unwrap_or_default();
    let of = share(long.ns as f64 / long.all_ns.max(1) as f64);
    let causes = outlier_causes(s.facts, s.process_id);
    let (take, steps) = (if long.count == 1 { "takes" } else { "take" }, number(long.steps as f64));
    let every = long.every.map(|every| format!(", every {},", ordinal(every))).unwrap_or_default();
    format!("{} of {steps} steps{every} {take} {of} of their time: {causes}", long.count)
}

fn mean_launch_ns(s: &Subject<'_>) -> f64 {
    s.ns(Part::Launch) / s.calls(Part::Launch).max(1.0)
}

fn outside(s: &Subject<'_>) -> f64 {
    s.outside_ns() / s.unit_ns.max(1.0)
}
