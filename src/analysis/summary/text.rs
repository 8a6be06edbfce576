//! The literal shape of the summary (metrics.md): at most a screen, the same lines in the same order every time.

use std::fmt::Write;

use gputrace_collectors::schema::TableId;

use super::{Content, calls, detail, devices, ending, ranks, steps};
use crate::analysis::loss::{self, Loss};
use crate::analysis::removed;
use crate::analysis::{Cause, Facts};
use crate::analysis::{bound, by_stack, gpu};
use crate::findings::{Each, Subject};
use crate::render::{counted, duration, number, scale_ns, share, time};
use crate::trace::{Process, columns_of, front, printable, shortened};

/// Characters of the command that are shown.
const COMMAND: usize = 60;
/// Idle time beyond the usual step's, as a share of the mean step, that is said.
const UNUSUAL: f64 = 0.05;
/// Below this share of the unit the GPU's idle time is told in one number.
const IDLE: f64 = 0.1;
/// GPUs of a process that are listed one by one.
const GPUS: usize = 8;
/// Processes that get a line.
const LINES: usize = 4;

/// Why it is not known what is fine, where it is not: what the trace lacks would have told.
pub(super) fn fine_unknown(content: &Content<'_>) -> Option<String> {
    if let Some(problem) = content.facts.trace.problems().iter().find(|p| p.lost_rows()) {
        return Some(format!("the trace is not whole, what is fine is not known: {problem}"));
    }
    if let Some(lost) = lost_share(content.facts).filter(|lost| *lost > 0.01) {
        return Some(format!("{} of the driver's calls are lost: what is fine is not known", share(lost)));
    }
    let launches: u64 = content.facts.launches.processes.iter().map(|(_, own)| own.count).sum();
    let removed = loss::removed(content.facts.trace).into_iter().find(|of| of.table == TableId::Launches.table().name);
    if removed.is_some_and(|removed| removed.rows > launches) {
        return Some(
            "most launches were removed to keep to --max-size, --max-age or --keep-detail: what is fine is not known"
                .to_owned(),
        );
    }
    match (content.own.known, content.own.unaccounted) {
        (false, _) => Some("without a manifest nobody knows what the trace lacks, nor what is fine".to_owned()),
        (_, true) => Some("how much is lost is not known, nor what is fine".to_owned()),
        _ => None,
    }
}

/// The summary.
pub(crate) fn text(content: &Content<'_>, main: Option<&Subject<'_>>) -> String {
    let mut out = head(content, main);
    match (main, &content.verdict) {
        (Some(main), Some(verdict)) => {
            let _ = writeln!(out, "{}: {}", verdict.word, verdict.text);
            out.push_str(&step_lines(content, main));
            out.push_str(&process_lines(content, main));
            out.push_str(&ranks::failed(content));
            out.push_str(&ending::finding_lines(content, main));
        }
        _ => {
            out.push_str(&ending::without_calls(content));
            out.push_str(&by_stack::line(content.facts).unwrap_or_default());
            out.push_str(&ranks::failed(content));
        }
    }
    out.push_str(&ending::hung(content));
    out.push_str(&ending::lost_lines(content));
    out.push_str(&ending::untraced_lines(content));
    if main.is_some() {
        match fine_unknown(content) {
            Some(why) => out.push_str(&format!("{why}\n")),
            None if content.findings.fine.is_empty() => {}
            None => out.push_str(&format!("checked, fine: {}\n", content.findings.fine.join(", "))),
        }
        // What a GPU that is busy could do better stands in no trace.
        let busy = main.is_some_and(|s| s.on_gpu.is_some()) && content.findings.found.is_empty();
        let metal = content.facts.is_metal_only();
        let unknown = [
            (main.is_some_and(|s| s.on_gpu.is_some() || s.busy.is_some()), "GPU busy and idle time"),
            (main.is_none_or(|s| s.on_gpu.is_some() || s.busy.is_none()), "why the GPU idles"),
            (main.is_none_or(|s| s.calls_doubt.is_none()), "launches and waits"),
            (!ranks::is_unjudged(content), "which rank the others wait for"),
            (content.facts.sites.any(), "call sites"),
            (!busy || metal, "warp stalls (report has the ncu command)"),
            (!metal, "kernels within a command buffer"),
            (content.facts.trace.has_torch_memory(), "tensors inside a caching allocator"),
        ];
        let unknown: Vec<&str> = unknown.into_iter().filter(|(known, _)| !known).map(|(_, what)| what).collect();
        if !unknown.is_empty() {
            let _ = writeln!(out, "not known: {}", unknown.join("; "));
        }
    }
    out.push_str(&detail::lines(content));
    out.push_str(&ending::own_lines(content));
    out
}

