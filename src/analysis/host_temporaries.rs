//! host-temporaries: allocations that were given back at once, by stack.

use super::by_stack::{self, PLACE, PROCESS, SITE, STACK, STACK_ID, VIA, largest, per_step, sees_each_call, whole};
use super::passes::allocations::Amount;
use super::section::{Column, Section, Unit, column, percent};
use super::{Analysis, Explain, Facts, Metric, Need};
use gputrace_collectors::schema::TableId;

/// The analysis.
pub(crate) struct HostTemporaries;

impl Analysis for HostTemporaries {
    fn name(&self) -> &'static str {
        "host-temporaries"
    }

    fn title(&self) -> &'static str {
        "Temporary allocations of the host"
    }

    fn explain(&self) -> Explain {
        Explain {
            definition: "Allocations that were freed within 1 ms, or, where every call has a row (--malloc full without --cull), before \
                the same thread's next allocation and by that thread; by the stack that made them. Those that --cull summed count as \
                well, whatever time it was given. A buffer that is kept and used again would save them.",
            unit: "calls, bytes; per second of the process's wall time, per steady step. Estimates in sampled mode.",
            limits: "In sampled mode numbers of small allocations are rough: few of them are met (--explain host-memory). A block whose \
                free is not in the trace is none. A growing realloc is an allocation and a free.",
            source: "heaptrack, temporary allocations (freed before the next one); memray, temporary.",
        }
    }

    fn needs(&self) -> &'static [Need] {
        &[Need::Allocations]
    }

    fn metrics(&self) -> &'static [Metric] {
        use Unit::*;
        const METRICS: &[Metric] = &[
            Metric::about("temporaries", Count, "allocations that were freed at once").sums(&[TableId::HostMemory]),
            Metric::about("temporary_bytes", Bytes, "their bytes").sums(&[TableId::HostMemory]),
            Metric::cost("temporary_percent", Percent, "of all allocations").unsteady(),
            Metric::cost("calls_per_s", PerS, "temporary allocations a second, over all processes")
                .sums(&[TableId::HostMemory])
                .unsteady(),
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
        let all = largest(facts, |of| of.short(facts).blocks);
        let (mut sum, mut rate) = (Amount::default(), 0.0);
        for of in &all {
            let short = of.short(facts);
            sum.add(short);
            rate += a_second(facts, of.process_id, short.blocks).unwrap_or(0.0);
        }
        let made: f64 = facts.allocations.processes.iter().map(|(_, process)| process.sums.all.blocks).sum();
        section.fact("temporaries", "temporary allocations", Unit::Count, whole(sum.blocks));
        section.fact("temporary_bytes", "their bytes", Unit::Bytes, sum.bytes);
        section.fact("temporary_percent", "of all allocations", Unit::Percent, percent(sum.blocks, made));
        section.fact("calls_per_s", "a second", Unit::PerS, rate);
        section.table(by_stack::table(facts, &all, ["by_stack", "By stack"], &COLUMNS, |of| {
            let (short, made) = (of.short(facts), of.stack.sums.all.blocks);
            [
                whole(short.blocks),
                short.bytes.into(),
                (short.bytes / short.blocks).into(),
                percent(short.blocks, made),
                a_second(facts, of.process_id, short.blocks).into(),
                per_step(facts, of.process_id, of.stack.sums.steady.blocks * (short.blocks / made.max(1.0)).min(1.0))
                    .into(),
            ]
        }));
        if facts.allocations.processes.iter().any(|(id, _)| !sees_each_call(facts, *id)) {
            section.note("Not every call has a row: temporary is what was freed within 1 ms, or culled.");
        }
        section
    }
}

const COLUMNS: [Column; 12] = [
    PROCESS,
    SITE,
    column("calls", "Calls", Unit::Count),
    column("bytes", "Bytes", Unit::Bytes),
    column("mean_bytes", "Mean", Unit::BytesEach),
    column("own_percent", "Of its own", Unit::Percent),
    column("calls_per_s", "A second", Unit::PerS),
    column("per_step", "Per step, about", Unit::Count),
    VIA,
    PLACE,
    STACK,
    STACK_ID,
];

fn a_second(facts: &Facts<'_>, process_id: i64, calls: f64) -> Option<f64> {
    let wall_ns = facts.wall_ns(process_id);
    (wall_ns > 0.0).then(|| calls * 1e9 / wall_ns)
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::super::section::Value;
    use super::*;
    use crate::trace::testing::{START, TestTrace};

    fn trace(mode: &str, culled: bool) -> Section {
        let mut trace = TestTrace::new();
        trace.process(1, 100, None, START + 2_000_000_000);
        trace.set(gputrace_collectors::schema::TableId::Processes, "malloc_mode", &json!(mode));
        let [format, load] = [("format", 3), ("load", 4)].map(|(f, line)| trace.stack(f, "/home/u/x.py", line));
        let mut thread = trace.thread(1, 11);
        for _ in 0..10 {
            let block = thread.malloc_at(format, 100, 100.0);
            thread.free_block(&block);
        }
        // Kept for long, but until nothing else was allocated.
        thread.host_memory("alloc", 5000, 5000.0, json!({ "stack_id": load, "address": 7 }));
        thread.host(20_000_000);
        thread.host_memory("free", 5000, 5000.0, json!({ "stack_id": load, "address": 7, "age_ns": 20_000_010 }));
        thread.malloc_at(load, 5000, 5000.0);
        if culled {
            thread.culled(format, 30, 3000, 200);
        }
        trace.section(&HostTemporaries)
    }

    #[test]
    fn what_is_freed_at_once_or_before_the_next_one_is_temporary() {
        let section = trace("full", false);
        assert_eq!(
            (section.get("temporaries"), section.get("temporary_bytes")),
            (&Value::Int(11), &Value::Num(6000.0))
        );
        assert_eq!(section.get("temporary_percent"), &Value::Num(100.0 * 11.0 / 12.0));
        assert_eq!(section.get("calls_per_s"), &Value::Num(5.5));
        let row = |row: usize| {
            ["site", "calls", "own_percent", "mean_bytes"].map(|c| section.cell("by_stack", row, c).clone())
        };
        assert_eq!(row(0), ["x.py:3 format".into(), 10i64.into(), 100.0.into(), 100.0.into()]);
        assert_eq!(row(1), ["x.py:4 load".into(), 1i64.into(), 50.0.into(), 5000.0.into()]);
        assert!(section.notes.is_empty());
    }

    #[test]
    fn where_not_every_call_has_a_row_it_is_not_known_which_one_is_the_next() {
        assert_eq!(trace("sample:524288", false).get("temporaries"), &Value::Int(10));
        let section = trace("full", true);
        assert_eq!(section.get("temporaries"), &Value::Int(40));
        assert!(section.notes[0].starts_with("Not every call has a row"));
    }
}
