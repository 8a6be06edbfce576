//! host-peak: what was live when a process held most memory of malloc, by stack.

use super::by_stack::{self, OfStack, PLACE, PROCESS, SITE, STACK, STACK_ID, VIA, largest, whole};
use super::passes::allocations::OfProcess;
use super::section::{Column, Section, Table, Unit, column, percent};
use super::{Analysis, Explain, Facts, Metric, Need, by_line};
use gputrace_collectors::schema::TableId;

/// The analysis.
pub(crate) struct HostPeak;

impl Analysis for HostPeak {
    fn name(&self) -> &'static str {
        "host-peak"
    }

    fn title(&self) -> &'static str {
        "Live at the peak of malloc's memory"
    }

    fn explain(&self) -> Explain {
        Explain {
            definition: "What malloc had given and not got back at the moment when that was most in bytes, by the stack that allocated it; \
                of each process its own moment. Of a part of a trace (--from, --range, --steps) what was allocated before it is among what is \
                live in it. The line is the innermost frame of the user's own code that is no allocator's. With \
                --malloc sample a sample stands for weight_bytes (--explain host-memory), and the error is two standard deviations of \
                the sum over the live samples: sqrt(sum of weight (weight - bytes)).",
            unit: "bytes; blocks are estimates in sampled mode. After: since the process's start.",
            limits: "The peak of an estimate is a little higher than the real one: of all moments the one counts at which the samples \
                say most. Of several threads rows are in the order of their time but for some ms, which moves the peak by what was allocated \
                in these. Blocks of fewer bytes than the distance of samples may be missing altogether. Memory from mmap is told apart \
                (host-allocations), as is what the driver pinned, and what the allocator keeps for itself is in neither: host-memory has resident memory beside it.",
            source: "heaptrack and memray, peak; Poisson sampling as in heapprofd.",
        }
    }

    fn needs(&self) -> &'static [Need] {
        &[Need::Allocations]
    }

    fn metrics(&self) -> &'static [Metric] {
        use Unit::*;
        const METRICS: &[Metric] = &[
            Metric::cost("peak_bytes", Bytes, "most bytes of malloc live at once, in the process where that is most")
                .sums(&[TableId::HostMemory])
                .unsteady(),
            Metric::about("error_percent", Percent, "error of that: two standard deviations"),
            Metric::about("peak_blocks", Count, "blocks that were live then").sums(&[TableId::HostMemory]),
            Metric::about("largest_percent", Percent, "the part of it that the largest stack had")
                .sums(&[TableId::HostMemory]),
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
        by_stack::note_early_starts(&mut section, facts);
        by_stack::note_rare_samples(&mut section, facts);
        let processes = processes(facts);
        let (id, most) = processes[0];
        let of_most = largest(facts, |of| if of.process_id == id { of.stack.at_peak(of.process).bytes } else { 0.0 });
        let first = of_most.first().map_or(0.0, |of| of.stack.at_peak(of.process).bytes);
        section.fact("peak_bytes", by_stack::peak_title(facts), Unit::Bytes, most.peak.bytes);
        let error = by_stack::of_peak(facts, by_stack::error_percent(facts, most.peak));
        section.fact("error_percent", "error (+-)", Unit::Percent, error);
        section.fact("peak_blocks", "in blocks", Unit::Count, whole(most.peak.blocks));
        section.fact("largest_percent", "of one stack", Unit::Percent, percent(first, most.peak.bytes));
        if processes.len() > 1 {
            section.table(by_process(facts, &processes));
        }
        let all = largest(facts, |of| of.stack.at_peak(of.process).bytes);
        let of = |of: &OfStack<'_>| of.stack.at_peak(of.process);
        by_line::add(&mut section, facts, &all, "By line, at the peak of each process", of, |of| of.process.peak);
        section.table(at_peak(facts, &all));
        section
    }
}

fn processes<'a>(facts: &'a Facts<'_>) -> Vec<(i64, &'a OfProcess)> {
    let mut all: Vec<_> = facts.allocations.processes.iter().map(|(id, process)| (*id, process)).collect();
    all.sort_by(|(a_id, a), (b_id, b)| {
        b.peak.bytes.total_cmp(&a.peak.bytes).then_with(|| facts.place(*a_id).cmp(&facts.place(*b_id)))
    });
    all
}

fn by_process(facts: &Facts<'_>, processes: &[(i64, &OfProcess)]) -> Table {
    const COLUMNS: [Column; 6] = [
        PROCESS,
        column("program", "Program", Unit::Name),
        column("peak_bytes", "Peak", Unit::Bytes),
        column("error_percent", "+-", Unit::Percent),
        column("peak_after_ns", "After", Unit::Ns),
        column("live_at_end_bytes", "Live at end", Unit::Bytes),
    ];
    let row = |(id, process): &(i64, &OfProcess)| {
        let start = facts.trace.process(*id).map(|process| process.start_ns).filter(|start| *start > 0);
        let after = start.filter(|_| process.peak_at_ns > 0).map(|start| (process.peak_at_ns - start).max(0));
        vec![
            facts.label(*id).into(),
            facts.program(*id).into(),
            process.peak.bytes.into(),
            by_stack::of_peak(facts, by_stack::error_percent(facts, process.peak)),
            after.into(),
            by_stack::bytes(process.live.bytes),
        ]
    };
    Table::new("by_process", "By process", &COLUMNS, processes.iter().map(row).collect())
}

