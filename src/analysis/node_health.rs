//! node-health: is this node bad? What the trace holds of processors, their quota, NUMA nodes and PCIe links.

use gputrace_collectors::Manifest;
use gputrace_collectors::manifest::Device;

use super::section::{Column, Section, Table, Unit, Value, column};
use super::{Analysis, Explain, Facts, Metric, Need};

/// The analysis.
pub(crate) struct NodeHealth;

impl Analysis for NodeHealth {
    fn name(&self) -> &'static str {
        "node-health"
    }

    fn title(&self) -> &'static str {
        "Health of the nodes"
    }

    fn explain(&self) -> Explain {
        Explain {
            definition: "What gputrace read when the trace began and when a process first saw its devices: the quota of \
                processors of its control group (cpu.max, the tightest one above it), the processors on which it may run \
                and their NUMA nodes, of each device its NUMA node and its PCIe link, as it is and as it could be. Found: a \
                quota below the processors that are allowed; processors that are all on other NUMA nodes than a device; a \
                link with fewer lanes than it could have. Throttled clocks, ECC and Xid are not recorded, and named with the \
                command that tells.",
            unit: "GT/s per lane for links.",
            limits: "A link's speed is read while the device may be idle, and idle links slow down to save power: a lower speed \
                is shown and not judged. A launcher that may run on several nodes is not judged either: a program can pin its \
                threads later. Containers may hide these files; then nothing is measured.",
            source: "Linux: cgroup-v2.rst (cpu.max), sysfs-bus-pci, proc(5); metrics.md, Verdicts (is this node bad?).",
        }
    }

    fn needs(&self) -> &'static [Need] {
        &[]
    }

    fn metrics(&self) -> &'static [Metric] {
        use Unit::*;
        const METRICS: &[Metric] = &[
            Metric::cost("found", Count, "things that are wrong with a node"),
            Metric::about("fine", Count, "things that were looked at and are right"),
            Metric::about("not_measured", Count, "things that the trace does not say"),
        ];
        METRICS
    }

    fn section(&self, facts: &Facts<'_>) -> Section {
        const COLUMNS: [Column; 6] = [
            column("host", "Host", Unit::Text),
            column("check", "Check", Unit::Text),
            column("result", "Result", Unit::Text),
            column("measured", "Measured", Unit::Text),
            column("device", "Device", Unit::Name),
            column("ask", "Ask", Unit::Text),
        ];
        let mut section = Section::default();
        let mut checks: Vec<(&str, Check)> = Vec::new();
        for manifest in facts.trace.manifests() {
            checks.extend(of_node(manifest).into_iter().map(|check| (manifest.host.as_str(), check)));
        }
        // Several launchers of one host look at the same things.
        let mut all: Vec<(&str, Check)> = Vec::new();
        for check in checks {
            if !all.contains(&check) {
                all.push(check);
            }
        }
        all.sort_by_key(|(_, check)| check.result);
        let count = |result: Outcome| all.iter().filter(|(_, check)| check.result == result).count() as u64;
        section.fact("found", "found", Unit::Count, count(Outcome::Found));
        section.fact("fine", "fine", Unit::Count, count(Outcome::Fine));
        section.fact("not_measured", "not measured", Unit::Count, count(Outcome::NotMeasured));
        let row = |(host, check): &(&str, Check)| -> Vec<Value> {
            vec![
                (*host).into(),
                check.what.into(),
                check.result.text().into(),
                Some(check.measured.clone()).filter(|text| !text.is_empty()).into(),
                check.device.clone().into(),
                check.ask.into(),
            ]
        };
        section.table(Table::new("checks", "Checks", &COLUMNS, all.iter().map(row).collect()));
        section
    }
}

/// What came of a check; what is wrong stands first.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
enum Outcome {
    Found,
    Fine,
    NotMeasured,
}

impl Outcome {
    fn text(self) -> &'static str {
        match self {
            Outcome::Found => "found",
            Outcome::Fine => "fine",
            Outcome::NotMeasured => "not measured",
        }
    }

    fn of(wrong: bool) -> Outcome {
        if wrong { Outcome::Found } else { Outcome::Fine }
    }
}

/// One thing that was looked at.
#[derive(Clone, Debug, PartialEq)]
struct Check {
    what: &'static str,
    result: Outcome,
    measured: String,
    device: Option<String>,
    ask: Option<&'static str>,
}

/// Whom to ask for what no trace holds.
const ELSEWHERE: [(&str, &str); 3] = [
    ("throttled clocks", "nvidia-smi -q -d PERFORMANCE"),
    ("ECC errors", "nvidia-smi -q -d ECC"),
    ("Xid errors", "dmesg | grep -i xid"),
];

