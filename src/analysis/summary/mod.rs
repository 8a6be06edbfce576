//! summary: the whole run on one screen. Ends every traced run, and opens every report.

mod budget;
mod calls;
mod detail;
mod devices;
mod ending;
mod needs;
mod own;
mod ranks;
mod steps;
mod sums;
#[cfg(test)]
mod tests;
mod text;

use std::path::Path;

use gputrace_collectors::Manifest;
use gputrace_collectors::schema::TableId;

use super::section::{Column, Section, Table, Unit, Value, column};
use super::slowest::slowest;
use super::sums::DRIVER;
use super::{Analysis, Cause, Explain, Facts, Metric, Need};
use crate::findings::{self, Findings, OnGpu, Subject, Verdict};
use crate::render::share as shown;
use crate::trace::{Filter, Trace};
pub(crate) use own::Own;

/// The analysis.
pub(crate) struct Summary;

/// The summary of a trace that has just been written, as text. `own`: the account of its launcher, for which the disk may
/// have had no room.
pub(crate) fn at_end(trace: &Path, own: Option<Manifest>) -> anyhow::Result<String> {
    let trace = Trace::open_with(&[trace.to_owned()], own)?;
    let filter = Filter::of(&trace);
    let facts = Facts::gather(&trace, &filter, &needs::at_end(&trace));
    let mut text = Summary.section(&facts).literal.unwrap_or_default();
    for problem in trace.problems() {
        text.push_str(&format!("{problem}\n"));
    }
    Ok(text)
}

/// What the text and the numbers of the summary are made from.
pub(crate) struct Content<'a> {
    /// Facts.
    pub(crate) facts: &'a Facts<'a>,
    /// Processes worth judging, the busiest first.
    pub(crate) subjects: &'a [Subject<'a>],
    /// The verdict; missing when no process called the driver.
    pub(crate) verdict: Option<Verdict>,
    /// Findings.
    pub(crate) findings: Findings,
    /// Loss, coverage and cost.
    pub(crate) own: Own,
}

