//! device-memory: what the program takes from the driver, when, and what the calls cost.

use gputrace_collectors::schema::TableId;

use super::passes::device_memory::{Calls, KINDS, ProcessMemory, on_host};
use super::section::{Column, Section, Table, Unit, column, percent};
use super::{Analysis, Explain, Facts, Metric, Need, What, sites, torch_memory};

/// The analysis.
pub(crate) struct DeviceMemory;

/// Points of live memory over time per process.
const POINTS: usize = 30;

impl Analysis for DeviceMemory {
    fn name(&self) -> &'static str {
        "device-memory"
    }

    fn title(&self) -> &'static str {
        "Device memory"
    }

    fn explain(&self) -> Explain {
        Explain {
            definition: "Live memory is what was taken from the driver and not given back, by address: kinds device, async \
                (from a pool), managed, virtual (physical memory; its mappings take nothing) and array lie on the device; \
                pinned and registered lie on the host and are counted apart. Peak is the most that was live on the device at \
                once, with what was live then by kind. Never freed is what was live after the last event. \
                Of a part of a trace (--from, --to, --range, --steps) what was taken before it is live when it begins, so that peak \
                and never freed (live at its end) are of all that is live then; calls, and bytes taken, are those of the part. Steady-state calls \
                are those in steps after warm-up: a caching allocator makes none. Cost is the time in the calls. Where a memory \
                snapshot of PyTorch was imported: peak is the most that tensors had asked for at once, with the lines whose \
                blocks were live then; reserved is what the allocator had from the driver; fragmented is what is free in \
                segments that are used too, so that no larger block fits and it cannot be given back; what was live at the \
                end is by line too: what grows there from step to step is a leak.",
            unit: "bytes and ns in JSON; in text the column's head names the unit (powers of 1024 for bytes).",
            limits: "Under a caching allocator (PyTorch, JAX) this is what the allocator reserved, not what tensors use: for \
                that import a snapshot (torch.cuda.memory._record_memory_history, _dump_snapshot). Its history is a ring: \
                the peak is the one since its begin, and of what was taken before and given back no line is known. \
                Memory that contexts, modules and libraries take inside the driver is not seen. Buffers and heaps of Metal \
                count as managed where the host has them too (shared, managed), else as device; a buffer that Metal's own \
                libraries make is not seen. A context's end frees its \
                memory without a call; such memory counts as never freed. Arrays count 0 bytes. Managed memory counts in \
                full, wherever its pages are.",
            source: "Live bytes and peaks as in heaptrack and PyTorch's memory_stats; the definition above.",
        }
    }

    fn needs(&self) -> &'static [Need] {
        &[Need::DeviceMemory, Need::Sites]
    }

    fn metrics(&self) -> &'static [Metric] {
        use Unit::*;
        const METRICS: &[Metric] = &[
            Metric::about("allocations", Count, "allocation calls").sums(&[TableId::DeviceMemory]),
            Metric::about("frees", Count, "free calls").sums(&[TableId::DeviceMemory]),
            Metric::about("allocated_bytes", Bytes, "bytes that allocations took").sums(&[TableId::DeviceMemory]),
            Metric::cost(
                "peak_bytes",
                Bytes,
                "most bytes live on the devices at once, in the process where that is most",
            )
            .sums(&[TableId::DeviceMemory]),
            Metric::cost("never_freed_bytes", Bytes, "device memory that was never given back")
                .sums(&[TableId::DeviceMemory]),
            Metric::about("cost_ns", Ns, "time in allocation and free calls").sums(&[TableId::DeviceMemory]),
            Metric::cost("cost_wall_percent", Percent, "time in allocation and free calls, of wall time")
                .sums(&[TableId::DeviceMemory])
                .unsteady(),
            Metric::about("steady_allocations", Count, "allocation calls in steady steps")
                .sums(&[TableId::DeviceMemory, TableId::Ranges]),
            Metric::cost("allocations_per_step", Count, "allocation calls of a usual step")
                .in_steps()
                .sums(&[TableId::DeviceMemory]),
            Metric::cost("allocations_per_s", PerS, "allocation calls in a second of the processes' time")
                .sums(&[TableId::DeviceMemory])
                .unsteady(),
            Metric::cost("failed_allocations", Count, "allocations that failed").sums(&[TableId::DeviceMemory]),
            Metric::cost(
                "torch_peak_bytes",
                Bytes,
                "most bytes that tensors had asked PyTorch for at once, on the device where that is most",
            ),
            Metric::cost("torch_peak_reserved_bytes", Bytes, "most bytes that PyTorch had from the driver, likewise"),
            Metric::about("torch_allocated_bytes", Bytes, "bytes that tensors had when PyTorch's snapshot was taken"),
            Metric::about("torch_reserved_bytes", Bytes, "bytes that PyTorch had from the driver then"),
            Metric::cost("torch_fragmented_bytes", Bytes, "free bytes in PyTorch's segments that are used too"),
            Metric::cost("torch_fragmented_percent", Percent, "these, of the bytes reserved"),
            Metric::cost("torch_failed", Count, "allocations that failed in PyTorch's allocator"),
        ];
        METRICS
    }

    fn section(&self, facts: &Facts<'_>) -> Section {
        let mut section = Section::default();
        let memory = &facts.device_memory;
        let sum = |alloc: bool, of: fn(&Calls) -> i64| -> i64 {
            memory.calls.iter().filter(|((_, is_alloc, ..), _)| *is_alloc == alloc).map(|(_, calls)| of(calls)).sum()
        };
        let wall: f64 = facts.busy().iter().map(|(id, _)| facts.wall_ns(*id)).sum();
        let calls = memory.calls.iter().next().is_some();
        // Who only wrote PyTorch's snapshot saw no call of the driver.
        let seen = calls || memory.torch.devices.is_empty() || !facts.busy().is_empty();
        let cost = sum(true, |c| c.api.sum) + sum(false, |c| c.api.sum);
        section.fact("allocations", "allocation calls", Unit::Count, seen.then(|| sum(true, |c| c.api.count as i64)));
        section.fact("frees", "free calls", Unit::Count, seen.then(|| sum(false, |c| c.api.count as i64)));
        // Traces of torch.profiler have the calls and no sizes.
        let sized = (!calls && seen) || memory.calls.iter().any(|(_, calls)| calls.bytes > 0);
        section.fact("allocated_bytes", "bytes taken in all", Unit::Bytes, sized.then(|| sum(true, |c| c.bytes)));
        let most = memory.processes.iter().map(|(_, process)| process.peak_bytes).max().unwrap_or(0);
        section.fact("peak_bytes", "most live at once", Unit::Bytes, sized.then_some(most));
        let kept = |(kind, (_, bytes)): (usize, &(u64, i64))| if on_host(kind) { 0 } else { *bytes };
        let never: i64 =
            memory.processes.iter().flat_map(|(_, process)| process.live.iter().enumerate()).map(kept).sum();
        section.fact("never_freed_bytes", "never freed", Unit::Bytes, sized.then_some(never));
        section.fact("cost_ns", "time in the calls", Unit::Ns, seen.then_some(cost));
        section.fact("cost_wall_percent", "share of wall time", Unit::Percent, percent(cost as f64, wall));
        let steady = (!facts.steps.all.is_empty()).then(|| sum(true, |c| c.steady.0 as i64));
        section.fact("steady_allocations", "allocation calls in steady steps", Unit::Count, steady);
        let steps: u64 = facts.steps.all.iter().map(|steps| steps.middle).sum();
        let per_step = (steps > 0).then(|| sum(true, |c| c.middle.0 as i64) as f64 / steps as f64);
        section.fact("allocations_per_step", "allocation calls of a step", Unit::Count, per_step);
        let per_s = (wall > 0.0).then(|| sum(true, |c| c.api.count as i64) as f64 * 1e9 / wall);
        section.fact("allocations_per_s", "allocation calls in a second", Unit::PerS, per_s);
        let failed: u64 = memory.processes.iter().map(|(_, p)| p.failed).sum();
        section.fact("failed_allocations", "allocations that failed", Unit::Count, seen.then_some(failed));
        if !seen {
            section
                .note("The driver's calls are not in this trace: PyTorch's snapshot tells of its own allocator alone.");
        } else if !calls {
            section.note("No allocation calls in this trace.");
        }
        if seen && !sized {
            section.note(
                "The sizes of allocations are not in this trace: what was live, and what never freed, is not known.",
            );
        }
        if facts.steps.all.is_empty() {
            section.note("No steps were detected: what steady steps allocate is not known.");
        }
        let unknown: u64 = memory.processes.iter().map(|(_, p)| p.unknown_frees).sum();
        if unknown > 0 {
            section.note(format!("{unknown} blocks were freed whose allocation is not in the trace."));
        }
        if sized {
            section.table(by_process(facts));
            section.table(by_kind(facts));
        }
        if facts.device_memory.labels.iter().next().is_some() {
            section.table(by_label(facts));
        }
        section.table(by_call(facts, sized));
        sites::cost_table(&mut section, facts, &[What::Memory], ("by_site", "By line, without waiting for the GPU"));
        if sized {
            section.table(over_time(facts));
        }
        torch_memory::add(&mut section, facts);
        super::loss::note(&mut section, facts, "allocation and free calls", TableId::DeviceMemory);
        section
    }
}

