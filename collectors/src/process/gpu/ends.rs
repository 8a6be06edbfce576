//! Work of a stream that ran one after the other stays so. When a record began is rounded for each by itself, and how long it took is
//! not: of two without a gap the second one would begin up to some ns before the end of the first.

use std::collections::HashMap;

use gputrace_abi::gpu::Work;

use crate::clock::LATEST_NS;

/// Streams that are remembered; of more the others are begun anew.
const MOST: usize = 4096;

/// When the last work of each stream ended: by its own clock, and as a row has it.
#[derive(Debug, Default)]
pub(super) struct Ends(HashMap<(u32, u32, u32), (u64, i64)>);

impl Ends {
    /// When the next work of its stream begins, which the clocks say was at `begin_ns`.
    pub(super) fn begin(&mut self, work: &Work, begin_ns: i64) -> i64 {
        if self.0.len() > MOST {
            self.0.clear();
        }
        let last = self.0.entry((work.device, work.context, work.stream)).or_default();
        let (end, end_ns) = *last;
        let begin_ns = if work.start >= end { begin_ns.max(end_ns) } else { begin_ns };
        if work.end >= end {
            let end_ns = begin_ns.saturating_add_unsigned(work.end.saturating_sub(work.start));
            *last = (work.end, end_ns.min(LATEST_NS));
        }
        begin_ns
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn work_without_a_gap_has_none_and_what_overlaps_still_does() {
        let mut ends = Ends::default();
        let work = |start, end, stream| Work { start, end, stream, ..Work::default() };
        assert_eq!(ends.begin(&work(100, 200, 1), 1_100), 1_100);
        assert_eq!(ends.begin(&work(200, 300, 1), 1_199), 1_200, "it was rounded down");
        assert_eq!(ends.begin(&work(300, 400, 1), 1_301), 1_301);
        assert_eq!(ends.begin(&work(350, 380, 1), 1_350), 1_350, "beside it, as nodes of graphs are");
        assert_eq!(ends.begin(&work(400, 500, 1), 1_400), 1_401);
        assert_eq!(ends.begin(&work(400, 500, 2), 1_400), 1_400, "another stream");
        assert_eq!(ends.begin(&work(900, 950, 1), 1_900), 1_900);
    }
}