impl Analysis for Summary {
    fn name(&self) -> &'static str {
        "summary"
    }

    fn title(&self) -> &'static str {
        "Summary"
    }

    fn explain(&self) -> Explain {
        Explain {
            definition: "Steps are the period of the launch sequence: a name (kernel or waiting function) that recurs after a \
                regular number of calls marks them, where most of the process's launches lie in steps of usual size; nested loops are \
                resolved to the one that adds work of its own. Turns of uneven length are marked by a wait, a copy or kernels that occur once in each. Warm-up \
                are the steps before the first five of which four take at most 1.3 times the median of the second half, or as \
                long as nine of ten steps there. p50 \
                and p99 are of the steady steps, of the GPU's where the host runs ahead of it (--explain steps), which the step line then says. The host line is the mean over the steady steps between the 40th \
                and 60th percentile of duration, so its parts sum to the usual step; where several threads call the driver each ns counts once (launch, copy, memory, \
                other, wait, in this order). Of the time outside the driver, system waits are those of the loop's thread \
                for the operating system (--explain os-waits) in which no other thread launches; the rest has no evidence in the trace and is called unknown: \
                Python's or other work of the host, or its processor was another's. Verdict and findings are computed from the GPU's times where the trace has them, else from the host's, and the verdict is the first finding's where that is worth 10 % (what bounds the loop stands before what is over when it begins); GPU line: busy and idle time of the step, of several GPUs the mean (--explain gpu-gaps); there is no verdict where more than half of the calls are lost, nor where more than 1 % of the launches \
                of kernels, and ten or more, have no kernel in a trace with GPU times, nor where most kernels have no launch; each finding's gain is \
                an upper bound. cost = recorded events x measured cost of one, and the time in which graphs were read, and with --gpu-time full the records of CUPTI x 0.6 us (about, as on an H200), / wall time, in the process where that is most; lost = events without room of all \
                calls seen; uncovered = driver functions of launch, copy, set, wait or allocation that the program fetched \
                and no hook covers; the line below names them, and libraries whose own calls symbols may not reach.",
            unit: "The unit of the step line holds for the lines below it.",
            limits: "Where the trace has no GPU times (--gpu-time full records them, imports have them), idle time of the \
                GPU is not known, and nothing here claims any; where launches were timed (--gpu-time events) busy time is an estimate, of launches alone. Steps of fewer than two calls, or fewer than ten, are not found. With \
                --from, --to and --range steps are those of the run, and with --from and --to only whole ones count; with --range times are those inside of the \
                ranges of a usual step (of all ranges, where no usual step has one), and where the GPU is told of for longer than the host is in there, shares are of that. Several processes: \
                numbers are of the busiest; with ranks, of the slowest, and each rank's process is its busiest.",
            source: "The definition above; each number's own is that of the analysis which has it (--explain NAME).",
        }
    }

    fn needs(&self) -> &'static [Need] {
        findings::NEEDS
    }

    fn metrics(&self) -> &'static [Metric] {
        use Unit::*;
        const METRICS: &[Metric] = &[
            Metric::about("steps", Count, "steps").sums(&[TableId::Launches, TableId::Ranges, TableId::Syncs]),
            Metric::about("warm_up_steps", Count, "steps at the start that are left out").sums(&[
                TableId::Launches,
                TableId::Ranges,
                TableId::Syncs,
            ]),
            Metric::about("cut_steps", Count, "steps that the ends of --from and --to cut, left out"),
            Metric::about("warm_up_ns", Ns, "time of the warm-up steps").sums(&[
                TableId::Launches,
                TableId::Ranges,
                TableId::Syncs,
            ]),
            Metric::cost("step_p50_ns", Ns, "median steady step, of the GPU where the host runs ahead of it"),
            Metric::cost("step_p99_ns", Ns, "99th percentile of the steady steps").unsteady(),
            Metric::cost("step_mean_ns", Ns, "mean of the steady steps"),
            Metric::about("step_host_p50_ns", Ns, "median steady step of the host"),
            Metric::about(
                "step_gpu_p50_ns",
                Ns,
                "median steady step on the GPU, from last kernel's end to last kernel's end",
            ),
            Metric::about("step_outliers", Count, "steady steps over twice the median").sums(&[
                TableId::Launches,
                TableId::Ranges,
                TableId::Syncs,
            ]),
            Metric::cost("unit_ns", Ns, "usual step").of_step(),
            Metric::about("unit_host_ns", Ns, "the host's time in it, which the next ones sum to").of_step(),
            // Without those that were left out there is more time outside, and more to gain by it.
            Metric::cost("outside_driver_ns", Ns, "time of a step that the host is outside the driver")
                .sums(&DRIVER)
                .of_step()
                .of_launches(),
            Metric::cost("outside_system_ns", Ns, "of it, waiting for the operating system")
                .sums(&[TableId::OsWaits])
                .of_step(),
            Metric::cost("outside_unknown_ns", Ns, "of it, with no evidence in the trace")
                .sums(&DRIVER)
                .of_step()
                .of_launches(),
            Metric::cost("launch_ns", Ns, "time of a step in launch calls")
                .sums(&[TableId::Launches])
                .of_step()
                .of_launches(),
            Metric::cost("launches", Count, "launch calls of a step")
                .sums(&[TableId::Launches])
                .of_step()
                .of_launches(),
            Metric::cost("wait_ns", Ns, "time of a step in waits, implicit ones too")
                .sums(&[TableId::DeviceMemory, TableId::Syncs, TableId::Transfers])
                .of_step(),
            Metric::cost("waits", Count, "waits of a step, implicit ones too")
                .sums(&[TableId::DeviceMemory, TableId::Syncs, TableId::Transfers])
                .of_step(),
            Metric::cost("copy_ns", Ns, "time of a step in calls of copies and sets")
                .sums(&[TableId::Transfers])
                .of_step(),
            Metric::cost("copies", Count, "copies and sets of a step").sums(&[TableId::Transfers]).of_step(),
            Metric::cost("memory_ns", Ns, "time of a step in allocation and free calls")
                .sums(&[TableId::DeviceMemory])
                .of_step(),
            Metric::cost("memory_calls", Count, "allocation and free calls of a step")
                .sums(&[TableId::DeviceMemory])
                .of_step(),
            Metric::cost("other_ns", Ns, "time of a step in other driver calls").sums(&[TableId::Api]).of_step(),
            Metric::cost("other_calls", Count, "other driver calls of a step").sums(&[TableId::Api]).of_step(),
            Metric::about("gpu_busy_ns", Ns, "time of a step in which the GPU worked")
                .sums(&[TableId::DeviceCopies, TableId::Kernels])
                .of_step(),
            Metric::about("gpu_compute_ns", Ns, "time of a step with computing kernels")
                .sums(&[TableId::DeviceCopies, TableId::Kernels])
                .of_step(),
            Metric::cost("gpu_communication_exposed_ns", Ns, "time of a step in which only NCCL's kernels ran")
                .sums(&[TableId::DeviceCopies, TableId::Kernels])
                .of_step(),
            Metric::cost("gpu_copies_exposed_ns", Ns, "time of a step in which only copies and sets ran")
                .sums(&[TableId::DeviceCopies, TableId::Kernels])
                .of_step(),
            Metric::cost("gpu_idle_ns", Ns, "time of a step in which the GPU did nothing")
                .sums(&[TableId::DeviceCopies, TableId::Kernels])
                .of_step(),
            Metric::cost("gpu_idle_not_launched_ns", Ns, "of it, because nothing was launched")
                .sums(&[TableId::DeviceCopies, TableId::Kernels])
                .of_step(),
            Metric::cost("gpu_idle_after_wait_ns", Ns, "of it, after waits of the host")
                .sums(&[TableId::DeviceCopies, TableId::Kernels])
                .of_step(),
            Metric::cost(
                "gpu_idle_mean_ns",
                Ns,
                "time of the mean steady step in which the GPU did nothing, gaps longer than a step too",
            )
            .sums(&[TableId::DeviceCopies, TableId::Kernels])
            .of_step(),
            Metric::cost("gpu_idle_percent", Percent, "share of a step in which the GPU did nothing")
                .sums(&[TableId::DeviceCopies, TableId::Kernels])
                .of_step(),
            Metric::about("gpu_operations", Count, "kernels, copies and sets of a step")
                .sums(&[TableId::DeviceCopies, TableId::Kernels])
                .of_step(),
            Metric::about("kernels", Count, "kernels that a step launches")
                .sums(&[TableId::Launches])
                .of_step()
                .of_launches(),
            Metric::cost("implicit_waits", Count, "of the waits, those of copies, sets, frees and allocations")
                .sums(&[TableId::DeviceMemory, TableId::Transfers])
                .of_step(),
            Metric::cost("joint_gain_ns", Ns, "what all findings of a step gain together, at most")
                .sums(&DRIVER)
                .of_step()
                .of_launches(),
            Metric::cost("cost_percent", Percent, "time that recording took, of wall time").unsteady(),
            Metric::about("seen", Count, "calls that began while recording"),
            Metric::cost("lost", Count, "events that found no room").unsteady().of_losses(),
            Metric::cost("uncovered", Count, "driver functions that were fetched and that no hook covers"),
            Metric::about("trace_bytes", Bytes, "size of the trace"),
        ];
        METRICS
    }

    fn section(&self, facts: &Facts<'_>) -> Section {
        let subjects = findings::subjects(facts);
        let findings = findings::find(&subjects);
        let main = main_subject(facts, &subjects);
        // What could not be read would have been counted: no word fits then.
        let whole = !facts.trace.problems().iter().any(|problem| problem.lost_rows());
        let not_whole = || Verdict { word: "UNKNOWN", text: "parts of the trace could not be read".to_owned() };
        let own = Own::of(facts);
        let mostly_lost = text::lost_share(facts).filter(|lost| *lost > 0.5);
        let lost =
            |share| Verdict { word: "UNKNOWN", text: format!("{} of the driver's calls are lost", shown(share)) };
        let verdict = main.map(|s| match mostly_lost {
            _ if !whole => not_whole(),
            _ if !own.known => {
                let text = "without a manifest nobody knows what the trace lacks".to_owned();
                Verdict { word: "UNKNOWN", text }
            }
            Some(share) => lost(share),
            None => match super::clock_back(facts, s.process_id).or(s.gpu_doubt.clone()).or(s.calls_doubt.clone()) {
                Some(text) => Verdict { word: "UNKNOWN", text },
                None => findings::verdict(s, &findings),
            },
        });
        let content = Content { facts, subjects: &subjects, verdict, findings, own };
        let mut section = Section { literal: Some(text::text(&content, main)), ..Section::default() };
        facts_of(&mut section, &content, main);
        if facts.filter.is_window() {
            section
                .note("cost, seen, lost, uncovered and trace_bytes are of the whole run, not of the window reported.");
        }
        ending::notes(facts.trace).into_iter().for_each(|note| section.note(note));
        section.table(findings_table(&content));
        section.table(processes_table(&content));
        section.table(devices::table(facts));
        section.table(sums::table(facts));
        section
    }
}

