//! node-health: is this node bad? What the trace holds of processors, their quota, NUMA nodes, PCIe links, clocks, ECC and Xid.

use gputrace_collectors::Manifest;
use gputrace_collectors::manifest::Device;

use super::node_counters::{Outcome, Read};
use super::section::{Column, Section, Table, Unit, Value, column};
use super::{Analysis, Explain, Facts, Metric, Need};
use crate::trace::uses_metal;

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
/// The same of a Mac, whose devices have neither errors of that name nor a link.
const ELSEWHERE_ON_A_MAC: [(&str, &str); 1] = [("throttled clocks", "sudo powermetrics --samplers gpu_power,thermal")];
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
    if manifest.accounts().any(uses_metal) {
        let ask = |(what, ask)| check(what, (Outcome::NotMeasured, String::new()), None, Some(ask));
        checks.extend(ELSEWHERE_ON_A_MAC.map(ask));
        return checks;
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
mod tests;
