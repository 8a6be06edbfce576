//! Sums by line of what stacks have: one that many stacks end in may have more than the largest of them.

use std::cmp::Reverse;

use rustc_hash::FxHashMap;

use super::Facts;
use super::by_stack::{OfStack, PLACE, PROCESS, SITE, whole};
use super::passes::allocations::Amount;
use super::section::{Column, Section, Table, Unit, column, percent};
use crate::trace::Site;

/// Rows of a table.
const MOST: usize = 50;

/// Of one line: its first stack, the sum, and of how many stacks.
struct Line<'a> {
    first: OfStack<'a>,
    sum: Amount,
    stacks: usize,
}

/// Adds a table by line of these stacks, where any has several; `of` is what a stack has, `all` what its process has of that.
pub(super) fn add<'a>(
    section: &mut Section,
    facts: &Facts<'_>,
    stacks: &[OfStack<'a>],
    title: &'static str,
    of: impl Fn(&OfStack<'a>) -> Amount,
    all: impl Fn(&OfStack<'a>) -> Amount,
) {
    const COLUMNS: [Column; 7] = [
        PROCESS,
        SITE,
        column("bytes", "Bytes", Unit::Bytes),
        column("percent", "Of it", Unit::Percent),
        column("blocks", "Blocks", Unit::Count),
        column("stacks", "Stacks", Unit::Count),
        PLACE,
    ];
    let mut lines: FxHashMap<_, Line<'a>> = FxHashMap::default();
    for stack in stacks {
        let site = stack.site(facts).map(|site| (site.file.as_str(), site.line, site.function.as_str()));
        // Those without a line stand apart by what is known of them instead.
        let key = (stack.process_id, site, if site.is_none() { stack.stack_id } else { 0 });
        let line = lines.entry(key).or_insert(Line { first: *stack, sum: Amount::default(), stacks: 0 });
        line.sum.add(of(stack));
        line.stacks += 1;
    }
    if lines.len() == stacks.len() {
        return;
    }
    let mut lines: Vec<_> = lines.into_values().collect();
    lines.sort_by_key(|line| (Reverse(line.sum.bytes as i64), facts.place(line.first.process_id), line.first.stack_id));
    let row = |line: &Line<'a>| {
        let first = &line.first;
        vec![
            facts.label(first.process_id).into(),
            first.named(facts).into(),
            line.sum.bytes.into(),
            percent(line.sum.bytes, all(first).bytes),
            whole(line.sum.blocks),
            (line.stacks as u64).into(),
            first.site(facts).map(Site::place).into(),
        ]
    };
    let left_out = lines.len().saturating_sub(MOST);
    let rows = lines.iter().take(MOST).map(row).collect();
    section.table(Table { left_out, ..Table::new("by_line", title, &COLUMNS, rows) });
}

#[cfg(test)]
mod tests {
    use gputrace_collectors::schema::TableId;
    use serde_json::json;

    use super::super::host_allocations::HostAllocations;
    use super::super::host_leaks::HostLeaks;
    use super::super::host_peak::HostPeak;
    use crate::analysis::Analysis;
    use crate::trace::testing::{START, TestTrace};

    #[test]
    fn a_line_of_many_stacks_has_the_sum_of_them() {
        let mut trace = TestTrace::new();
        trace.process(1, 100, None, START + 1_000_000);
        let load = trace.stack("load", "/home/u/data.py", 31);
        // Of others' stacks, which do not matter here.
        let others = [77, 78].map(|id: i64| {
            let frame = json!({ "language": "python", "function": "load", "file": "/home/u/data.py", "line": 31, "stack_id": id });
            trace.row(TableId::Stacks, frame);
            id
        });
        let model = trace.stack("model", "/home/u/model.py", 7);
        let mut thread = trace.thread(1, 11);
        let kept = [load, others[0], others[1]].map(|stack| thread.malloc_at(stack, 400, 400.0));
        thread.malloc_at(model, 1000, 1000.0);
        thread.free_block(&kept[2]);
        for (analysis, bytes, stacks) in
            [(&HostAllocations as &dyn Analysis, 1200.0, 3u64), (&HostPeak, 1200.0, 3), (&HostLeaks, 800.0, 2)]
        {
            let section = trace.section(analysis);
            let row = |n: usize| ["site", "bytes", "stacks"].map(|column| section.cell("by_line", n, column).clone());
            let sum = ["data.py:31 load".into(), bytes.into(), stacks.into()];
            let single = ["model.py:7 model".into(), 1000.0.into(), 1u64.into()];
            assert_eq!([row(0), row(1)], if bytes > 1000.0 { [sum, single] } else { [single, sum] });
        }
    }
}