/// The process whose numbers stand for the run: of several ranks the slowest, else the one with most driver calls.
pub(crate) fn main_subject<'a>(facts: &Facts<'_>, subjects: &'a [Subject<'a>]) -> Option<&'a Subject<'a>> {
    let slowest = slowest(facts).map(|(process_id, _)| process_id);
    subjects.iter().find(|s| Some(s.process_id) == slowest).or(subjects.first())
}

fn facts_of(section: &mut Section, content: &Content<'_>, main: Option<&Subject<'_>>) {
    let verdict = content.verdict.as_ref();
    section.fact("verdict", "verdict", Unit::Text, verdict.map(|v| v.word));
    section.fact("verdict_text", "measured", Unit::Text, verdict.map(|v| v.text.clone()));
    let steps = main.and_then(|s| s.steps);
    let anchor = steps.map(|s| content.facts.names.full(s.anchor.id()));
    section.fact("steps", "steps", Unit::Count, steps.map(|s| s.count));
    section.fact("step_anchor", "a step is one", Unit::Name, anchor);
    section.fact("step_tid", "in thread", Unit::Text, steps.map(|s| i64::from(s.tid)));
    section.fact("warm_up_steps", "warm-up steps", Unit::Count, steps.map(|s| s.warm_up as u64));
    let cut = main.map(|s| content.facts.steps.cut(s.process_id) as u64).filter(|cut| *cut > 0);
    section.rare_fact("cut_steps", "steps that the span's ends cut, left out", Unit::Count, cut);
    section.fact("warm_up_ns", "warm-up", Unit::Ns, steps.map(|s| s.warm_up_ns()));
    let on_gpu = steps.and_then(|s| content.facts.gpu_steps.of(s.process_id));
    section.fact("step_bound", "steps are those of the", Unit::Text, steps.map(|s| s.whose()));
    section.fact("step_p50_ns", "step p50", Unit::Ns, steps.map(|s| s.quantile_ns(0.5)));
    section.fact("step_p99_ns", "step p99", Unit::Ns, steps.map(|s| s.quantile_ns(0.99)));
    section.fact("step_mean_ns", "mean step", Unit::Ns, steps.map(|s| s.mean_ns()));
    section.fact("step_host_p50_ns", "host's step p50", Unit::Ns, steps.map(|s| s.host_p50_ns()));
    section.fact("step_gpu_p50_ns", "GPU's step p50", Unit::Ns, on_gpu.map(|gpu| gpu.quantile_ns(0.5)));
    section.fact("step_outliers", "steps over twice p50", Unit::Count, steps.map(|s| s.outliers() as u64));
    section.fact("unit", "numbers are per", Unit::Text, main.map(|s| s.unit()));
    section.fact("unit_ns", "its usual length", Unit::Ns, main.map(|s| s.unit_ns));
    section.fact("unit_host_ns", "the host's time in it", Unit::Ns, main.map(|s| s.host_ns));
    section.fact("outside_driver_ns", "host outside driver", Unit::Ns, main.map(|s| s.outside_ns()));
    section.fact("outside_system_ns", "of it waiting for the system", Unit::Ns, main.map(|s| s.system_ns));
    section.fact("outside_unknown_ns", "of it unknown", Unit::Ns, main.map(|s| s.unknown_ns()));
    use super::Part::{Copy, Launch, Memory, Other, Wait};
    let parts = [
        ("launch_ns", "launches", Launch, "in launch calls"),
        ("wait_ns", "waits", Wait, "in waits"),
        ("copy_ns", "copies", Copy, "in copies and sets"),
        ("memory_ns", "memory_calls", Memory, "in allocation and free"),
        ("other_ns", "other_calls", Other, "in other driver calls"),
    ];
    for (time, calls, part, title) in parts {
        section.fact(time, title, Unit::Ns, main.map(|s| s.ns(part)));
        let number = |s: &Subject<'_>| if part == Wait { s.waits() } else { s.calls(part) };
        section.fact(calls, calls, Unit::Count, main.map(number));
    }
    let gpu = main.and_then(|s| s.on_gpu.as_ref());
    section.fact("gpu_busy_ns", "GPU busy", Unit::Ns, gpu.map(OnGpu::busy_ns));
    section.fact("gpu_compute_ns", "GPU computing", Unit::Ns, gpu.map(|gpu| gpu.compute_ns));
    section.fact("gpu_communication_exposed_ns", "NCCL exposed", Unit::Ns, gpu.map(|gpu| gpu.communication_ns));
    section.fact("gpu_copies_exposed_ns", "copies exposed", Unit::Ns, gpu.map(|gpu| gpu.copy_ns));
    section.fact("gpu_idle_ns", "GPU idle", Unit::Ns, gpu.map(OnGpu::all_idle_ns));
    section.fact("gpu_idle_not_launched_ns", "idle, not launched", Unit::Ns, gpu.map(OnGpu::not_launched_ns));
    let after = gpu.map(|gpu| gpu.idle_ns(&[Cause::AfterWait]));
    section.fact("gpu_idle_after_wait_ns", "idle after waits", Unit::Ns, after);
    section.fact("gpu_idle_mean_ns", "GPU idle, mean step", Unit::Ns, gpu.and_then(|gpu| gpu.mean_idle_ns));
    let idle_percent = gpu.zip(main).map(|(gpu, s)| 100.0 * gpu.all_idle_ns() / s.unit_ns.max(1.0));
    section.fact("gpu_idle_percent", "GPU idle", Unit::Percent, idle_percent);
    section.fact("gpu_operations", "GPU operations", Unit::Count, gpu.map(|gpu| gpu.operations));
    section.fact("kernels", "kernels launched", Unit::Count, main.and_then(|s| s.kernels()));
    section.fact("implicit_waits", "of them implicit", Unit::Count, main.map(|s| s.implicit_waits));
    let own = &content.own;
    let cost = own.cost_ns.map(|(ns, wall)| 100.0 * ns / wall);
    section.fact("cost_percent", "cost", Unit::Percent, cost);
    section.fact("seen", "calls seen", Unit::Count, own.known.then_some(own.seen));
    section.fact("lost", "events lost", Unit::Count, own.known.then_some(own.dropped));
    section.fact("uncovered", "uncovered", Unit::Count, own.known.then_some(own.uncovered.len() as u64));
    section.fact("trace_bytes", "size of the trace", Unit::Bytes, content.facts.trace.bytes);
    section.fact("joint_gain_ns", "all findings together", Unit::Ns, main.map(|_| joint_gain_ns(content)));
    let fine = text::fine_unknown(content).is_none().then(|| content.findings.fine.join(", "));
    section.fact("checked_fine", "checked, fine", Unit::Text, fine);
}

