//! Joins what the GPU did with the calls that caused it, and finds out what each call found pending.
//!
//! A correlation should be unique in its process. A call inside another one of its thread (the runtime calls the driver) is no
//! row of its own, as in recorded traces; what it caused belongs to the outer one.

use std::cmp::Reverse;
use std::num::NonZeroI64;

use rustc_hash::FxHashMap;

use super::calls::Kind;
use super::events::{Call, Lane, NOWHERE, Work};
use super::gathered::Gathered;
use super::{graphs, rounding, unmatched};

/// Correlations that the format does not give begin here; profilers count in 32 bits.
const OWN: i64 = 1 << 40;

/// What is known of a call beside what its format said.
#[derive(Clone, Copy, Debug)]
pub(super) struct Joined {
    /// Places of the first kernel and of the first copy that it caused, or [`NOWHERE`].
    kernel: u32,
    copy: u32,
    /// Kernels that it caused.
    pub(super) kernels: i32,
    /// It recorded its kernel into a graph.
    pub(super) captured: bool,
    /// Number of the graph that it launched, from 1 in each process; 0 for none, and where nothing tells.
    pub(super) graph: i32,
    /// `pending_streams`.
    pub(super) pending: i32,
}

impl Joined {
    const NOTHING: Joined =
        Joined { kernel: NOWHERE, copy: NOWHERE, kernels: 0, captured: false, graph: 0, pending: 0 };

    /// The first kernel that it caused.
    pub(super) fn kernel<'f>(&self, found: &'f Gathered) -> Option<&'f Work> {
        found.kernels.get(self.kernel as usize)
    }

    /// The first copy.
    pub(super) fn copy<'f>(&self, found: &'f Gathered) -> Option<&'f Work> {
        found.copies.get(self.copy as usize)
    }
}

/// Whose a correlation is: its process, and the place of the call.
type Id = (NonZeroI64, u32, u32);

/// Sorts everything by time, gives each work its process and each call what it caused. Calls inside others are gone, and
/// every call has a correlation.
pub(super) fn join(found: &mut Gathered) -> Vec<Joined> {
    found.kernels.sort_by_key(|work| work.start_ns);
    found.copies.sort_by_key(|work| work.start_ns);
    levels(found);
    let ids = outermost(found);
    number(found, &ids);
    let unnumbered = found.kernels.iter().chain(&found.copies).filter(|work| work.correlation.is_none()).count();
    let causes = causes(found, &ids);
    drop(ids);
    without_call(found, &causes, unnumbered);
    let mut joined = vec![Joined::NOTHING; found.calls.len()];
    let (kernels, copies) = causes.split_at(found.kernels.len());
    for (place, at) in (0..).zip(kernels) {
        let Some(joined) = joined.get_mut(*at as usize) else { continue };
        joined.kernel = joined.kernel.min(place);
        joined.kernels += i32::from(!found.kernel_kinds.get(found.kernels[place as usize].what).whole_graph);
    }
    for (place, at) in (0..).zip(copies) {
        let Some(joined) = joined.get_mut(*at as usize) else { continue };
        joined.copy = joined.copy.min(place);
    }
    for (at, graph) in graphs::launched(found, &causes) {
        joined[at as usize].graph = graph;
    }
    pending(found, &causes, &mut joined);
    unmatched::judge(found, &mut joined);
    joined
}

/// Says how many of the GPU's operations have no call, for what is said of launches is not of them.
fn without_call(found: &mut Gathered, causes: &[u32], unnumbered: usize) {
    let lone = causes.iter().filter(|at| **at == NOWHERE).count();
    if lone == 0 {
        return;
    }
    let why = match unnumbered {
        0 => "the file lacks the calls that they name".to_owned(),
        n if n == lone => "they name none (correlation 0, or no correlation)".to_owned(),
        n => format!("{n} name none (correlation 0, or no correlation), and the file lacks those of the others"),
    };
    found.notes.push(format!("{lone} of {} operations of the GPU have no call: {why}", causes.len()));
}