fn processes<'a>(facts: &'a Facts<'_>) -> Vec<(&'a i64, &'a ProcessMemory)> {
    let mut processes: Vec<_> = facts.device_memory.processes.iter().collect();
    processes.sort_by_key(|(id, memory)| (std::cmp::Reverse(memory.peak_bytes), facts.place(**id)));
    processes
}

fn by_process(facts: &Facts<'_>) -> Table {
    const COLUMNS: [Column; 6] = [
        column("process", "Process", Unit::Text),
        column("peak_bytes", "Peak", Unit::Bytes),
        column("peak_after_ns", "Peak after", Unit::Ns),
        column("never_freed", "Blocks never freed", Unit::Count),
        column("never_freed_bytes", "Never freed", Unit::Bytes),
        column("host_never_freed_bytes", "Pinned never freed", Unit::Bytes),
    ];
    let row = |(id, memory): (&i64, &ProcessMemory)| {
        let live = |host: bool| {
            let kinds = memory.live.iter().enumerate().filter(move |(kind, _)| on_host(*kind) == host);
            kinds.fold((0, 0), |sum, (_, (count, bytes))| (sum.0 + count, sum.1 + bytes))
        };
        let began = facts.host.processes.get(id).map_or(memory.peak_at_ns, |t| t.span_ns.0);
        vec![
            facts.label(*id).into(),
            memory.peak_bytes.into(),
            (memory.peak_at_ns - began).max(0).into(),
            live(false).0.into(),
            live(false).1.into(),
            live(true).1.into(),
        ]
    };
    let title = match facts.filter.looks_back() {
        true => {
            "Peak and never freed (Peak after: since the process's first driver call in the part; never freed: live at its end)"
        }
        false => "Peak and never freed (Peak after: since the process's first driver call)",
    };
    Table::new("by_process", title, &COLUMNS, processes(facts).into_iter().map(row).collect())
}

