//! transfers: copies and sets, how large, between which memories, and which of them block.

use gputrace_collectors::schema::TableId;

use super::passes::transfers::{Key, Rule, Sum};
use super::section::{Column, Section, Table, Unit, Value, column, percent};
use super::{Analysis, Explain, Facts, Metric, Need, What, copies, sites};

/// The analysis.
pub(crate) struct Transfers;

impl Analysis for Transfers {
    fn name(&self) -> &'static str {
        "transfers"
    }

    fn title(&self) -> &'static str {
        "Transfers"
    }

    fn explain(&self) -> Explain {
        Explain {
            definition: "Copies and sets at the driver's entry points, per process, direction, kinds of memory and function: \
                count, bytes, time in the call, small share (1 byte to 64 KiB). Waited is the time in blocking copies that \
                their bytes cannot explain: what a call takes beyond 20 us + bytes / (2 GB/s), where it takes more than \
                twice that and work was pending. Then it waited for earlier work, and the report counts that as synchronisation. Effective \
                bandwidth is bytes / time in the call, of calls that block until the copy is done and did not wait; where the trace has \
                GPU times, on_gpu has bandwidth by these. Of peak is its share of what the PCIe link carries, for copies between \
                host and device: lanes x the highest speed of the link, less its line code (8b/10b up to 5 GT/s, 128b/130b up to \
                32 GT/s). Exposed is the time in which a GPU did nothing but copies and sets; overlap is the time of copies and sets with kernels \
                beside them, by direction, of copies at once each. Over time: bytes / time of each of 60 equal spans at most, a copy's bytes \
                spread evenly over its time on the GPU: the mean in the span of HTA's series, which adds up the bandwidths of the copies under way. Nsight Systems' rules: cuda_memcpy_async = asynchronous \
                copies that touch pageable memory; cuda_memcpy_sync = synchronous copies, except host to device up to \
                64,000 bytes and within one device; cuda_memset_sync = synchronous sets on pinned or managed memory.",
            unit: "bytes, ns and bytes/s in JSON; in text the column's head names the unit (powers of 1024 for bytes).",
            limits: "For an asynchronous copy the time in the call is not the time of the copy, so it has no bandwidth here. \
                Waited is a lower bound: host data hold one time for waiting and copying, and 2 GB/s is slower than any \
                link in use; a wait that is short beside its copy's need is not told from it, and a call that was kept from a \
                processor looks like one that waited. A kind of memory is unknown when its allocation \
                was not seen; host memory that was not pinned through the driver counts as pageable. The link is known where the \
                manifest describes it and all devices of the process have the same; a bandwidth beyond it went another way \
                (NVLink) and has no share. Packets' heads are not taken off, so that 85 to 90 % is as much as there is. Of Metal it is not known how long \
                copies took on the GPU, and beside what.",
            source: "Nsight Systems cuda_gpu_mem_time_sum, cuda_gpu_mem_size_sum and rules cuda_memcpy_async, cuda_memcpy_sync, cuda_memset_sync; \
                small transfers: less than 64 KiB, the definition above. The rules match runtime names there, driver calls here.",
        }
    }

    fn needs(&self) -> &'static [Need] {
        &[Need::Transfers, Need::Sites, Need::Busy, Need::Metal]
    }

    fn metrics(&self) -> &'static [Metric] {
        use Unit::*;
        const METRICS: &[Metric] = &[
            Metric::about("copies", Count, "copies").sums(&[TableId::Transfers]),
            Metric::about("copied_bytes", Bytes, "bytes that copies moved").sums(&[TableId::Transfers]),
            Metric::about("sets", Count, "sets of memory").sums(&[TableId::Transfers]),
            Metric::about("api_ns", Ns, "time in the calls of copies and sets").sums(&[TableId::Transfers]),
            Metric::cost("wall_percent", Percent, "time in the calls of copies and sets, of wall time")
                .sums(&[TableId::Transfers])
                .unsteady(),
            Metric::about("waiting_copies", Count, "copies that waited for earlier work").sums(&[TableId::Transfers]),
            Metric::about("waited_ns", Ns, "their waiting, at least").sums(&[TableId::Transfers]),
            Metric::cost("small_percent", Percent, "copies and sets under 64 KiB, of all"),
            Metric::about("gpu_ns", Ns, "time of copies and sets on the GPU")
                .sums(&[TableId::DeviceCopies, TableId::Kernels]),
            Metric::about("exposed_ns", Ns, "time in which GPUs did nothing but copies and sets")
                .sums(&[TableId::DeviceCopies, TableId::Kernels]),
            Metric::about("beside_kernels_ns", Ns, "time of copies and sets on the GPU with kernels beside them")
                .sums(&[TableId::DeviceCopies, TableId::Kernels]),
        ];
        METRICS
    }

    fn section(&self, facts: &Facts<'_>) -> Section {
        let mut section = Section::default();
        let sums = || facts.transfers.sums.iter();
        let count: u64 = sums().map(|(_, s)| s.api.count).sum();
        let small: u64 = sums().map(|(_, s)| s.small).sum();
        let wall: f64 = facts.busy().iter().map(|(id, _)| facts.wall_ns(*id)).sum();
        let api_ns: i64 = sums().map(|(_, s)| s.api.sum).sum();
        let copied = || sums().filter(|(key, _)| !key.set);
        section.fact("copies", "copies", Unit::Count, copied().map(|(_, s)| s.api.count).sum::<u64>());
        let sized = facts.transfers.is_sized(None);
        let bytes = copied().map(|(_, s)| s.bytes).sum::<i64>();
        section.fact("copied_bytes", "bytes copied", Unit::Bytes, sized.then_some(bytes));
        section.fact("sets", "sets", Unit::Count, count - copied().map(|(_, s)| s.api.count).sum::<u64>());
        section.fact("api_ns", "time in the calls", Unit::Ns, api_ns);
        section.fact("wall_percent", "share of wall time", Unit::Percent, percent(api_ns as f64, wall));
        let waits: u64 = sums().map(|(_, s)| s.waited.count).sum();
        section.fact("waiting_copies", "copies that waited for earlier work", Unit::Count, waits);
        section.fact(
            "waited_ns",
            "of their time waiting, at least",
            Unit::Ns,
            sums().map(|(_, s)| s.waited.sum).sum::<i64>(),
        );
        let small = if sized { percent(small as f64, count as f64) } else { Value::Missing };
        section.fact("small_percent", "small (< 64 KiB)", Unit::Percent, small);
        copies::facts_of(&mut section, facts);
        super::gpu::unread_note(&mut section, facts);
        let unsized_calls: u64 = sums().map(|(_, s)| s.unsized_calls).sum();
        if unsized_calls > 0 {
            section.note(format!(
                "The sizes of {unsized_calls} of {count} copies and sets are not in this trace: they are in no number of bytes."
            ));
        }
        if count == 0 {
            section.note("No copies or sets in this trace.");
        }
        if waits > 0 {
            section.note(
                "Waited: what blocking copies took beyond 20 us + bytes / (2 GB/s), where they took more than twice that \
                 and work was pending. It is a lower bound, and counts as synchronisation (see syncs).",
            );
        }
        section.table(by_direction(facts));
        section.table(copies::table(facts));
        section.table(copies::overlap(facts));
        section.table(copies::over_time(facts));
        section.table(rules(facts));
        sites::cost_table(&mut section, facts, &[What::Copy], ("by_site", "By line, without waiting for earlier work"));
        super::loss::note(&mut section, facts, "copies and sets", TableId::Transfers);
        section
    }
}

