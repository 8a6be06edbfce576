//! The second half of the summary's text: findings, what was not traced, and what the trace says of itself.

use std::fmt::Write;

use gputrace_collectors::manifest::Count;
use gputrace_collectors::schema::TableId;
use gputrace_collectors::{Manifest, quote};

use super::{Content, budget, detail, ranks, sums};
use crate::analysis::{Facts, Loss, hung_lines, loss, lost_gpus, torch_memory};
use crate::findings::{Finding, Subject, together_ns};
use crate::render::{counted, file_size, number, scale_ns, share};
use crate::trace::{Process, Trace, shortened};

/// Untraced programs that get a line.
const LINES: usize = 4;
/// Characters of a program's path that are shown.
const PATH: usize = 60;

/// Findings, worst first, with their evidence and advice.
pub(super) fn finding_lines(content: &Content<'_>, main: &Subject<'_>) -> String {
    let mut out = String::new();
    let found = &content.findings.found;
    let unit_ns = scale_ns(main.unit_ns);
    let amount = |ns: f64, per_step: bool| {
        let (unit, divisor) = if per_step { unit_ns } else { scale_ns(ns) };
        format!("{:.2} {unit}", ns / divisor)
    };
    let all: Vec<&Finding> = found.iter().filter(|finding| finding.rule.gain_known).collect();
    let alike = found.iter().all(|f| f.per_step == main.per_step);
    let joint_ns = together_ns(content.subjects, &all).filter(|_| alike);
    match (found.as_slice(), joint_ns) {
        ([], _) => return out,
        ([_], _) => out.push_str("finding\n"),
        (_, Some(joint_ns)) if all.len() > 1 => {
            let (together, of_unit) = (amount(joint_ns, main.per_step), share(joint_ns / main.unit_ns.max(1.0)));
            let all = match (all.len(), found.len()) {
                (2, 2) => "both",
                (known, there_are) if known == there_are => "all",
                _ => "those of known gain",
            };
            let _ = writeln!(out, "findings ({all} together: at most {together}, {of_unit})");
        }
        _ => out.push_str("findings\n"),
    }
    for (index, finding) in found.iter().enumerate() {
        let whole = if finding.per_step == main.per_step { "" } else { " of the run" };
        let place = if content.subjects.len() > 1 {
            format!("  {}", content.facts.label(finding.process_id))
        } else {
            String::new()
        };
        let more = if joint_ns.is_some() && more_after_the_first(content.subjects, found, finding) {
            ", more once 1 is fixed"
        } else {
            ""
        };
        let gain = match finding.rule.gain_known {
            true => format!("<= {} ({}{whole}){more}", amount(finding.gain_ns, finding.per_step), share(finding.share)),
            false => "gain not known".to_owned(),
        };
        let effort = finding.rule.effort.text();
        let _ = writeln!(out, "{} {}  {gain}  effort {effort}{place}", index + 1, finding.title());
        finding.lines.iter().for_each(|line| out.push_str(&format!("   {line}\n")));
        let _ = writeln!(out, "   try {}", finding.advice);
    }
    out
}

