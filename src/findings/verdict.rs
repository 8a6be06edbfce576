//! The verdict: one word for the run, and one sentence that says what was measured.
//!
//! Where the trace has GPU times they decide ([`super::verdict_gpu`]). Host times alone show what limits the run where the host limits it (launches,
//! copies, allocation, waits), and that the GPU limits it where the host mostly waits. Where they do not show it the
//! verdict is UNKNOWN, and says why.

use super::{Findings, IMBALANCE, LONG_STEPS, Subject, WORTH, verdict_gpu};
use crate::analysis::{Part, long_steps, outlier_causes};

/// The verdict.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct Verdict {
    /// `LAUNCH BOUND`, `HEALTHY` ...
    pub(crate) word: &'static str,
    /// What was measured.
    pub(crate) text: String,
}

/// A row: the word, when it fits, and what was measured.
struct Row {
    word: &'static str,
    fits: fn(&Subject<'_>, &Findings) -> bool,
    text: fn(&Subject<'_>) -> String,
}

/// The first row that fits is the verdict.
const ROWS: &[Row] = &[
    Row {
        word: "TRANSFER BOUND",
        fits: |s, f| f.share_of(s, &["pageable-copies", "sync-copies", "small-transfers"]) >= 0.2,
        text: |s| format!("the host spends {} of a {} in copies", percent(s.share(Part::Copy)), s.unit()),
    },
    Row {
        word: "ALLOCATION BOUND",
        fits: |s, f| f.share_of(s, &["allocation-in-loop"]) >= 0.2,
        text: |s| {
            format!(
                "the host spends {} of a {} allocating and freeing memory",
                percent(s.share(Part::Memory)),
                s.unit()
            )
        },
    },
    Row {
        word: "SYNC BOUND",
        fits: |s, f| s.waits() >= 3.0 && f.share_of(s, &["wait-every-step"]) >= 0.2,
        text: |s| {
            let (calls, share) = (s.waits(), percent(s.share(Part::Wait)));
            format!("the host waits {} times a {}, {share} of it", crate::render::number(calls), s.unit())
        },
    },
    Row {
        word: "LAUNCH BOUND",
        fits: |s, f| s.share(Part::Wait) < 0.1 && f.share_of(s, &["launch-bound"]) >= 0.1,
        text: |s| {
            let (launches, waits) = (crate::render::number(s.calls(Part::Launch)), percent(s.share(Part::Wait)));
            let share = percent(s.share(Part::Launch));
            format!("{launches} launch calls take {share} of a {}; the host waits {waits}", s.unit())
        },
    },
    Row {
        word: "IMBALANCE",
        fits: |s, f| f.share_of(s, &[IMBALANCE]) >= 0.1,
        text: |s| {
            let waiting = s.imbalance.as_ref().map_or(0.0, |imbalance| imbalance.gain_ns / s.unit_ns.max(1.0));
            format!("the other ranks wait for {} {} of a {}", s.facts.label(s.process_id), percent(waiting), s.unit())
        },
    },
    Row {
        word: "HOST BOUND",
        fits: |s, f| s.share(Part::Wait) < 0.5 && f.share_of(s, &["system-waits"]) >= 0.2,
        text: |s| {
            let (system, waits) = (s.system_ns.unwrap_or(0.0) / s.unit_ns.max(1.0), percent(s.share(Part::Wait)));
            format!("the host waits for data, locks or threads {} of a step, and for the GPU {waits}", percent(system))
        },
    },
    Row { word: OUTLIER_STEPS, fits: |s, _| long_share(s) >= LONG_STEPS, text: long_text },
    Row {
        word: "GPU BOUND",
        fits: |s, f| {
            f.found.is_empty()
                && s.calls(Part::Launch) >= 1.0
                && mean_launch_ns(s) > 50_000.0
                && s.share(Part::Launch) >= 0.5
        },
        text: |s| {
            let (each, share) = (crate::render::time(mean_launch_ns(s)), percent(s.share(Part::Launch)));
            format!("launch calls take {each} each, {share} of a {}, as they do when the queue is full", s.unit())
        },
    },
    Row {
        word: "HEALTHY",
        fits: |s, f| f.found.is_empty() && s.share(Part::Wait) >= 0.5,
        text: |s| {
            let waits = percent(s.share(Part::Wait));
            format!("no finding above {}; the host waits for the GPU {waits} of a {}", percent(WORTH), s.unit())
        },
    },
    Row {
        word: "HOST BOUND",
        fits: |s, _| s.per_step && s.waits() >= 0.9 && s.share(Part::Wait) < 0.25 && outside(s) >= 0.5,
        text: |s| {
            let waits = percent(s.share(Part::Wait));
            format!("the host is outside the driver {} of a step and waits for the GPU {waits}", percent(outside(s)))
        },
    },
    Row {
        word: "GPU BOUND",
        fits: |s, _| s.per_step && s.share(Part::Wait) >= 0.5,
        text: |s| format!("the host waits for the GPU {} of a step", percent(s.share(Part::Wait))),
    },
    Row {
        word: "HEALTHY",
        fits: |s, f| f.found.is_empty() && s.per_step,
        text: |_| format!("no finding above {} of a step in the host's times", percent(WORTH)),
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
            let why = s.without_steps().map_or(String::new(), |why| format!(" ({why})"));
            format!("no steps detected{why}, and {}; no finding in the host's times", gpu(s))
        },
    },
];

/// The verdict on a process.
pub(crate) fn verdict(subject: &Subject<'_>, findings: &Findings) -> Verdict {
    if let Some(gpu) = &subject.on_gpu {
        return verdict_gpu::verdict(subject, gpu, findings);
    }
    let row = ROWS.iter().find(|row| (row.fits)(subject, findings));
    row.map_or(Verdict { word: "UNKNOWN", text: String::new() }, |row| Verdict {
        word: row.word,
        text: (row.text)(subject),
    })
}

/// What is known of the GPU where no times of it are in the trace.
fn gpu(s: &Subject<'_>) -> String {
    match &s.busy {
        Some(busy) => format!("the GPU is busy about {} of a {}", percent(busy.ns / s.unit_ns.max(1.0)), s.unit()),
        None => "GPU times are not recorded".to_owned(),
    }
}

/// Where the usual step is not where the time goes.
pub(super) const OUTLIER_STEPS: &str = "OUTLIER STEPS";

/// The part of the steps' time that a few have beyond the median.
pub(super) fn long_share(s: &Subject<'_>) -> f64 {
    long_steps(s.facts, s.process_id).map_or(0.0, |long| long.share())
}

/// `4 of 104 steps take 52 % of the time: 4 copies train.py:212`
pub(super) fn long_text(s: &Subject<'_>) -> String {
    let long = long_steps(s.facts, s.process_id).unwrap_or_default();
    let of = percent(long.ns as f64 / long.all_ns.max(1) as f64);
    let causes = outlier_causes(s.facts, s.process_id);
    let (take, steps) = (if long.count == 1 { "takes" } else { "take" }, crate::render::number(long.steps as f64));
    let every = long.every.map(|every| format!(", every {},", crate::render::ordinal(every))).unwrap_or_default();
    format!("{} of {steps} steps{every} {take} {of} of their time: {causes}", long.count)
}

fn mean_launch_ns(s: &Subject<'_>) -> f64 {
    s.ns(Part::Launch) / s.calls(Part::Launch).max(1.0)
}

fn outside(s: &Subject<'_>) -> f64 {
    s.outside_ns() / s.unit_ns.max(1.0)
}

fn percent(share: f64) -> String {
    crate::render::share(share)
}