fn of_node(manifest: &Manifest) -> Vec<Check> {
    let node = &manifest.node;
    let allowed: Option<u64> = node.cpus_allowed.as_deref().map(processors);
    let quota = match (node.cpu_quota, allowed) {
        (Some(quota), Some(allowed)) => {
            (Outcome::of(quota < allowed as f64), format!("{quota} of {allowed} processors"))
        }
        (None, Some(allowed)) => (Outcome::Fine, format!("none; {allowed} processors")),
        _ => (Outcome::NotMeasured, String::new()),
    };
    let check = |what, (result, measured), device, ask| Check { what, result, measured, device, ask };
    let mut checks = vec![check("quota of processors", quota, None, None)];
    for device in &manifest.devices {
        let name = || Some(format!("{} {}", device.name, device.pci_bus_id));
        checks.push(check("NUMA node of launcher and GPU", numa(manifest, device), name(), None));
        checks.push(check("PCIe lanes", lanes(device), name(), None));
        let ask = Some("nvidia-smi -q -d PERFORMANCE,CLOCK; lspci -vv under load");
        checks.push(check("PCIe speed", speed(device), name(), ask));
    }
    let not = || (Outcome::NotMeasured, String::new());
    checks.extend(ELSEWHERE.map(|(what, ask)| check(what, not(), None, Some(ask))));
    checks
}

fn numa(manifest: &Manifest, device: &Device) -> (Outcome, String) {
    let (ours, all) = (&manifest.node.numa_nodes, &manifest.node.all_numa_nodes);
    let Some(theirs) = device.attached.as_ref().and_then(|attached| attached.numa_node) else {
        return (Outcome::NotMeasured, String::new());
    };
    let list = |nodes: &[i64]| nodes.iter().map(i64::to_string).collect::<Vec<_>>().join(",");
    let measured = format!("GPU on {theirs}, launcher on {} of {}", list(ours), list(all));
    match ours.len() {
        0 => (Outcome::NotMeasured, measured),
        1 => (Outcome::of(!ours.contains(&theirs)), measured),
        _ if !ours.contains(&theirs) => (Outcome::Found, measured),
        _ => (Outcome::NotMeasured, measured),
    }
}

fn lanes(device: &Device) -> (Outcome, String) {
    match device.attached.as_ref().and_then(|attached| attached.lanes.zip(attached.lanes_max)) {
        Some((lanes, most)) => (Outcome::of(lanes < most), format!("{lanes} of {most}")),
        None => (Outcome::NotMeasured, String::new()),
    }
}

/// Never found wrong: an idle link is slow to save power.
fn speed(device: &Device) -> (Outcome, String) {
    match device.attached.as_ref().and_then(|attached| attached.link_per_s.zip(attached.link_max_per_s)) {
        Some((now, most)) => {
            let result = if now < most { Outcome::NotMeasured } else { Outcome::Fine };
            (result, format!("{} of {} GT/s, perhaps idle", now / 1e9, most / 1e9))
        }
        None => (Outcome::NotMeasured, String::new()),
    }
}

/// How many processors are in `0-3,8`.
fn processors(list: &str) -> u64 {
    let count = |part: &str| {
        let (first, last) = part.split_once('-').unwrap_or((part, part));
        let (first, last): (u64, u64) = (first.trim().parse().ok()?, last.trim().parse().ok()?);
        Some(last.saturating_sub(first).saturating_add(1))
    };
    list.split(',').filter_map(count).sum()
}

#[cfg(test)]
mod tests {
    use gputrace_collectors::manifest::{Attached, Node};

    use super::*;
    use crate::trace::testing::TestTrace;

    #[test]
    fn only_what_is_recorded_is_judged() {
        let mut trace = TestTrace::new();
        let about = trace.manifest.as_mut().expect("a manifest");
        let cpus_allowed = Some("8-11,14".to_owned());
        about.node = Node { cpu_quota: Some(1.5), cpus_allowed, numa_nodes: vec![1], all_numa_nodes: vec![0, 1] };
        let attached = Attached {
            numa_node: Some(0),
            link_per_s: Some(2.5e9),
            link_max_per_s: Some(32e9),
            lanes: Some(8),
            lanes_max: Some(16),
        };
        let uuid = |uuid: &str| Device { uuid: uuid.into(), name: "H200".into(), ..Device::default() };
        about.devices = vec![Device { attached: Some(attached), ..uuid("a") }, uuid("b")];
        let section = trace.section(&NodeHealth);
        assert_eq!((section.get("found"), section.get("fine")), (&Value::Int(3), &Value::Int(0)));
        let row = |row: usize| ["check", "measured"].map(|column| section.cell("checks", row, column).clone());
        assert_eq!(row(0), ["quota of processors".into(), "1.5 of 5 processors".into()]);
        assert_eq!(row(1), ["NUMA node of launcher and GPU".into(), "GPU on 0, launcher on 1 of 0,1".into()]);
        assert_eq!(row(2), ["PCIe lanes".into(), "8 of 16".into()]);
    }

    #[test]
    fn nothing_recorded_is_nothing_measured() {
        let section = TestTrace::new().section(&NodeHealth);
        assert_eq!((section.get("found"), section.get("fine")), (&Value::Int(0), &Value::Int(0)));
        assert_eq!(section.get("not_measured"), &Value::Int(4));
    }
}
