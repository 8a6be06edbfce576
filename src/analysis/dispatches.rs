//! dispatches: how much work each Metal command buffer, and each dispatch in it, gives the GPU.

use std::cmp::Reverse;

use gputrace_collectors::schema::TableId;

use super::passes::metal::{Buffers, Dispatches as OfKernel, FULL_THREADS};
use super::section::{Column, Section, Table, Unit, Value, column, percent};
use super::{Analysis, Explain, Facts, Metric, Need, loss, untimed};

/// The analysis.
pub(crate) struct Dispatches;

const _: () = assert!(FULL_THREADS == 24_576, "the words of the definition name it");

/// What is said where a trace has nothing of it.
const NONE: &str = "No Metal command buffers in this trace.";

impl Analysis for Dispatches {
    fn name(&self) -> &'static str {
        "dispatches"
    }

    fn title(&self) -> &'static str {
        "Dispatches and command buffers"
    }

    fn explain(&self) -> Explain {
        Explain {
            definition: "A dispatch is a message that puts a kernel into a Metal command buffer; a commit gives that to the GPU. A \
                dispatch is small when it has fewer than 24,576 threads in all: so many run at once on a GPU of eight \
                cores. A command buffer is single when it holds one dispatch and no other work. Encode time is the time \
                inside messages to the encoders of command buffers that were committed, over all threads; scheduling is \
                what Metal took from commit until the GPU had it. Dispatches of command buffers that went without a commit are counted, and \
                told apart (never committed): the GPU was not given them.",
            unit: "ns in JSON; in text the column's head names the unit.",
            limits: "Dispatches whose size the GPU reads in a buffer, and commands of indirect command buffers, have no known size. \
                Larger GPUs need more threads, and kernels with long threads fewer. A command buffer that Metal's own \
                libraries encode (MPS) shows what reached its encoders. Of a commit of \
                Metal 4's with more than 1,024 command buffers the dispatches of the others belong to no commit.",
            source: "Apple, M1: up to 24,576 threads at once; Metal Best Practices: command buffers; the tables command_buffers and \
                dispatches.",
        }
    }

    fn needs(&self) -> &'static [Need] {
        &[Need::Metal]
    }

    fn metrics(&self) -> &'static [Metric] {
        use Unit::*;
        const METRICS: &[Metric] = &[
            Metric::about("command_buffers", Count, "Metal command buffers that were committed")
                .sums(&[TableId::CommandBuffers]),
            Metric::about("dispatches", Count, "dispatches that were encoded").sums(&[TableId::Dispatches]),
            Metric::about("stray", Count, "of them, dispatches of no commit that was seen")
                .sums(&[TableId::Dispatches]),
            Metric::about("discarded", Count, "of them, dispatches of command buffers that were never committed")
                .sums(&[TableId::Dispatches]),
            Metric::use_of("dispatches_per_commit", Count, "dispatches of a command buffer that has some, mean"),
            Metric::cost("single_percent", Percent, "command buffers with one dispatch alone, of all"),
            Metric::cost("small_percent", Percent, "dispatches of fewer than 24,576 threads, of those of known size"),
            Metric::about("encode_ns", Ns, "time in messages that encode, over all threads")
                .sums(&[TableId::CommandBuffers]),
            Metric::cost("encode_per_dispatch_ns", Ns, "the same for each dispatch")
                .sums(&[TableId::CommandBuffers, TableId::Dispatches])
                .unsteady(),
            Metric::cost("schedule_med_ns", Ns, "median scheduling of a command buffer").unsteady(),
            Metric::cost("errors", Count, "command buffers that the GPU gave up").sums(&[TableId::CommandBuffers]),
        ];
        METRICS
    }

    fn answers(&self, facts: &Facts<'_>) -> bool {
        facts.metal.processes.iter().next().is_some() || facts.metal.dispatches() > 0
    }

    fn section(&self, facts: &Facts<'_>) -> Section {
        let mut section = Section::default();
        let metal = &facts.metal;
        let known = self.answers(facts);
        // What is left of removed rows is none of the run.
        let whole = |table: TableId| known && !loss::is_removed(facts.trace, &[table]);
        let [commits_known, dispatches_known] = [TableId::CommandBuffers, TableId::Dispatches].map(whole);
        let buffers = |of: fn(&Buffers) -> u64| metal.processes.iter().map(|(_, own)| of(own)).sum::<u64>();
        let kernels = |of: fn(&OfKernel) -> u64| metal.kernels.iter().map(|(_, own)| of(own)).sum::<u64>();
        let (commits, dispatches) = (buffers(|own| own.count), metal.dispatches());
        let (with, within) = (buffers(|own| own.dispatches.count), buffers(|own| own.dispatches.sum.max(0) as u64));
        let per = |whole: f64, parts: u64| (parts > 0).then(|| whole / parts as f64);
        let single = percent(buffers(|own| own.single) as f64, commits as f64);
        let small = percent(kernels(|own| own.small) as f64, kernels(|own| own.threads.count) as f64);
        let mut schedule = super::Stats::default();
        metal.processes.iter().for_each(|(_, own)| schedule.merge(&own.schedule));
        section.fact("command_buffers", "command buffers", Unit::Count, commits_known.then_some(commits));
        section.fact("dispatches", "dispatches", Unit::Count, dispatches_known.then_some(dispatches));
        section.rare_fact(
            "stray",
            "of them of no commit",
            Unit::Count,
            Some(buffers(|own| own.stray)).filter(|n| *n > 0),
        );
        section.rare_fact(
            "discarded",
            "of them never committed",
            Unit::Count,
            Some(buffers(|own| own.discarded)).filter(|n| *n > 0),
        );
        section.fact("dispatches_per_commit", "dispatches of a commit", Unit::Count, per(within as f64, with));
        section.fact("single_percent", "with one dispatch alone", Unit::Percent, single);
        section.fact("small_percent", "small dispatches", Unit::Percent, small);
        section.fact("encode_ns", "time in encoding", Unit::Ns, commits_known.then(|| metal.encode_ns()));
        let each = per(metal.encode_ns() as f64, dispatches).filter(|_| commits_known && dispatches_known);
        section.fact("encode_per_dispatch_ns", "for each dispatch", Unit::Ns, each);
        let median = (schedule.count > 0).then(|| schedule.median());
        section.fact("schedule_med_ns", "median scheduling", Unit::Ns, median);
        section.fact("errors", "given up by the GPU", Unit::Count, commits_known.then(|| buffers(|own| own.errors)));
        if !known {
            section.note(NONE);
        }
        untimed::said(buffers).into_iter().for_each(|note| section.note(note));
        section.table(by_process(facts));
        section.table(by_kernel(facts, dispatches));
        loss::note(&mut section, facts, "dispatches and other messages to encoders", TableId::Dispatches);
        loss::removed_note(&mut section, facts, &[TableId::CommandBuffers]);
        section
    }
}