/// What the findings of a unit gain together: of all ranks that wait for each other, else of the process that has the worst one; 0
/// without findings.
fn joint_gain_ns(content: &Content<'_>) -> f64 {
    let found = &content.findings.found;
    let Some(worst) = found.first() else { return 0.0 };
    let alike = |f: &&findings::Finding| f.per_step == worst.per_step;
    let own = |f: &&findings::Finding| f.process_id == worst.process_id;
    let all: Vec<&findings::Finding> = found.iter().filter(alike).collect();
    let of_one: Vec<&findings::Finding> = found.iter().filter(alike).filter(own).collect();
    let joint = |found: &[&findings::Finding]| findings::together_ns(content.subjects, found);
    joint(&all).or_else(|| joint(&of_one)).unwrap_or(worst.gain_ns)
}

fn findings_table(content: &Content<'_>) -> Table {
    const COLUMNS: [Column; 9] = [
        column("name", "Finding", Unit::Text),
        column("title", "What", Unit::Text),
        column("process", "Process", Unit::Text),
        column("gain_ns", "Gain at most", Unit::Ns),
        column("gain_percent", "Gain at most", Unit::Percent),
        column("gain_per", "Per", Unit::Text),
        column("effort", "Effort", Unit::Text),
        column("evidence", "Evidence", Unit::Text),
        column("advice", "Try", Unit::Text),
    ];
    let row = |f: &findings::Finding| {
        vec![
            f.rule.name.into(),
            f.title().into(),
            content.facts.label(f.process_id).into(),
            f.rule.gain_known.then_some(f.gain_ns).into(),
            f.rule.gain_known.then_some(100.0 * f.share).into(),
            if f.per_step { "step" } else { "run" }.into(),
            f.rule.effort.text().into(),
            f.lines.join("; ").into(),
            f.advice.into(),
        ]
    };
    Table::new("findings", "Findings", &COLUMNS, content.findings.found.iter().map(row).collect())
}

