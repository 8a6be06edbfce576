//! Which rows a report is about: a span of time, some processes, some ranks.

use std::sync::Arc;

use rustc_hash::{FxHashMap, FxHashSet};

use super::{Process, Spans, Trace};

/// In place of the process's id of a row that is of no process.
pub(crate) const NOBODY: i64 = i64::MIN;

/// Rows to keep. The default keeps all.
#[derive(Clone, Debug, Default, PartialEq)]
pub(crate) struct Filter {
    /// Keep what began at this time or later, ns since the epoch.
    pub(crate) from_ns: Option<i64>,
    /// Keep what began before this time.
    pub(crate) to_ns: Option<i64>,
    /// Keep these processes; all when none is named.
    pub(crate) processes: Option<FxHashSet<i64>>,
    /// Keep what began inside all of these.
    pub(crate) within: Vec<Arc<Spans>>,
    /// Keep these steps, of those that the whole run has; where they lie is in `within`.
    pub(crate) steps: Option<(usize, usize)>,
    /// Keep the calls and the work of one device, which has this ordinal in each process; rows that name no device stay.
    pub(crate) device: Option<Arc<FxHashMap<i64, i32>>>,
    /// Ranges of this name are the steps, or else calls of it mark them.
    pub(crate) step: Option<String>,
    /// Of what the GPU did keep what began in these times: it is known then, and not between them. Of calls nothing is left
    /// out.
    pub(crate) observed: Option<Arc<Spans>>,
    /// The interval of single events that is kept, of those of the trace; none: the user named a span, or all were kept.
    pub(crate) interval: Option<usize>,
    /// Launchers that have not kept what happened in it.
    pub(crate) left_out_launchers: usize,
    /// The processes that the user named, those of such launchers too; all when none was named.
    pub(crate) asked: Option<FxHashSet<i64>>,
}

impl Filter {
    /// Keeps all of a trace; of one that has single events in intervals only, the last one.
    pub(crate) fn of(trace: &Trace) -> Filter {
        let all = Filter::whole(trace);
        match trace.usual_interval() {
            Some(place) => all.in_interval(trace, place),
            None => all,
        }
    }

    /// Keeps all of a trace, whatever lies between its single events.
    pub(crate) fn whole(trace: &Trace) -> Filter {
        Filter { observed: trace.observed().map(Arc::new), ..Filter::default() }
    }

    /// Keeps the processes that have one of the pids, and one of the ranks, where any are named.
    pub(crate) fn only(mut self, processes: &[Process], pids: &[i32], ranks: &[i32]) -> Filter {
        if pids.is_empty() && ranks.is_empty() {
            return self;
        }
        let keep = |p: &&Process| {
            (pids.is_empty() || pids.contains(&p.pid))
                && (ranks.is_empty() || p.rank.is_some_and(|r| ranks.contains(&r)))
        };
        let known = self.processes.take();
        let keep = processes.iter().filter(keep).map(|p| p.process_id);
        self.asked = Some(keep.clone().collect());
        self.processes = Some(keep.filter(|id| known.as_ref().is_none_or(|known| known.contains(id))).collect());
        self
    }

    /// The same for sums of all events: an interval of single events does not bound them, a span that the user named does.
    pub(crate) fn of_sums(&self) -> Filter {
        match self.interval {
            Some(_) => Filter { from_ns: None, to_ns: None, processes: self.asked.clone(), ..self.clone() },
            None => self.clone(),
        }
    }

    /// Whether only a span of time is kept.
    pub(crate) fn is_window(&self) -> bool {
        self.from_ns.is_some() || self.to_ns.is_some() || !self.within.is_empty()
    }

    /// Whether what is in use was taken before what is kept, too: the user named its begin. Of intervals of single events it is
    /// not known what was done before.
    pub(crate) fn looks_back(&self) -> bool {
        self.interval.is_none() && (self.from_ns.is_some() || !self.within.is_empty())
    }

    /// The filter that keeps what steps are found in: those of the whole run, so that they are the same whatever part of it is
    /// kept. Of intervals of single events nothing is known around one.
    pub(crate) fn around_steps(&self) -> Filter {
        match self.interval {
            Some(_) => Filter { within: Vec::new(), ..self.clone() },
            None => Filter { within: Vec::new(), from_ns: None, to_ns: None, ..self.clone() },
        }
    }

    /// The span of time that the user named, of which only whole steps count; none where none was.
    pub(crate) fn named_span(&self) -> Option<(i64, i64)> {
        let named = self.interval.is_none() && (self.from_ns.is_some() || self.to_ns.is_some());
        named.then(|| (self.from_ns.unwrap_or(i64::MIN), self.to_ns.unwrap_or(i64::MAX)))
    }

    /// The one stretch of time in which what the GPU did for a process is kept, where a span or steps were chosen: it is known
    /// then from its begin to its end whether the GPU worked.
    pub(crate) fn work_span(&self, process_id: i64) -> Option<(i64, i64)> {
        let whole = self.named_span().unwrap_or((i64::MIN, i64::MAX));
        self.within.iter().filter(|spans| !spans.projects()).try_fold(whole, |(from, to), spans| {
            let (first, last) = spans.work_of(process_id)?;
            Some((from.max(first), to.min(last)))
        })
    }

    /// Begin of the calls that are kept, where a span or steps were chosen.
    pub(crate) fn begin_ns(&self) -> Option<i64> {
        let steps = self.within.iter().filter(|spans| !spans.projects()).filter_map(|spans| spans.first_ns());
        steps.chain(self.from_ns).max()
    }

