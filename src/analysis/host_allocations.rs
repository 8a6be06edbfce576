//! host-allocations: who allocates on the host, how much and how often, and what comes from the kernel.

use gputrace_collectors::schema::TableId;
use std::cmp::Reverse;

use super::by_stack::{self, OfStack, PLACE, PROCESS, SITE, STACK, STACK_ID, VIA, bytes, largest, per_step, whole};
use super::passes::allocations::Amount;
use super::passes::gpu::Allocated;
use super::section::{Column, Section, Table, Unit, column, percent};
use super::{Analysis, Explain, Facts, Metric, Need, by_line, pinned};
use crate::render::number;

/// The analysis.
pub(crate) struct HostAllocations;

impl Analysis for HostAllocations {
    fn name(&self) -> &'static str {
        "host-allocations"
    }

    fn title(&self) -> &'static str {
        "Allocations of the host"
    }

    fn explain(&self) -> Explain {
        Explain {
            definition: "What malloc's family gave, by the stack that asked for it and by thread: calls, bytes, mean size, mean age of the \
                blocks that were freed again, and per steady step (what lies in steady steps, by their number). With --mmap also what came from the \
                kernel by stack: mapped (memory), reserved (addresses without memory), and what of both was not unmapped again (of a part \
                of a trace whatever of it was mapped before). Pinned by the driver is what its calls gave of host memory, and what of it is left. In GPU idle gaps: \
                allocated by the thread that gave a GPU its next work, from the moment when the GPU had run dry until the call that gave it, \
                in gaps that are the host's (--explain gpu-gaps); each allocation once, whichever GPUs waited.",
            unit: "calls, bytes, ns; estimates in sampled mode, where a sample stands for weight_bytes and weight / bytes calls. The error \
                is two standard deviations of the bytes.",
            limits: "Numbers of small allocations are rough in sampled mode. Blocks that are never freed have no age, so that the mean is \
                too small where many live on. Culled blocks count in the step in which their row begins, about a second at a time. \
                They, and what a GPU's thread allocated beyond a million rows in one gap, are in no gap. That something was allocated in a gap does not \
                say that the gap is long because of it: malloc-time has what the calls took. Calls of the driver below --stacks-over (20 us) have no stack. Memory that a program takes by system calls of its own is not seen.",
            source: "heaptrack, memray.",
        }
    }

    fn needs(&self) -> &'static [Need] {
        &[Need::Allocations, Need::GpuAllocations, Need::DeviceMemory]
    }

    fn metrics(&self) -> &'static [Metric] {
        use Unit::*;
        const METRICS: &[Metric] = &[
            Metric::about("allocations", Count, "allocations of malloc").sums(&[TableId::HostMemory]),
            Metric::about("allocated_bytes", Bytes, "bytes that malloc gave").sums(&[TableId::HostMemory]),
            Metric::about("error_percent", Percent, "error of the bytes: two standard deviations"),
            Metric::about("mean_bytes", BytesEach, "mean size of an allocation"),
            Metric::cost("per_step", Count, "allocations in a steady step, of the process with most")
                .sums(&[TableId::HostMemory])
                .unsteady()
                .of_step(),
            Metric::cost("per_step_bytes", Bytes, "bytes allocated in a steady step, of the process with most")
                .sums(&[TableId::HostMemory])
                .unsteady()
                .of_step(),
            Metric::about("mapped_bytes", Bytes, "bytes that came from mmap's family (--mmap)")
                .sums(&[TableId::HostMemory]),
            Metric::about("in_gaps", Count, "allocations in idle gaps of GPUs, by the threads that these waited for")
                .sums(&[TableId::DeviceCopies, TableId::HostMemory, TableId::Kernels]),
            Metric::about("in_gaps_bytes", Bytes, "their bytes").sums(&[
                TableId::DeviceCopies,
                TableId::HostMemory,
                TableId::Kernels,
            ]),
            Metric::about("in_gaps_ns", Ns, "idle time of the gaps in which something was allocated").sums(&[
                TableId::DeviceCopies,
                TableId::HostMemory,
                TableId::Kernels,
            ]),
        ];
        METRICS
    }

    fn answers(&self, facts: &Facts<'_>) -> bool {
        by_stack::any(facts)
    }

    fn section(&self, facts: &Facts<'_>) -> Section {
        let mut section = Section::default();
        if !by_stack::begin(&mut section, facts) {
            return section;
        }
        let mut sum = Amount::default();
        facts.allocations.processes.iter().for_each(|(_, process)| sum.add(process.sums.all));
        let in_step = |of: fn(&Amount) -> f64| {
            let each = facts.allocations.processes.iter();
            each.filter_map(|(id, process)| per_step(facts, *id, of(&process.sums.steady))).max_by(f64::total_cmp)
        };
        let mapped: f64 = facts.allocations.stacks.iter().map(|(_, stack)| stack.mapped.bytes[0]).sum();
        let any_mapped = facts.allocations.stacks.iter().any(|(_, stack)| stack.mapped.calls > 0);
        section.fact("allocations", "allocations", Unit::Count, whole(sum.blocks));
        section.fact("allocated_bytes", "allocated", Unit::Bytes, sum.bytes);
        section.fact("error_percent", "error (+-)", Unit::Percent, by_stack::error_percent(facts, sum));
        let mean = (sum.blocks > 0.0).then(|| sum.bytes / sum.blocks);
        section.fact("mean_bytes", "mean size", Unit::BytesEach, mean);
        section.fact("per_step", "a step", Unit::Count, in_step(|steady| steady.blocks));
        section.fact("per_step_bytes", "bytes a step", Unit::Bytes, in_step(|steady| steady.bytes));
        section.fact("mapped_bytes", "mapped", Unit::Bytes, any_mapped.then_some(mapped));
        let in_gaps = in_gaps(facts);
        section.fact("in_gaps", "in GPU idle gaps", Unit::Count, in_gaps.map(|found| whole(found.all.blocks)));
        section.fact("in_gaps_bytes", "their bytes", Unit::Bytes, in_gaps.map(|found| found.all.bytes));
        section.fact("in_gaps_ns", "idle time of these gaps", Unit::Ns, in_gaps.map(|found| found.gaps.1));
        let all = largest(facts, |of| of.stack.sums.all.bytes);
        by_line::add(&mut section, facts, &all, "By line", |of| of.stack.sums.all, |of| of.process.sums.all);
        section.table(of_stacks(facts, &all));
        section.table(by_thread(facts));
        in_gaps.into_iter().for_each(|found| of_gaps(&mut section, facts, found));
        section.table(from_kernel(facts));
        section.table(pinned::taken(facts));
        section
    }
}