/// Finds out how many push_pop ranges are open around each, and leaves ranges in the order of their ends, as rows stand.
fn levels(found: &mut Gathered) {
    found.ranges.sort_by_key(|range| (range.start_ns, Reverse(range.end_ns)));
    rounding::straighten(&mut found.ranges, |range| {
        let named = found.named.get(range.named);
        (named.kind == "push_pop").then_some((named.process, named.tid))
    });
    let mut open: FxHashMap<(usize, i32, Option<i64>), Vec<i64>> = FxHashMap::default();
    for range in &mut found.ranges {
        let named = found.named.get(range.named);
        if named.kind == "push_pop" {
            let ends = open.entry((named.process, named.tid, named.domain_id)).or_default();
            ends.retain(|end| *end > range.start_ns);
            range.level = ends.len() as i32;
            ends.push(range.end_ns);
        }
    }
    found.ranges.sort_by_key(|range| (range.end_ns, Reverse(range.start_ns)));
}

/// Sorts the calls and takes those out that lie inside another one of their thread. The correlations of all of them, in order.
fn outermost(found: &mut Gathered) -> Vec<Id> {
    found.calls.sort_by_key(|call| (call.start_ns, Reverse(call.api_ns)));
    let mut ids = Vec::with_capacity(found.calls.len());
    // When the last call of a thread ends, and its place.
    let mut open: FxHashMap<(usize, i32), (i64, u32)> = FxHashMap::default();
    let (mut outer, mut nested) = (0, 0);
    let callers = &found.callers;
    found.calls.retain(|call| {
        let (caller, end) = (callers.get(call.caller), call.start_ns + call.api_ns);
        let (until, place) = open.entry((caller.process, caller.tid)).or_insert((i64::MIN, 0));
        let inside = call.api_ns > 0 && call.start_ns < *until && rounding::is_inside((call.start_ns, end), *until);
        if inside {
            nested += 1;
        } else {
            (*until, *place) = (end.max(*until), outer);
            outer += 1;
        }
        ids.extend(call.correlation.map(|id| (id, caller.process as u32, *place)));
        !inside
    });
    if nested > 0 {
        found.leave_out_many("calls inside other calls", nested);
    }
    ids.sort_unstable();
    ids.dedup();
    ids
}

/// Gives a correlation to calls that have none, and another one to those whose own an earlier call of their process has.
fn number(found: &mut Gathered, ids: &[Id]) {
    let mut repeated = 0;
    for same in ids.chunk_by(|one, next| (one.0, one.1) == (next.0, next.1)) {
        let mut taken = false;
        for (id, at) in same.iter().map(|id| (id.0, id.2 as usize)) {
            // A call inside another one has an id, but is no row.
            if found.calls[at].correlation == Some(id) && std::mem::replace(&mut taken, true) {
                found.calls[at].correlation = None;
                repeated += 1;
            }
        }
    }
    let mut next = OWN;
    for call in found.calls.iter_mut().filter(|call| call.correlation.is_none()) {
        next += 1;
        call.correlation = NonZeroI64::new(next);
    }
    if repeated > 0 {
        found.notes.push(format!(
            "{repeated} calls have the correlation of an earlier call of their process: what the GPU did under it is taken \
             for what the last of them before it caused"
        ));
    }
}