fn by_kind(facts: &Facts<'_>) -> Table {
    const COLUMNS: [Column; 6] = [
        column("process", "Process", Unit::Text),
        column("kind", "Kind", Unit::Text),
        column("at_peak", "Blocks at peak", Unit::Count),
        column("at_peak_bytes", "At peak", Unit::Bytes),
        column("never_freed", "Blocks never freed", Unit::Count),
        column("never_freed_bytes", "Never freed", Unit::Bytes),
    ];
    let mut rows = Vec::new();
    for (id, memory) in processes(facts) {
        for (kind, name) in KINDS.iter().enumerate() {
            let ((peak, peak_bytes), (live, live_bytes)) = (memory.at_peak[kind], memory.live[kind]);
            if peak + live > 0 {
                let label = facts.label(*id).into();
                rows.push(vec![label, (*name).into(), peak.into(), peak_bytes.into(), live.into(), live_bytes.into()]);
            }
        }
    }
    Table::new("by_kind", "Live at the peak and at the end, by kind", &COLUMNS, rows)
}

/// What the program gives a label (Metal), the most bytes first.
fn by_label(facts: &Facts<'_>) -> Table {
    const COLUMNS: [Column; 4] = [
        column("process", "Process", Unit::Text),
        column("label", "Label", Unit::Name),
        column("blocks", "Blocks taken", Unit::Count),
        column("bytes", "Bytes", Unit::Bytes),
    ];
    let mut labels: Vec<_> = facts.device_memory.labels.iter().collect();
    labels.sort_by_key(|(key, (_, bytes))| (std::cmp::Reverse(*bytes), facts.place(key.0), **key));
    let row = |((process_id, label), (blocks, bytes)): (&(i64, i64), &(u64, i64))| {
        vec![facts.label(*process_id).into(), facts.names.full(*label).into(), (*blocks).into(), (*bytes).into()]
    };
    Table::new("by_label", "Taken, by the program's labels", &COLUMNS, labels.into_iter().map(row).collect())
}

