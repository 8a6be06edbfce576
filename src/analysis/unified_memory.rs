//! unified-memory: pages of managed memory that moved, why, and faults that made somebody wait.

use gputrace_collectors::schema::TableId;

use super::section::{Column, Section, Table, Unit, Value, column};
use super::{Analysis, Explain, Facts, Metric, Need};

/// The analysis.
pub(crate) struct UnifiedMemory;

/// `gpu_activity.kind` of what is read here.
const KIND: &str = "unified_memory";

impl Analysis for UnifiedMemory {
    fn name(&self) -> &'static str {
        "unified-memory"
    }

    fn title(&self) -> &'static str {
        "Managed memory"
    }

    fn explain(&self) -> Explain {
        Explain {
            definition: "Records of CUPTI on managed (unified) memory, summed by process, what happened and why: pages that moved to the \
                device (HtoD), to the host (DtoH) or between devices (DtoD), because of a fault, since the program asked for it (user), since the \
                driver guessed (prefetch), to make room (eviction) or by access counters; faults of the processor, and groups of faults of the \
                GPU by what it wanted; thrashing, throttling, mappings. Moved on demand = bytes of all ways \
                whose cause is a fault, or a guess, which the driver makes beside faults: asking for them before \
                (cudaMemPrefetchAsync) would have had them there when they were needed.",
            unit: "bytes, counts; ns in JSON for time; bytes per second.",
            limits: "Only with --gpu-time full --gpu-activity unified-memory, and from the first record on. A time is that of the move, or until the \
                GPU may go on after a fault; how long a kernel stood still for it is not known. Faults of the processor have no duration. \
                CUPTI does not tell which kernel or line touched a page. Rows count by their own time, whatever --range leaves.",
            source: "CUPTI, CUpti_ActivityUnifiedMemoryCounter; CUDA Programming Guide, Unified Memory.",
        }
    }

    fn needs(&self) -> &'static [Need] {
        &[Need::Activities]
    }

    fn metrics(&self) -> &'static [Metric] {
        use Unit::*;
        const METRICS: &[Metric] = &[
            Metric::cost("to_device_bytes", Bytes, "managed memory that moved to a device")
                .sums(&[TableId::GpuActivity]),
            Metric::cost("to_host_bytes", Bytes, "managed memory that moved to the host").sums(&[TableId::GpuActivity]),
            Metric::cost("on_demand_bytes", Bytes, "managed memory that moved because of faults, or beside them")
                .sums(&[TableId::GpuActivity]),
            Metric::cost("gpu_faults", Count, "groups of faults of the GPU").sums(&[TableId::GpuActivity]),
            Metric::cost("cpu_faults", Count, "faults of the processor").sums(&[TableId::GpuActivity]),
        ];
        METRICS
    }

    fn answers(&self, facts: &Facts<'_>) -> bool {
        facts.trace.may_hold(TableId::GpuActivity) && facts.activities.of(KIND).next().is_some()
    }

    fn section(&self, facts: &Facts<'_>) -> Section {
        let mut section = Section::default();
        let all = || facts.activities.of(KIND);
        let is_told = all().next().is_some();
        let known = |sum: i64| if is_told { Value::from(sum) } else { Value::Missing };
        let of = |what: &str| all().filter(move |(key, _)| key.what == what).map(|(_, sum)| sum).collect::<Vec<_>>();
        let bytes = |what: &str| known(of(what).iter().map(|sum| sum.bytes).sum());
        let faults = |what: &str| known(of(what).iter().map(|sum| sum.faults).sum());
        section.fact("to_device_bytes", "moved to devices", Unit::Bytes, bytes("HtoD"));
        section.fact("to_host_bytes", "moved to the host", Unit::Bytes, bytes("DtoH"));
        let on_demand = all()
            .filter(|(key, _)| ["fault", "prefetch"].contains(&key.cause.as_str()))
            .map(|(_, sum)| sum.bytes)
            .sum();
        section.fact("on_demand_bytes", "moved on demand", Unit::Bytes, known(on_demand));
        section.fact("gpu_faults", "groups of faults of the GPU", Unit::Count, faults("gpu_fault"));
        section.fact("cpu_faults", "faults of the processor", Unit::Count, faults("cpu_fault"));
        if !is_told {
            section.note("No records of managed memory: record with --gpu-time full --gpu-activity unified-memory.");
        }
        section.table(table(facts));
        section
    }
}

