//! A clock that jumped while another profiler recorded: events that lie hours from all others, and time that runs back.
//!
//! One such event would make the whole run look idle for days, so it is left out and counted. It is known by the calls before
//! and after it, which carry numbers in the order in which they were made, by the call that caused it, or because next to
//! nothing lies where it does. What may as well be a pause stays, and so do times that run back for many events: that is said.

use std::array;

use rustc_hash::FxHashMap;

use super::gathered::Gathered;
use super::rounding;
use crate::render::{counted, duration};

/// Nothing waits so long for what belongs to it.
const FAR_NS: i64 = 3_600_000_000_000;
/// Few events that lie so many times as far from the others as these take together are no part of the run.
const TIMES: i64 = 100;
/// Few: at most one for so many others.
const FEW: usize = 8;
/// A pause that is so many times as long as all that happened is said.
const PAUSE: i64 = 10;
/// A call that was made so long before the one before it, or after the one after it, was timed by another clock.
const APART_NS: i64 = 1_000_000_000;
/// A block of numbers begins in the first part of the run, of so many.
const BLOCK: i64 = 10;
/// A call that begins so much before the one made before it was timed by a clock that was set.
const BACK_NS: i64 = 1_000_000;
/// Where more of the calls than one in so many begin before their predecessors, their numbers tell no order.
const ORDERED: usize = 100;

/// Calls, kernels, copies, ranges, functions, collectives, what is told beside them: which are left out, by place.
type Strays = [Vec<bool>; 7];

/// Leaves out what a jump of the clock put elsewhere, and says what is known of jumps.
pub(super) fn judge(found: &mut Gathered) {
    let threads = in_order(found);
    let mut strays = [
        found.calls.len(),
        found.kernels.len(),
        found.copies.len(),
        found.ranges.len(),
        found.functions.len(),
        found.collectives.len(),
        found.beside.len(),
    ]
    .map(|events| vec![false; events]);
    by_number(found, &threads, &mut strays);
    let mut pauses = Vec::new();
    if found.span_ns().is_some_and(|(first, last)| is_far(first, last)) {
        // Of a call and its kernel that lie far apart the one is wrong that lies where nothing else does.
        by_place(found, &mut strays);
        by_cause(found, &mut strays);
        pauses = by_place(found, &mut strays);
    }
    tell_of_time_back(found, &threads, &strays);
    leave_out(found, &strays);
    found.notes.extend(pauses.iter().map(|(from, to)| to - from).max().map(|ns| {
        format!(
            "between two events lie {} without any: a pause, or a clock that jumped; no step, gap or range holds it",
            duration(ns as f64)
        )
    }));
    found.pauses = pauses;
}

/// Begin and end of all events, by list.
fn lists(found: &Gathered) -> [Vec<(i64, i64)>; 7] {
    let work = |list: &[super::events::Work]| list.iter().map(|of| (of.start_ns, of.start_ns + of.gpu_ns)).collect();
    [
        found.calls.iter().map(|of| (of.start_ns, of.start_ns + of.api_ns)).collect(),
        work(&found.kernels),
        work(&found.copies),
        found.ranges.iter().map(|of| (of.start_ns, of.end_ns)).collect(),
        found.functions.iter().map(|of| (of.start_ns, of.end_ns)).collect(),
        found.collectives.iter().map(|of| (of.start_ns, of.start_ns)).collect(),
        found.beside.iter().map(|of| (of.start_ns, of.start_ns + of.event_ns)).collect(),
    ]
}

/// The places of each thread's calls in the order of their numbers; without threads whose numbers come again.
fn in_order(found: &Gathered) -> Vec<Vec<usize>> {
    let mut threads: FxHashMap<(usize, i32), Vec<(i64, usize)>> = FxHashMap::default();
    for (place, call) in found.calls.iter().enumerate() {
        let caller = found.callers.get(call.caller);
        if let Some(number) = call.correlation {
            threads.entry((caller.process, caller.tid)).or_default().push((number.get(), place));
        }
    }
    threads.values_mut().for_each(|calls| calls.sort_unstable());
    let once = |calls: &Vec<(i64, usize)>| calls.windows(2).all(|pair| pair[0].0 != pair[1].0);
    let places = |calls: Vec<(i64, usize)>| calls.into_iter().map(|(_, place)| place).collect();
    threads.into_values().filter(once).map(places).collect()
}

