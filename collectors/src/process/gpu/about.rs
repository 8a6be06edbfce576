//! What the manifest says of the GPU's times: what was asked, what came of it, and what is missing.

use gputrace_abi::gpu::reason;
use gputrace_abi::layout::Header;
use gputrace_abi::sync::Ordering;

use super::Gpu;
use crate::manifest::{Aside, GpuTime};

/// So many calls without a record are no chance.
const MANY: u64 = 100;
/// So few are: copies of nothing, and what ran at the end of the process.
const FEW: u64 = 20;

impl Gpu {
    /// What the manifest says.
    pub(in crate::process) fn describe(&self, header: &Header) -> Option<GpuTime> {
        let events = self.samples.describe();
        let about = self.about.clone().or_else(|| events.as_ref().map(|_| GpuTime::default()))?;
        let budget_ppm = header.budget_ppm.load(Ordering::Relaxed);
        let budget = (budget_ppm != 0).then(|| self.governor.describe(budget_ppm, &self.spent(), &self.cost));
        Some(GpuTime { events, budget, without_record: self.without_record(), ..about })
    }

    /// For how long records were on before `known_ns`, as far as what was done has been told; none: they never were.
    pub(in crate::process) fn observed_ns(&self, known_ns: i64) -> Option<i64> {
        let about = self.about.as_ref().filter(|about| about.windows > 0 || self.open.is_some())?;
        let late = |(on, off): &(i64, i64)| (off - known_ns.max(*on)).max(0);
        let open = self.open.map_or(0, |(on, _)| (self.settled_ns.min(known_ns) - on).max(0));
        Some(about.on_ns - self.closed.iter().map(late).sum::<i64>() + open)
    }

    /// Calls that gave the GPU work while records were on, and of which none came.
    fn without_record(&self) -> u64 {
        self.given.saturating_sub(self.calls.answered)
    }

    /// What is missing, a sentence each.
    pub(in crate::process) fn notes(&self) -> Vec<String> {
        let Some(about) = &self.about else { return self.samples.notes() };
        // Whatever was asked for, launches are timed while CUPTI cannot be used.
        let instead = if self.samples.timed() > 0 { "; launches were timed by events instead" } else { "" };
        let refused =
            about.refused.iter().map(|why| format!("what the GPU did could not be asked of CUPTI: {why}{instead}"));
        let aside = (!about.aside.is_empty()).then(|| {
            let first = about.aside.join(", ");
            let times = match about.aside_times.as_slice() {
                [] => String::new(),
                [Aside { to_ns: None, .. }] => "; until the end".to_owned(),
                times => {
                    let ns: i64 = times.iter().filter_map(|aside| Some(aside.to_ns? - aside.from_ns)).sum();
                    let ends = if times.last().is_some_and(|last| last.to_ns.is_none()) { ", the last until the end" } else { "" };
                    let often = if times.len() == 1 { "once".to_owned() } else { format!("{} times", times.len()) };
                    format!("; {often}, {:.1} s in all{ends}: gpu_time.aside_times", ns as f64 / 1e9)
                }
            };
            format!("CUPTI was used by the program or by another tool ({first}{times}): when the GPU ran what meanwhile is not in the trace{instead}")
        });
        let other = about.other_copy.iter().map(|path| {
            format!(
                "the program's own copy of CUPTI ({path}) was called after gputrace had used another one, and the driver serves one copy \
                 to a process: its calls fail with error 39; with GPUTRACE_CUPTI={path} gputrace uses the same copy"
            )
        });
        let given_up = about
            .given_up
            .iter()
            .map(|why| format!("CUPTI was not used any more, and launches were timed by events: {why}"));
        let stays = about.stays.iter().map(|why| {
            format!(
                "CUPTI stayed in the process between windows, which makes each launch dearer (budget.attached_percent, in the cost, whatever the \
                 budget), and from the second window on gives a graph's kernels to one of its launches: {why}"
            )
        });
        let none = (about.records == 0 && about.windows > 0 && self.given > MANY).then(|| {
            let given = self.given;
            format!("CUPTI told of no work, though {given} calls gave the GPU some while records were on; --gpu-time events does without CUPTI")
        });
        let missing = self.without_record();
        // While records are on, some are on their way.
        let is_over = self.open.is_none();
        let missing = (is_over && about.records > 0 && missing * 100 > self.given && missing > FEW).then(|| {
            let given = self.given;
            format!(
                "{missing} of {given} calls that gave the GPU work while it was recorded have no record of it: its busy time is too low there"
            )
        });
        let spent = self.governor.spent_ns().map(|_| {
            "the hooks left less than a quarter of --budget to the GPU's times for some time: windows were short or rare meanwhile, or \
             there were none, and few launches were timed"
                .to_owned()
        });
        let cut = about.known_until_ns.map(|_| {
            let ms = self.cut_ns / 1_000_000;
            format!("the process ended without a word: what the GPU did in its last {ms} ms is not known, and counts for nothing")
        });
        let violations = (about.violations > 0).then(|| {
            let GpuTime { violations, joined, earliest_ns, alignment_error_ns, .. } = about;
            let error_ns = alignment_error_ns.unwrap_or(0);
            format!(
                "{violations} of {joined} pieces of the GPU's work begin before their call does by more than the clocks may be off \
                 ({error_ns} ns): by {earliest_ns} ns at most"
            )
        });
        let lost = |count: u64, what: &str| (count > 0).then(|| format!("{count} records of the GPU's work {what}"));
        let counts = [
            lost(
                about.dropped,
                "were lost: CUPTI or the ring had no room; windows with such (gpu_windows.lost) are left out of reports",
            ),
            lost(about.without_time, "came without times"),
            lost(about.records - about.without_time - about.joined - about.outside, "have no call in the trace")
                .filter(|_| is_over),
        ];
        let kinds = about.activities_refused.iter().map(|kind| format!("CUPTI does not tell of {kind}"));
        refused
            .chain(kinds)
            .chain(aside)
            .chain(other)
            .chain(given_up)
            .chain(stays)
            .chain(none)
            .chain(missing)
            .chain(spent)
            .chain(cut)
            .chain(violations)
            .chain(counts.into_iter().flatten())
            .chain(self.samples.notes())
            .collect()
    }
}