fn at_peak(facts: &Facts<'_>, all: &[OfStack<'_>]) -> Table {
    const COLUMNS: [Column; 11] = [
        PROCESS,
        SITE,
        column("bytes", "At peak", Unit::Bytes),
        column("error_bytes", "+-", Unit::Bytes),
        column("percent", "Of it", Unit::Percent),
        column("blocks", "Blocks", Unit::Count),
        column("live_at_end_bytes", "Live at end", Unit::Bytes),
        VIA,
        PLACE,
        STACK,
        STACK_ID,
    ];
    by_stack::table(facts, all, ["by_stack", "By stack, at the peak of each process"], &COLUMNS, |of| {
        let amount = of.stack.at_peak(of.process);
        [
            amount.bytes.into(),
            by_stack::of_peak(facts, by_stack::error_bytes(facts, amount)),
            percent(amount.bytes, of.process.peak.bytes),
            whole(amount.blocks),
            by_stack::bytes(of.stack.live.bytes),
        ]
    })
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use gputrace_collectors::manifest::{Count, HookBudget, HostMemory, ShedPart};

    use super::super::section::Value;
    use super::*;
    use crate::trace::Filter;
    use crate::trace::testing::{START, TestTrace};

    #[test]
    fn the_peak_is_shared_out_to_the_lines_that_held_it() {
        let mut trace = TestTrace::new();
        trace.process(1, 100, None, START + 1_000_000);
        let load = trace.stack("load", "/home/u/data.py", 31);
        let model = trace.stack("model", "/home/u/model.py", 7);
        let mut thread = trace.thread(1, 11);
        thread.host(500_000);
        let batch = thread.malloc_at(load, 750_000, 1_000_000.0);
        thread.malloc_at(model, 3_000_000, 3_000_000.0);
        thread.free_block(&batch);
        thread.malloc("alloc", 1000, 1000.0);
        let section = trace.section(&HostPeak);
        assert_eq!((section.get("peak_bytes"), section.get("peak_blocks")), (&Value::Num(4e6), &Value::Int(2)));
        assert_eq!(section.get("largest_percent"), &Value::Num(75.0));
        // One sample of a million bytes that was drawn with probability 3/4.
        assert_eq!(section.get("error_percent"), &Value::Num(25.0));
        let row = |row: usize| {
            ["site", "bytes", "error_bytes", "live_at_end_bytes"].map(|c| section.cell("by_stack", row, c).clone())
        };
        assert_eq!(row(0), ["model.py:7 model".into(), 3e6.into(), 0.0.into(), 3e6.into()]);
        assert_eq!(row(1), ["data.py:31 load".into(), 1e6.into(), 1e6.into(), 0.0.into()]);
        assert_eq!(section.cell("by_stack", 0, "stack"), &Value::from("model /home/u/model.py:7"));
        assert_eq!(section.tables.len(), 1);
        // Where events were lost nobody knows what is missing.
        let count = Count { seen: 6, recorded: 5, dropped: 1, ..Count::default() };
        trace.manifest.as_mut().unwrap().processes[0].accounting.insert("host_alloc".to_owned(), count);
        let section = trace.section(&HostPeak);
        assert_eq!(section.get("error_percent"), &Value::Missing);
        assert_eq!(section.cell("by_stack", 1, "error_bytes"), &Value::Missing);
    }

    #[test]
    fn of_a_part_what_was_allocated_before_and_is_live_yet_is_in_the_peak() {
        let mut trace = TestTrace::new();
        trace.process(1, 100, None, START + 1_000_000);
        let [model, load] = ["model", "load"].map(|function| trace.stack(function, "/home/u/x.py", 7));
        let mut thread = trace.thread(1, 11);
        let gone = thread.malloc_at(load, 5_000, 5_000.0);
        let kept = thread.malloc_at(model, 300, 3_000.0);
        thread.free_block(&gone);
        thread.now = START + 100_000;
        let batch = thread.malloc_at(load, 1_000, 1_000.0);
        thread.free_block(&batch);
        thread.now = START + 200_000;
        thread.free_block(&kept);
        let part =
            |from: i64, to: i64| Filter { from_ns: Some(START + from), to_ns: Some(START + to), ..Filter::default() };
        let section = trace.section_of(&HostPeak, &part(50_000, 150_000));
        assert_eq!((section.get("peak_bytes"), section.get("peak_blocks")), (&4e3.into(), &Value::Int(11)));
        let row = |row: usize| ["bytes", "live_at_end_bytes"].map(|c| section.cell("by_stack", row, c).clone());
        assert_eq!([row(0), row(1)], [[3e3.into(), 3e3.into()], [1e3.into(), 0.0.into()]]);
        // Its begin has the most, and what is freed in it is not live at its end.
        let section = trace.section_of(&HostPeak, &part(150_000, 300_000));
        assert_eq!(section.cell("by_stack", 0, "bytes"), &3e3.into());
        assert_eq!(section.cell("by_stack", 0, "live_at_end_bytes"), &0.0.into());
        let memory = trace.section_of(&super::super::host_memory::HostMemory, &part(50_000, 150_000));
        assert_eq!((memory.get("peak_live_bytes"), memory.get("allocated_bytes")), (&4e3.into(), &1e3.into()));
        let leaks = trace.section_of(&super::super::host_leaks::HostLeaks, &part(50_000, 150_000));
        assert_eq!(leaks.get("live_at_end_bytes"), &3e3.into());
    }

    #[test]
    fn a_free_of_what_was_allocated_before_the_first_row_takes_nothing_from_what_is_live() {
        let mut trace = TestTrace::new();
        trace.process(1, 100, None, START + 1_000_000);
        let cache = trace.stack("cache", "/home/u/x.py", 7);
        let mut thread = trace.thread(1, 11);
        let older = json!({ "stack_id": cache, "age_ns": 5_000_000 });
        (0..2).for_each(|_| _ = thread.malloc_at(cache, 100, 100.0));
        thread.host_memory("free", 100, 100.0, older);
        thread.malloc_at(cache, 100, 100.0);
        let of = |analysis: &dyn Analysis, key| trace.section(analysis).get(key).clone();
        assert_eq!(of(&HostPeak, "peak_bytes"), 300.0.into());
        assert_eq!(of(&super::super::host_memory::HostMemory, "peak_live_bytes"), 300.0.into());
        assert_eq!(of(&super::super::host_leaks::HostLeaks, "live_at_end_bytes"), 300.0.into());
    }

    #[test]
    fn a_call_that_began_before_the_first_row_and_ended_after_it_gave_a_block_whose_free_counts() {
        let mut trace = TestTrace::new();
        trace.process(1, 100, None, START + 1_000_000);
        let cache = trace.stack("cache", "/home/u/x.py", 7);
        trace.thread(1, 11).malloc_at(cache, 100, 100.0);
        let mut other = trace.thread(1, 12);
        other.now = START - 50;
        let block = other.malloc_at(cache, 100, 100.0);
        other.now = START + 1000;
        other.free_block(&block);
        let of = |analysis: &dyn Analysis, key| trace.section(analysis).get(key).clone();
        assert_eq!(of(&super::super::host_leaks::HostLeaks, "live_at_end_bytes"), 100.0.into());
        let memory = trace.section(&super::super::host_memory::HostMemory);
        assert_eq!(memory.cell("by_process", 0, "live_at_end_bytes"), &100.0.into());
    }

    #[test]
    fn what_is_not_told_of_each_block_is_said() {
        let notes = |stacks: bool, cull_ns: Option<i64>, shed: &str| {
            let mut trace = TestTrace::new();
            trace.process(1, 100, None, START + 1_000_000);
            trace.set(TableId::Processes, "malloc_mode", &json!("full"));
            trace.thread(1, 11).malloc("alloc", 1000, 1000.0);
            let manifest = trace.manifest.as_mut().unwrap();
            manifest.host_memory = HostMemory { stacks, cull_ns, ..HostMemory::default() };
            let part = ShedPart { what: shed.to_owned(), one_in: Some(64), ..ShedPart::default() };
            manifest.processes[0].budget = Some(HookBudget { shed: vec![part], ..HookBudget::default() });
            let all = [trace.section(&HostPeak), trace.section(&super::super::host_memory::HostMemory)];
            let about =
                all.each_ref().map(|section| section.facts.iter().any(|fact| fact.title.ends_with("at once (about)")));
            assert_eq!(about, [!stacks && cull_ns.is_some(); 2]);
            assert_eq!(all[0].get("error_percent") == &Value::Missing, about[0]);
            all.map(|section| ["5 ms and more", "up to 64 times"].map(|text| section.notes.concat().contains(text)))
        };
        assert_eq!(notes(false, Some(1), "launches"), [[true, false]; 2]);
        assert_eq!(notes(true, Some(1), "stacks"), [[false; 2]; 2]);
        assert_eq!(notes(false, None, "malloc"), [[false, true]; 2]);
    }

    #[test]
    fn a_trace_without_malloc_says_so_and_one_without_stacks_too() {
        let mut trace = TestTrace::new();
        trace.process(1, 100, None, START + 1_000_000);
        assert!(trace.section(&HostPeak).notes[0].starts_with("No malloc or free"));
        trace.thread(1, 11).malloc("alloc", 1000, 1000.0);
        let section = trace.section(&HostPeak);
        assert!(section.notes[0].starts_with("No allocation has a stack"), "{:?}", section.notes);
        assert_eq!(section.cell("by_stack", 0, "site"), &Value::from("(no stack)"));
    }
}