/// The share of the calls that findings are about and that are not in the trace.
pub(super) fn lost_share(facts: &Facts<'_>) -> Option<f64> {
    Some(1.0 - Loss::of_driver_calls(facts)?.kept())
}

/// `gputrace: python train.py  exit 0  64.1 s  5,203 steps  GPU 0 H200`
fn head(content: &Content<'_>, main: Option<&Subject<'_>>) -> String {
    let facts = content.facts;
    let manifest = facts.trace.manifests().next();
    let root = manifest.and_then(|m| m.root);
    let process = root.and_then(|r| r.process_id).and_then(|id| facts.trace.process(id));
    let process = process.or_else(|| facts.processes().filter(|p| p.summed == 0).min_by_key(|p| p.start_ns));
    let command = match manifest.map(|m| m.command.as_slice()) {
        Some([program, rest @ ..]) => {
            let program = program.rsplit('/').next().unwrap_or(program);
            let words = std::iter::once(program).chain(rest.iter().map(String::as_str));
            words.map(gputrace_collectors::quote).collect::<Vec<_>>().join(" ")
        }
        _ => process.map_or_else(|| "command not known".to_owned(), |p| p.command.clone()),
    };
    let command = printable(&command.replace(char::is_control, " "));
    let command = if columns_of(&command) > COMMAND { format!("{}..", front(&command, COMMAND - 2)) } else { command };
    let mut out = format!("gputrace: {command}");
    let ranks = ranks::count(content);
    if ranks > 1 {
        let _ = write!(out, "  {ranks} ranks");
    }
    let _ = write!(out, "  {}", endings(content, process));
    if let Some(wall) = wall_ns(content, process) {
        let _ = write!(out, "  {}", duration(wall));
    }
    out.push_str(&window(content));
    if let Some(steps) = main.and_then(|s| s.steps) {
        let what = if steps.count == 1 { "step" } else { "steps" };
        let _ = write!(out, "  {} {what}", number(steps.count as f64));
    }
    let mut numbers: Vec<i32> = facts.host.devices.iter().copied().collect();
    numbers.sort_unstable();
    // Each rank counts its GPUs from 0.
    if !numbers.is_empty() && ranks < 2 {
        let numbers: Vec<String> = numbers.iter().map(i32::to_string).collect();
        let _ = write!(out, "  GPU {}{}", numbers.join(","), devices::name(facts));
    }
    out.push('\n');
    out
}

/// How the command ended; where several launchers share the trace, each end that there was, the most frequent first.
fn endings(content: &Content<'_>, process: Option<&Process>) -> String {
    if content.facts.trace.manifests().any(|manifest| manifest.standing.is_some()) {
        let programs = content.facts.processes().count() as f64;
        return format!("a session of {}", counted(programs, "process", "processes"));
    }
    let mut ends: Vec<(String, Vec<String>)> = Vec::new();
    for manifest in content.facts.trace.manifests() {
        let root = manifest.root.unwrap_or_default();
        let own = root.process_id.and_then(|id| content.facts.trace.process(id)).or(process);
        let end = match (root.exit_code, root.exit_signal) {
            (None, None) => end_text(own.and_then(|p| p.exit_code), own.and_then(|p| p.exit_signal)),
            (code, signal) => end_text(code, signal),
        };
        let label = own.map_or_else(|| manifest.host.clone(), Process::label);
        match ends.iter_mut().find(|(known, _)| *known == end) {
            Some((_, labels)) => labels.push(label),
            None => ends.push((end, vec![label])),
        }
    }
    ends.sort_by_key(|(_, labels)| std::cmp::Reverse(labels.len()));
    match ends.as_slice() {
        [] => end_text(process.and_then(|p| p.exit_code), process.and_then(|p| p.exit_signal)),
        [(end, _)] => end.clone(),
        [(end, _), others @ ..] => {
            let who = |labels: &[String]| match labels {
                [] | [_] | [_, _] | [_, _, _] => labels.join(", "),
                [first, ..] => format!("{first} and {} more", labels.len() - 1),
            };
            let others = others.iter().map(|(end, labels)| format!("{}: {end}", who(labels)));
            format!("{end} ({})", others.collect::<Vec<_>>().join("; "))
        }
    }
}

/// How a process ended.
pub(super) fn end_text(code: Option<i32>, signal: Option<i32>) -> String {
    match (code, signal) {
        (_, Some(signal)) => format!("signal {signal}"),
        (Some(code), None) => format!("exit {code}"),
        (None, None) => "exit not known".to_owned(),
    }
}

