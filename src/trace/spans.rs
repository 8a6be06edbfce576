//! Spans of time of processes and threads: what lies inside chosen steps or ranges.

use std::collections::BTreeSet;

use rustc_hash::FxHashMap;

/// Spans that do not overlap, in order, by process and thread.
#[derive(Clone, Debug, Default, PartialEq)]
pub(crate) struct Spans {
    threads: FxHashMap<(i64, i32), Vec<(i64, i64)>>,
    processes: FxHashMap<i64, Vec<(i64, i64)>>,
    /// Correlation ids of the calls inside, from one to before another, by process. Those of a thread are numbered one after
    /// another, so that a range takes one entry, however many calls it holds.
    calls: Option<FxHashMap<i64, Vec<(i64, i64)>>>,
    /// Where what the GPU did lies by its own time, of processes of which that is another time than their calls'.
    work: FxHashMap<i64, (i64, i64)>,
}

impl Spans {
    /// Adds a span of a thread, or of all threads of a process.
    pub(crate) fn add(&mut self, process_id: i64, tid: Option<i32>, span: (i64, i64)) {
        if let Some(tid) = tid {
            self.threads.entry((process_id, tid)).or_default().push(span);
        }
        self.processes.entry(process_id).or_default().push(span);
    }

    /// Puts them in order, once all are there.
    pub(crate) fn ordered(mut self) -> Spans {
        let calls = self.calls.iter_mut().flat_map(|calls| calls.values_mut());
        self.threads.values_mut().chain(self.processes.values_mut()).chain(calls).for_each(merge);
        self
    }

    /// The same, where what is inside of one of these processes is so only while it is of each that lives then: from its first
    /// work to its end. Those without spans are inside all the time.
    pub(crate) fn known_of_all(mut self, lives: &[(i64, (i64, i64))]) -> Spans {
        let mut edges: Vec<(i64, [i64; 2])> = Vec::new();
        for (process, (from, to)) in lives {
            let mut open = *from;
            let whole = [(*from, *to)];
            for (begin, end) in self.processes.get(process).map_or(&whole[..], |spans| spans) {
                edges.extend([(*begin, [1, 0]), (*end, [-1, 0])]);
                // Before the span it is not known what the process did.
                if open < *begin {
                    edges.extend([(open, [0, 1]), ((*begin).min(*to).max(open), [0, -1])]);
                }
                open = open.max(*end);
            }
            if open < *to {
                edges.extend([(open, [0, 1]), (*to, [0, -1])]);
            }
        }
        edges.sort_unstable();
        let (mut inside, mut unknown, mut known_from, mut known) = (0, 0, None, Vec::new());
        for (at, [in_span, in_doubt]) in edges {
            (inside, unknown) = (inside + in_span, unknown + in_doubt);
            match known_from {
                None if inside > 0 && unknown == 0 => known_from = Some(at),
                Some(from) if inside == 0 || unknown > 0 => {
                    known.extend((from < at).then_some((from, at)));
                    known_from = None;
                }
                _ => {}
            }
        }
        merge(&mut known);
        for (process, _) in lives {
            self.processes.insert(*process, known.clone());
        }
        self
    }

    /// From now on the GPU's work is inside where the call that caused it is ([`add_call`](Self::add_call)), whenever it ran.
    pub(crate) fn project(&mut self) {
        self.calls.get_or_insert_default();
    }

    /// Adds a call that lies inside.
    pub(crate) fn add_call(&mut self, process_id: i64, correlation_id: i64) {
        let Some(calls) = &mut self.calls else { return };
        let calls = calls.entry(process_id).or_default();
        match calls.last_mut() {
            Some(last) if last.1 == correlation_id => last.1 += 1,
            _ => calls.push((correlation_id, correlation_id.saturating_add(1))),
        }
    }

    /// Whether what the GPU did lies inside: by the call that caused it, else by its own time.
    pub(crate) fn hold_work(&self, process_id: i64, cause: Option<i64>, at: i64) -> bool {
        match (&self.calls, cause) {
            (Some(calls), Some(cause)) => calls.get(&process_id).is_some_and(|calls| holds(calls, cause)),
            _ => match self.work.get(&process_id) {
                Some((from, to)) => (*from..*to).contains(&at),
                None => self.hold(process_id, None, at),
            },
        }
    }

    /// What the GPU did for a process is inside at this time, whatever that of its calls.
    pub(crate) fn add_work(&mut self, process_id: i64, span: (i64, i64)) {
        self.work.insert(process_id, span);
    }

    /// From the first to the last time at which what the GPU did for a process is inside, where its own time tells.
    pub(crate) fn work_of(&self, process_id: i64) -> Option<(i64, i64)> {
        let of_calls = || {
            let spans = self.processes.get(&process_id)?;
            Some((spans.first()?.0, spans.last()?.1))
        };
        self.work.get(&process_id).copied().or_else(of_calls).filter(|_| !self.projects())
    }

    /// Whether work belongs to the calls inside.
    pub(crate) fn projects(&self) -> bool {
        self.calls.is_some()
    }

    /// The parts of a time in which a process is inside.
    pub(crate) fn inside(&self, process_id: i64, (from, to): (i64, i64)) -> impl Iterator<Item = (i64, i64)> {
        let spans = self.processes.get(&process_id).map_or(&[][..], |spans| spans);
        let first = spans.partition_point(|(_, end)| *end <= from);
        let touched = spans[first..].iter().take_while(move |(begin, _)| *begin < to);
        touched.map(move |(begin, end)| (from.max(*begin), to.min(*end)))
    }

    /// Whether they are of ranges: of threads.
    pub(crate) fn are_ranges(&self) -> bool {
        !self.threads.is_empty()
    }