/// No library was found. `wanted`: the one that the user named, if any.
pub(super) fn not_found(wanted: &str) -> String {
    let named = if wanted.is_empty() { String::new() } else { format!(" at {wanted}, which GPUTRACE_CUPTI names") };
    format!("no library of CUPTI was found{named}")
}

/// Why CUPTI cannot be taken off a process, or is not used any more.
pub(super) fn reason_name(key: u64) -> String {
    match key {
        reason::GRAPHS => "the program uses CUDA graphs, from which it cannot be taken away again",
        reason::SHARED => "another tool uses it in this process too",
        reason::VERSION => "it is of a CUDA before 12.6, and could not be taken off again",
        reason::FAILED => "cuptiFinalize failed",
        reason::PEERS => {
            "its kernels may wait for other processes or devices (NCCL, shared memory), and to put CUPTI on or to take it off holds up \
             all launches until they are done"
        }
        reason::FLUSH => "cuptiActivityFlushAll failed three times in a row",
        _ => "for a reason that this version does not know",
    }
    .to_owned()
}

/// The results of CUPTI that have a cause which somebody can do something about.
pub(super) fn result_name(result: u64) -> String {
    let name = match result {
        7 => "CUPTI_ERROR_NOT_COMPATIBLE: a debugger or another profiler is at work",
        15 => "CUPTI_ERROR_NOT_INITIALIZED",
        24 => "CUPTI_ERROR_NOT_SUPPORTED: this driver or device does not support it",
        35 => {
            "CUPTI_ERROR_INSUFFICIENT_PRIVILEGES: the administrator must set the driver's NVreg_RestrictProfilingToAdminUsers=0, \
             or the process needs CAP_SYS_ADMIN"
        }
        37 => "CUPTI_ERROR_VIRTUALIZED_DEVICE_NOT_SUPPORTED: this virtual GPU does not allow profiling",
        39 => "CUPTI_ERROR_MULTIPLE_SUBSCRIBERS_NOT_SUPPORTED: another profiler is at work",
        other => return format!("CUPTI's result {other}"),
    };
    name.to_owned()
}