fn is_far(one: i64, other: i64) -> bool {
    one.saturating_sub(other).saturating_abs() >= FAR_NS
}

/// Calls that were not made between the one before and the one after, though their numbers say so.
fn by_number(found: &Gathered, threads: &[Vec<usize>], strays: &mut Strays) {
    let at = |place: usize| found.calls[place].start_ns;
    for three in threads.iter().flat_map(|calls| calls.windows(3)) {
        let [before, own, after] = array::from_fn(|place| at(three[place]));
        let apart = before.saturating_sub(own).max(own.saturating_sub(after));
        strays[0][three[1]] |= before <= after && apart >= APART_NS;
    }
}

/// Work of the GPU that lies far from each call that may have caused it.
fn by_cause(found: &Gathered, strays: &mut Strays) {
    let mut calls: FxHashMap<i64, Vec<i64>> = FxHashMap::default();
    for (call, _) in found.calls.iter().zip(&strays[0]).filter(|(_, stray)| !**stray) {
        if let Some(number) = call.correlation {
            calls.entry(number.get()).or_default().push(call.start_ns);
        }
    }
    for (works, list) in [(&found.kernels, 1), (&found.copies, 2)] {
        for (work, stray) in works.iter().zip(&mut strays[list]) {
            let causes = work.correlation.and_then(|number| calls.get(&number.get()));
            *stray |= causes.is_some_and(|causes| causes.iter().all(|call| is_far(*call, work.start_ns)));
        }
    }
}

/// Of groups of events that lie far from each other those of a few that lie very far from where most are. The pauses
/// between what stays that are nearly all of it.
fn by_place(found: &Gathered, strays: &mut Strays) -> Vec<(i64, i64)> {
    let lists = lists(found);
    let all =
        || lists.iter().zip(0..).flat_map(|(of, list)| of.iter().enumerate().map(move |(at, span)| (list, at, *span)));
    // What itself takes hours says nothing about what lies beside it.
    let is_short = |span: (i64, i64)| !is_far(span.0, span.1);
    let mut spans: Vec<(i64, i64)> =
        all().filter(|(list, at, span)| !strays[*list][*at] && is_short(*span)).map(|(.., span)| span).collect();
    spans.sort_unstable();
    // Begin, end and number of events of each group.
    let mut groups: Vec<(i64, i64, usize)> = Vec::new();
    for (start, end) in spans {
        match groups.last_mut().filter(|(_, last, _)| start.saturating_sub(*last) < FAR_NS) {
            Some((_, last, count)) => (*last, *count) = (end.max(*last), *count + 1),
            None => groups.push((start, end, 1)),
        }
    }
    let Some(main) = groups.iter().max_by_key(|(.., count)| *count).copied() else { return Vec::new() };
    let apart = |(start, end): (i64, i64)| start.saturating_sub(main.1).max(main.0.saturating_sub(end)).max(0);
    let enough = TIMES.saturating_mul(main.1 - main.0).max(FAR_NS);
    let is_stray = |group: &(i64, i64, usize)| group.2 * FEW <= main.2 && apart((group.0, group.1)) >= enough;
    let (gone, stay): (Vec<_>, Vec<_>) = groups.into_iter().partition(is_stray);
    for (list, at, span) in all() {
        let in_gone = |group: &(i64, i64, usize)| (group.0..=group.1).contains(&span.0);
        strays[list][at] |= is_short(span) && gone.iter().any(in_gone);
    }
    let busy: i64 = stay.iter().map(|(start, end, _)| end - start).sum();
    let pauses = stay.windows(2).map(|pair| (pair[0].1, pair[1].0));
    pauses.filter(|(from, to)| to - from >= busy.saturating_mul(PAUSE)).collect()
}