fn memories(facts: &Facts<'_>, key: &Key) -> String {
    match (facts.transfers.text(key.src), facts.transfers.text(key.dst)) {
        ("", dst) => dst.to_owned(),
        (src, "") => src.to_owned(),
        (src, dst) => format!("{src} > {dst}"),
    }
}

/// What tells a key from others: the numbers of texts depend on which came first.
fn identity<'a>(facts: &'a Facts<'_>, key: &Key) -> (i64, (usize, i64), [&'a str; 3], bool, bool) {
    let texts = [key.direction, key.src, key.dst].map(|number| facts.transfers.text(number));
    (key.api_id, facts.place(key.process_id), texts, key.set, key.queued)
}

fn by_direction(facts: &Facts<'_>) -> Table {
    const COLUMNS: [Column; 14] = [
        column("process", "Process", Unit::Text),
        column("kind", "Kind", Unit::Text),
        column("direction", "Direction", Unit::Text),
        column("memory", "Memory", Unit::Text),
        column("api", "Function", Unit::Name),
        column("blocks", "Blocks", Unit::Text),
        column("calls", "Calls", Unit::Count),
        column("bytes", "Bytes", Unit::Bytes),
        column("total_ns", "Total", Unit::Ns),
        column("waited_ns", "Waited", Unit::Ns),
        column("med_ns", "Med", Unit::Ns),
        column("bandwidth_bytes_per_s", "Bandwidth", Unit::BytesPerS),
        column("peak_percent", "Of peak", Unit::Percent),
        column("small_percent", "Small", Unit::Percent),
    ];
    let mut sums: Vec<(&Key, &Sum)> = facts.transfers.sums.iter().collect();
    sums.sort_by_key(|(key, sum)| (std::cmp::Reverse(sum.api.sum), identity(facts, key)));
    let row = |(key, sum): (&Key, &Sum)| {
        let blocks = !key.queued && !key.set;
        let per_s = (blocks && sum.unwaited.1 > 0).then(|| sum.unwaited.0 as f64 * 1e9 / sum.unwaited.1 as f64);
        let direction = facts.transfers.text(key.direction);
        vec![
            facts.label(key.process_id).into(),
            if key.set { "set" } else { "copy" }.into(),
            direction.into(),
            memories(facts, key).into(),
            facts.names.full(key.api_id).into(),
            blocks.into(),
            sum.api.count.into(),
            (sum.unsized_calls < sum.api.count).then_some(sum.bytes).into(),
            sum.api.sum.into(),
            (sum.waited.count > 0).then_some(sum.waited.sum).into(),
            sum.api.median().into(),
            per_s.into(),
            per_s.map_or(Value::Missing, |per_s| copies::of_peak(facts, key.process_id, direction, per_s)),
            percent(sum.small as f64, (sum.api.count - sum.unsized_calls) as f64),
        ]
    };
    Table::new("by_direction", "By direction, memory and function", &COLUMNS, sums.into_iter().map(row).collect())
}

