//! kernel-sequences: which kernels follow each other time after time, by the range that launches them.

use gputrace_collectors::schema::TableId;
use std::cmp::Reverse;
use std::collections::{BTreeMap, BTreeSet};

use super::passes::folds;
use super::passes::sequences::Sequence;
use super::section::{Column, Section, Table, Unit, column, percent};
use super::{Analysis, Explain, Facts, Metric, Need, gpu, unmatched};
use crate::trace::full_name;

/// The analysis.
pub(crate) struct KernelSequences;

impl Analysis for KernelSequences {
    fn name(&self) -> &'static str {
        "kernel-sequences"
    }

    fn title(&self) -> &'static str {
        "Kernel sequences"
    }

    fn explain(&self) -> Explain {
        Explain {
            definition: "Of each range that is nested in its thread (operators, modules, annotations, steps) the kernels, copies and sets \
                that its thread launched inside of it, also inside of inner ranges, in the order in which they began on the GPU: their \
                names are its sequence. Ranges of one name and sequence are counted together; sequences of fewer than 3 operations \
                are left out. GPU is the time of these operations, host the time of the ranges from begin to end. What comes often, in \
                short kernels, is worth fusing (torch.compile) or a CUDA graph. Ranges that are counted by their names (step 17, step 18) are one.",
            unit: "ns in JSON; in text the column's head names the unit.",
            limits: "A trace needs ranges and times of the GPU. Operations of inner ranges count for these as well, so GPU times of rows do not add up; they are sums over operations, and where these run beside each other a row may have more than 100 % of the busy time. \
                Of 500,000 ranges, launches and operations the sequences are known; the note says how many more there are. Names are those of the \
                first 64 operations; sequences that differ later are told apart.",
            source: "HTA, get_frequent_cuda_kernel_sequences with min_pattern_len 3: there of operators of one name that the user gives, \
                those that lie in the fewest others; here of all of them.",
        }
    }

    fn needs(&self) -> &'static [Need] {
        &[Need::Sequences, Need::Busy, Need::GpuClock, Need::Metal]
    }

    fn metrics(&self) -> &'static [Metric] {
        use Unit::*;
        const METRICS: &[Metric] = &[
            Metric::about("ranges", Count, "ranges that launched 3 operations or more").sums(&[
                TableId::Kernels,
                TableId::Launches,
                TableId::Ranges,
            ]),
            Metric::about("sequences", Count, "sequences of operations told apart, by process and name of the range")
                .sums(&[TableId::Kernels, TableId::Launches, TableId::Ranges]),
            Metric::about("recurring_percent", Percent, "ranges whose sequence another one of their name has too")
                .sums(&[TableId::Kernels, TableId::Launches, TableId::Ranges]),
        ];
        METRICS
    }

    fn answers(&self, facts: &Facts<'_>) -> bool {
        facts.sequences.found.iter().next().is_some()
    }

    fn section(&self, facts: &Facts<'_>) -> Section {
        const COLUMNS: [Column; 8] = [
            column("process", "Process", Unit::Text),
            column("range", "Range", Unit::Name),
            column("count", "Count", Unit::Count),
            column("operations", "Operations", Unit::Count),
            column("gpu_ns", "GPU", Unit::Ns),
            column("gpu_percent", "Of busy", Unit::Percent),
            column("host_ns", "Host", Unit::Ns),
            column("sequence", "Sequence", Unit::Name),
        ];
        let mut section = Section::default();
        let Some(gpu) = gpu::sums(facts, &mut section) else { return section };
        unmatched::note_of_rest(&mut section, facts);
        let mut rows: Vec<_> = rows(facts).into_iter().collect();
        let ranges: u64 = rows.iter().map(|(_, of)| of.count).sum();
        let again: u64 = rows.iter().filter(|(_, of)| of.count > 1).map(|(_, of)| of.count).sum();
        section.fact("ranges", "ranges of 3 operations or more", Unit::Count, ranges);
        section.fact("sequences", "sequences", Unit::Count, rows.len() as u64);
        section.fact(
            "recurring_percent",
            "with a sequence that recurs",
            Unit::Percent,
            percent(again as f64, ranges as f64),
        );
        if rows.is_empty() {
            section.note("No range of this trace launched three operations: import a trace of torch.profiler, or name ranges with NVTX.");
        }
        if facts.sequences.beyond > 0 {
            let beyond = facts.sequences.beyond;
            section.note(format!("{beyond} more ranges, launches and operations were too many to be looked at."));
        }
        rows.sort_by(|(a_key, a), (b_key, b)| (Reverse(a.count), a_key).cmp(&(Reverse(b.count), b_key)));
        let busy: i64 = gpu.devices.iter().map(|device| device.busy().total_ns()).sum();
        let row = |((process, name, sequence, _), of): (Key, Sequence)| {
            vec![
                facts.label(process).into(),
                name.into(),
                of.count.into(),
                of.operations.into(),
                of.gpu_ns.into(),
                percent(of.gpu_ns as f64, busy as f64),
                of.host_ns.into(),
                sequence.into(),
            ]
        };
        section.table(Table::new("sequences", "Most frequent first", &COLUMNS, rows.into_iter().map(row).collect()));
        section
    }
}