fn by_process(facts: &Facts<'_>) -> Table {
    const COLUMNS: [Column; 11] = [
        column("process", "Process", Unit::Text),
        column("command_buffers", "Command buffers", Unit::Count),
        column("per_step", "Per step", Unit::Count),
        column("dispatches_med", "Dispatches, med", Unit::Count),
        column("single_percent", "One dispatch", Unit::Percent),
        column("compute_encoders", "Compute", Unit::Count),
        column("blit_encoders", "Blit", Unit::Count),
        column("render_encoders", "Render", Unit::Count),
        column("other_encoders", "Other", Unit::Count),
        column("encode_ns", "Encode", Unit::Ns),
        column("gpu_med_ns", "On the GPU, med", Unit::Ns),
    ];
    let mut processes: Vec<_> = facts.metal.processes.iter().collect();
    processes.sort_by_key(|(id, own)| (Reverse(own.count), facts.place(**id)));
    let whole = !loss::is_removed(facts.trace, &[TableId::CommandBuffers]);
    let row = |(id, own): (&i64, &Buffers)| {
        let median = |of: &super::Stats| Value::from((of.count > 0).then(|| of.median()));
        let per_step = facts.steps.of(*id).filter(|steps| steps.middle > 0);
        let mut row = vec![
            facts.label(*id).into(),
            whole.then_some(own.count).into(),
            per_step.map(|steps| own.middle as f64 / steps.middle as f64).into(),
            median(&own.dispatches),
            percent(own.single as f64, own.count as f64),
        ];
        row.extend(own.encoders.map(|made| whole.then_some(made).into()));
        row.extend([whole.then_some(own.encode_ns).into(), median(&own.gpu)]);
        row
    };
    Table::new("by_process", "By process", &COLUMNS, processes.into_iter().map(row).collect())
}

