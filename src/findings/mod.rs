//! Findings: what costs time, how much at most, and what to do. Rules are data, in [`rules::ALL`].
//!
//! A rule looks at one process ([`Subject`]) and either says how much time could be saved at most, with its evidence,
//! or that there is nothing. At most [`SHOWN`] findings are shown, worst first, none below [`WORTH`] of a step. No
//! finding is a good answer.
//!
//! **Invariant:** a gain is an upper bound that follows from recorded times alone. Where the trace has GPU times it is idle
//! time of the GPU that the rule is to blame for, each ns for one rule, but that the rules of copies may name the same,
//! that malloc's time is part of the host's work, and that allocations after a wait are in what both may gain, and no more than the step would be shorter if the rule's work were not there ([`crate::analysis::CriticalSums`]), on any rank ([`job`]); else it is time
//! of the host, and nothing here speaks of the GPU's idle time, but that none is longer than the GPU may idle where launches were timed.

mod imbalance;
mod job;
mod on_gpu;
mod rules;
mod subject;
#[cfg(test)]
mod tests;
mod verdict;
mod verdict_gpu;

pub(crate) use on_gpu::{Each, OnGpu, SLOW_HOST};
pub(crate) use rules::{ALL, IMBALANCE, Rule, worst_site};
pub(crate) use subject::{Subject, subjects};
pub(crate) use verdict::{Verdict, verdict};

use crate::analysis::{Class, Need, Without};

/// Findings that are shown.
const SHOWN: usize = 5;

/// A smaller gain, as a share of the step or run, is no finding.
pub(crate) const WORTH: f64 = 0.02;

/// Steps that are far longer than the others are a finding where what they took more is so much of the steps' time.
pub(crate) const LONG_STEPS: f64 = 0.2;
/// The same of steps at even distances: no accident made them long.
pub(crate) const EVEN_LONG_STEPS: f64 = 0.1;

/// What the rules read.
pub(crate) const NEEDS: &[Need] = &[
    Need::Launches,
    Need::Syncs,
    Need::Transfers,
    Need::DeviceMemory,
    Need::Allocations,
    Need::Loading,
    Need::Sites,
    Need::Implicit,
    Need::Gpu,
    Need::GpuClock,
    Need::GpuSteps,
    Need::Critical,
    Need::Ranks,
    Need::StepSums,
    Need::Metal,
    Need::Counters,
    Need::Samples,
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
    /// What to do there.
    pub(crate) advice: &'static str,
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
    /// Where it stands among the others, whatever it is worth: a GPU with nothing to do or that gives up first, for no gain tells what that costs; then
    /// what bounds the loop, and behind it what is over when the loop begins.
    fn place(&self) -> u8 {
        match self.rule.verdict {
            Some(verdict::IDLE_GPU | verdict::GPU_ERRORS) => 0,
            Some(verdict::LOADING) if !self.per_step => 2,
            _ if self.share >= verdict::BOUND => 1,
            _ => 2,
        }
    }

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
}

/// Most time that several findings of a unit save together, ns: all of one process, or of ranks whose collectives were compared,
/// which get faster only together; none for others. Where the trace does not tell they may save it one after the other.
pub(crate) fn together_ns(subjects: &[Subject<'_>], findings: &[&Finding]) -> Option<f64> {
    let first = findings.first().filter(|first| findings.iter().all(|f| f.per_step == first.per_step))?;
    let blamed: f64 = findings.iter().map(|finding| finding.blamed_ns).sum();
    let without = findings.iter().map(|f| Without::these(f.rule.without)).fold(Without::default(), Without::and);
    let own = subjects.iter().find(|subject| subject.process_id == first.process_id)?;
    if first.per_step != own.per_step {
        return Some(blamed.min(own.run_ns));
    }
    let is_rank = |process_id: &i64| own.facts.ranks.late.contains_key(process_id);
    if !findings.iter().all(|finding| is_rank(&finding.process_id)) {
        let one = findings.iter().all(|finding| finding.process_id == own.process_id);
        let most = own.may_idle_ns().unwrap_or(own.unit_ns);
        return one.then(|| own.shorter_ns(without).map_or(blamed, |ns| blamed.min(ns)).min(most));
    }
    // Each rank keeps the work that no finding is about, and its collectives end when the last one comes to them.
    let ranks = || subjects.iter().filter(|subject| is_rank(&subject.process_id));
    let shorter = ranks().filter_map(|rank| {
        let earlier = findings.iter().find(|f| f.rule.name == IMBALANCE && f.process_id == rank.process_id);
        match earlier {
            Some(earlier) => Some(rank.shorter_ns(without)? + earlier.gain_ns),
            None => rank.shorter_ns(without.and(Without::these(&[Class::Communication]))),
        }
    });
    let most = findings.iter().map(|finding| finding.gain_ns).fold(0.0, f64::max);
    let found_in = |subject: &&Subject<'_>| findings.iter().any(|finding| finding.process_id == subject.process_id);
    let longest = ranks().filter(found_in).map(|rank| rank.unit_ns).fold(0.0, f64::max);
    Some(shorter.fold(blamed, f64::min).max(most).min(longest))
}

/// Applies every rule to every process that matters; of each rule the process counts where it costs most.
pub(crate) fn find(subjects: &[Subject<'_>]) -> Findings {
    let mut findings = Findings::default();
    if subjects.is_empty() {
        return findings;
    }
    for rule in ALL {
        let mut worst: Option<Finding> = None;
        for subject in subjects.iter().filter(|subject| rule.is_about(subject.metal)) {
            let Some(Evidence { gain_ns: blamed_ns, of_run, lines }) = (rule.evaluate)(subject) else { continue };
            let of_unit = !(of_run && subject.per_step);
            let blamed_ns = match subject.may_idle_ns().filter(|_| of_unit && rule.name != IMBALANCE) {
                Some(idle_ns) => blamed_ns.min(idle_ns),
                None => blamed_ns,
            };
            let without = Without::these(rule.without);
            let shorter = match rule.name {
                _ if of_run => None,
                IMBALANCE => subject.shorter_ns(without),
                _ => job::shorter_ns(subjects, subject, without),
            };
            let gain_ns = match shorter {
                Some(ns) if rule.all_of_it => ns,
                Some(ns) => ns.min(blamed_ns),
                None => blamed_ns,
            };
            let blamed_ns = blamed_ns.max(gain_ns);
            let whole = if of_run { subject.run_ns } else { subject.unit_ns };
            let share = if whole > 0.0 { (gain_ns / whole).min(1.0) } else { 0.0 };
            if (share >= WORTH || !rule.gain_known) && worst.as_ref().is_none_or(|w| share > w.share) {
                let per_step = subject.per_step && !of_run;
                let advice = rule.advice(subject.metal);
                let process_id = subject.process_id;
                worst = Some(Finding { rule, process_id, advice, gain_ns, blamed_ns, share, per_step, lines });
            }
        }
        match worst {
            Some(finding) => findings.found.push(finding),
            None if subjects.iter().any(|s| rule.is_about(s.metal) && rule.is_checked(s)) => {
                findings.fine.push(rule.about)
            }
            None => {}
        }
    }
    findings.found.sort_by(|a, b| a.place().cmp(&b.place()).then(b.share.total_cmp(&a.share)));
    findings.found.truncate(SHOWN);
    findings
}