/// Process, name of the range, names of the operations, and a number for all of these, beyond those that are kept too.
type Key = (i64, String, String, u64);

fn rows(facts: &Facts<'_>) -> BTreeMap<Key, Sequence> {
    let found = &facts.sequences;
    let operation = |what: &i64| match found.name(*what) {
        Ok(name_id) => facts.names.full(name_id),
        Err(copy) => copy.to_owned(),
    };
    let named = found.found.iter().map(|(key, of)| {
        let name = match key.pattern {
            Some(number) => full_name(found.folds.pattern(number).0),
            None if key.name_id < 0 => "(no name)".to_owned(),
            None => facts.names.full(key.name_id),
        };
        let mut sequence = of.first.iter().map(operation).collect::<Vec<_>>().join("|");
        let more = of.operations - of.first.len() as u64;
        if more > 0 {
            sequence += &format!("|and {more} more");
        }
        ((key.process_id, name, sequence, key.hash), of)
    });
    let named: Vec<(Key, &Sequence)> = named.collect();
    // Names that count something are one.
    let mut patterns: BTreeMap<(i64, String), (BTreeSet<&str>, u64)> = BTreeMap::new();
    for ((process, name, ..), of) in &named {
        let (names, count) = patterns.entry((*process, folds::pattern(name, false))).or_default();
        names.insert(name);
        *count += of.count;
    }
    let mut rows: BTreeMap<Key, Sequence> = BTreeMap::new();
    for ((process, name, sequence, hash), of) in &named {
        let pattern = (*process, folds::pattern(name, false));
        let counts = patterns
            .get(&pattern)
            .is_some_and(|(names, count)| names.len() >= folds::FEWEST && *count <= folds::TIMES * names.len() as u64);
        let name = if counts { pattern.1 } else { name.clone() };
        let row = rows.entry((*process, name, sequence.clone(), *hash)).or_default();
        row.count += of.count;
        row.operations = of.operations;
        row.host_ns += of.host_ns;
        row.gpu_ns += of.gpu_ns;
    }
    rows
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::trace::testing::TestTrace;

    #[test]
    fn ranges_with_the_same_operations_are_counted_together() {
        let mut trace = TestTrace::new();
        let mut thread = trace.thread(1, 11);
        for step in 0..5 {
            let began = thread.range_begin();
            for layer in ["attention", "mlp"] {
                let own = thread.range_begin();
                let mut at = thread.now + 6_000;
                for kernel in ["norm", "gemm", if layer == "mlp" && step == 4 { "slow" } else { "add" }] {
                    at = thread.launch_running(kernel, 2_000, 7, (at.max(thread.now + 6_000), 10_000));
                }
                if layer == "attention" {
                    thread.copy_running("DtoD", 4096, 2_000, (at, 5_000));
                }
                thread.range_end(None, layer, own, true);
            }
            thread.range_end(None, &format!("step {step}"), began, true);
        }
        let section = trace.section(&KernelSequences);
        let row = |row: usize| {
            let cell = |column: &str| format!("{:?}", section.cell("sequences", row, column));
            ["range", "count", "operations", "gpu_ns", "sequence"].map(cell).join(" ")
        };
        let text = |text: &str| format!("Text({text:?})");
        assert_eq!(
            row(0),
            format!(
                "{} Int(5) Int(4) Int(175000) {}",
                text("attention"),
                text("norm|gemm|add|Memcpy DtoD (Unknown -> Unknown)")
            )
        );
        assert_eq!(row(1), format!("{} Int(4) Int(3) Int(120000) {}", text("mlp"), text("norm|gemm|add")));
        assert!(row(2).starts_with(&format!("{} Int(4) Int(7)", text("step *"))), "{}", row(2));
        assert!(row(3).contains("norm|gemm|slow") && row(3).starts_with(&text("mlp")), "{}", row(3));
        assert_eq!((section.get("ranges"), section.get("sequences")), (&15i64.into(), &5i64.into()));
        let percent = section.get("recurring_percent");
        assert_eq!(percent, &(100.0 * 13.0 / 15.0).into());
    }
}
