//! The ranks of a distributed run in the summary: the slowest, each one's step, which are missing, which failed.

use std::cmp::Reverse;
use std::fmt::Write;

use super::Content;
use super::text::end_text;
use crate::analysis::passes::clocks::Aligned;
use crate::analysis::slowest::slowest;
use crate::findings::Subject;
use crate::render::{file_size, scale_ns, share};
use crate::trace::Process;

/// Ranks that are listed one by one; of more, the fastest, the middle and the slowest.
const LISTED: usize = 8;
/// Ranks that are named as having failed.
const NAMED: usize = 4;

/// The busiest process of each rank, in their order: a rank's helpers inherit its variables. Of several that work, each.
pub(super) fn of<'a>(content: &'a Content<'_>) -> Vec<(&'a Process, &'a Subject<'a>)> {
    let process = |s: &'a Subject<'a>| Some((content.facts.trace.process(s.process_id)?, s));
    let mut ranks: Vec<_> = content.subjects.iter().filter_map(process).filter(|(p, _)| p.rank.is_some()).collect();
    ranks.sort_by_key(|(process, _)| process.rank);
    ranks.dedup_by(|(later, _), (first, _)| later.rank == first.rank && later.apart.is_none());
    ranks
}

/// The process of each rank, in their order: the busiest one (of several that work, each), else one that calls NCCL only, else the first.
pub(super) fn all<'a>(content: &'a Content<'_>) -> Vec<&'a Process> {
    let busy: Vec<i64> = of(content).iter().map(|(process, _)| process.process_id).collect();
    let calls = |p: &Process| p.manifest.as_ref().and_then(|m| m.accounting.get("collective")).map_or(0, |c| c.seen);
    let mut all: Vec<&Process> = content.facts.processes().filter(|process| process.rank.is_some()).collect();
    all.sort_by_key(|p| (p.rank, Reverse(busy.contains(&p.process_id)), Reverse(calls(p)), p.start_ns));
    all.dedup_by(|later, first| later.rank == first.rank && later.apart.is_none());
    all
}

/// How many ranks are here.
pub(super) fn count(content: &Content<'_>) -> usize {
    all(content).chunk_by(|one, next| one.rank == next.rank).count()
}

/// `7/8`: how many are here, of how many there are; missing where there is but one.
pub(super) fn present(content: &Content<'_>) -> Option<String> {
    let ranks = all(content);
    let there_are = ranks.iter().filter_map(|process| process.world_size).max();
    match (count(content), there_are.unwrap_or(0)) {
        (0, _) | (1, ..=1) => None,
        (here, all) if all as usize >= here => Some(format!("{here}/{all}")),
        (here, _) => Some(here.to_string()),
    }
}

/// The slowest one, which is `main`, and what a usual step takes in each.
pub(super) fn lines(content: &Content<'_>, main: &Subject<'_>) -> String {
    let ranks = of(content);
    let p50 = |s: &Subject<'_>| s.steps.map_or(s.run_ns, |steps| steps.quantile_ns(0.5) as f64);
    let mut by_time: Vec<(f64, &Process)> = ranks.iter().map(|(process, s)| (p50(s), *process)).collect();
    by_time.sort_by(|a, b| a.0.total_cmp(&b.0));
    let mut out = String::new();
    let shown = by_time.iter().find(|(_, process)| process.process_id == main.process_id).or(by_time.last());
    let (Some(fastest), Some(shown)) = (by_time.first(), shown) else { return out };
    let middle = by_time[(by_time.len() - 1) / 2];
    let memory = memory(content, shown.1).unwrap_or_default();
    let label = shown.1.label();
    let _ = match slowest(content.facts) {
        Some((_, Some(beyond))) => {
            writeln!(out, " slowest {label} (+{} of the median rank); numbers are its{memory}", share(beyond))
        }
        Some((_, None)) => writeln!(out, " {label} keeps the others waiting; numbers are its{memory}"),
        None => writeln!(out, " numbers are of {label}{memory}"),
    };
    let (unit, divisor) = scale_ns(middle.0);
    let listed = match ranks.len() {
        ..=LISTED => ranks.iter().map(|(process, s)| (p50(s), *process)).collect(),
        _ => vec![*fastest, middle, *shown],
    };
    let name = |process: &Process| process.label().trim_start_matches("rank ").to_owned();
    let each = listed.iter().map(|(ns, process)| format!("{} {:.2}", name(process), ns / divisor));
    let each: Vec<String> = each.collect();
    let what = if ranks.iter().all(|(_, s)| s.steps.is_some()) { "step p50" } else { "driver calls" };
    let some = if ranks.len() > LISTED { " (fastest, median, slowest)" } else { "" };
    let _ = writeln!(out, " rank: {what} in {unit}{some}  {}", each.join(" | "));
    out
}

/// Whether several ranks talk to each other and nothing says who is late: no collective of theirs could be compared.
pub(super) fn is_unjudged(content: &Content<'_>) -> bool {
    let (ranks, gpu) = (&content.facts.ranks, content.facts.gpu.as_ref());
    let talks = gpu.is_some_and(|gpu| gpu.communication().next().is_some());
    let apart = ranks.clocks.all.iter().any(|clock| clock.by == Aligned::Not);
    of(content).len() > 1 && talks && (ranks.spread.count == 0 || apart)
}

/// `; reserved memory peak 118 of 141 GB`, where the process takes memory from the driver and has one GPU that is described.
fn memory(content: &Content<'_>, process: &Process) -> Option<String> {
    let facts = content.facts;
    let peak = facts.device_memory.processes.get(&process.process_id)?.peak_bytes;
    let [uuid] = process.manifest.as_ref()?.devices.as_slice() else { return None };
    let whole = facts.trace.device(uuid)?.memory_bytes?;
    let size = |bytes: i64| file_size(u64::try_from(bytes).unwrap_or(0));
    let (peak, whole) = ((peak > 0).then(|| size(peak))?, size(whole));
    let (number, unit) = peak.split_once(' ')?;
    let peak = if whole.ends_with(unit) { number } else { peak.as_str() };
    Some(format!("; reserved memory peak {peak} of {whole}"))
}

/// Ranks that failed, whether they called the driver or not.
pub(super) fn failed(content: &Content<'_>) -> String {
    let all = all(content);
    if all.len() < 2 && all.iter().all(|process| process.world_size.unwrap_or(1) < 2) {
        return String::new();
    }
    let failed = |p: &&&Process| p.exit_signal.is_some() || p.exit_code.is_some_and(|code| code != 0);
    let failed: Vec<&&Process> = all.iter().filter(failed).collect();
    if failed.is_empty() {
        return String::new();
    }
    let how = |p: &&&Process| {
        let rank = p.rank.unwrap_or_default();
        format!("rank {rank} (pid {}) {}", p.pid, end_text(p.exit_code, p.exit_signal))
    };
    let named: Vec<String> = failed.iter().take(NAMED).map(how).collect();
    let more = if failed.len() > NAMED { format!("; {} more", failed.len() - NAMED) } else { String::new() };
    format!(" failed: {}{more}\n", named.join("; "))
}