fn table(facts: &Facts<'_>) -> Table {
    const COLUMNS: [Column; 8] = [
        column("process", "Process", Unit::Text),
        column("what", "What", Unit::Text),
        column("cause", "Why", Unit::Text),
        column("count", "Records", Unit::Count),
        column("bytes", "Bytes", Unit::Bytes),
        column("faults", "Faults", Unit::Count),
        column("total_ns", "Total", Unit::Ns),
        column("bandwidth_bytes_per_s", "Bandwidth", Unit::BytesPerS),
    ];
    let mut all: Vec<_> = facts.activities.of(KIND).collect();
    all.sort_by_key(|(key, sum)| {
        (std::cmp::Reverse((sum.bytes, sum.count)), &key.what, &key.cause, facts.place(key.process_id))
    });
    let rows = all.into_iter().map(|(key, sum)| {
        let bandwidth = (sum.ns > 0 && sum.bytes > 0).then(|| sum.bytes as f64 * 1e9 / sum.ns as f64);
        vec![
            facts.label(key.process_id).into(),
            key.what.as_str().into(),
            Some(key.cause.as_str()).filter(|cause| !cause.is_empty()).into(),
            sum.count.into(),
            Some(sum.bytes).filter(|bytes| *bytes > 0).into(),
            Some(sum.faults).filter(|faults| *faults > 0).into(),
            Some(sum.ns).filter(|ns| *ns > 0).into(),
            bandwidth.into(),
        ]
    });
    Table::new("by_cause", "By what happened and why, most bytes first", &COLUMNS, rows.collect())
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;
    use crate::trace::testing::{START, TestTrace};

    #[test]
    fn what_moved_is_summed_by_way_and_cause() {
        let mut trace = TestTrace::new();
        trace.process(1, 100, None, START + 10_000_000);
        let rows = [
            ("HtoD", Some("fault"), Some(1_000), Some(4096), None),
            ("HtoD", Some("fault"), Some(3_000), Some(12_288), None),
            ("HtoD", Some("user"), Some(1_000), Some(65_536), None),
            ("DtoH", Some("prefetch"), Some(500), Some(4096), None),
            ("gpu_fault", Some("write"), Some(20_000), None, Some(3)),
            ("cpu_fault", None, None, None, Some(1)),
        ];
        for (at, (what, cause, ns, bytes, faults)) in (0..).zip(rows) {
            let row = json!({
                "start_ns": START + at * 1_000_000, "activity_ns": ns, "process_id": 1, "pid": 100, "kind": "unified_memory",
                "what": what, "cause": cause, "bytes": bytes, "faults": faults,
            });
            trace.row(TableId::GpuActivity, row);
        }
        let section = trace.section(&UnifiedMemory);
        let facts = ["to_device_bytes", "to_host_bytes", "on_demand_bytes", "gpu_faults", "cpu_faults"];
        assert_eq!(facts.map(|key| section.get(key).clone()), [81_920, 4096, 20_480, 3, 1].map(Value::Int));
        let row = |row| ["what", "cause", "count", "bytes"].map(|of| section.cell("by_cause", row, of).clone());
        assert_eq!(row(0), ["HtoD".into(), "user".into(), Value::Int(1), Value::Int(65_536)]);
        assert_eq!(row(1), ["HtoD".into(), "fault".into(), Value::Int(2), Value::Int(16_384)]);
        // 16,384 bytes in 4 us.
        assert_eq!(section.cell("by_cause", 1, "bandwidth_bytes_per_s"), &Value::Num(4.096e9));
    }

    #[test]
    fn without_records_there_is_a_way_to_get_them() {
        let section = TestTrace::rich().section(&UnifiedMemory);
        assert_eq!(section.get("on_demand_bytes"), &Value::Missing);
        assert!(section.notes[0].contains("--gpu-activity unified-memory"), "{:?}", section.notes);
    }
}