/// Whether a finding gains a quarter more and over when the first one is fixed: until then that hides a part of it.
fn more_after_the_first(subjects: &[Subject<'_>], found: &[Finding], finding: &Finding) -> bool {
    let Some(first) = found.first().filter(|first| first.rule.name != finding.rule.name) else { return false };
    together_ns(subjects, &[first, finding]).is_some_and(|both_ns| both_ns - first.gain_ns > 1.25 * finding.gain_ns)
}

const METAL: &str = "Metal";
/// What programs of this system have, where a trace does not tell.
#[cfg(target_os = "linux")]
const OWN_API: &str = "CUDA";
/// What programs of this system have, where a trace does not tell.
#[cfg(target_os = "macos")]
const OWN_API: &str = METAL;

/// `2 command buffers of 12,000 dispatches`: what was encoded for Metal, where that is more than the calls that are judged.
fn encoded(facts: &Facts<'_>) -> Option<String> {
    let metal = &facts.metal;
    let buffers: u64 = metal.processes.iter().map(|(_, own)| own.count).sum();
    let dispatches = metal.dispatches();
    (buffers > 0 && dispatches > buffers).then(|| {
        let [buffers, dispatches] = [
            counted(buffers as f64, "command buffer", "command buffers"),
            counted(dispatches as f64, "dispatch", "dispatches"),
        ];
        format!("{buffers} of {dispatches}")
    })
}

/// What there is to say of a run without calls of CUDA, or of Metal.
pub(super) fn without_calls(content: &Content<'_>) -> String {
    let facts = content.facts;
    let metal = facts.processes().any(|process| facts.is_metal(process.process_id));
    let of_macos = facts.processes().any(|process| process.manifest.as_ref().is_some_and(|known| known.metal));
    let api = if metal || of_macos { METAL } else { OWN_API };
    let calls: u64 = facts.host.processes.iter().map(|(_, t)| t.all.calls.iter().sum::<u64>()).sum();
    const DRIVER: [TableId; 6] = [
        TableId::Launches,
        TableId::Syncs,
        TableId::Transfers,
        TableId::DeviceMemory,
        TableId::Api,
        TableId::Dispatches,
    ];
    let unseen = metal && facts.launches.calls.iter().next().is_none();
    // Where any call is lost, the one commit of many messages may be.
    let is_much = |loss: &loss::Loss| loss.dropped > loss.recorded || unseen && loss.dropped > 0;
    if let Some(loss) = loss::Loss::of(facts, &DRIVER).filter(is_much) {
        let (lost, all) = (number(loss.dropped as f64), number((loss.dropped + loss.recorded) as f64));
        let cure = if loss::disk_was_full(facts.trace) {
            "they could not be written; -o on a disk with more room, or --max-size"
        } else {
            "--segment-memory, --on-full block"
        };
        return format!("UNKNOWN: {lost} of {all} {api} calls are lost, too few are left to judge: {cure}\n");
    }
    if content.own.unaccounted {
        return format!("UNKNOWN: {calls} {api} calls were written, and how many are lost is not known\n");
    }
    if loss::is_removed(facts.trace, &DRIVER) {
        let limits = loss::limits(facts.trace, &DRIVER);
        return format!("UNKNOWN: {api} calls were removed to keep to {limits}, and too few are left to judge\n");
    }
    if let Some(lines) = sums::lines(facts) {
        return lines;
    }
    // What malloc had sampled says nothing of the driver.
    let (left_out, kept) = detail::counts(facts, |class| DRIVER.iter().any(|table| table.classes().contains(&class)));
    if left_out > 0 {
        let (left_out, all) = (number(left_out as f64), number((left_out + kept) as f64));
        return format!(
            "UNKNOWN: {left_out} of {all} {api} calls were left out, as --detail asked for: too few are left to judge\n"
        );
    }
    if calls > 0 {
        let why = if unseen {
            "; no commit among them, though command buffers that stand on no class of Metal's are not seen"
        } else {
            ""
        };
        if let Some(encoded) = encoded(facts) {
            return format!(
                "UNKNOWN: {encoded}: too few commits and waits to judge; see metal-baseline, dispatches{why}\n"
            );
        }
        return format!("UNKNOWN: too few {api} calls to judge ({calls}){why}\n");
    }
    if let Some(lines) = torch_memory::lines(facts) {
        return lines;
    }
    if facts.gpu.as_ref().is_some_and(|gpu| gpu.any()) {
        return "UNKNOWN: the trace holds what GPUs did, and no calls that caused it: see gpu-utilisation, kernels\n"
            .to_owned();
    }
    if facts.trace.intervals().is_some_and(|intervals| !intervals.is_empty()) {
        return format!("UNKNOWN: no {api} call began in the interval that this is about\n");
    }
    // Where nothing was worth keeping, recording was on all the same.
    let mut kept = facts.trace.manifests().filter_map(|manifest| manifest.detail.as_ref());
    if kept.any(|detail| detail.is_switched() || detail.never.is_some()) {
        return format!("UNKNOWN: recording was off all the time, and no {api} call is known\n");
    }
    let called = Loss::of_driver_calls(facts).is_none_or(|calls| calls.recorded + calls.dropped > 0);
    if facts.filter.is_window() && (called || facts.trace.has_gpu_times()) {
        return format!("UNKNOWN: no {api} call began in what was chosen of the trace\n");
    }
    let traced: Vec<&Process> = facts.processes().filter(|p| p.traced && p.summed == 0).collect();
    let reached = |p: &&&Process| {
        let hooks = p.manifest.as_ref().map(|m| m.coverage.hooks.as_slice()).unwrap_or_default();
        p.is_metal() || hooks.iter().any(|h| h.name.starts_with("cu"))
    };
    let together = facts.processes().filter(|p| p.summed > 0).collect::<Vec<_>>();
    let loaded = traced.iter().chain(&together).filter(reached).count();
    let plural = if traced.len() == 1 { "process" } else { "processes" };
    let why = match (traced.len(), loaded) {
        (0, _) if !content.own.known && facts.trace.processes.is_empty() => "the trace holds no events".to_owned(),
        (0, _) => "no process could be traced".to_owned(),
        (n, 0) if api == METAL => format!("no process asked for a device ({n} {plural} traced)"),
        (n, 0) => format!("no process loaded the driver ({n} {plural} traced)"),
        (_, n) => format!("{n} of {} traced {plural} looked the driver up and called nothing", traced.len()),
    };
    format!("no {api} calls seen: {why}\n")
}

/// GPUs that were lost while the command ran, but those that a finding names.
pub(super) fn lost_lines(content: &Content<'_>) -> String {
    let said = |line: &String| content.findings.found.iter().any(|finding| finding.lines.contains(line));
    let lines: Vec<String> = lost_gpus(content.facts).into_iter().filter(|line| !said(line)).collect();
    lines.iter().take(LINES).map(|line| format!("{line}\n")).collect()
}

/// Calls that hung, of processes of which no finding tells it.
pub(super) fn hung(content: &Content<'_>) -> String {
    let said = |id: i64| content.findings.found.iter().any(|of| of.rule.name == "hang" && of.process_id == id);
    let mut lines = hung_lines(content.facts);
    lines.retain(|(process_id, _)| !said(*process_id));
    lines.iter().take(LINES).map(|(_, line)| format!("{line}\n")).collect()
}

/// Programs that could not be traced, bounded, the same one once.
pub(super) fn untraced_lines(content: &Content<'_>) -> String {
    let mut untraced: Vec<(String, u32)> = Vec::new();
    let manifests = content.facts.trace.manifests().flat_map(|m| &m.untraced).map(|u| (&u.exe, u.reason.clone()));
    let processes = content.facts.processes().filter(|p| !p.traced);
    let processes = processes.map(|p| (&p.exe, p.reason.clone().unwrap_or_else(|| "not traced".to_owned())));
    // The same process may stand in both lists; what counts is which program and why.
    let listed = if content.facts.trace.manifests().any(|m| !m.untraced.is_empty()) { 0 } else { usize::MAX };
    let in_part = content.facts.processes().filter(|p| p.traced).filter_map(|p| Some((&p.exe, p.reason.clone()?)));
    let not = manifests.chain(processes.take(listed)).map(|process| ("not traced", process));
    for (what, (exe, reason)) in not.chain(in_part.map(|process| ("not traced in full", process))) {
        let text = format!("{what}: {} ({reason})", shortened(exe, PATH));
        match untraced.iter_mut().find(|(known, _)| *known == text) {
            Some((_, times)) => *times += 1,
            None => untraced.push((text, 1)),
        }
    }
    let mut out = String::new();
    for (text, times) in untraced.iter().take(LINES) {
        let times = if *times > 1 { format!(" x {times}") } else { String::new() };
        let _ = writeln!(out, "{text}{times}");
    }
    if untraced.len() > LINES {
        let _ = writeln!(out, "not traced: {} more programs", untraced.len() - LINES);
    }
    out
}

/// What the manifests note of launchers and of processes, each text once: what the trace misses, for instance.
pub(super) fn notes(trace: &Trace) -> Vec<&str> {
    let mut all: Vec<&str> = Vec::new();
    for manifest in trace.manifests() {
        let of_processes = manifest.accounts().flat_map(|process| &process.notes);
        for note in manifest.notes.iter().chain(of_processes) {
            if !all.contains(&note.as_str()) {
                all.push(note);
            }
        }
    }
    all
}

/// Cost, loss and coverage, what else must be known of the trace, and where it is.
pub(super) fn own_lines(content: &Content<'_>) -> String {
    let (own, trace) = (&content.own, content.facts.trace);
    let mut out = String::new();
    // The account is of whole processes: what of it lies in a window is not known.
    let whole = if content.facts.filter.is_window() { "of the whole run: " } else { "" };
    if own.unaccounted {
        out.push_str("cost, loss and coverage not known: the manifest was not written again after the start\n");
    } else if own.known && own.seen > 0 {
        let cost = own.cost_ns.map_or("not measured".to_owned(), |(ns, wall)| share(ns / wall));
        let windows = own.times_percent.map_or(String::new(), |(times, budget)| {
            let over = own.cost_ns.is_some_and(|(ns, wall)| ns / wall * 100.0 > budget);
            let budget = if over { format!("over the budget of {budget} %") } else { format!("budget {budget} %") };
            format!(" (GPU times {}, {budget})", share(times / 100.0))
        });
        let windows = own.cupti_ns.zip(own.cost_ns).map_or(windows, |(ns, (all, wall))| {
            let over = own.budget_percent.filter(|budget| all / wall * 100.0 > *budget);
            // The budget's own line has the price.
            let more = over.map_or(", 0.6 us a record as on an H200".to_owned(), |budget| {
                format!("; over the budget of {budget} %")
            });
            format!(" (CUPTI about {}{more})", share(ns / wall))
        });
        // Of many threads that wait at once it may be more than the processors have.
        let waits = own.cost_ns.filter(|(ns, _)| own.waited_ns > ns / 2.0).map_or(String::new(), |(_, wall)| {
            format!(" ({} of it threads that waited for room, added up)", share(own.waited_ns / wall))
        });
        let (lost, seen) = (number(own.dropped as f64), number(own.seen as f64));
        // The account of a collector that was killed ends a while before its events did.
        let known = if trace.manifests().any(Manifest::is_cut_short) { " that are known" } else { "" };
        let uncovered = own.uncovered.len();
        let _ = write!(out, "{whole}cost {cost}{waits}{windows}  lost {lost} of {seen}{known}  uncovered {uncovered}");
        if let Some(ranks) = ranks::present(content) {
            let _ = write!(out, "  ranks {ranks}");
        }
        out.push('\n');
    } else if !own.known {
        out.push_str("cost, loss and coverage not known: no manifest\n");
    }
    if let Some(line) = budget::line(content.facts) {
        let _ = writeln!(out, "{line}");
    }
    let named: Vec<&str> = own.uncovered.iter().chain(&own.past).map(String::as_str).collect();
    if !named.is_empty() {
        let more = if named.len() > 5 { ", ..." } else { "" };
        let _ = writeln!(out, "uncovered: {}{more}", named[..named.len().min(5)].join(", "));
    }
    if own.unbalanced > 0 {
        let _ = writeln!(out, "accounting does not add up in {} processes: see the manifest", own.unbalanced);
    }
    for note in notes(trace).iter().take(LINES) {
        let _ = writeln!(out, "note: {note}");
    }
    let mut removed = loss::removed(trace);
    removed.sort_by(|a, b| a.limit.cmp(&b.limit));
    for of_limit in removed.chunk_by(|a, b| a.limit == b.limit) {
        let spans: Vec<String> = of_limit.iter().map(|removed| loss::span(content.facts, removed)).collect();
        let _ = writeln!(out, "oldest detail removed to keep to {}: {}", of_limit[0].limit, spans.join(", "));
    }
    if let Some(stopped) = trace.manifests().find(|manifest| !manifest.complete && manifest.stopped_ns.is_some()) {
        let session = stopped.standing.as_deref().filter(|root| std::path::Path::new(root).exists());
        let running = stopped.processes.iter().filter(|process| process.running);
        let waiting: u64 = running.flat_map(|process| process.accounting.values()).map(Count::waiting).sum();
        out.push_str("gputrace collect was stopped");
        out.push_str(match session {
            Some(_) => ": what runs on records into its rings, and the next one goes on here",
            None => ", and its session is not here: gputrace recover ends the trace",
        });
        if waiting > 0 && session.is_some() {
            let _ = write!(out, "; {} waited there then", counted(waiting as f64, "event", "events"));
        }
        out.push('\n');
    }
    if own.incomplete {
        let known = match trace.manifests().any(|manifest| !manifest.complete) {
            true => "; what is missing beyond the lost above gputrace recover counts",
            false => "",
        };
        let _ = writeln!(out, "{}: what it had written is reported{known}", loss::why_incomplete(trace));
    }
    let folders: Vec<String> = trace.folders.iter().map(|f| quote(&f.to_string_lossy())).collect();
    let _ = writeln!(out, "next: gputrace report {}   ({})", folders.join(" "), file_size(trace.bytes));
    out
}

#[cfg(test)]
mod tests {
    use gputrace_collectors::manifest::{Count, Recovered};

    use super::super::Summary;
    use crate::trace::testing::{START, TestTrace};

    #[test]
    fn what_waits_in_the_rings_of_a_session_that_was_stopped_is_told() {
        let mut trace = TestTrace::new();
        trace.process(1, 100, None, START + 100_000_000);
        trace.thread(1, 11).launch("gemm", 3_000);
        let about = trace.manifest.as_mut().expect("a manifest");
        let root = std::env::temp_dir().display().to_string();
        (about.complete, about.stopped_ns, about.standing) = (false, Some(START + 100_000_000), Some(root));
        let process = &mut about.processes[0];
        process.running = true;
        let count = Count { seen: 1_200, recorded: 900, dropped: 50, in_flight: 1, ..Count::default() };
        process.accounting.insert("launch".to_owned(), count);
        let text = trace.section(&Summary).literal.unwrap_or_default();
        let says = "\ngputrace collect was stopped: what runs on records into its rings, and the next one goes on here; 249 events waited there then\n";
        assert!(text.contains(says), "{text}");
    }

    #[test]
    fn the_hole_that_a_killed_collector_leaves_is_no_slow_step() {
        let text = |kills: Vec<i64>| {
            let mut trace = TestTrace::new();
            trace.process(1, 100, None, START + 2_000_000_000);
            let mut thread = trace.thread(1, 11);
            for step in 0..100 {
                let began = thread.range_begin();
                thread.host(if step == 60 { 700_000_000 } else { 5_000_000 });
                thread.launch("gemm", 3_000);
                thread.sync("cuStreamSynchronize", "stream", 20_000);
                thread.range_end(None, &format!("step {step}"), began, true);
            }
            let about = trace.manifest.as_mut().expect("a manifest");
            let last = kills.last().map(|killed_ns| Recovered { killed_ns: *killed_ns, lost: 9, taken_over: true });
            (about.kills, about.recovered) = (kills, last);
            trace.section(&Summary).literal.unwrap_or_default()
        };
        let slow = text(Vec::new());
        assert!(slow.contains("; outliers 1: "), "{slow}");
        let gap = text(vec![START + 600_000_000]);
        assert!(gap.contains("(1 around a kill of gputrace left out)") && !gap.contains("outliers"), "{gap}");
    }
}