fn of_stacks(facts: &Facts<'_>, all: &[OfStack<'_>]) -> Table {
    const COLUMNS: [Column; 13] = [
        PROCESS,
        SITE,
        column("bytes", "Bytes", Unit::Bytes),
        column("error_percent", "+-", Unit::Percent),
        column("calls", "Calls", Unit::Count),
        column("mean_bytes", "Mean size", Unit::BytesEach),
        column("mean_age_ns", "Mean age", Unit::Ns),
        column("per_step", "Per step", Unit::Count),
        column("per_step_bytes", "Bytes a step", Unit::Bytes),
        VIA,
        PLACE,
        STACK,
        STACK_ID,
    ];
    by_stack::table(facts, all, ["by_stack", "By stack"], &COLUMNS, |of| {
        let (sums, (aged, age_ns)) = (of.stack.sums, of.stack.aged);
        [
            sums.all.bytes.into(),
            by_stack::error_percent(facts, sums.all),
            whole(sums.all.blocks),
            (sums.all.bytes / sums.all.blocks).into(),
            (age_ns / aged).into(),
            per_step(facts, of.process_id, sums.steady.blocks).into(),
            per_step(facts, of.process_id, sums.steady.bytes).into(),
        ]
    })
}

fn by_thread(facts: &Facts<'_>) -> Table {
    const COLUMNS: [Column; 8] = [
        PROCESS,
        column("tid", "Thread", Unit::Text),
        column("name", "Name", Unit::Name),
        column("bytes", "Bytes", Unit::Bytes),
        column("calls", "Calls", Unit::Count),
        column("calls_per_s", "Calls a second", Unit::PerS),
        column("per_step", "Per step", Unit::Count),
        column("per_step_bytes", "Bytes a step", Unit::Bytes),
    ];
    let names = facts.trace.thread_names();
    let mut threads: Vec<_> = facts.allocations.threads.iter().filter(|(_, t)| t.sums.all.blocks > 0.0).collect();
    threads.sort_by(|(a_key, a), (b_key, b)| {
        b.sums
            .all
            .bytes
            .total_cmp(&a.sums.all.bytes)
            .then_with(|| (facts.place(a_key.0), a_key.1).cmp(&(facts.place(b_key.0), b_key.1)))
    });
    let row = |(key, thread): &(&(i64, i32), &super::passes::allocations::OfThread)| {
        let (process_id, tid) = **key;
        let (all, steady) = (thread.sums.all, thread.sums.steady);
        vec![
            facts.label(process_id).into(),
            tid.to_string().into(),
            names.get(*key).cloned().into(),
            all.bytes.into(),
            whole(all.blocks),
            (all.blocks * 1e9 / facts.wall_ns(process_id)).into(),
            per_step(facts, process_id, steady.blocks).into(),
            per_step(facts, process_id, steady.bytes).into(),
        ]
    };
    Table::new("by_thread", "By thread", &COLUMNS, threads.iter().map(row).collect())
}