/// Finds the call that caused each kernel, then each copy: its place, or [`NOWHERE`]. Works get that call's process and number.
fn causes(found: &mut Gathered, ids: &[Id]) -> Vec<u32> {
    let only = if found.processes.len() == 1 { 0 } else { NOWHERE };
    let (calls, callers) = (&found.calls, &found.callers);
    let mut shared = 0u64;
    let cause = |work: &mut Work| -> u32 {
        let first = ids.partition_point(|id| Some(id.0) < work.correlation);
        let same = &ids[first..];
        let same = &same[..same.partition_point(|id| Some(id.0) <= work.correlation)];
        let same = if work.correlation.is_some() { same } else { &[] };
        let own = same.chunk_by(|one, next| one.1 == next.1).filter(|of| [of[0].1, NOWHERE].contains(&work.process));
        // Of several, after a fork or where numbers are used again, it was the one that asked last before the GPU began.
        let begins = |id: &Id| calls[id.2 as usize].start_ns;
        let last = own.clone().map(|of| &of[of.partition_point(|id| begins(id) <= work.start_ns).saturating_sub(1)]);
        let at = last.max_by_key(|id| match begins(id) {
            before if before <= work.start_ns => (true, before),
            after => (false, -after),
        });
        shared += u64::from(own.count() > 1);
        if work.process == NOWHERE {
            work.process = at.map_or(only, |id| id.1);
        }
        // Only launches and transfers are causes.
        let is_cause = |call: &Call| matches!(callers.get(call.caller).kind.class(), "launch" | "transfer");
        let at = at.map(|id| id.2).filter(|at| is_cause(&calls[*at as usize]));
        work.correlation = at.and_then(|at| calls[at as usize].correlation);
        at.unwrap_or(NOWHERE)
    };
    let causes = found.kernels.iter_mut().chain(&mut found.copies).map(cause).collect();
    if shared > 0 {
        found.notes.push(format!(
            "{shared} operations of the GPU have a correlation that calls of several processes have, as after a fork: each is \
             taken for what the last of these before it caused"
        ));
    }
    causes
}

/// How many streams still had work when a call that has to wait for them began: the trace knows when it ended.
fn pending(found: &Gathered, causes: &[u32], joined: &mut [Joined]) {
    let kernels = found.kernels.len();
    let work = |at: u32| match (at as usize).checked_sub(kernels) {
        None => (&found.kernels[at as usize], found.kernel_kinds.get(found.kernels[at as usize].what).lane),
        Some(copy) => (&found.copies[copy], found.copy_kinds.get(found.copies[copy].what).lane),
    };
    // What was queued, in the order of the calls that did it.
    let mut queued: Vec<u32> = (0..causes.len() as u32).filter(|at| causes[*at as usize] != NOWHERE).collect();
    queued.sort_by_key(|at| causes[*at as usize]);
    let mut queued = queued.into_iter().peekable();
    let mut busy: FxHashMap<Queue, i64> = FxHashMap::default();
    for (at, call) in found.calls.iter().enumerate() {
        let (caller, now) = (found.callers.get(call.caller), call.start_ns);
        let own = found.sync_stream(call).map(|(stream, _)| stream);
        let others = || busy.iter().filter(|((process, ..), end)| *process == caller.process && **end > now);
        joined[at].pending = match caller.kind {
            Kind::Sync("stream") if own.is_some() => others().filter(|(queue, _)| Some(queue.2) == own).count() as i32,
            Kind::Sync("stream" | "event") => others().count().min(1) as i32,
            Kind::Sync("context") | Kind::Alloc(_) | Kind::Free(_) | Kind::Module => others().count() as i32,
            Kind::Copy { .. } | Kind::Set { .. } => {
                let stream = joined[at].copy(found).map(|copy| found.copy_kinds.get(copy.what).lane.stream);
                others().filter(|(queue, _)| stream.is_none_or(|stream| queue.2 == stream)).count() as i32
            }
            _ => 0,
        };
        while let Some(done) = queued.next_if(|work| causes[*work as usize] as usize <= at) {
            let (work, lane) = work(done);
            if let Some(queue) = queue(work, lane) {
                let end = work.start_ns + work.gpu_ns;
                let until = busy.entry(queue).or_insert(end);
                *until = end.max(*until);
            }
        }
    }
}

/// A stream: process, device, number.
type Queue = (usize, i32, i64);

fn queue(work: &Work, lane: Lane) -> Option<Queue> {
    Some((work.process()?, lane.device.unwrap_or(0), lane.stream))
}