fn by_kernel(facts: &Facts<'_>, whole: u64) -> Table {
    const COLUMNS: [Column; 7] = [
        column("kernel", "Pipeline", Unit::Name),
        column("dispatches", "Dispatches", Unit::Count),
        column("dispatches_percent", "Of all", Unit::Percent),
        column("threads_med", "Threads, med", Unit::Count),
        column("threads_max", "Max", Unit::Count),
        column("small_percent", "Small", Unit::Percent),
        column("encode_ns", "In dispatch calls", Unit::Ns),
    ];
    let mut kernels: Vec<_> = facts.metal.kernels.iter().collect();
    kernels.sort_by_key(|(key, own)| (Reverse(own.small), Reverse(own.count), facts.place(key.0), **key));
    let row = |((_, name), own): (&(i64, i64), &OfKernel)| {
        let sized = |value: i64| (own.threads.count > 0).then_some(value);
        vec![
            facts.names.full(*name).into(),
            own.count.into(),
            percent(own.count as f64, whole as f64),
            sized(own.threads.median()).into(),
            sized(own.threads.max).into(),
            percent(own.small as f64, own.threads.count as f64),
            own.api_ns.into(),
        ]
    };
    let title = "By pipeline, most small dispatches first";
    Table::new("by_kernel", title, &COLUMNS, kernels.into_iter().map(row).collect())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::trace::testing::TestTrace;

    #[test]
    fn small_dispatches_and_lone_ones_are_told() {
        let mut trace = TestTrace::new();
        let mut thread = trace.thread(1, 11);
        for _ in 0..3 {
            thread.commit(&[("gemm", 100_000), ("relu", 64)], 1_000, 5_000, (10_000, 40_000));
        }
        thread.commit(&[("relu", 64)], 1_000, 5_000, (10_000, 4_000));
        let section = trace.section(&Dispatches);
        assert_eq!((section.get("command_buffers"), section.get("dispatches")), (&Value::Int(4), &Value::Int(7)));
        assert_eq!(section.get("dispatches_per_commit"), &Value::Num(1.75));
        assert_eq!(section.get("single_percent"), &Value::Num(25.0));
        assert_eq!(section.get("small_percent"), &Value::Num(100.0 * 4.0 / 7.0));
        assert_eq!(section.get("encode_ns"), &Value::Int(7_000));
        assert_eq!(section.cell("by_kernel", 0, "kernel"), &Value::from("relu"));
        assert_eq!(section.cell("by_kernel", 0, "threads_max"), &Value::Int(64));
        assert_eq!(section.cell("by_process", 0, "compute_encoders"), &Value::Int(4));
        assert_eq!(section.notes, Vec::<String>::new());
    }

    #[test]
    fn what_was_removed_is_not_known_and_no_zero() {
        let without = |tables: &[TableId]| {
            let mut trace = TestTrace::new();
            trace.process(1, 100, None, crate::trace::testing::START + 1_000_000);
            let mut thread = trace.thread(1, 11);
            thread.commit(&[("gemm", 100_000)], 1_000, 5_000, (10_000, 40_000));
            tables.iter().for_each(|table| assert!(trace.remove_before(*table, i64::MAX) > 0));
            trace.section(&Dispatches)
        };
        let section = without(&[TableId::CommandBuffers]);
        let of = ["command_buffers", "encode_ns", "encode_per_dispatch_ns", "errors"].map(|key| section.get(key));
        assert_eq!((of, section.get("dispatches")), ([&Value::Missing; 4], &Value::Int(1)));
        assert!(
            section.notes.iter().any(|note| note.starts_with("Removed to keep to --max-size")),
            "{:?}",
            section.notes
        );
        let section = without(&[TableId::CommandBuffers, TableId::Dispatches]);
        assert!(section.facts.iter().all(|fact| fact.value == Value::Missing));
    }

    #[test]
    fn a_trace_of_cuda_has_none() {
        assert_eq!(TestTrace::rich().section(&Dispatches).notes, [NONE]);
    }
}