    /// Those of a process.
    pub(crate) fn of(&self, process_id: i64) -> &[(i64, i64)] {
        self.processes.get(&process_id).map_or(&[], |spans| spans)
    }

    /// The begin of the first one of any process.
    pub(crate) fn first_ns(&self) -> Option<i64> {
        self.processes.values().filter_map(|spans| Some(spans.first()?.0)).min()
    }

    /// A thread that is inside at this time.
    pub(crate) fn thread_at(&self, process_id: i64, at: i64) -> Option<i32> {
        let own = self.threads.iter().filter(|((process, _), spans)| *process == process_id && holds(spans, at));
        own.map(|((_, tid), _)| *tid).min()
    }

    /// Whether any is of this process.
    pub(crate) fn are_of(&self, process_id: i64) -> bool {
        self.processes.contains_key(&process_id)
    }

    /// Number and time of those of all processes; one that several have counts once, as those do that share a GPU.
    pub(crate) fn sums(&self) -> (usize, i64) {
        let all: BTreeSet<_> = self.processes.values().flatten().filter(|(from, to)| from < to).collect();
        all.into_iter().fold((0, 0), |(count, ns), (from, to)| (count + 1, ns + to - from))
    }

    /// Whether a span holds all of a time.
    pub(crate) fn cover(&self, process_id: i64, (from, to): (i64, i64)) -> bool {
        self.inside(process_id, (from, to)).next() == Some((from, to))
    }

    /// Whether there is none.
    pub(crate) fn is_empty(&self) -> bool {
        self.processes.is_empty()
    }

    /// Whether a row lies inside: of its thread, or where it has none, or spans are of whole processes, of its process.
    pub(crate) fn hold(&self, process_id: i64, tid: Option<i32>, at: i64) -> bool {
        let spans = match tid.filter(|_| !self.threads.is_empty()) {
            Some(tid) => self.threads.get(&(process_id, tid)),
            None => self.processes.get(&process_id),
        };
        spans.is_some_and(|spans| holds(spans, at))
    }

    /// How long a process is inside.
    pub(crate) fn length_ns(&self, process_id: i64) -> i64 {
        let called = self.processes.get(&process_id).map_or(0, |spans| spans.iter().map(|(from, to)| to - from).sum());
        self.work.get(&process_id).map_or(called, |(from, to)| called.max(to - from))
    }
}

fn merge(spans: &mut Vec<(i64, i64)>) {
    spans.sort_unstable();
    let mut merged: Vec<(i64, i64)> = Vec::with_capacity(spans.len());
    for (from, to) in spans.drain(..) {
        match merged.last_mut() {
            Some(last) if from <= last.1 => last.1 = last.1.max(to),
            _ => merged.push((from, to)),
        }
    }
    *spans = merged;
}

fn holds(spans: &[(i64, i64)], at: i64) -> bool {
    let after = spans.partition_point(|(from, _)| *from <= at);
    after.checked_sub(1).is_some_and(|i| at < spans[i].1)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn of_processes_that_share_a_device_is_known_what_is_of_each_that_lives() {
        let mut spans = Spans::default();
        for (process, span) in [(1, (0, 100)), (1, (200, 300)), (1, (400, 500)), (2, (210, 310)), (3, (0, 9))] {
            spans.add(process, None, span);
        }
        // The second one begins at 150 and ends at 390; the fourth one is known all the time.
        let lives = [(1, (0, 1000)), (2, (150, 390)), (4, (0, 1000))];
        let spans = spans.ordered().known_of_all(&lives);
        for process in [1, 2, 4] {
            let known: Vec<_> = spans.inside(process, (0, 1000)).collect();
            assert_eq!(known, [(0, 100), (210, 300), (400, 500)], "{process}");
        }
        assert_eq!(spans.inside(3, (0, 1000)).collect::<Vec<_>>(), [(0, 9)]);
        assert_eq!(spans.sums(), (4, 299), "what they have together counts once");
    }

    #[test]
    fn spans_hold_what_begins_inside_of_them_in_their_thread() {
        let mut spans = Spans::default();
        for (tid, span) in [(1, (50, 60)), (1, (10, 20)), (1, (15, 30)), (2, (100, 110))] {
            spans.add(9, Some(tid), span);
        }
        let spans = spans.ordered();
        let inside: Vec<i64> = (0..120).filter(|at| spans.hold(9, Some(1), *at)).collect();
        assert_eq!(inside, (10..30).chain(50..60).collect::<Vec<_>>());
        assert!(spans.hold(9, None, 105) && !spans.hold(9, Some(1), 105) && !spans.hold(8, None, 15));
        assert_eq!((spans.length_ns(9), spans.length_ns(8)), (40, 0));
        assert_eq!(spans.inside(9, (25, 105)).collect::<Vec<_>>(), [(25, 30), (50, 60), (100, 105)]);
        assert_eq!((spans.inside(9, (30, 50)).count(), spans.inside(8, (0, 200)).count()), (0, 0));
        assert_eq!((spans.thread_at(9, 104), spans.thread_at(9, 30)), (Some(2), None));
        let mut projected = spans.clone();
        projected.project();
        [7, 8, 12, 9].into_iter().for_each(|call| projected.add_call(9, call));
        let projected = projected.ordered();
        let inside: Vec<i64> = (0..20).filter(|call| projected.hold_work(9, Some(*call), 105)).collect();
        assert_eq!(inside, [7, 8, 9, 12]);
        assert!(projected.hold_work(9, None, 105) && !projected.hold_work(8, Some(7), 105));
        assert!(spans.hold_work(9, Some(3), 105), "without calls the time says it");
        let mut steps = Spans::default();
        steps.add(9, None, (10, 20));
        assert!(steps.ordered().hold(9, Some(7), 15), "spans of a process are those of all its threads");
    }
}