/// What was allocated in idle gaps of GPUs; none where it is not known when they were idle.
fn in_gaps<'a>(facts: &'a Facts<'_>) -> Option<&'a Allocated> {
    facts.gpu.as_ref().filter(|gpu| gpu.any()).map(|gpu| &gpu.devices.allocated)
}

fn of_gaps(section: &mut Section, facts: &Facts<'_>, found: &Allocated) {
    const COLUMNS: [Column; 9] = [
        PROCESS,
        SITE,
        column("calls", "Calls", Unit::Count),
        column("bytes", "Bytes", Unit::Bytes),
        column("own_percent", "Of its own", Unit::Percent),
        VIA,
        PLACE,
        STACK,
        STACK_ID,
    ];
    let of_stack = |of: &OfStack<'_>| found.stacks.get(&(of.process_id, of.stack_id)).copied().unwrap_or_default();
    let all = largest(facts, |of| of_stack(of).blocks);
    section.table(by_stack::table(facts, &all, ["in_gaps", "In GPU idle gaps, by stack"], &COLUMNS, |of| {
        let inside = of_stack(of);
        let own = percent(inside.blocks, of.stack.sums.all.blocks);
        [whole(inside.blocks), inside.bytes.into(), own]
    }));
    if found.unplaced > 0 {
        section.note(format!(
            "{} allocations were culled, or were too many to be kept: whether they lie in idle gaps is not known.",
            number(found.unplaced as f64)
        ));
    }
}

