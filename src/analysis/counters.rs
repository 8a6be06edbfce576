//! counters: what was read of devices and processes from outside while the command ran.

use gputrace_collectors::counters::COUNTERS;

use super::passes::counters::{Subject, Values};
use super::section::{Column, Section, Table, Unit, Value, column};
use super::{Analysis, Explain, Facts, Metric, Need, bound};
use crate::render::time;
use crate::trace::Process;

/// The analysis.
pub(crate) struct Counters;

impl Analysis for Counters {
    fn name(&self) -> &'static str {
        "counters"
    }

    fn title(&self) -> &'static str {
        "Counters of devices and processes"
    }

    fn explain(&self) -> Explain {
        Explain {
            definition: "Each counter of the table counters (gputrace schema counters), over its readings: by device those of NVML \
                and GPM, by process those of /proc, perf events and the quota of processors. Devices by GPM: the mean of the \
                readings in which any kernel was on the device for 5 % of the time or more. Compute bound: a pipe (tensor, floating \
                point numbers of 64, 32 or 16 bits) works for 60 % of the time or more, and for no less than memory's bandwidth is of its peak; \
                memory bound: memory's bandwidth is 60 % of its peak or more; launch bound: neither, and multiprocessors have work for less \
                than half of the time; latency bound: neither, and they have.",
            unit: "that of the counter; counts are what was added from one reading to the next.",
            limits: "A reading a second does not see what is shorter: values over a stretch of time (GPM, /proc, perf) are exact \
                for it, those of a moment (clocks, power, memory) are samples. Utilisation by NVML is the time in which any kernel ran, \
                and full for one small kernel. A device is read as a whole, whoever uses it.",
            source: "NVML API reference; nvmlGpmMetricId_t; proc(5); cgroup-v2.rst; perf_event_open(2); Nsight Compute's guide, GPU Speed \
                Of Light.",
        }
    }

    fn needs(&self) -> &'static [Need] {
        &[Need::Counters]
    }

    fn metrics(&self) -> &'static [Metric] {
        const METRICS: &[Metric] = &[Metric::about("rows", Unit::Count, "values that were read")];
        METRICS
    }

    fn answers(&self, facts: &Facts<'_>) -> bool {
        facts.counters.rows > 0
    }

    fn section(&self, facts: &Facts<'_>) -> Section {
        const COLUMNS: [Column; 10] = [
            column("subject", "Of", Unit::Name),
            column("source", "Source", Unit::Text),
            column("name", "Name", Unit::Text),
            column("unit", "Unit", Unit::Text),
            column("count", "Readings", Unit::Count),
            column("min", "Min", Unit::Count),
            column("mean", "Mean", Unit::Count),
            column("median", "Median", Unit::Count),
            column("p95", "p95", Unit::Count),
            column("max", "Max", Unit::Count),
        ];
        let mut section = Section::default();
        section.fact("rows", "values read", Unit::Count, facts.counters.rows);
        bound::add(&mut section, facts);
        let mut rows = Vec::new();
        for ((_, subject), of) in &facts.counters.all {
            let label = label(facts, subject);
            for (place, values) in &of.values {
                let counter = &COUNTERS[*place];
                let (unit, scale) = readable(counter.unit);
                let mut row: Vec<Value> = vec![
                    label.clone().into(),
                    counter.source.into(),
                    counter.name.into(),
                    Some(unit).filter(|unit| !unit.is_empty()).into(),
                    values.count().into(),
                ];
                let quantities = [
                    Values::min,
                    Values::mean,
                    |v: &Values| v.quantile(0.5),
                    |v: &Values| v.quantile(0.95),
                    Values::max,
                ];
                row.extend(quantities.map(|quantity: fn(&Values) -> f64| Value::from(quantity(values) / scale)));
                rows.push(row);
            }
        }
        section.table(Table::new("counters", "Values", &COLUMNS, rows));
        for note in missing(facts) {
            section.note(note);
        }
        if facts.processes().any(Process::is_metal) {
            section.note("Of Metal's devices nothing is read: IOReport and powermetrics are not asked.");
        }
        if facts.counters.left_out > 0 {
            section.note(format!("{} values of more processes are left out.", facts.counters.left_out));
        }
        section
    }
}

/// A unit of which values have few digits, and what to divide by.
fn readable(unit: &str) -> (&str, f64) {
    match unit {
        "bytes" => ("MiB", 1_048_576.0),
        "bytes/s" => ("MiB/s", 1_048_576.0),
        "Hz" => ("MHz", 1e6),
        "ns" => ("ms", 1e6),
        other => (other, 1.0),
    }
}

/// Name and PCI address of a device, where the manifest has them.
pub(super) fn device(facts: &Facts<'_>, uuid: &str) -> String {
    match facts.trace.device(uuid) {
        Some(device) => format!("{} {}", device.name, device.pci_bus_id),
        None => uuid.to_owned(),
    }
}

