//! Joins what the GPU did with the calls that caused it, and finds out what each call found pending.
//!
//! A correlation is unique in its process. A call inside another one of its thread (the runtime calls the driver) is no
//! row of its own, as in recorded traces; what it caused belongs to the outer one.

use rustc_hash::{FxHashMap, FxHashSet};

use super::calls::Kind;
use super::gathered::{Gathered, Work};

/// Correlations that the format does not give begin here; profilers count in 32 bits.
const OWN: i64 = 1 << 40;

/// What is known of a call beside what its format said.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Joined {
    /// Unique in the process.
    pub(super) correlation: i64,
    /// The first kernel that it caused, by its place.
    pub(super) kernel: Option<usize>,
    /// Kernels that it caused.
    pub(super) kernels: i32,
    /// The first copy.
    pub(super) copy: Option<usize>,
    /// `pending_streams`.
    pub(super) pending: i32,
}

/// Sorts everything by time, gives each work its process and each call what it caused. Calls inside others are gone.
pub(super) fn join(found: &mut Gathered) -> Vec<Joined> {
    found.kernels.sort_by_key(|kernel| kernel.work.start_ns);
    found.copies.sort_by_key(|copy| copy.work.start_ns);
    // Rows of ranges stand in the order of their ends.
    found.ranges.sort_by_key(|range| (range.end_ns, std::cmp::Reverse(range.start_ns)));
    let inner = outermost(found);
    let mut joined = vec![Joined::default(); found.calls.len()];
    let mut by_correlation: FxHashMap<i64, Vec<usize>> = FxHashMap::default();
    let mut taken: FxHashSet<(usize, i64)> = FxHashSet::default();
    let mut next = OWN;
    for (at, call) in found.calls.iter().enumerate() {
        let given = call.correlation.filter(|id| taken.insert((call.process, *id)));
        joined[at].correlation = given.unwrap_or_else(|| {
            next += 1;
            next
        });
        if let Some(given) = given {
            by_correlation.entry(given).or_default().push(at);
        }
    }
    for (correlation, process, start_ns) in inner {
        // The call around it is the last one of its thread that began before it.
        let thread = |call: &&super::gathered::Call| (call.process, call.tid) == process;
        let until = found.calls.partition_point(|call| call.start_ns <= start_ns);
        let outer = found.calls[..until].iter().rev().take(64).position(|call| thread(&call));
        if let Some(back) = outer.filter(|_| taken.insert((process.0, correlation))) {
            by_correlation.entry(correlation).or_default().push(until - 1 - back);
        }
    }
    let only = (found.processes.len() == 1).then_some(0);
    let cause = |work: &mut Work| -> Option<usize> {
        let candidates = work.correlation.and_then(|id| by_correlation.get(&id)).map_or(&[][..], Vec::as_slice);
        let own =
            candidates.iter().filter(|at| work.process.is_none_or(|process| found.calls[**at].process == process));
        // After a fork two processes count the same numbers: it was the one that asked last before the GPU began.
        let at = own.copied().max_by_key(|at| {
            let call = &found.calls[*at];
            (
                call.start_ns <= work.start_ns,
                if call.start_ns <= work.start_ns { call.start_ns } else { -call.start_ns },
            )
        });
        work.process = work.process.or(at.map(|at| found.calls[at].process)).or(only);
        // Only launches and transfers are causes.
        let at = at.filter(|at| matches!(found.calls[*at].kind.class(), "launch" | "transfer"));
        work.correlation = at.map(|at| joined[at].correlation);
        at
    };
    let mut causes = Vec::with_capacity(found.kernels.len() + found.copies.len());
    for kernel in &mut found.kernels {
        causes.push(cause(&mut kernel.work));
    }
    for copy in &mut found.copies {
        causes.push(cause(&mut copy.work));
    }
    let (kernels, copies) = causes.split_at(found.kernels.len());
    for (place, at) in kernels.iter().enumerate().filter_map(|(place, at)| Some((place, (*at)?))) {
        joined[at].kernel.get_or_insert(place);
        joined[at].kernels += 1;
    }
    for (place, at) in copies.iter().enumerate().filter_map(|(place, at)| Some((place, (*at)?))) {
        joined[at].copy.get_or_insert(place);
    }
    pending(found, kernels, copies, &mut joined);
    joined
}

/// Sorts the calls and takes those out that lie inside another one of their thread: correlation, thread and begin.
fn outermost(found: &mut Gathered) -> Vec<(i64, (usize, i32), i64)> {
    found.calls.sort_by_key(|call| (call.start_ns, std::cmp::Reverse(call.api_ns)));
    let mut inner = Vec::new();
    let mut ends: FxHashMap<(usize, i32), i64> = FxHashMap::default();
    let mut nested = 0;
    found.calls.retain(|call| {
        let (thread, end) = ((call.process, call.tid), call.start_ns + call.api_ns);
        let open = ends.entry(thread).or_insert(i64::MIN);
        if call.api_ns > 0 && call.start_ns < *open && end <= *open {
            nested += 1;
            inner.extend(call.correlation.map(|id| (id, thread, call.start_ns)));
            return false;
        }
        *open = end.max(*open);
        true
    });
    if nested > 0 {
        found.leave_out_many("calls inside other calls", nested);
    }
    inner
}

/// How many streams still had work when a call that has to wait for them began: the trace knows when it ended.
fn pending(found: &Gathered, kernels: &[Option<usize>], copies: &[Option<usize>], joined: &mut [Joined]) {
    // What each call queued: where, and until when it ran.
    let mut queued: Vec<(usize, Queue, i64)> = Vec::new();
    let works = found.kernels.iter().map(|k| &k.work).zip(kernels);
    for (work, at) in works.chain(found.copies.iter().map(|c| &c.work).zip(copies)) {
        queued.extend(at.zip(queue(work)).map(|(at, queue)| (at, queue, work.start_ns + work.gpu_ns)));
    }
    queued.sort_by_key(|(at, ..)| *at);
    let mut queued = queued.into_iter().peekable();
    let mut busy: FxHashMap<Queue, i64> = FxHashMap::default();
    for (at, call) in found.calls.iter().enumerate() {
        let now = call.start_ns;
        let own = found.sync_streams.get(&joined[at].correlation).map(|(stream, _)| *stream);
        let others = || busy.iter().filter(|((process, ..), end)| *process == call.process && **end > now);
        joined[at].pending = match call.kind {
            Kind::Sync("stream") if own.is_some() => others().filter(|(queue, _)| Some(queue.2) == own).count() as i32,
            Kind::Sync("stream" | "event") => others().count().min(1) as i32,
            Kind::Sync("context") | Kind::Alloc(_) | Kind::Free(_) | Kind::Module => others().count() as i32,
            Kind::Copy { .. } | Kind::Set { .. } => {
                let stream = joined[at].copy.map(|copy| found.copies[copy].work.stream);
                others().filter(|(queue, _)| stream.is_none_or(|stream| queue.2 == stream)).count() as i32
            }
            _ => 0,
        };
        while let Some((_, queue, end)) = queued.next_if(|(by, ..)| *by <= at) {
            let until = busy.entry(queue).or_insert(end);
            *until = end.max(*until);
        }
    }
}

/// A stream: process, device, number.
type Queue = (usize, i32, i64);

fn queue(work: &Work) -> Option<Queue> {
    Some((work.process?, work.device.unwrap_or(0), work.stream))
}