/// How long the command ran: as its launcher saw it, else from its own start to its end, else as long as the trace; where it is not known
/// which of several processes was the command (of an import), as long as the trace.
fn wall_ns(content: &Content<'_>, process: Option<&Process>) -> Option<f64> {
    let manifest = content.facts.trace.manifests().next();
    if let Some(session) = manifest.filter(|manifest| manifest.standing.is_some()) {
        let end = content.facts.trace.ended_ns().or(session.stopped_ns)?;
        return Some((end - session.started_ns) as f64);
    }
    let root = manifest.and_then(|m| m.root?.wall_ns).map(|ns| ns as f64);
    let own = process.filter(|p| p.end_ns.is_some()).map(|p| content.facts.whole_wall_ns(p.process_id));
    let launcher = manifest.and_then(|m| Some((m.ended_ns? - m.started_ns) as f64));
    let own = own.filter(|wall| *wall > 0.0);
    let known = manifest.is_some_and(|m| m.root.is_some()) || content.facts.processes().nth(1).is_none();
    root.or(own.filter(|_| known)).or(launcher).or(own)
}

/// `  (reported: 10.0 s .. 12.5 s)` where only a span of time is.
fn window(content: &Content<'_>) -> String {
    let (filter, began) = (content.facts.filter, content.facts.trace.began_ns());
    let after = |at: i64| duration(at.saturating_sub(began) as f64);
    match (filter.from_ns, filter.to_ns) {
        (None, None) if !filter.within.is_empty() => "  (reported: chosen steps or ranges)".to_owned(),
        (None, None) => String::new(),
        (Some(from), None) => format!("  (reported: from {} on)", after(from)),
        (from, Some(to)) => format!("  (reported: {} .. {})", from.map_or("0".to_owned(), after), after(to)),
    }
}

/// The step line, the GPU line, the host line and the line of counts.
fn step_lines(content: &Content<'_>, main: &Subject<'_>) -> String {
    let mut out = String::new();
    let usual = main.steps.map_or(main.unit_ns, |s| s.quantile_ns(0.5) as f64);
    let (unit, divisor) = scale_ns(usual);
    let shown = |ns: f64| {
        let value = ns / divisor;
        match usual / divisor {
            u if u < 99.95 => format!("{value:.2}"),
            _ => format!("{value:.1}"),
        }
    };
    out.push_str(&steps::lines(content.facts, main, unit, &shown));
    out.push_str(&gpu_line(main, &shown));
    out.push_str(&mean_idle_line(main, &shown));
    out.push_str(&each_gpu_line(main));
    out.push_str(&bound::line(content.facts, main.process_id));
    if let Some(windows) = gpu::windows(content.facts) {
        let what = if main.on_gpu.is_some() {
            "the lines of GPU and host are of steps in these, where CUPTI makes launches dearer (launch-overhead has the run's)"
        } else {
            "none holds a whole step, and what the GPU did in one is not known (a longer --gpu-window-every, or more --budget)"
        };
        let _ = writeln!(out, "  {windows}: {what}");
    }
    out.push_str(&calls::lines(content, main, &shown));
    out
}

/// What the GPU did: where it idles, for which reasons, else with what it was busy.
fn gpu_line(main: &Subject<'_>, shown: &dyn Fn(f64) -> String) -> String {
    let Some(gpu) = &main.on_gpu else {
        return match main.gpu_doubt {
            Some(_) => " GPU   busy and idle time not known: see the verdict (host side only)\n".to_owned(),
            None => estimate_line(main, shown),
        };
    };
    let (busy, idle) = (gpu.busy_ns(), gpu.all_idle_ns());
    if idle >= IDLE * main.unit_ns {
        let (not_launched, after) = (gpu.not_launched_ns(), gpu.idle_ns(&[Cause::AfterWait]));
        let (first, second, third) = (shown(not_launched), shown(after), shown((idle - not_launched - after).max(0.0)));
        let busy = shown(busy);
        return format!(" GPU   busy {busy} | idle: not launched {first}, after wait {second}, other {third}\n");
    }
    let exposed = [("NCCL exposed", gpu.communication_ns), ("copies exposed", gpu.copy_ns)];
    let exposed: String = exposed
        .iter()
        .filter(|(_, ns)| *ns >= 0.005 * main.unit_ns)
        .map(|(name, ns)| format!(", {name} {}", shown(*ns)))
        .collect();
    let waiting = gpu.communication_ns - main.transferring_ns(gpu);
    let exposed = match waiting >= 0.005 * main.unit_ns {
        true => format!("{exposed} (of NCCL {} waiting for ranks)", shown(waiting)),
        false => exposed,
    };
    let of = share(busy / main.unit_ns.max(1.0));
    format!(" GPU   busy {} ({of}): compute {}{exposed} | idle {}\n", shown(busy), shown(gpu.compute_ns), shown(idle))
}

/// An estimate that may be off by so much of a step says nothing.
const MOST_UNSURE: f64 = 0.5;

/// Whether launches of the process were to be timed.
fn events_were_asked(main: &Subject<'_>) -> bool {
    let mut asked = main.facts.processes().filter(|process| process.process_id == main.process_id);
    asked.any(|process| {
        let about = process.manifest.as_ref().and_then(|about| about.gpu_time.as_ref());
        about.is_some_and(|about| about.events.is_some())
    })
}

