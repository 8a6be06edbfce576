//! Counters of devices, processes and control groups (`crate::counters`) as metrics, made of their list: `gputrace_SOURCE_NAME`, with the
//! unit at its end, and values in base units.
//!
//! Of what is added up between two readings the sum of all of them is told, as a counter; of all else the last reading.

use std::sync::LazyLock;

use rustc_hash::FxHashMap;

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

/// A counter as a metric without values, what values are multiplied by, and where it stands by source and name: all this is the same for each answer.
struct Known {
    families: Vec<(Family, f64)>,
    places: FxHashMap<(&'static str, &'static str), usize>,
}

static KNOWN: LazyLock<Known> = LazyLock::new(|| {
    let named = COUNTERS.iter().map(|counter| (family(counter), unit(counter.unit).2));
    let places = COUNTERS.iter().enumerate().map(|(place, counter)| ((counter.source, counter.name), place));
    Known { families: named.collect(), places: places.collect() }
});

/// Metrics of the counters that were read: of devices and control groups, and of processes.
pub(super) fn families(shared: &[Reading], processes: &[(&Process, Labels)]) -> Vec<Family> {
    // Their texts are static: of each only where it stands is copied.
    let mut all: Vec<Family> = KNOWN.families.iter().map(|(family, _)| family.clone()).collect();
    let own = processes
        .iter()
        .flat_map(|(process, labels)| process.counters.iter().map(|reading| (reading, labels.as_slice())));
    for (reading, labels) in shared.iter().map(|reading| (reading, &[][..])).chain(own) {
        let Some(place) = KNOWN.places.get(&(&*reading.source, &*reading.name)) else { continue };
        let (family, scale) = (&mut all[*place], KNOWN.families[*place].1);
        let device = reading.device.iter().map(|device| ("device", device.as_str().into()));
        let value = if family.kind == Kind::Counter { reading.sum } else { reading.value };
        family.add(labels.iter().cloned().chain(device).collect(), value * scale);
    }
    all
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
    // Once, and for as long as the process runs.
    let kept = |text: String| -> &'static str { Box::leak(text.into_boxed_str()) };
    Family::new(kept(name), kind, unit, kept(format!("{}: {meaning}.", counter.source)))
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
        let mut names: Vec<String> = COUNTERS.iter().map(|counter| family(counter).name.into_owned()).collect();
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
        let labels: Labels = vec![("pid", "7".into())];
        let all = families(&shared, &[(&process, labels.clone())]);
        let mut told = Vec::new();
        for family in all {
            told.extend(family.points.into_iter().map(|point| (family.name.to_string(), point.labels, point.value)));
        }
        use super::super::metric::Value::Number;
        assert_eq!(
            told,
            [
                ("gputrace_nvml_gpu_utilization_ratio".to_owned(), vec![("device", "GPU-1".into())], Number(0.5)),
                ("gputrace_proc_rss_bytes".to_owned(), labels, Number(50.0)),
                ("gputrace_cgroup_throttled_time_seconds_total".to_owned(), Vec::new(), Number(2.0)),
            ]
        );
    }
}
