//! streams: which work runs beside other work, and which does not though it could.

use super::passes::gpu::Device;
use super::section::{Column, Section, Table, Unit, column, percent};
use super::{Analysis, Explain, Facts, Metric, Need, gpu, unmatched};
use gputrace_collectors::schema::TableId;

/// The analysis.
pub(crate) struct Streams;

impl Analysis for Streams {
    fn name(&self) -> &'static str {
        "streams"
    }

    fn title(&self) -> &'static str {
        "Streams"
    }

    fn explain(&self) -> Explain {
        Explain {
            definition: "Per stream of a process and device: operations, and their time. Concurrent is the time of a device with two \
                operations or more at once; concurrency the mean number of operations while there is any. Several streams with no \
                concurrent time are serialised: by the legacy stream, by events between them, or because each kernel \
                fills the device. Legacy counts launches that had to wait for another stream by the legacy stream's rule.",
            unit: "ns in JSON; in text the column's head names the unit. Streams are raw handles: 0 default, 1 legacy, 2 per thread.",
            limits: "Why two operations did not run beside each other is known only for the legacy stream's rule. The number of a stream \
                in an imported trace is its profiler's.",
            source: "CUDA programming guide, implicit synchronisation of the legacy default stream.",
        }
    }

    fn needs(&self) -> &'static [Need] {
        &[Need::Busy, Need::GpuClock, Need::Implicit, Need::Metal]
    }

    fn metrics(&self) -> &'static [Metric] {
        use Unit::*;
        const METRICS: &[Metric] = &[
            Metric::about("streams", Count, "streams with work").sums(&[TableId::DeviceCopies, TableId::Kernels]),
            Metric::about("concurrent_ns", Ns, "time with two operations or more at once")
                .sums(&[TableId::DeviceCopies, TableId::Kernels]),
            Metric::use_of("concurrent_percent", Percent, "the same, of busy time"),
            Metric::about("concurrency", Count, "operations at once while any ran"),
            Metric::about("legacy", Count, "launches behind another stream by the legacy stream's rule")
                .sums(&[TableId::Launches]),
        ];
        METRICS
    }

    fn answers(&self, facts: &Facts<'_>) -> bool {
        facts.gpu.is_some()
    }

    fn section(&self, facts: &Facts<'_>) -> Section {
        let mut section = Section::default();
        let Some(gpu) = gpu::times(facts, &mut section) else { return section };
        unmatched::note_of_rest(&mut section, facts);
        let busy: i64 = gpu.devices.iter().map(|d| d.busy().total_ns()).sum();
        let several: i64 = gpu.devices.iter().map(|d| d.several.total_ns).sum();
        let used = |d: &Device| d.streams.iter().filter(|(_, s)| s.busy_ns > 0).count();
        let streams: usize = gpu.devices.iter().map(used).sum();
        let summed: i64 = gpu.devices.iter().flat_map(|d| d.streams.iter()).map(|(_, s)| s.busy_ns).sum();
        section.fact("streams", "streams with work", Unit::Count, streams as u64);
        section.fact("concurrent_ns", "time with two operations or more", Unit::Ns, several);
        section.fact("concurrent_percent", "of busy time", Unit::Percent, percent(several as f64, busy as f64));
        let concurrency = (busy > 0).then(|| summed as f64 / busy as f64);
        section.fact("concurrency", "operations at once while busy", Unit::Count, concurrency);
        let legacy: u64 = facts.implicit.legacy.iter().map(|(_, sum)| sum.queued).sum();
        section.fact("legacy", "launches behind another stream (legacy rule)", Unit::Count, legacy);
        for device in gpu.devices.iter().filter(|d| used(d) > 1 && d.several.total_ns == 0) {
            section.note(format!(
                "GPU {}: {} streams had work, and no two operations ran at once: they are serialised.",
                gpu::name(facts, gpu, device),
                used(device)
            ));
        }
        const COLUMNS: [Column; 8] = [
            column("device", "GPU", Unit::Text),
            column("process", "Process", Unit::Text),
            column("stream", "Stream", Unit::Id),
            column("kernels", "Kernels", Unit::Count),
            column("communication_kernels", "NCCL's", Unit::Count),
            column("copies", "Copies", Unit::Count),
            column("busy_ns", "Time", Unit::Ns),
            column("range_percent", "Of range", Unit::Percent),
        ];
        let mut rows = Vec::new();
        for device in gpu.devices.iter() {
            let mut streams: Vec<_> = device.streams.iter().collect();
            streams.sort_by_key(|(key, stream)| (std::cmp::Reverse(stream.busy_ns), facts.place(key.0), **key));
            rows.extend(streams.into_iter().map(|((process_id, number), stream)| {
                vec![
                    gpu::name(facts, gpu, device).into(),
                    facts.label(*process_id).into(),
                    (*number).into(),
                    stream.operations[0].into(),
                    stream.operations[1].into(),
                    stream.operations[2].into(),
                    stream.busy_ns.into(),
                    percent(stream.busy_ns as f64, device.range_ns() as f64),
                ]
            }));
        }
        section.table(Table::new("by_stream", "By stream", &COLUMNS, rows));
        if !facts.metal.queues.is_empty() {
            section.table(labelled(facts));
        }
        section
    }
}

/// Queues that the program gave labels.
fn labelled(facts: &Facts<'_>) -> Table {
    const COLUMNS: [Column; 3] = [
        column("process", "Process", Unit::Text),
        column("stream", "Stream", Unit::Id),
        column("label", "Label", Unit::Name),
    ];
    let row = |((process_id, queue), label): (&(i64, i64), &i64)| {
        vec![facts.label(*process_id).into(), (*queue).into(), facts.names.full(*label).into()]
    };
    Table::new("labels", "What the program calls its queues", &COLUMNS, facts.metal.queues.iter().map(row).collect())
}
