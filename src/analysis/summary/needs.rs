//! What the summary at the end of a run reads: what findings need, as far as it is read soon.

use gputrace_collectors::schema::TableId;

use crate::analysis::Need;
use crate::findings::NEEDS;
use crate::trace::Trace;

/// Of malloc in full there may be hundreds of millions of rows, which take longer to read than anybody waits for a summary: a report
/// reads them.
const MOST_OF_MALLOC: u64 = 20_000_000;

/// The passes of that summary.
pub(super) fn at_end(trace: &Trace) -> Vec<Need> {
    let accounts = trace.processes.iter().filter_map(|process| Some(&process.manifest.as_ref()?.accounting));
    let counts = accounts.flat_map(|of| TableId::HostMemory.classes().iter().filter_map(|class| of.get(*class)));
    // What was culled is no row.
    let few = counts.map(|count| count.recorded).sum::<u64>() <= MOST_OF_MALLOC;
    NEEDS.iter().copied().filter(|need| few || *need != Need::Allocations).collect()
}

#[cfg(test)]
mod tests {
    use gputrace_collectors::manifest::Count;

    use super::*;
    use crate::trace::testing::{START, TestTrace};

    #[test]
    fn millions_of_calls_of_malloc_do_not_hold_the_end_of_a_run_up() {
        for (recorded, culled, read) in [(1_000_000, 0, true), (30_000_000, 0, false), (1_000_000, 1_000_000_000, true)]
        {
            let mut trace = TestTrace::new();
            trace.process(1, 100, None, START + 1_000_000_000);
            let count = Count { seen: recorded + culled, recorded, culled, ..Count::default() };
            trace.manifest.as_mut().unwrap().processes[0].accounting.insert("host_alloc".to_owned(), count);
            assert_eq!(at_end(&trace.open()).contains(&Need::Allocations), read);
        }
    }
}