fn by_call(facts: &Facts<'_>, sized: bool) -> Table {
    const COLUMNS: [Column; 10] = [
        column("process", "Process", Unit::Text),
        column("action", "Action", Unit::Text),
        column("kind", "Kind", Unit::Text),
        column("api", "Function", Unit::Name),
        column("calls", "Calls", Unit::Count),
        column("bytes", "Bytes", Unit::Bytes),
        column("total_ns", "Total", Unit::Ns),
        column("med_ns", "Med", Unit::Ns),
        column("steady_calls", "Steady calls", Unit::Count),
        column("steady_ns", "Steady time", Unit::Ns),
    ];
    let mut calls: Vec<_> = facts.device_memory.calls.iter().collect();
    calls.sort_by_key(|(key, calls)| (std::cmp::Reverse(calls.api.sum), facts.place(key.0), **key));
    let row = |((process, alloc, kind, api), calls): (&(i64, bool, usize, i64), &Calls)| {
        vec![
            facts.label(*process).into(),
            if *alloc { "alloc" } else { "free" }.into(),
            KINDS[*kind].into(),
            facts.names.full(*api).into(),
            calls.api.count.into(),
            sized.then_some(calls.bytes).into(),
            calls.api.sum.into(),
            calls.api.median().into(),
            calls.steady.0.into(),
            calls.steady.1.into(),
        ]
    };
    Table::new("by_call", "Cost of the calls", &COLUMNS, calls.into_iter().map(row).collect())
}