fn label(facts: &Facts<'_>, subject: &Subject) -> String {
    match subject {
        Subject::Device(uuid) => device(facts, uuid),
        Subject::Process(id, uuid) if uuid.is_empty() => facts.label(*id),
        Subject::Process(id, uuid) => format!("{} on {}", facts.label(*id), device(facts, uuid)),
    }
}

/// What could not be read, and why, by source, each sentence once; and whether readings were rarer than asked.
fn missing(facts: &Facts<'_>) -> Vec<String> {
    let all = || facts.trace.manifests().filter_map(|manifest| manifest.counters.as_ref());
    let mut notes: Vec<String> = Vec::new();
    for about in all().filter(|about| about.put_off > 0) {
        let each = time(about.cpu_ns as f64 / about.readings.max(1) as f64);
        notes.push(format!(
            "{} of {} readings were followed later than asked, since one took {each} of a processor in the mean.",
            about.put_off, about.readings
        ));
    }
    let sources = all().flat_map(|c| &c.sources);
    for source in sources {
        for what in &source.missing {
            let note = format!("Not read: {}: {what}.", source.name);
            if !notes.contains(&note) {
                notes.push(note);
            }
        }
    }
    notes
}

#[cfg(test)]
mod tests {
    use gputrace_collectors::manifest;

    use super::*;
    use crate::trace::testing::TestTrace;

    #[test]
    fn values_are_summed_up_by_device_and_process() {
        let mut trace = TestTrace::new();
        trace.process(1, 100, None, crate::trace::testing::START + 1_000_000_000);
        for (n, power) in [100.5, 300.0, 200.0].into_iter().enumerate() {
            let at = n as i64 * 1_000_000_000;
            trace.counter(at, Err("GPU-1"), "nvml", "power", power);
            trace.counter(at, Err("GPU-1"), "nvml", "memory_used", 2f64.powi(30));
            trace.counter(at, Ok(1), "proc", "cpu_user", 50.0);
            trace.counter(at, Err("GPU-1"), "later", "unknown", 1.0);
        }
        let source =
            manifest::Source { name: "gpm".into(), missing: vec!["too old".into()], ..manifest::Source::default() };
        let about = manifest::Counters {
            readings: 8,
            cpu_ns: 16_000_000,
            put_off: 2,
            sources: vec![source],
            ..Default::default()
        };
        trace.manifest.as_mut().expect("a manifest").counters = Some(about);
        let section = trace.section(&Counters);
        let late = "2 of 8 readings were followed later than asked, since one took 2.00 ms of a processor in the mean.";
        assert_eq!(section.notes, [late, "Not read: gpm: too old."]);
        assert_eq!(section.get("rows"), &Value::Int(9));
        let row = |row: usize| ["subject", "name", "unit"].map(|column| section.cell("counters", row, column).clone());
        assert_eq!(row(0), ["GPU-1".into(), "memory_used".into(), "MiB".into()]);
        assert_eq!(section.cell("counters", 0, "median"), &Value::Num(1024.0));
        assert_eq!(row(1), ["GPU-1".into(), "power".into(), "W".into()]);
        let of = |column| section.cell("counters", 1, column).clone();
        assert_eq!([of("min"), of("median"), of("max")], [100.5, 200.0, 300.0].map(Value::Num));
        assert_eq!(row(2), ["pid 100".into(), "cpu_user".into(), "%".into()]);
        assert!(section.tables.iter().all(|table| table.key != "bounds"));
    }

    #[test]
    fn of_a_mac_it_says_whom_nobody_asked() {
        let noted = |on_metal: bool| {
            let mut trace = TestTrace::new();
            trace.process(1, 100, None, crate::trace::testing::START + 1_000_000_000);
            trace.counter(0, Ok(1), "proc", "cpu_user", 50.0);
            let hook = manifest::Hook { name: "[MTLCommandBuffer commit]".into(), ..manifest::Hook::default() };
            let process = &mut trace.manifest.as_mut().expect("a manifest").processes[0];
            process.coverage.hooks.extend(on_metal.then_some(hook));
            trace.section(&Counters).notes.iter().any(|note| note.contains("IOReport and powermetrics are not asked"))
        };
        assert_eq!([true, false].map(noted), [true, false]);
    }

    #[test]
    fn devices_are_judged_over_the_time_in_which_they_are_used() {
        let mut trace = TestTrace::new();
        for (n, busy) in [0.0, 1.0, 1.0, 0.0].into_iter().enumerate() {
            let at = n as i64 * 1_000_000_000;
            for (name, value) in
                [("graphics_util", 99.0), ("sm_util", 81.0), ("any_tensor_util", 79.0), ("dram_bw_util", 15.0)]
            {
                trace.counter(at, Err("GPU-1"), "gpm", name, busy * value);
            }
        }
        for analysis in [&Counters as &dyn Analysis, &super::super::roofline::Roofline] {
            let section = trace.section(analysis);
            let cell = |column| section.cell("bounds", 0, column).clone();
            assert_eq!((cell("bound"), cell("tensor_percent")), ("compute bound".into(), Value::Num(79.0)));
        }
    }
}