    /// Whether there is such a stretch.
    pub(crate) fn is_stretch(&self) -> bool {
        self.named_span().is_some() || self.within.iter().any(|spans| !spans.projects())
    }

    /// Whether it takes the steps to know what is kept, or whether what is asked for is there.
    pub(crate) fn asks_for_steps(&self) -> bool {
        self.steps.is_some() || self.step.is_some()
    }

    /// Whether every row is kept.
    pub(crate) fn is_all(&self) -> bool {
        !self.is_window() && self.processes.is_none() && self.device.is_none()
    }

    /// Whether a row is kept; one of [`NOBODY`] is everybody's.
    pub(crate) fn keeps(&self, start_ns: i64, process_id: i64) -> bool {
        self.from_ns.is_none_or(|from| start_ns >= from)
            && self.to_ns.is_none_or(|to| start_ns < to)
            && (process_id == NOBODY || self.processes.as_ref().is_none_or(|p| p.contains(&process_id)))
    }

    /// Whether a call is kept as far as its thread and its device go; those that it does not name are none.
    pub(crate) fn keeps_place(&self, start_ns: i64, process_id: i64, tid: Option<i32>, device: Option<i32>) -> bool {
        self.within.iter().all(|spans| spans.hold(process_id, tid, start_ns)) && self.keeps_device(process_id, device)
    }

    /// The same of what the GPU did, for the call with this correlation id.
    pub(crate) fn keeps_work(&self, start_ns: i64, process_id: i64, cause: Option<i64>, device: Option<i32>) -> bool {
        self.within.iter().all(|spans| spans.hold_work(process_id, cause, start_ns))
            && self.observed_of(process_id).is_none_or(|spans| spans.hold(process_id, None, start_ns))
            && self.keeps_device(process_id, device)
    }

    /// When it is known what the GPU did for a process; none: all the time.
    pub(crate) fn observed_of(&self, process_id: i64) -> Option<&Spans> {
        self.observed.as_deref().filter(|spans| spans.are_of(process_id))
    }

    /// The part of the time that is kept of a process in which it is known what the GPU did.
    pub(crate) fn observed_share(&self, process_id: i64, span: (i64, i64)) -> f64 {
        let Some(spans) = self.observed_of(process_id) else { return 1.0 };
        let ns = |parts: &[(i64, i64)]| parts.iter().map(|(from, to)| to - from).sum::<i64>();
        let kept = self.kept_of(process_id, span);
        let seen: i64 =
            kept.iter().map(|part| spans.inside(process_id, *part).map(|(from, to)| to - from).sum::<i64>()).sum();
        seen as f64 / ns(&kept).max(1) as f64
    }

    /// Whether what the GPU did is kept, or known, in parts of the time that do not join.
    pub(crate) fn is_gapped(&self) -> bool {
        self.projects() || self.observed.is_some()
    }

    fn keeps_device(&self, process_id: i64, device: Option<i32>) -> bool {
        let (Some(wanted), Some(device)) = (&self.device, device.filter(|device| *device >= 0)) else { return true };
        wanted.get(&process_id) == Some(&device)
    }

    /// The same for work that the spans do not hold.
    pub(super) fn keeps_beside(&self, start_ns: i64, process_id: i64, cause: Option<i64>, device: Option<i32>) -> bool {
        self.keeps_device(process_id, device)
            && !self.within.iter().all(|spans| spans.hold_work(process_id, cause, start_ns))
    }

    /// Whether ranges are kept, with the work that was launched in them: the GPU's other work is no idle time then.
    pub(crate) fn projects(&self) -> bool {
        self.within.iter().any(|spans| spans.projects())
    }

    /// The parts of a time that lie inside of what is kept of a process, and known of the GPU.
    pub(crate) fn inside(&self, process_id: i64, span: (i64, i64)) -> Vec<(i64, i64)> {
        let kept = self.kept_of(process_id, span);
        match self.observed_of(process_id) {
            Some(spans) => kept.into_iter().flat_map(|part| spans.inside(process_id, part)).collect(),
            None => kept,
        }
    }

    /// The parts of a time that lie inside of what is kept of a process.
    pub(crate) fn kept_of(&self, process_id: i64, (from, to): (i64, i64)) -> Vec<(i64, i64)> {
        let window = (from.max(self.from_ns.unwrap_or(i64::MIN)), to.min(self.to_ns.unwrap_or(i64::MAX)));
        let whole = if window.0 < window.1 { vec![window] } else { Vec::new() };
        self.within
            .iter()
            .fold(whole, |parts, spans| parts.into_iter().flat_map(|part| spans.inside(process_id, part)).collect())
    }

    /// How long a process is inside of what is kept, where that is steps or ranges.
    pub(crate) fn inside_ns(&self, process_id: i64) -> Option<i64> {
        self.within.iter().map(|spans| spans.length_ns(process_id)).min()
    }

    /// Whether a row of memory is read: it is kept, or comes before what is.
    pub(super) fn reads(&self, start_ns: i64, process_id: i64, device: Option<i32>) -> bool {
        self.to_ns.is_none_or(|to| start_ns < to)
            && (process_id == NOBODY || self.processes.as_ref().is_none_or(|p| p.contains(&process_id)))
            && self.keeps_device(process_id, device)
    }

    /// Whether any row that began between the two times may be kept.
    pub(crate) fn may_keep(&self, first_ns: i64, last_ns: i64) -> bool {
        self.from_ns.is_none_or(|from| last_ns >= from) && self.to_ns.is_none_or(|to| first_ns < to)
    }
}
