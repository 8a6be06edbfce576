//! Counters of devices, processes and control groups (`crate::counters`) as metrics, made of their list: `gputrace_SOURCE_NAME`, with the
//! unit at its end, and values in base units.
//!
//! Of what is added up between two readings the sum of all of them is told, as a counter; of all else the last reading.

use super::metric::{Family, Kind, Labels};
use crate::counters::{COUNTERS, Counter};
use crate::live::{Process, Reading};

/// What is added up, beside all of `perf` and `cgroup`. Errors that ECC saw are none: the driver's count is told as it is, which an
/// administrator may set back (`nvidia-smi --reset-ecc-errors=0`), and what was there before the session counts in it.
const ADDED_UP: [(&str, &str); 5] = [
    ("nvml", "pcie_replays"),
    ("proc", "involuntary_switches"),
    ("proc", "major_faults"),
    ("proc", "minor_faults"),
    ("proc", "voluntary_switches"),
];

/// Metrics of the counters that were read: of devices and control groups, and of processes.
pub(super) fn families(shared: &[Reading], processes: &[(&Process, Labels)]) -> Vec<Family> {
    let read = |counter: &Counter| {
        let same = |reading: &&Reading| reading.source == counter.source && reading.name == counter.name;
        let mut family = family(counter);
        let (.., scale) = unit(counter.unit);
        let all = shared.iter().filter(same).map(|reading| (reading, &[][..]));
        let own = processes.iter().flat_map(|(process, labels)| {
            process.counters.iter().filter(same).map(|reading| (reading, labels.as_slice()))
        });
        let is_sum = family.kind == Kind::Counter;
        for (reading, labels) in all.chain(own) {
            let device = reading.device.iter().map(|device| ("device", device.clone()));
            let value = if is_sum { reading.sum } else { reading.value };
            family.add(labels.iter().cloned().chain(device).collect(), value * scale);
        }
        family
    };
    COUNTERS.iter().map(read).collect()
}

fn family(counter: &Counter) -> Family {
    let (unit, ending, _) = unit(counter.unit);
    let is_sum = matches!(counter.source, "cgroup" | "perf") || ADDED_UP.contains(&(counter.source, counter.name));
    let ending = match ending {
        "" => String::new(),
        ending => format!("_{ending}"),
    };
    let (kind, total) = if is_sum { (Kind::Counter, "_total") } else { (Kind::Gauge, "") };
    let name = format!("gputrace_{}_{}{ending}{total}", counter.source, counter.name);
    // A share of one processor is 100 % of it in the list.
    let meaning = counter.meaning.replace("100 is one", "1 is one");
    Family::new(name, kind, unit, format!("{}: {meaning}.", counter.source))
}

/// Of a unit of the list: the base unit, how a name ends that has it, and what a value is multiplied by.
fn unit(of: &str) -> (&'static str, &'static str, f64) {
    match of {
        "%" => ("ratio", "ratio", 0.01),
        "C" => ("celsius", "celsius", 1.0),
        "Hz" => ("hertz", "hertz", 1.0),
        "W" => ("watts", "watts", 1.0),
        "bytes" => ("bytes", "bytes", 1.0),
        // A rate has no unit that the conventions name.
        "bytes/s" => ("", "bytes_per_second", 1.0),
        "ns" => ("seconds", "seconds", 1e-9),
        _ => ("", "", 1.0),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_counter_has_a_name_of_its_own_with_its_unit() {
        let mut names: Vec<String> = COUNTERS.iter().map(|counter| family(counter).name).collect();
        let valid = |name: &String| name.chars().all(|c| c.is_ascii_lowercase() || c.is_ascii_digit() || c == '_');
        assert!(names.iter().all(valid), "{names:?}");
        for counter in COUNTERS {
            let known = ["", "%", "C", "Hz", "W", "bytes", "bytes/s", "ns"].contains(&counter.unit);
            assert!(known, "{}: a unit that has no base unit here", counter.unit);
        }
        for known in [
            "gputrace_nvml_power_watts",
            "gputrace_nvml_gpu_utilization_ratio",
            "gputrace_nvml_memory_used_bytes",
            "gputrace_proc_rss_bytes",
            "gputrace_cgroup_throttled_time_seconds_total",
            "gputrace_perf_cycles_total",
            "gputrace_gpm_pcie_tx_bytes_per_second",
        ] {
            assert!(names.iter().any(|name| name == known), "{known}: {names:?}");
        }
        names.sort_unstable();
        names.dedup();
        assert_eq!(names.len(), COUNTERS.len());
    }

    #[test]
    fn what_is_added_up_is_a_sum_and_what_is_read_is_the_last_reading() {
        let reading = |source: &'static str, name: &'static str, device: Option<&str>| Reading {
            source: source.into(),
            name: name.into(),
            device: device.map(str::to_owned),
            at_ns: 0,
            value: 50.0,
            sum: 2e9,
        };
        let process = Process { counters: vec![reading("proc", "rss", None)], ..Process::default() };
        let shared = [reading("nvml", "gpu_utilization", Some("GPU-1")), reading("cgroup", "throttled_time", None)];
        let labels = vec![("pid", "7".to_owned())];
        let all = families(&shared, &[(&process, labels.clone())]);
        let mut told = Vec::new();
        for family in all {
            told.extend(family.points.into_iter().map(|point| (family.name.clone(), point.labels, point.value)));
        }
        use super::super::metric::Value::Number;
        assert_eq!(
            told,
            [
                ("gputrace_nvml_gpu_utilization_ratio".to_owned(), vec![("device", "GPU-1".to_owned())], Number(0.5)),
                ("gputrace_proc_rss_bytes".to_owned(), labels, Number(50.0)),
                ("gputrace_cgroup_throttled_time_seconds_total".to_owned(), Vec::new(), Number(2.0)),
            ]
        );
    }
}