fn leave_out(found: &mut Gathered, strays: &Strays) {
    fn keep<T>(list: &mut Vec<T>, strays: &[bool]) {
        let mut strays = strays.iter();
        list.retain(|_| strays.next() != Some(&true));
    }
    let count: usize = strays.iter().map(|list| list.iter().filter(|stray| **stray).count()).sum();
    if count == 0 {
        return;
    }
    let lists = lists(found);
    let spans = |stray: bool| {
        let of = lists.iter().zip(strays).flat_map(|(spans, strays)| spans.iter().zip(strays));
        of.filter(move |(_, is)| **is == stray).map(|(span, _)| *span)
    };
    let (first, last) = spans(false).fold((i64::MAX, i64::MIN), |all, one| (all.0.min(one.0), all.1.max(one.1)));
    let beside = |(start, end): (i64, i64)| start.saturating_sub(last).max(first.saturating_sub(end)).max(0);
    let most = spans(true).map(beside).max().unwrap_or(0);
    keep(&mut found.calls, &strays[0]);
    keep(&mut found.kernels, &strays[1]);
    keep(&mut found.copies, &strays[2]);
    keep(&mut found.ranges, &strays[3]);
    keep(&mut found.functions, &strays[4]);
    keep(&mut found.collectives, &strays[5]);
    keep(&mut found.beside, &strays[6]);
    found.notes.push(format!(
        "a clock jumped: {}, up to {} from all others, and left out",
        counted(
            count as f64,
            "event is timed far from what belongs to it",
            "events are timed far from what belongs to them"
        ),
        duration(most as f64)
    ));
}

/// Whether a thread's calls come in blocks of numbers, each from the begin of the run on, of which none cuts into another's: a
/// profiler that numbers launches first and allocations then. A clock that was set puts calls across others.
fn are_blocks(found: &Gathered, calls: &[usize]) -> bool {
    let span = |place: usize| (found.calls[place].start_ns, found.calls[place].start_ns + found.calls[place].api_ns);
    let mut spans: Vec<(i64, i64)> = calls.iter().map(|place| span(*place)).collect();
    let (first, last) = spans.iter().fold((i64::MAX, i64::MIN), |all, one| (all.0.min(one.0), all.1.max(one.1)));
    let back = |pair: &&[usize]| span(pair[0]).0.saturating_sub(span(pair[1]).0) >= BACK_NS;
    let from_the_begin = |pair: &[usize]| span(pair[1]).0 <= first.saturating_add(last.saturating_sub(first) / BLOCK);
    // What begins before all others is no block of theirs, but a jump.
    let beside = calls.first().is_some_and(|place| span(*place).0 <= first.saturating_add((last - first) / BLOCK));
    spans.sort_unstable_by_key(|(start, end)| (*start, std::cmp::Reverse(*end)));
    let mut open = i64::MIN;
    let crosses = |(start, end): &(i64, i64)| {
        let cut = *start < open && !rounding::is_inside((*start, *end), open);
        open = open.max(*end);
        cut
    };
    beside && calls.windows(2).filter(back).all(from_the_begin) && !spans.iter().any(crosses)
}

/// Says where calls of a thread that stay begin before those that were made before them.
fn tell_of_time_back(found: &mut Gathered, threads: &[Vec<usize>], strays: &Strays) {
    let at = |place: usize| found.calls[place].start_ns;
    let threads = || threads.iter().filter(|calls| !are_blocks(found, calls));
    let pairs = || threads().flat_map(|calls| calls.windows(2));
    let stay = |pair: &&[usize]| pair.iter().all(|place| !strays[0][*place]);
    let by = pairs().filter(stay).map(|pair| at(pair[0]).saturating_sub(at(pair[1]))).filter(|ns| *ns >= BACK_NS);
    let (count, most) = by.fold((0, 0), |(count, most), ns| (count + 1, ns.max(most)));
    if count > 0 && (count == 1 || count * ORDERED <= pairs().count()) {
        found.back_ns = Some(most);
        found.notes.push(format!(
            "time runs back {} in a thread, by {} at most: the clock was set meanwhile, and what lies before and after is mixed up",
            counted(count as f64, "time", "times"),
            duration(most as f64)
        ));
    }
}