/// How busy the GPU was by launches that were timed, where nothing else tells of it.
fn estimate_line(main: &Subject<'_>, shown: &dyn Fn(f64) -> String) -> String {
    let Some(busy) = &main.busy else {
        let why = match main.metal {
            _ if loss::is_removed(main.facts.trace, &[TableId::CommandBuffers, TableId::Kernels]) => {
                "removed to keep to --max-size, --max-age or --keep-detail"
            }
            true => "no command buffer was seen to complete",
            false if events_were_asked(main) => "by --gpu-time events no launch was timed: the run was too short",
            false => "--gpu-time full or events",
        };
        return format!(" GPU   busy not recorded ({why}; host side only)\n");
    };
    let of = |ns: f64| share(ns / main.unit_ns.max(1.0));
    let (timed, launches) = (number(busy.timed as f64), number(busy.launches));
    let told = if busy.told > 0 { format!(" and {} seen in windows", number(busy.told as f64)) } else { String::new() };
    if busy.error_ns > MOST_UNSURE * main.unit_ns {
        return format!(
            " GPU   busy not known: {timed} of {launches} launches timed{told}, too few to say; host side only\n"
        );
    }
    let shared = match busy.processes {
        0 | 1 => String::new(),
        others => format!("  by this process alone: {others} processes share the GPU, see gpu-utilisation\n"),
    };
    format!(
        " GPU   busy about {} ({}, give or take {}): estimated, {timed} of {launches} launches timed{told}; copies not known\n{shared}",
        shown(busy.ns),
        of(busy.ns),
        of(busy.error_ns)
    )
}

/// Where the GPU idles for much longer than in the usual step, in steps that are not usual, how long in the mean of all.
fn mean_idle_line(main: &Subject<'_>, shown: &dyn Fn(f64) -> String) -> String {
    let (Some(gpu), Some(steps)) = (&main.on_gpu, main.steps) else { return String::new() };
    let more = gpu.mean_idle_ns.filter(|mean| mean - gpu.all_idle_ns() >= UNUSUAL * steps.mean_ns());
    more.map_or(String::new(), |mean| {
        format!(
            "  unusual steps have longer gaps: idle {} of {} in the mean step\n",
            shown(mean),
            shown(steps.mean_ns())
        )
    })
}

/// Where a process has several GPUs, how much each works: the line above has their mean.
fn each_gpu_line(main: &Subject<'_>) -> String {
    let each = main.on_gpu.as_ref().map_or(&[][..], |gpu| &gpu.each);
    if each.len() < 2 {
        return String::new();
    }
    let busy = |of: &Each| format!("{} {}", of.name, share(of.busy_ns / main.unit_ns.max(1.0)));
    let listed: Vec<String> = each.iter().take(GPUS).map(busy).collect();
    let more = if each.len() > GPUS { format!(" | and {} more", each.len() - GPUS) } else { String::new() };
    format!("  the mean of {} GPUs, each busy: {}{more}\n", each.len(), listed.join(" | "))
}

/// The ranks, or other processes in a line each.
fn process_lines(content: &Content<'_>, main: &Subject<'_>) -> String {
    if ranks::of(content).len() > 1 {
        return ranks::lines(content, main);
    }
    let mut out = String::new();
    let others: Vec<&Subject<'_>> = content.subjects.iter().filter(|s| s.process_id != main.process_id).collect();
    if others.is_empty() {
        return out;
    }
    let _ = writeln!(out, " numbers are of {}; also", describe(content, main));
    for subject in others.iter().take(LINES) {
        let steps = subject.steps.map_or(String::new(), |s| {
            format!(", {} steps, p50 {}", number(s.count as f64), time(s.quantile_ns(0.5) as f64))
        });
        let launches = content.facts.launches.processes.get(&subject.process_id).map_or(0, |l| l.count);
        let launches = match removed::lacks(content.facts, &[TableId::Launches], false) {
            Some(_) => "launches not known".to_owned(),
            None => counted(launches as f64, "launch", "launches"),
        };
        let _ = writeln!(out, "   {}: {launches}{steps}", describe(content, subject));
    }
    if others.len() > LINES {
        let _ =
            writeln!(out, "   ... and {}", counted((others.len() - LINES) as f64, "more process", "more processes"));
    }
    out
}

fn describe(content: &Content<'_>, subject: &Subject<'_>) -> String {
    let label = content.facts.label(subject.process_id);
    let exe = content.facts.trace.process(subject.process_id).map_or("", |p| p.exe.as_str());
    format!("{label} {}", shortened(exe.rsplit('/').next().unwrap_or(exe), 30)).trim_end().to_owned()
}
