//! GPUs that do next to nothing while others work: the mean over all GPUs would hide them.

use std::collections::BTreeMap;

use gputrace_collectors::launcher_of;
use gputrace_collectors::manifest::Device;

use super::passes::gpu::{Device as Used, Gpu};
use super::{Facts, Section, gpu};

/// A GPU with less idles, where another one works for so many times as long.
const IDLE_PERCENT: f64 = 10.0;
const WORKS_PERCENT: f64 = 20.0;
const TIMES: f64 = 5.0;
/// GPUs that a note names.
const NAMED: usize = 8;

/// The launcher whose process uses a device: a process's id begins with it. Ranks of other files may have other clocks.
fn launcher(device: &Used) -> i64 {
    launcher_of(device.named.0)
}

/// Each device, and how much of the time it worked in which any device of its launcher did, from the first operation to the
/// last, in percent: a GPU that worked for a moment has a short range of its own.
pub(super) fn shares(gpu: &Gpu) -> Vec<(&Used, f64)> {
    let mut ranges: BTreeMap<i64, (i64, i64)> = BTreeMap::new();
    for device in gpu.devices.iter() {
        // Of ranges that are reported the longest time that any device spent in them.
        let own = if device.is_whole() { (device.first_ns, device.last_ns()) } else { (0, device.range_ns()) };
        let range = ranges.entry(launcher(device)).or_insert(own);
        *range = (range.0.min(own.0), range.1.max(own.1));
    }
    let share = |device: &Used| {
        let range = ranges.get(&launcher(device)).map_or(0, |(first, last)| last - first);
        100.0 * device.busy().total_ns() as f64 / range.max(1) as f64
    };
    gpu.devices.iter().map(|device| (device, share(device))).collect()
}

/// Names the GPUs that did next to nothing while another one of their launcher worked.
pub(super) fn note(section: &mut Section, facts: &Facts<'_>, gpu: &Gpu, shares: &[(&Used, f64)]) {
    let beside = |device: &Used| {
        let own = shares.iter().filter(|(other, _)| launcher(other) == launcher(device));
        own.max_by(|a, b| a.1.total_cmp(&b.1)).filter(|(_, most)| *most >= WORKS_PERCENT)
    };
    let idle = shares.iter().filter(|(_, share)| *share < IDLE_PERCENT).filter_map(|(device, share)| {
        let (other, most) = beside(device).filter(|(_, most)| TIMES * share <= *most)?;
        let [name, other] = [device, other].map(|device| gpu::name(facts, gpu, device));
        Some(format!(
            "GPU {name} worked for {share:.1} % of the time of all GPUs of its run, GPU {other} for {most:.0} %"
        ))
    });
    let idle: Vec<String> = idle.collect();
    if !idle.is_empty() {
        let more = if idle.len() > NAMED { format!("; and {} more", idle.len() - NAMED) } else { String::new() };
        section.note(format!("Idle beside others: {}{more}.", idle[..idle.len().min(NAMED)].join("; ")));
    }
    if facts.filter.is_all()
        && let Some(unused) = unused(facts, gpu)
    {
        section.note(unused);
    }
}

/// Names the GPUs that processes could see and none gave work. An import lists those of the machine, whoever used them.
fn unused(facts: &Facts<'_>, gpu: &Gpu) -> Option<String> {
    let used: Vec<&str> = gpu.devices.iter().filter_map(|device| uuid(facts, device)).collect();
    let recorded = facts.trace.manifests().filter(|manifest| !manifest.is_imported());
    let mut unused: Vec<&Device> = recorded.flat_map(|manifest| &manifest.devices).collect();
    unused.retain(|device| !used.is_empty() && !used.contains(&device.uuid.as_str()));
    unused.sort_by(|a, b| a.uuid.cmp(&b.uuid));
    unused.dedup_by(|a, b| a.uuid == b.uuid);
    let named: Vec<String> = unused
        .iter()
        .take(NAMED)
        .map(|device| format!("{} ({})", device.uuid, device.name.replace(char::is_control, " ")))
        .collect();
    let more = if unused.len() > NAMED { format!(" and {} more", unused.len() - NAMED) } else { String::new() };
    (!named.is_empty()).then(|| format!("Visible, and given no work: {}{more}.", named.join(", ")))
}

/// What the driver calls a device that a process used.
fn uuid<'a>(facts: &'a Facts<'_>, device: &Used) -> Option<&'a str> {
    let (process_id, ordinal) = device.named;
    let manifest = facts.trace.process(process_id)?.manifest.as_ref()?;
    manifest.devices.get(usize::try_from(ordinal).ok()?).map(String::as_str)
}

#[cfg(test)]
mod tests {
    use gputrace_collectors::manifest;

    use crate::analysis::gpu_utilisation::GpuUtilisation;
    use crate::trace::testing::{START, TestTrace};

    #[test]
    fn a_gpu_that_was_visible_and_got_no_work_is_named() {
        let mut trace = TestTrace::new();
        trace.process(1, 100, None, START + 1_000_000_000);
        if let Some(manifest) = &mut trace.manifest {
            manifest.processes[0].devices = vec!["GPU-a".to_owned(), "GPU-b".to_owned()];
            manifest.devices = ["GPU-a", "GPU-b"]
                .map(|uuid| manifest::Device { uuid: uuid.to_owned(), name: "H200".to_owned(), ..Default::default() })
                .to_vec();
        }
        trace.thread(1, 11).launch_running("gemm", 5_000, 7, (START + 9_000, 900_000));
        let section = trace.section(&GpuUtilisation);
        assert!(
            section.notes.iter().any(|note| note == "Visible, and given no work: GPU-b (H200)."),
            "{:?}",
            section.notes
        );
    }
}