fn processes_table(content: &Content<'_>) -> Table {
    const COLUMNS: [Column; 16] = [
        column("process", "Process", Unit::Text),
        column("rank", "Rank", Unit::Count),
        column("local_rank", "Local", Unit::Count),
        column("world_size", "Of", Unit::Count),
        column("visible_devices", "Devices", Unit::Name),
        column("driver_version", "Driver", Unit::Count),
        column("runtime_version", "Runtime", Unit::Count),
        column("pid", "Pid", Unit::Count),
        column("host", "Host", Unit::Text),
        column("exe", "Executable", Unit::Name),
        column("traced", "Traced", Unit::Text),
        column("reason", "Why not", Unit::Text),
        column("events", "Events", Unit::Count),
        column("exit_code", "Exit", Unit::Count),
        column("exit_signal", "Signal", Unit::Count),
        column("wall_ns", "Wall", Unit::Ns),
    ];
    let row = |p: &crate::trace::Process| {
        vec![
            p.label().into(),
            p.rank.map(i64::from).into(),
            p.local_rank.map(i64::from).into(),
            p.world_size.map(i64::from).into(),
            p.visible_devices.clone().into(),
            p.driver_version.map(i64::from).into(),
            p.runtime_version.map(i64::from).into(),
            i64::from(p.pid).into(),
            p.host.as_str().into(),
            p.exe.as_str().into(),
            p.traced.into(),
            p.reason.clone().into(),
            p.events.into(),
            p.exit_code.map(i64::from).into(),
            p.exit_signal.map(i64::from).into(),
            if p.end_ns.is_some() { content.facts.wall_ns(p.process_id).into() } else { Value::Missing },
        ]
    };
    let single = content.facts.processes().filter(|process| process.summed == 0);
    Table::new("processes", "Processes", &COLUMNS, single.map(row).collect())
}