fn over_time(facts: &Facts<'_>) -> Table {
    const COLUMNS: [Column; 3] = [
        column("process", "Process", Unit::Text),
        column("after_ns", "After", Unit::Ns),
        column("live_bytes", "Live", Unit::Bytes),
    ];
    let mut rows = Vec::new();
    for (id, memory) in processes(facts) {
        for (at, bytes) in memory.line.points(POINTS) {
            rows.push(vec![facts.label(*id).into(), at.into(), bytes.into()]);
        }
    }
    let title = match facts.filter.looks_back() {
        true => "Live on the device over time (most in each span; After: since the part's begin)",
        false => "Live on the device over time (most in each span; After: since the first allocation)",
    };
    Table::new("over_time", title, &COLUMNS, rows)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::analysis::Value;
    use crate::trace::Filter;
    use crate::trace::testing::{START, TestTrace};

    #[test]
    fn peak_leak_and_cost_are_those_of_the_calls() {
        let mut trace = TestTrace::new();
        trace.process(1, 100, None, START + 1_000_000);
        let mut thread = trace.thread(1, 11);
        thread.alloc("cuMemAlloc_v2", "device", 0x1000, 1000, 40_000);
        thread.alloc("cuMemHostAlloc", "pinned", 0x9000, 77, 10_000);
        thread.alloc("cuMemCreate", "virtual", 0x1000, 500, 10_000);
        thread.alloc("cuMemMap", "virtual", 0x5000, 500, 1_000);
        thread.free("cuMemFree_v2", "device", 0x1000, 30_000);
        thread.alloc("cuMemAllocAsync", "async", 0x2000, 300, 9_000);
        let section = trace.section(&DeviceMemory);
        assert_eq!((section.get("allocations"), section.get("frees")), (&Value::Int(5), &Value::Int(1)));
        assert_eq!(section.get("cost_ns"), &Value::Int(100_000));
        assert_eq!(section.get("cost_wall_percent"), &Value::Num(10.0));
        assert_eq!(section.cell("by_process", 0, "peak_bytes"), &Value::Int(1500));
        assert_eq!(section.cell("by_process", 0, "never_freed_bytes"), &Value::Int(800));
        assert_eq!(section.cell("by_process", 0, "host_never_freed_bytes"), &Value::Int(77));
        assert_eq!(section.cell("by_kind", 0, "at_peak_bytes"), &Value::Int(1000));
        assert_eq!(section.cell("by_call", 0, "api"), &Value::from("cuMemAlloc_v2"));
    }

    #[test]
    fn of_a_part_what_was_taken_before_is_live_and_calls_are_its_own() {
        let mut trace = TestTrace::new();
        trace.process(1, 100, None, START + 1_000_000);
        let mut thread = trace.thread(1, 11);
        thread.alloc("cuMemAlloc_v2", "device", 0x1000, 1000, 40_000);
        thread.alloc("cuMemHostAlloc", "pinned", 0x9000, 77, 10_000);
        thread.free("cuMemFreeHost", "pinned", 0x9000, 10_000);
        thread.now = START + 200_000;
        thread.alloc("cuMemAlloc_v2", "device", 0x2000, 50, 10_000);
        thread.free("cuMemFree_v2", "device", 0x1000, 30_000);
        thread.now = START + 400_000;
        thread.alloc("cuMemAlloc_v2", "device", 0x3000, 9999, 10_000);
        let of = |from: i64, to: i64| {
            let filter = Filter { from_ns: Some(START + from), to_ns: Some(START + to), ..Filter::default() };
            let section = trace.section_of(&DeviceMemory, &filter);
            assert!(section.notes.iter().all(|note| !note.contains("were freed whose")), "{:?}", section.notes);
            ["allocations", "frees", "allocated_bytes", "peak_bytes", "never_freed_bytes"]
                .map(|fact| section.get(fact).clone())
        };
        assert_eq!(of(100_000, 300_000), [1, 1, 50, 1050, 50].map(Value::Int));
        // Nothing is called in it.
        assert_eq!(of(100_000, 150_000), [0, 0, 0, 1000, 1000].map(Value::Int));
    }

    #[test]
    fn without_sizes_nothing_is_said_of_bytes() {
        let mut trace = TestTrace::new();
        let mut thread = trace.thread(1, 11);
        thread.alloc("cudaMalloc", "device", 0, 0, 40_000);
        thread.free("cudaFree", "device", 0, 30_000);
        let section = trace.section(&DeviceMemory);
        assert_eq!((section.get("allocations"), section.get("cost_ns")), (&Value::Int(1), &Value::Int(70_000)));
        for bytes in ["allocated_bytes", "peak_bytes", "never_freed_bytes"] {
            assert_eq!(section.get(bytes), &Value::Missing, "{bytes}");
        }
        assert!(section.notes.iter().any(|note| note.starts_with("The sizes of allocations")), "{:?}", section.notes);
    }

    #[test]
    fn calls_in_the_loop_are_steady_ones() {
        let mut trace = TestTrace::new();
        let mut thread = trace.thread(1, 11);
        thread.alloc("cuMemAlloc_v2", "device", 1, 1000, 40_000);
        for _ in 0..50 {
            thread.alloc("cuMemAlloc_v2", "device", 2, 10, 40_000);
            (0..5).for_each(|k| thread.launch(&format!("k{k}"), 2_000));
            thread.sync("cuStreamSynchronize", "stream", 10_000);
            thread.free("cuMemFree_v2", "device", 2, 30_000);
        }
        let section = trace.section(&DeviceMemory);
        assert_eq!(section.get("allocations"), &Value::Int(51));
        assert_eq!(section.get("steady_allocations"), &Value::Int(49), "steps run from wait to wait");
    }
}
