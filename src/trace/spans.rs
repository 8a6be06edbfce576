//! Spans of time of processes and threads: what lies inside chosen steps or ranges.

use rustc_hash::FxHashMap;

/// Spans that do not overlap, in order, by process and thread.
#[derive(Clone, Debug, Default, PartialEq)]
pub(crate) struct Spans {
    threads: FxHashMap<(i64, i32), Vec<(i64, i64)>>,
    processes: FxHashMap<i64, Vec<(i64, i64)>>,
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
        self.threads.values_mut().chain(self.processes.values_mut()).for_each(|spans| {
            spans.sort_unstable();
            let mut merged: Vec<(i64, i64)> = Vec::with_capacity(spans.len());
            for (from, to) in spans.drain(..) {
                match merged.last_mut() {
                    Some(last) if from <= last.1 => last.1 = last.1.max(to),
                    _ => merged.push((from, to)),
                }
            }
            *spans = merged;
        });
        self
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
        let spans = spans.map_or(&[][..], Vec::as_slice);
        let after = spans.partition_point(|(from, _)| *from <= at);
        after.checked_sub(1).is_some_and(|i| at < spans[i].1)
    }

    /// How long a process is inside.
    pub(crate) fn length_ns(&self, process_id: i64) -> i64 {
        self.processes.get(&process_id).map_or(0, |spans| spans.iter().map(|(from, to)| to - from).sum())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

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
        let mut steps = Spans::default();
        steps.add(9, None, (10, 20));
        assert!(steps.ordered().hold(9, Some(7), 15), "spans of a process are those of all its threads");
    }
}
