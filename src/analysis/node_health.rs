//! node-health: is this node bad? What the trace holds of processors, their quota, NUMA nodes, PCIe links, clocks, ECC and Xid.

use gputrace_collectors::Manifest;
use gputrace_collectors::manifest::Device;

use super::node_counters::{Outcome, Read};
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
                link with fewer lanes than it could have. Of the counters (--explain counters), where they were read: clocks that \
                hardware or heat slowed down in 5 % of the readings or more (a software power cap is shown, and how devices with a \
                limit work); memory errors that ECC could not correct; a critical Xid error, but for those that a program's own \
                mistakes bring about (13, 31, 43, 45); a GPU that was lost while the command ran, off the bus or in need of a reset; a PCIe link that stayed below its highest generation while the device \
                worked; a quota that was used up in 5 % of its periods or more. What was not read is named with the command that tells.",
            unit: "GT/s per lane for links.",
            limits: "Where NVML was not read, a link's speed is that of a device that may be idle, and idle links slow down to save \
                power: a lower speed is shown and not judged. ECC counts since the driver was loaded. A launcher that may run on several nodes is not judged either: a program can pin its \
                threads later. Containers may hide these files; then nothing is measured.",
            source: "Linux: cgroup-v2.rst (cpu.max), sysfs-bus-pci, proc(5).",
        }
    }

    fn needs(&self) -> &'static [Need] {
        &[Need::Counters]
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
        for (launcher, manifest) in manifests(facts) {
            checks.extend(
                of_node(manifest, &Read { counters: &facts.counters, launcher })
                    .into_iter()
                    .map(|check| (manifest.host.as_str(), check)),
            );
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
        // Where nothing was looked at nothing is known to be right.
        let looked = count(Outcome::Found) + count(Outcome::Fine) > 0;
        section.fact("found", "found", Unit::Count, looked.then(|| count(Outcome::Found)));
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

/// One thing that was looked at.
#[derive(Clone, Debug, PartialEq)]
struct Check {
    what: &'static str,
    result: Outcome,
    measured: String,
    device: Option<String>,
    ask: Option<&'static str>,
}

impl Check {
    fn line(&self, host: &str) -> String {
        let device = self.device.as_ref().map_or_else(String::new, |device| format!(" ({device})"));
        format!("{}: {} on {host}{device}", self.what, self.measured)
    }
}

/// Whom to ask for what no trace holds.
const ELSEWHERE: [(&str, &str); 3] =
    [("throttled clocks", "nvidia-smi -q -d PERFORMANCE"), ("ECC errors", "nvidia-smi -q -d ECC"), ("Xid errors", XID)];
const XID: &str = "dmesg | grep -i xid";
/// A check.
const LOST: &str = "GPU lost";

/// Its check.
const QUOTA: &str = "quota of processors";
/// Faults that a finding names.
const FAULTS: usize = 4;

/// The manifests, with the numbers of their launchers.
fn manifests<'a>(facts: &'a Facts<'_>) -> impl Iterator<Item = (usize, &'a Manifest)> {
    let launchers = facts.trace.launchers.iter().enumerate();
    launchers.filter_map(|(number, launcher)| Some((number, launcher.manifest.as_ref()?)))
}

fn of_node(manifest: &Manifest, read: &Read<'_>) -> Vec<Check> {
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
    let mut checks = vec![check(QUOTA, quota, None, None)];
    if let Some(used_up) = read.quota() {
        checks.push(check("quota used up", used_up, None, Some("cpu.stat of its control group")));
    }
    let lost = manifest.counters.iter().flat_map(|counters| &counters.lost);
    for device in &manifest.devices {
        let is_lost = lost.clone().any(|uuid| *uuid == device.uuid);
        if let Some(judged) = read.lost(device, is_lost) {
            checks.push(check(LOST, judged, Some(format!("{} {}", device.name, device.pci_bus_id)), Some(XID)));
        }
    }
    for device in &manifest.devices {
        let name = || Some(format!("{} {}", device.name, device.pci_bus_id));
        checks.push(check("NUMA node of launcher and GPU", numa(manifest, device), name(), None));
        let by_kernel = lanes(device);
        let lanes =
            if by_kernel.0 == Outcome::NotMeasured { read.lanes(device).unwrap_or(by_kernel) } else { by_kernel };
        checks.push(check("PCIe lanes", lanes, name(), None));
        let ask = Some("nvidia-smi -q -d PERFORMANCE,CLOCK; lspci -vv under load");
        checks.push(check("PCIe speed", read.link(device).unwrap_or_else(|| speed(device)), name(), ask));
    }
    for (at, (what, ask)) in ELSEWHERE.into_iter().enumerate() {
        let found = manifest.devices.iter().filter_map(|device| {
            let judged = [read.clocks(device), read.ecc(device), read.xid(device)].into_iter().nth(at)??;
            Some(check(what, judged, Some(format!("{} {}", device.name, device.pci_bus_id)), Some(ask)))
        });
        let before = checks.len();
        checks.extend(found);
        if checks.len() == before {
            checks.push(check(what, (Outcome::NotMeasured, String::new()), None, Some(ask)));
        }
    }
    checks
}

