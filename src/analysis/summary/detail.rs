//! The summary's lines on a trace that does not hold all single events: when, why, and how many.

use gputrace_collectors::Manifest;
use gputrace_collectors::manifest::{Count, KeptDetail};

use super::Content;
use crate::analysis::Facts;
use crate::render::{counted, duration, number, share};
use crate::trace::Interval;

/// Intervals that get a line: as many as triggers may open, and one of the end.
const LINES: usize = 11;

/// How many single events were kept, and the intervals with their reasons; nothing where all were.
pub(super) fn lines(content: &Content<'_>) -> String {
    let trace = content.facts.trace;
    let Some(intervals) = trace.intervals() else { return String::new() };
    let (left_out, kept) = counts(content.facts, |_| true);
    let about = || trace.manifests().filter_map(|manifest| manifest.detail.as_ref());
    // Collectors that took turns kept each what it was told to.
    let is_mixed = about().any(|detail| detail.since_ns.is_some());
    let what = match about().next().map(|detail| detail.mode.as_str()) {
        _ if is_mixed => format!(
            "{}, by collectors that went on with another --detail",
            counted(intervals.len() as f64, "interval", "intervals")
        ),
        _ if about().any(|detail| detail.recorded.is_some()) && !intervals.is_empty() => {
            counted(intervals.len() as f64, "interval", "intervals") + " in which recording was on"
        }
        Some("rollup") if !intervals.is_empty() => counted(intervals.len() as f64, "interval", "intervals"),
        Some("windows") => counted(intervals.len() as f64, "window", "windows"),
        Some("rollup") => "none, --detail rollup".to_owned(),
        _ => counted(intervals.len() as f64, "dump", "dumps"),
    };
    let switched = about().any(KeptDetail::is_switched);
    let all = left_out + kept;
    // What a collector that was killed, or is at work, had read last was not counted as left out yet; it may still wait for a reason to be kept.
    let kept = if intervals.is_empty() && !switched { 0 } else { kept };
    let of_all = if all == 0 { String::new() } else { format!(" ({})", share(kept as f64 / all as f64)) };
    let why = about().find_map(|detail| detail.never.as_deref()).filter(|_| intervals.is_empty());
    let why = why.map(|why| format!(": {why}")).unwrap_or_default();
    let mut out = if switched {
        format!("recording was on in {}{why}\n", counted(intervals.len() as f64, "interval", "intervals"))
    } else {
        let (kept, all) = (number(kept as f64), number(all as f64));
        format!("single events kept: {what}; {kept} of the {all} that --detail full writes{of_all}{why}\n")
    };
    if is_mixed || about().all(|detail| detail.windows.is_none()) {
        let hidden = intervals.len().saturating_sub(LINES);
        if hidden > 0 {
            out.push_str(&format!("  {hidden} earlier ones\n"));
        }
        for (place, interval) in intervals.iter().enumerate().skip(hidden) {
            out.push_str(&format!("  {}  {}\n", place + 1, line(content.facts, interval)));
        }
    }
    about().for_each(|detail| out.push_str(&limits(detail)));
    out
}

/// Events of the classes that `is_counted` takes that were left out, and those that are in the trace.
pub(super) fn counts(facts: &Facts<'_>, is_counted: impl Fn(&str) -> bool) -> (u64, u64) {
    let accounts = facts.trace.manifests().flat_map(Manifest::accounts).flat_map(|p| &p.accounting);
    let counted = accounts.filter(|(class, _)| is_counted(class)).map(|(_, count)| count);
    counted.fold((0, 0), |(left_out, kept), count: &Count| {
        (left_out.saturating_add(count.left_out), kept.saturating_add(count.kept()))
    })
}

/// `12.0 s .. 43.0 s  cuMemAlloc_v2 returned 2 in process 4711`: times since the trace began.
fn line(facts: &Facts<'_>, interval: &Interval) -> String {
    let after = |at: i64| duration(at.saturating_sub(facts.trace.began_ns()).max(0) as f64);
    format!("{} .. {}  {}", after(interval.from_ns), after(interval.to_ns), interval.why)
}

/// What of what was asked for could not be done.
fn limits(detail: &KeptDetail) -> String {
    let mut out = String::new();
    if let (Some(held_ns), Some(before_ns)) = (detail.held_ns, detail.before_ns) {
        let (held, asked) = (duration(held_ns as f64), duration(before_ns as f64));
        out.push_str(&format!(
            "  events of {held} filled what may wait, not {asked}: --flight-recorder-memory allows for more\n"
        ));
    }
    if detail.is_switched() && detail.refused > 0 {
        let more = counted(detail.refused as f64, "earlier interval is", "earlier intervals are");
        out.push_str(&format!("  {more} not told\n"));
    } else if detail.refused > 0 {
        let more = counted(detail.refused as f64, "reason for a dump", "reasons for a dump");
        out.push_str(&format!("  {more} came when there were as many as may be\n"));
    }
    out
}

#[cfg(test)]
mod tests {
    use gputrace_collectors::manifest::{Count, KeptDetail};

    use super::super::Summary;
    use crate::trace::testing::{START, TestTrace};

    #[test]
    fn what_a_killed_flight_recorder_still_held_is_not_said_to_be_kept() {
        let mut trace = TestTrace::new();
        trace.process(1, 100, None, START + 100_000_000);
        let about = trace.manifest.as_mut().expect("a manifest");
        about.complete = false;
        about.detail = Some(KeptDetail { mode: "triggered".to_owned(), ..KeptDetail::default() });
        let count = Count { seen: 35_094, recorded: 418, left_out: 34_676, ..Count::default() };
        about.processes[0].accounting.insert("launch".to_owned(), count);
        let text = trace.section(&Summary).literal.unwrap_or_default();
        assert!(
            text.contains("single events kept: 0 dumps; 0 of the 36,084 that --detail full writes (0 %)"),
            "{text}"
        );
    }
}