fn from_kernel(facts: &Facts<'_>) -> Table {
    const COLUMNS: [Column; 12] = [
        PROCESS,
        SITE,
        column("calls", "Calls", Unit::Count),
        column("bytes", "Mapped", Unit::Bytes),
        column("live_bytes", "Still mapped", Unit::Bytes),
        column("live_percent", "Of all that is", Unit::Percent),
        column("reserved_bytes", "Reserved", Unit::Bytes),
        column("live_reserved_bytes", "Still reserved", Unit::Bytes),
        VIA,
        PLACE,
        STACK,
        STACK_ID,
    ];
    let mut all = largest(facts, |of| of.stack.mapped.calls as f64);
    all.sort_by_key(|of| Reverse(of.stack.mapped.bytes[0] as u64));
    let live: f64 = all.iter().map(|of| of.stack.mapped.live[0].max(0.0)).sum();
    by_stack::table(facts, &all, ["from_kernel", "From the kernel, by stack (--mmap)"], &COLUMNS, |of| {
        let mapped = of.stack.mapped;
        [
            mapped.calls.into(),
            mapped.bytes[0].into(),
            bytes(mapped.live[0]),
            percent(mapped.live[0].max(0.0), live),
            mapped.bytes[1].into(),
            bytes(mapped.live[1]),
        ]
    })
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::super::section::Value;
    use super::*;
    use crate::trace::testing::{START, TestTrace};

    #[test]
    fn allocations_are_told_by_stack_thread_and_step() {
        let mut trace = TestTrace::new();
        trace.process(1, 100, None, START + 1_000_000_000);
        let step = trace.stack("step", "/home/u/train.py", 44);
        let before = trace.stack("load", "/home/u/train.py", 9);
        trace.thread_row(1, 11, "python");
        trace.thread(1, 12).malloc_at(before, 7000, 7000.0);
        let mut thread = trace.thread(1, 11);
        thread.malloc_at(before, 1 << 20, f64::from(1 << 20));
        for n in 0..40 {
            let began = thread.range_begin();
            for _ in 0..3 {
                let block = thread.malloc_at(step, 1000, 1000.0);
                thread.host(90);
                thread.free_block(&block);
            }
            thread.launch("k", 10_000);
            thread.now = began + 1_000_000;
            thread.range_end(None, &format!("step {n}"), began, true);
        }
        let section = trace.section(&HostAllocations);
        assert_eq!((section.get("allocations"), section.get("per_step")), (&Value::Int(122), &Value::Num(3.0)));
        assert_eq!(section.get("per_step_bytes"), &Value::Num(3000.0));
        assert_eq!(section.get("mapped_bytes"), &Value::Missing);
        let cells = |row: usize| {
            ["site", "calls", "mean_bytes", "mean_age_ns", "per_step"].map(|c| section.cell("by_stack", row, c).clone())
        };
        assert_eq!(cells(0)[0..2], ["train.py:9 load".into(), Value::Int(2)]);
        assert_eq!(cells(0)[3..], [Value::Missing, Value::Num(0.0)]);
        assert_eq!(cells(1), ["train.py:44 step".into(), 120i64.into(), 1000.0.into(), 100.0.into(), 3.0.into()]);
        let thread =
            ["tid", "name", "calls", "calls_per_s", "per_step"].map(|c| section.cell("by_thread", 0, c).clone());
        assert_eq!(thread, ["11".into(), "python".into(), 121i64.into(), 121.0.into(), 3.0.into()]);
        assert_eq!(section.cell("by_thread", 1, "bytes"), &Value::Num(7000.0));
    }

    #[test]
    fn what_the_kernel_gave_stands_apart_with_what_of_it_is_left() {
        let mut trace = TestTrace::new();
        trace.process(1, 100, None, START + 1_000_000_000);
        let [arena, file] = ["arena", "file"].map(|f| trace.stack(f, "/home/u/x.py", 1));
        let mut thread = trace.thread(1, 11);
        for (stack, action, bytes, weight, age_ns) in [
            (arena, "reserve", 1000, 0.0, None),
            (arena, "unmap", 400, 0.0, Some(10)),
            (file, "map", 90, 90.0, None),
            (file, "unmap", 30, 30.0, Some(10)),
        ] {
            thread.host_memory(action, bytes, weight, json!({ "stack_id": stack, "age_ns": age_ns }));
        }
        let section = trace.section(&HostAllocations);
        assert_eq!((section.get("mapped_bytes"), section.get("allocations")), (&Value::Num(90.0), &Value::Int(0)));
        let row = |row: usize| {
            ["site", "bytes", "live_bytes", "live_reserved_bytes"].map(|c| section.cell("from_kernel", row, c).clone())
        };
        assert_eq!(row(0), ["x.py:1 file".into(), 90.0.into(), 60.0.into(), 0.0.into()]);
        assert_eq!(row(1), ["x.py:1 arena".into(), 0.0.into(), 0.0.into(), 600.0.into()]);
    }

    #[test]
    fn what_the_launching_thread_allocates_while_the_gpu_has_nothing_to_do_is_told_by_stack() {
        let mut trace = TestTrace::new();
        trace.process(1, 100, None, START + 1_000_000_000);
        let [fill, warm, other] = ["fill", "warm", "other"].map(|f| trace.stack(f, "/home/u/x.py", 1));
        let mut thread = trace.thread(1, 11);
        // The GPU is busy.
        let end = thread.launch_running("a", 5_000, 7, (START + 6_000, 100_000));
        thread.malloc_at(warm, 7, 7.0);
        thread.malloc_at(fill, 1, 1.0);
        thread.host(end - thread.now);
        // It has run dry.
        (0..3).for_each(|_| _ = thread.malloc_at(fill, 1000, 1000.0));
        thread.culled(warm, 4, 400, 100);
        thread.host(50_000);
        let launched = thread.now;
        thread.launch_running("b", 5_000, 7, (launched + 6_000, 10_000));
        // Another thread, and one that has given work already.
        trace.thread(1, 12).host(0);
        let mut beside = trace.thread(1, 12);
        beside.now = end + 10;
        beside.malloc_at(other, 5000, 5000.0);
        let mut thread = trace.thread(1, 11);
        thread.now = launched + 5_500;
        thread.malloc_at(warm, 9, 9.0);
        let section = trace.section(&HostAllocations);
        let facts = ["in_gaps", "in_gaps_bytes", "in_gaps_ns"].map(|fact| section.get(fact).clone());
        assert_eq!(facts, [3i64.into(), 3000.0.into(), (launched - end).into()]);
        let row = ["site", "calls", "bytes", "own_percent"].map(|column| section.cell("in_gaps", 0, column).clone());
        assert_eq!(row, ["x.py:1 fill".into(), 3i64.into(), 3000.0.into(), 75.0.into()]);
        assert_eq!(section.tables.iter().find(|table| table.key == "in_gaps").unwrap().rows.len(), 1);
        assert!(section.notes.iter().any(|note| note.starts_with("4 allocations were culled")), "{:?}", section.notes);
    }

    #[test]
    fn without_times_of_a_gpu_nothing_is_said_of_its_gaps() {
        let mut trace = TestTrace::new();
        trace.process(1, 100, None, START + 1_000_000_000);
        trace.thread(1, 11).malloc("alloc", 100, 100.0);
        let section = trace.section(&HostAllocations);
        assert_eq!(section.get("in_gaps"), &Value::Missing);
        assert!(section.tables.iter().all(|table| table.key != "in_gaps"));
    }
}