/// The manifests of a process's host.
fn of_host<'a>(facts: &'a Facts<'_>, process_id: i64) -> impl Iterator<Item = (Read<'a>, &'a Manifest)> {
    let host = facts.trace.process(process_id).map(|process| process.host.as_str());
    let of_host = manifests(facts).filter(move |(_, manifest)| host == Some(manifest.host.as_str()));
    of_host.map(|(launcher, manifest)| (Read { counters: &facts.counters, launcher }, manifest))
}

/// Whether anything was looked at on a process's host.
pub(crate) fn is_known(facts: &Facts<'_>, process_id: i64) -> bool {
    of_host(facts, process_id)
        .flat_map(|(read, manifest)| of_node(manifest, &read))
        .any(|check| check.result != Outcome::NotMeasured)
}

/// What is wrong with a process's host for whoever uses its GPUs, a line each.
pub(crate) fn faults(facts: &Facts<'_>, process_id: i64) -> Vec<String> {
    let mut lines: Vec<String> = Vec::new();
    for (read, manifest) in of_host(facts, process_id) {
        // A quota is no fault while each process that gives work has a processor.
        let on_host = |id: &i64| facts.trace.process(*id).is_some_and(|process| process.host == manifest.host);
        let giving = facts.launches.processes.iter().filter(|(id, of)| of.count > 0 && on_host(id)).count();
        let is_short = manifest.node.cpu_quota.is_some_and(|quota| quota < giving as f64);
        let found = of_node(manifest, &read).into_iter().filter(|check| check.result == Outcome::Found);
        for check in found.filter(|check| check.what != QUOTA || is_short) {
            let line = check.line(&manifest.host);
            if !lines.contains(&line) {
                lines.push(line);
            }
        }
    }
    lines.truncate(FAULTS);
    lines
}

