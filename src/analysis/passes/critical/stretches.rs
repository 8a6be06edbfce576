//! Which steps of a long run are replayed: stretches of neighbours, spread evenly over the run.
//!
//! An event costs several times more to be replayed than to be counted, and a mean over the usual steps does not get any
//! better after some thousand of them. So of a run with more than [`CALLS`] calls so many are replayed, in stretches that
//! each have a usual step. A stretch begins with steps that do not count: in them host and GPU come as far apart
//! as they are, and would be without each class.

use rustc_hash::FxHashMap;

use crate::analysis::passes::steps::{ProcessSteps, Steps};

/// Calls that are replayed of all processes, as near as whole stretches come.
pub(super) const CALLS: f64 = 2e6;
/// Stretches at most, and steps of one at least.
const STRETCHES: f64 = 40.0;
const STEPS: usize = 8;
/// One step of so many does not count, at the begin of a stretch.
const LEAD_IN: usize = 8;

/// Neighbouring steps, by their numbers.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Stretch {
    pub(super) first: usize,
    /// The first one that counts.
    pub(super) counts: usize,
    /// The one after the last.
    pub(super) end: usize,
    /// From when to when, ns since the epoch.
    pub(super) from: i64,
    to: i64,
}

/// The stretches of all processes; a process without any is replayed as a whole.
#[derive(Debug)]
pub(super) struct Stretches {
    of: FxHashMap<i64, Vec<Stretch>>,
    /// The process of the last row, and the stretch in or before which it was.
    last: Option<(i64, usize)>,
    /// The share of the calls that is replayed.
    share: f64,
}

impl Stretches {
    /// Of so many calls of all processes.
    pub(super) fn new(steps: &Steps, most: f64) -> Stretches {
        let share = most / steps.calls().max(1) as f64;
        let long = steps.all.iter().filter(|_| share < 1.0).map(|own| (own.process_id, spread(own, share)));
        let of: FxHashMap<_, _> = long.filter(|(_, stretches)| !stretches.is_empty()).collect();
        Stretches { share: if of.is_empty() { 1.0 } else { share }, of, last: None }
    }

    /// The share of the calls that is replayed.
    pub(super) fn share(&self) -> f64 {
        self.share
    }

    /// Those of a process, in their order.
    pub(super) fn of(&self, process_id: i64) -> &[Stretch] {
        self.of.get(&process_id).map_or(&[], Vec::as_slice)
    }

    /// Whether any of these rows may be: between two stretches there are many.
    pub(super) fn hold_any(&self, process: &[i64], start: &[i64]) -> bool {
        if self.of.is_empty() {
            return true;
        }
        let (first, last) =
            start.iter().fold((i64::MAX, i64::MIN), |(first, last), at| (first.min(*at), last.max(*at)));
        let mut processes = process.chunk_by(|one, other| one == other).map(|run| self.of.get(&run[0]));
        processes.any(|of| of.is_none_or(|all| all.iter().any(|stretch| stretch.from <= last && first < stretch.to)))
    }

    /// Whether what began then is replayed.
    #[inline]
    pub(super) fn hold(&mut self, process_id: i64, at: i64) -> bool {
        if self.of.is_empty() {
            return true;
        }
        let Some(all) = self.of.get(&process_id) else { return true };
        let near = self.last.filter(|(process, _)| *process == process_id).map_or(0, |(_, near)| near);
        let here = |place: usize| {
            all.get(place).is_none_or(|this| at < this.to) && place.checked_sub(1).is_none_or(|last| all[last].to <= at)
        };
        let place = if here(near) { near } else { all.partition_point(|stretch| stretch.to <= at) };
        self.last = Some((process_id, place));
        all.get(place).is_some_and(|stretch| stretch.from <= at)
    }
}

/// So large a share of a process's steps, in stretches; none where that is nearly all of them.
fn spread(steps: &ProcessSteps, share: f64) -> Vec<Stretch> {
    let all = steps.each().len();
    let usual: Vec<usize> = (0..all).filter(|step| steps.is_middle(*step)).collect();
    let replayed = share * all as f64;
    let length = ((replayed / STRETCHES).ceil() as usize).max(STEPS);
    // Where every k-th step is a long one each stretch has its share of those.
    let lead_in = length / LEAD_IN;
    let length = lead_in + (length - lead_in).next_multiple_of(steps.usual_every());
    let count = (replayed as usize / length).clamp(1, usual.len().max(1));
    if usual.is_empty() || count * length * 2 > all {
        return Vec::new();
    }
    let mut stretches: Vec<Stretch> = Vec::new();
    for number in 0..count {
        let first = usual[(2 * number + 1) * usual.len() / (2 * count)].saturating_sub(lead_in);
        let first = stretches.last().map_or(first, |before| first.max(before.end));
        let end = (first + length).min(all);
        // The calls of a host that runs ahead came before.
        let begins = steps.boundary(first).zip(steps.host_boundary(first)).map(|(gpu, host)| gpu.min(host));
        if let Some((from, to)) = begins.zip(steps.boundary(end)).filter(|_| first < end) {
            let from = stretches.last().map_or(from, |before| from.max(before.to));
            stretches.push(Stretch { first, counts: first + lead_in, end, from, to });
        }
    }
    stretches
}
