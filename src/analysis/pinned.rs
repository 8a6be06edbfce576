//! What analyses of the host's memory tell of memory that the driver gave pinned: by process and by stack.

use super::Facts;
use super::by_stack::{NONE, PLACE, PROCESS, SITE, STACK, STACK_ID};
use super::passes::pinned::{AtStack, Pinned};
use super::section::{Column, Table, Unit, Value, column, percent};
use crate::trace::Site;

/// Rows of a table.
const MOST: usize = 200;

/// That of a process, if it had any.
pub(super) fn of<'a>(facts: &'a Facts<'_>, process_id: i64) -> Option<&'a Pinned> {
    facts.device_memory.processes.get(&process_id).map(|memory| &memory.pinned).filter(|pinned| pinned.any())
}

/// That of all processes that had any.
pub(super) fn all<'a>(facts: &'a Facts<'_>) -> impl Iterator<Item = (i64, &'a Pinned)> {
    facts.device_memory.processes.iter().map(|(id, memory)| (*id, &memory.pinned)).filter(|(_, pinned)| pinned.any())
}

/// Who asked for it, and what is left of that.
pub(super) fn taken(facts: &Facts<'_>) -> Table {
    const COLUMNS: [Column; 9] = [
        PROCESS,
        SITE,
        column("calls", "Calls", Unit::Count),
        column("bytes", "Pinned", Unit::Bytes),
        column("total_ns", "Time in the calls", Unit::Ns),
        column("live_bytes", "Still pinned", Unit::Bytes),
        PLACE,
        STACK,
        STACK_ID,
    ];
    let title = "Pinned by the driver (cuMemAllocHost, cuMemHostAlloc), by stack";
    by_stack(
        facts,
        "pinned",
        title,
        &COLUMNS,
        |at| at.bytes,
        |_, at| [at.calls.into(), at.bytes.into(), at.ns.into(), at.live.1.max(0).into()],
    )
}

/// Whose it is that was never given back.
pub(super) fn left(facts: &Facts<'_>) -> Table {
    const COLUMNS: [Column; 8] = [
        PROCESS,
        SITE,
        column("bytes", "Pinned at end", Unit::Bytes),
        column("percent", "Of it", Unit::Percent),
        column("blocks", "Blocks", Unit::Count),
        PLACE,
        STACK,
        STACK_ID,
    ];
    by_stack(
        facts,
        "pinned",
        "Still pinned at the end, by stack",
        &COLUMNS,
        |at| at.live.1,
        |pinned, at| [at.live.1.into(), percent(at.live.1 as f64, pinned.live_bytes as f64), at.live.0.into()],
    )
}

/// The stacks of which there is some of a quantity, most first.
fn by_stack<const N: usize>(
    facts: &Facts<'_>,
    name: &'static str,
    title: &'static str,
    columns: &'static [Column],
    of: impl Fn(&AtStack) -> i64,
    values: impl Fn(&Pinned, &AtStack) -> [Value; N],
) -> Table {
    let stacks =
        all(facts).flat_map(|(id, pinned)| pinned.stacks.iter().map(move |(stack, at)| (id, *stack, pinned, at)));
    let mut stacks: Vec<_> = stacks.filter(|(.., at)| of(at) > 0).collect();
    stacks.sort_by_key(|(id, stack, _, at)| (std::cmp::Reverse(of(at)), facts.place(*id), *stack));
    let row = |(id, stack, pinned, at): &(i64, i64, &Pinned, &AtStack)| {
        let site = facts.stacks.get(*stack);
        let head = [facts.label(*id).into(), site.map_or_else(|| NONE.to_owned(), Site::short).into()];
        let key = (*stack >= 0).then(|| stack.to_string());
        let tail = [site.map(Site::place).into(), facts.stacks.whole(*stack).into(), key.into()];
        head.into_iter().chain(values(pinned, at)).chain(tail).collect()
    };
    let rows = stacks.iter().take(MOST).map(row).collect();
    Table { left_out: stacks.len().saturating_sub(MOST), ..Table::new(name, title, columns, rows) }
}

#[cfg(test)]
mod tests {
    use gputrace_collectors::schema::TableId;
    use serde_json::json;

    use super::super::host_allocations::HostAllocations;
    use super::super::host_leaks::HostLeaks;
    use super::super::host_memory::HostMemory;
    use crate::trace::testing::{START, TestTrace};

    #[test]
    fn pinned_memory_stands_beside_malloc_with_its_lines() {
        let mut trace = TestTrace::new();
        trace.process(1, 100, None, START + 1_000_000);
        let [stage, cache] = ["stage", "cache"].map(|function| trace.stack(function, "/home/u/x.py", 7));
        let mut thread = trace.thread(1, 11);
        thread.malloc("alloc", 1000, 1000.0);
        for (stack, action, kind, address, bytes) in [
            (stage, "alloc", "pinned", 16, 4000),
            (stage, "free", "pinned", 16, 4000),
            (cache, "alloc", "pinned", 32, 3000),
            // Memory of the program's own, which is malloc's already.
            (cache, "alloc", "registered", 64, 9000),
            (cache, "alloc", "device", 80, 5000),
        ] {
            let row = json!({ "action": action, "kind": kind, "address": address, "bytes": bytes, "stack_id": stack });
            thread.call(TableId::DeviceMemory, "cuMemHostAlloc", 100, row);
        }
        let section = trace.section(&HostMemory);
        assert_eq!(section.get("peak_pinned_bytes"), &4000i64.into());
        let cell = |column| section.cell("by_process", 0, column).clone();
        assert_eq!(["peak_pinned_bytes", "pinned_at_end_bytes"].map(cell), [4000i64.into(), 3000i64.into()]);
        assert_eq!(section.cell("over_time", 1, "memory"), &"pinned".into());
        let section = trace.section(&HostAllocations);
        let row = |n| ["site", "calls", "bytes", "live_bytes"].map(|c| section.cell("pinned", n, c).clone());
        assert_eq!(row(0), ["x.py:7 stage".into(), 1i64.into(), 4000i64.into(), 0i64.into()]);
        assert_eq!(row(1), ["x.py:7 cache".into(), 1i64.into(), 3000i64.into(), 3000i64.into()]);
        let section = trace.section(&HostLeaks);
        assert_eq!(section.get("pinned_at_end_bytes"), &3000i64.into());
        let row = ["site", "bytes", "percent", "blocks"].map(|c| section.cell("pinned", 0, c).clone());
        assert_eq!(row, ["x.py:7 cache".into(), 3000i64.into(), 100.0.into(), 1i64.into()]);
    }
}