/// GPUs that were lost, a line each: whoever used one of them may have been over before there was anything to judge.
pub(crate) fn lost(facts: &Facts<'_>) -> Vec<String> {
    let lines = manifests(facts).flat_map(|(launcher, manifest)| {
        let checks = of_node(manifest, &Read { counters: &facts.counters, launcher });
        let lost = checks.into_iter().filter(|check| check.what == LOST && check.result == Outcome::Found);
        lost.map(|check| check.line(&manifest.host))
    });
    let mut lines: Vec<String> = lines.collect();
    lines.sort();
    lines.dedup();
    lines
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
    fn a_node_with_a_fault_is_a_finding_whose_gain_is_not_known_and_no_run_there_is_healthy() {
        let summary = |lanes: i64, quota: f64| {
            let mut trace = TestTrace::new();
            trace.process(1, 100, None, crate::trace::testing::START + 1_000_000_000);
            let about = trace.manifest.as_mut().expect("a manifest");
            about.node = Node { cpu_quota: Some(quota), cpus_allowed: Some("0-7".to_owned()), ..Node::default() };
            let attached = Attached { lanes: Some(lanes), lanes_max: Some(16), ..Attached::default() };
            about.devices =
                vec![Device { uuid: "a".into(), name: "H200".into(), attached: Some(attached), ..Device::default() }];
            let mut thread = trace.thread(1, 11);
            for _ in 0..40 {
                (0..5).for_each(|k| thread.launch(&format!("k{k}"), 2_000));
                thread.sync("cuStreamSynchronize", "stream", 9_000_000);
            }
            trace.section(&super::super::summary::Summary)
        };
        let fine = summary(16, 2.0);
        assert_eq!(fine.get("verdict"), &Value::from("HEALTHY"), "{:?}", fine.literal);
        assert!(fine.literal.clone().is_some_and(|text| text.contains("launches, the node,")), "{:?}", fine.literal);
        for (lanes, quota, says) in
            [(8, 2.0, "PCIe lanes: 8 of 16 on node (H200"), (16, 0.5, "quota of processors: 0.5 of 8")]
        {
            let section = summary(lanes, quota);
            let text = section.literal.clone().unwrap_or_default();
            assert!(text.contains("\n1 the node holds its GPUs back  gain not known  effort medium\n"), "{text}");
            assert!(text.contains(says) && !text.contains("HEALTHY"), "{text}");
            assert_eq!(section.cell("findings", 0, "gain_ns"), &Value::Missing);
            assert_eq!(section.get("joint_gain_ns"), &Value::Num(0.0));
        }
    }

    #[test]
    fn counters_are_judged_where_they_were_read() {
        let node = |counters: &[(&str, f64)]| {
            let mut trace = TestTrace::new();
            let about = trace.manifest.as_mut().expect("a manifest");
            about.devices = vec![Device { uuid: "GPU-1".into(), name: "H200".into(), ..Device::default() }];
            for at in 0..10 {
                let second = at * 1_000_000_000;
                let of_device =
                    [("gpu_utilization", 90.0), ("pcie_link_gen_max", 5.0)].into_iter().chain(counters.iter().copied());
                of_device.for_each(|(name, value)| trace.counter(second, Err("GPU-1"), "nvml", name, value));
            }
            trace.section(&NodeHealth)
        };
        let found = |section: &Section| -> Vec<(Value, Value)> {
            let rows = section.tables.iter().find(|table| table.key == "checks").map_or(0, |table| table.rows.len());
            let cell = |row, column| section.cell("checks", row, column).clone();
            let wrong = (0..rows).filter(|row| cell(*row, "result") == "found".into());
            wrong.map(|row| (cell(row, "check"), cell(row, "measured"))).collect()
        };
        // A power cap, an idle device, corrected errors and a mistake of the program's are no faults of the node.
        let fine = node(&[
            ("clocks_event_reasons", 5.0),
            ("ecc_corrected", 7.0),
            ("ecc_uncorrected", 0.0),
            ("xid", 31.0),
            ("pcie_link_gen", 5.0),
        ]);
        assert_eq!((found(&fine), fine.get("fine")), (Vec::new(), &Value::Int(5)));
        let bad = node(&[
            ("clocks_event_reasons", 72.0),
            ("ecc_corrected", 7.0),
            ("ecc_uncorrected", 2.0),
            ("xid", 79.0),
            ("pcie_link_gen", 3.0),
            ("pcie_link_width", 8.0),
            ("pcie_link_width_max", 16.0),
        ]);
        let all: [(Value, Value); 5] = [
            ("PCIe lanes".into(), "8 of 16".into()),
            ("PCIe speed".into(), "generation 3 of 5 while it worked".into()),
            (
                "throttled clocks".into(),
                "hardware slowdown 100 %, hardware thermal slowdown 100 % of 10 readings".into(),
            ),
            ("ECC errors".into(), "2 not corrected, 7 corrected".into()),
            ("Xid errors".into(), "79 (10 times)".into()),
        ];
        assert_eq!(found(&bad), all);
    }

    #[test]
    fn a_gpu_that_was_lost_is_found_and_the_summary_says_so_once() {
        let of = |calls: i64, lost: &[&str]| {
            let mut trace = TestTrace::new();
            trace.process(1, 100, None, crate::trace::testing::START + 1_000_000_000);
            let about = trace.manifest.as_mut().expect("a manifest");
            about.devices = vec![Device { uuid: "GPU-1".into(), name: "H200".into(), ..Device::default() }];
            let lost = lost.iter().map(|uuid| (*uuid).to_owned()).collect();
            about.counters = Some(gputrace_collectors::manifest::Counters { lost, ..Default::default() });
            trace.counter(0, Err("GPU-1"), "nvml", "gpu_utilization", 90.0);
            let mut thread = trace.thread(1, 11);
            for _ in 0..calls {
                thread.launch("k", 2_000);
                thread.sync("cuStreamSynchronize", "stream", 9_000_000);
            }
            (trace.section(&NodeHealth), trace.section(&super::super::summary::Summary).literal.unwrap_or_default())
        };
        // A run with findings, and one that was over too soon for any.
        for calls in [40, 1] {
            let (node, text) = of(calls, &["GPU-1"]);
            let row = ["check", "result", "measured"].map(|column| node.cell("checks", 0, column).clone());
            assert_eq!(row, ["GPU lost".into(), "found".into(), "off the bus or in need of a reset".into()]);
            let said = "GPU lost: off the bus or in need of a reset on node (H200 )";
            assert_eq!((text.matches(said).count(), text.contains("HEALTHY")), (1, false), "{text}");
            let (node, text) = of(calls, &[]);
            assert_eq!((node.get("found"), text.contains("GPU lost")), (&Value::Int(0), false), "{text}");
        }
    }

    #[test]
    fn a_quota_that_was_used_up_is_found() {
        let mut trace = TestTrace::new();
        for (name, value) in [("periods", 10.0), ("throttled_periods", 4.0), ("throttled_time", 250e6)] {
            (0..5).for_each(|second| trace.counter(second * 1_000_000_000, Ok(1), "cgroup", name, value));
        }
        let section = trace.section(&NodeHealth);
        assert_eq!(section.cell("checks", 0, "check"), &"quota used up".into());
        assert_eq!(section.cell("checks", 0, "measured"), &"in 40 % of 50 periods, 1.25 s taken away".into());
    }

    #[test]
    fn nothing_recorded_is_nothing_measured() {
        let section = TestTrace::new().section(&NodeHealth);
        assert_eq!((section.get("found"), section.get("fine")), (&Value::Missing, &Value::Int(0)));
        assert_eq!(section.get("not_measured"), &Value::Int(4));
    }
}
