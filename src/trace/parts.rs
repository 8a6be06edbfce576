//! The parts of a process's time that are kept, passed one after another by whoever follows what is in use.
//!
//! What a process holds when a part begins it took before. So rows of memory are read from the begin of the trace on
//! ([`super::Rows::is_kept`]), and a part begins with what is held by then.

use rustc_hash::{FxHashMap, FxHashSet};

use super::{Filter, Trace};

/// The parts of one process, in order.
#[derive(Clone, Debug)]
pub(crate) struct Parts {
    all: Vec<(i64, i64)>,
    /// How many have begun.
    begun: usize,
}

impl Default for Parts {
    /// One that has always been.
    fn default() -> Parts {
        Parts { all: vec![(i64::MIN, i64::MAX)], begun: 1 }
    }
}

impl Parts {
    /// The begin of the next part, where that is reached by this time.
    pub(crate) fn begin(&mut self, at: i64) -> Option<i64> {
        let begin = self.next().filter(|begin| *begin <= at)?;
        self.begun += 1;
        Some(begin)
    }

    /// When that begins.
    pub(crate) fn next(&self) -> Option<i64> {
        Some(self.all.get(self.begun)?.0)
    }

    /// Whether a time lies in the part that began last.
    pub(crate) fn hold(&self, at: i64) -> bool {
        self.begun.checked_sub(1).and_then(|last| self.all.get(last)).is_some_and(|(_, end)| at < *end)
    }

    /// Whether nothing that happens at this time or later matters.
    pub(crate) fn are_over(&self, at: i64) -> bool {
        self.all.last().is_none_or(|(_, end)| at >= *end && *end < i64::MAX)
    }
}

/// Those of all processes.
#[derive(Clone, Debug, Default)]
pub(crate) struct PartsOf {
    /// None: all processes are kept from their begin on.
    filter: Option<Filter>,
    /// When processes ended.
    ends: FxHashMap<i64, i64>,
    /// Those of which no part is kept: they have none, or had ended before it.
    gone: FxHashSet<i64>,
}

impl PartsOf {
    /// What a filter keeps.
    pub(crate) fn new(trace: &Trace, filter: &Filter) -> PartsOf {
        let mut parts = PartsOf { filter: filter.looks_back().then(|| filter.clone()), ..PartsOf::default() };
        if parts.filter.is_some() {
            let ends = trace.processes.iter().filter_map(|process| Some((process.process_id, process.end_ns?)));
            parts.ends = ends.collect();
            let ids = trace.processes.iter().map(|process| process.process_id);
            parts.gone = ids.filter(|id| parts.of(*id).all.is_empty()).collect();
        }
        parts
    }

    /// Whether parts begin with what was taken before.
    pub(crate) fn look_back(&self) -> bool {
        self.filter.is_some()
    }

    /// Whether nothing is kept of a process.
    pub(crate) fn is_gone(&self, process_id: i64) -> bool {
        self.filter.is_some() && self.gone.contains(&process_id)
    }

    /// Those of a process; none that begin after its end, when it holds nothing any more.
    pub(crate) fn of(&self, process_id: i64) -> Parts {
        let Some(filter) = &self.filter else { return Parts::default() };
        let end = self.ends.get(&process_id).copied().unwrap_or(i64::MAX);
        let mut all = filter.kept_of(process_id, (i64::MIN, i64::MAX));
        all.retain(|(begin, _)| *begin < end);
        Parts { all, begun: 0 }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn parts_begin_one_after_another_and_end() {
        let mut parts = Parts { all: vec![(10, 20), (30, 40)], begun: 0 };
        assert_eq!((parts.begin(9), parts.hold(9)), (None, false));
        assert_eq!((parts.begin(10), parts.begin(10), parts.hold(19), parts.hold(20)), (Some(10), None, true, false));
        assert!(!parts.are_over(25));
        assert_eq!((parts.begin(90), parts.are_over(39), parts.are_over(40)), (Some(30), false, true));
        let whole = Parts::default();
        assert!(whole.hold(i64::MIN) && whole.hold(5) && !whole.are_over(5));
    }
}