fn rules(facts: &Facts<'_>) -> Table {
    const COLUMNS: [Column; 8] = [
        column("rule", "Rule", Unit::Text),
        column("process", "Process", Unit::Text),
        column("direction", "Direction", Unit::Text),
        column("memory", "Memory", Unit::Text),
        column("api", "Function", Unit::Name),
        column("calls", "Calls", Unit::Count),
        column("bytes", "Bytes", Unit::Bytes),
        column("total_ns", "Total", Unit::Ns),
    ];
    let named = |(key, sum): (&'_ Key, &'_ Sum)| (sum.rule.count > 0).then(|| facts.transfers.rule(key)).flatten();
    let mut hits: Vec<(Rule, &Key, &Sum)> =
        facts.transfers.sums.iter().filter_map(|(key, sum)| Some((named((key, sum))?, key, sum))).collect();
    hits.sort_by_key(|(rule, key, sum)| (std::cmp::Reverse(sum.rule.ns), rule.name(), identity(facts, key)));
    let row = |(rule, key, sum): &(Rule, &Key, &Sum)| {
        vec![
            rule.name().into(),
            facts.label(key.process_id).into(),
            facts.transfers.text(key.direction).into(),
            memories(facts, key).into(),
            facts.names.full(key.api_id).into(),
            sum.rule.count.into(),
            sum.rule.bytes.into(),
            sum.rule.ns.into(),
        ]
    };
    Table::new("rules", "Calls that Nsight Systems' rules name", &COLUMNS, hits.iter().map(row).collect())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::trace::testing::{START, TestTrace};

    #[test]
    fn rules_name_the_calls_that_nsight_systems_names() {
        let mut trace = TestTrace::new();
        trace.process(1, 100, None, START + 100_000_000);
        let mut thread = trace.thread(1, 11);
        thread.copy("HtoD", ("pageable", "device"), true, 1 << 20, 90_000);
        thread.copy("HtoD", ("pinned", "device"), true, 1 << 20, 3_000);
        thread.copy("HtoD", ("pageable", "device"), false, 64_000, 10_000);
        thread.copy("HtoD", ("pinned", "device"), false, 64_001, 20_000);
        thread.copy("DtoH", ("device", "pageable"), false, 4, 30_000);
        thread.copy("DtoD", ("device", "device"), false, 1 << 30, 5_000);
        thread.set("pinned", false, 100, 7_000);
        thread.set("device", false, 100, 7_000);
        thread.set("managed", true, 100, 7_000);
        let section = trace.section(&Transfers);
        assert_eq!((section.get("copies"), section.get("sets")), (&Value::Int(6), &Value::Int(3)));
        let named: Vec<(String, i64)> = (0..4)
            .map(|row| match (section.cell("rules", row, "rule"), section.cell("rules", row, "total_ns")) {
                (Value::Text(rule), Value::Int(ns)) => (rule.clone(), *ns),
                other => panic!("{other:?}"),
            })
            .collect();
        let expected = [
            ("cuda_memcpy_async", 90_000),
            ("cuda_memcpy_sync", 30_000),
            ("cuda_memcpy_sync", 20_000),
            ("cuda_memset_sync", 7_000),
        ];
        assert_eq!(named, expected.map(|(rule, ns)| (rule.to_owned(), ns)));
        assert_eq!(section.tables.iter().find(|t| t.key == "rules").map(|t| t.rows.len()), Some(4));
    }

    #[test]
    fn only_blocking_copies_have_a_bandwidth() {
        let mut trace = TestTrace::new();
        let mut thread = trace.thread(1, 11);
        thread.copy("DtoH", ("device", "pinned"), false, 1_000_000, 100_000);
        thread.copy("DtoH", ("device", "pinned"), true, 1_000_000, 1_000);
        let section = trace.section(&Transfers);
        assert_eq!(section.cell("by_direction", 0, "bandwidth_bytes_per_s"), &Value::Num(1e10));
        assert_eq!(section.cell("by_direction", 1, "bandwidth_bytes_per_s"), &Value::Missing);
        assert_eq!(section.cell("by_direction", 0, "memory"), &Value::from("device > pinned"));
        assert_eq!(section.get("small_percent"), &Value::Num(0.0));
    }
    #[test]
    fn a_copys_waiting_is_told_from_its_copying() {
        let mut trace = TestTrace::new();
        let mut thread = trace.thread(1, 11);
        thread.copy("DtoH", ("device", "pinned"), false, 1_000_000, 100_000);
        thread.copy("DtoH", ("device", "pinned"), false, 1_000_000, 9_520_000);
        let section = trace.section(&Transfers);
        assert_eq!((section.get("waiting_copies"), section.get("waited_ns")), (&Value::Int(1), &Value::Int(9_000_000)));
        assert_eq!(section.cell("by_direction", 0, "waited_ns"), &Value::Int(9_000_000));
        assert_eq!(section.cell("by_direction", 0, "bandwidth_bytes_per_s"), &Value::Num(1e10));
        assert!(section.notes[0].starts_with("Waited: "), "{:?}", section.notes);
    }

    #[test]
    fn sizes_that_the_trace_does_not_tell_are_not_known_and_not_none() {
        let mut trace = TestTrace::new();
        trace.process(1, 100, None, START + 10_000_000);
        let mut thread = trace.thread(1, 11);
        for _ in 0..30 {
            thread.copy("unknown", ("unknown", "unknown"), true, 0, 2_000);
        }
        trace.set(TableId::Transfers, "bytes", &serde_json::Value::Null);
        let section = trace.section(&Transfers);
        assert_eq!((section.get("copied_bytes"), section.get("small_percent")), (&Value::Missing, &Value::Missing));
        assert!(section.notes.iter().any(|note| note.contains("sizes of 30 of 30")), "{:?}", section.notes);
        let summary = trace.section(&crate::analysis::summary::Summary);
        let fine = summary.get("checked_fine");
        assert!(matches!(fine, Value::Text(fine) if !fine.contains("small transfers")), "{fine:?}");
    }
}
