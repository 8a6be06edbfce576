//! Findings: what costs time, how much at most, and what to do. Rules are data, in [`rules::ALL`].
//!
//! A rule looks at one process ([`Subject`]) and either says how much time could be saved at most, with its evidence,
//! or that there is nothing. At most [`SHOWN`] findings are shown, worst first, none below [`WORTH`] of a step. No
//! finding is a good answer.
//!
//! **Invariant:** a gain is an upper bound that follows from recorded times alone. Where the trace has GPU times it is idle
//! time of the GPU that the rule is to blame for, each ns for one rule, but that the rules of copies may name the same, and no
//! more than the step would be shorter if the rule's work were not there ([`crate::analysis::CriticalSums`]); else it is time
//! of the host, and nothing here speaks of the GPU's idle time.

mod on_gpu;
mod rules;
mod subject;
#[cfg(test)]
mod tests;
mod verdict;
mod verdict_gpu;

pub(crate) use on_gpu::{OnGpu, SLOW_HOST};
pub(crate) use rules::{ALL, Rule, worst_site};
pub(crate) use subject::{Subject, subjects};
pub(crate) use verdict::{Verdict, verdict};

use crate::analysis::{Need, Without};

/// Findings that are shown.
const SHOWN: usize = 5;

/// A smaller gain, as a share of the step or run, is no finding.
pub(crate) const WORTH: f64 = 0.02;

/// What the rules read.
pub(crate) const NEEDS: &[Need] = &[
    Need::Launches,
    Need::Syncs,
    Need::Transfers,
    Need::DeviceMemory,
    Need::Loading,
    Need::Sites,
    Need::Implicit,
    Need::Gpu,
    Need::Critical,
];

/// What a rule found in one process.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct Evidence {
    /// Most time that can be saved, per step or in the run, ns.
    pub(crate) gain_ns: f64,
    /// The gain refers to the whole run even though there are steps.
    pub(crate) of_run: bool,
    /// Numbers, a line each.
    pub(crate) lines: Vec<String>,
}

/// A finding.
#[derive(Clone, Debug)]
pub(crate) struct Finding {
    /// The rule.
    pub(crate) rule: &'static Rule,
    /// The process in which it costs most.
    pub(crate) process_id: i64,
    /// Most time that can be saved, ns.
    pub(crate) gain_ns: f64,
    /// Most time that could be saved if nothing else took its place, ns.
    blamed_ns: f64,
    /// The gain as a share of the step or run.
    pub(crate) share: f64,
    /// The gain is per step, not of the run.
    pub(crate) per_step: bool,
    /// Numbers, a line each.
    pub(crate) lines: Vec<String>,
}

impl Finding {
    /// What is wrong, in a few words.
    pub(crate) fn title(&self) -> &'static str {
        if self.per_step { self.rule.title.of_step } else { self.rule.title.of_run }
    }
}

/// What was found, and what was looked at without a finding.
#[derive(Debug, Default)]
pub(crate) struct Findings {
    /// Worst first.
    pub(crate) found: Vec<Finding>,
    /// Subjects of rules that found nothing.
    pub(crate) fine: Vec<&'static str>,
    gains: Vec<Gain>,
}

/// What a rule found in one process, whatever it is worth there.
#[derive(Debug)]
struct Gain {
    rule: &'static str,
    process_id: i64,
    gain_ns: f64,
    of_run: bool,
}

impl Findings {
    /// What a rule found in a process, ns of its unit; 0 where it found nothing.
    fn gain_ns(&self, subject: &Subject<'_>, rule: &str) -> f64 {
        self.share_of(subject, &[rule]) * subject.unit_ns
    }

    /// The largest gain that one of these rules found in a process, as a share of its unit.
    fn share_of(&self, subject: &Subject<'_>, rules: &[&str]) -> f64 {
        let named =
            self.gains.iter().filter(|gain| gain.process_id == subject.process_id && rules.contains(&gain.rule));
        let gains = named.filter(|gain| !(gain.of_run && subject.per_step)).map(|gain| gain.gain_ns);
        gains.fold(0.0, f64::max) / subject.unit_ns.max(1.0)
    }
}

/// Most time that several findings of one process save together, ns. Where the trace does not tell they may do so one after
/// the other.
pub(crate) fn together_ns<'a>(subject: &Subject<'_>, findings: impl Iterator<Item = &'a Finding> + Clone) -> f64 {
    let blamed: f64 = findings.clone().map(|finding| finding.blamed_ns).sum();
    let without = findings.map(|finding| Without::these(finding.rule.without)).fold(Without::default(), Without::and);
    subject.shorter_ns(without).map_or(blamed, |ns| blamed.min(ns)).min(subject.unit_ns)
}

/// Applies every rule to every process that matters; of each rule the process counts where it costs most.
pub(crate) fn find(subjects: &[Subject<'_>]) -> Findings {
    let mut findings = Findings::default();
    if subjects.is_empty() {
        return findings;
    }
    for rule in ALL {
        let mut worst: Option<Finding> = None;
        for subject in subjects {
            let Some(Evidence { gain_ns: blamed_ns, of_run, lines }) = (rule.evaluate)(subject) else { continue };
            let shorter = if of_run { None } else { subject.shorter_ns(Without::these(rule.without)) };
            let gain_ns = match shorter {
                Some(ns) if rule.all_of_it => ns,
                Some(ns) => ns.min(blamed_ns),
                None => blamed_ns,
            };
            let blamed_ns = blamed_ns.max(gain_ns);
            findings.gains.push(Gain { rule: rule.name, process_id: subject.process_id, gain_ns, of_run });
            let whole = if of_run { subject.run_ns } else { subject.unit_ns };
            let share = if whole > 0.0 { (gain_ns / whole).min(1.0) } else { 0.0 };
            if share >= WORTH && worst.as_ref().is_none_or(|w| share > w.share) {
                let per_step = subject.per_step && !of_run;
                worst =
                    Some(Finding { rule, process_id: subject.process_id, gain_ns, blamed_ns, share, per_step, lines });
            }
        }
        match worst {
            Some(finding) => findings.found.push(finding),
            None if subjects.iter().any(rule.recorded) => findings.fine.push(rule.about),
            None => {}
        }
    }
    findings.found.sort_by(|a, b| b.share.total_cmp(&a.share));
    findings.found.truncate(SHOWN);
    findings
}
