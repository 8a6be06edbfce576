//! Copies as the GPU made them, and how fast the link to the host could be: the parts of transfers that need GPU times and a
//! description of the devices.

use std::collections::BTreeMap;

use gputrace_collectors::manifest::Attached;

use super::Facts;
use super::passes::gpu::Gpu;
use super::section::{Column, Section, Table, Unit, Value, column, percent};

/// Bytes per second that the PCIe link of a process's devices carries at most in one direction; none where it is not
/// known, or they differ.
pub(super) fn link_bytes_per_s(facts: &Facts<'_>, process_id: i64) -> Option<f64> {
    let uuids = &facts.trace.process(process_id)?.manifest.as_ref()?.devices;
    let mut peaks = uuids.iter().map(|uuid| peak(facts.trace.device(uuid)?.attached.as_ref()?));
    let first = peaks.next()??;
    peaks.all(|other| other == Some(first)).then_some(first)
}

/// Lanes as they are, speed as it can be: idle links slow down to save power. Up to 5 GT/s ten bits carry a byte, up to 32
/// GT/s 130 carry 128, and from 64 GT/s on there is no such code.
fn peak(attached: &Attached) -> Option<f64> {
    let (per_s, lanes) = (attached.link_max_per_s?, attached.lanes? as f64);
    let carried = match per_s {
        slow if slow < 8e9 => 0.8,
        usual if usual < 64e9 => 128.0 / 130.0,
        _ => 1.0,
    };
    Some(per_s * lanes * carried / 8.0).filter(|peak| *peak > 0.0)
}

/// The share of the link's peak that a bandwidth is, in percent; only where the link is what carried the bytes: what is
/// faster came another way.
pub(super) fn of_peak(facts: &Facts<'_>, process_id: i64, direction: &str, bytes_per_s: f64) -> Value {
    let crosses = matches!(direction, "HtoD" | "DtoH");
    let peak = link_bytes_per_s(facts, process_id).filter(|peak| crosses && bytes_per_s <= *peak);
    peak.map(|peak| 100.0 * bytes_per_s / peak).into()
}

/// What the GPU's own times say of copies and sets.
pub(super) fn facts_of(section: &mut Section, facts: &Facts<'_>) {
    // Metal tells when a command buffer ran, and not when the copies in it did.
    let gpu = facts.gpu.as_ref().filter(|gpu| gpu.any() && !facts.is_metal_only());
    let ns = |gpu: &Gpu| gpu.copies.sums.iter().map(|(_, sum)| sum.time.sum).sum::<i64>();
    let exposed = |gpu: &Gpu| gpu.devices.iter().map(|device| device.busy().copy_ns).sum::<i64>();
    section.fact("gpu_ns", "on the GPU", Unit::Ns, gpu.map(ns));
    section.fact("exposed_ns", "with nothing else beside them", Unit::Ns, gpu.map(exposed));
    let beside = |gpu: &Gpu| gpu.devices.iter().flat_map(|device| device.copied_beside_ns.values()).sum::<i64>();
    section.fact("beside_kernels_ns", "with kernels beside them", Unit::Ns, gpu.map(beside));
}

/// By process and direction: how much of the copies' time has kernels beside it.
pub(super) fn overlap(facts: &Facts<'_>) -> Table {
    const COLUMNS: [Column; 5] = [
        column("process", "Process", Unit::Text),
        column("direction", "Direction", Unit::Text),
        column("total_ns", "Total", Unit::Ns),
        column("beside_kernels_ns", "Beside kernels", Unit::Ns),
        column("beside_kernels_percent", "Of total", Unit::Percent),
    ];
    let mut sums: BTreeMap<(i64, u16), (i64, i64)> = BTreeMap::new();
    if let Some(gpu) = &facts.gpu {
        for (key, sum) in gpu.copies.sums.iter() {
            sums.entry((key.process_id, key.direction)).or_default().0 += sum.time.sum;
        }
        for (key, ns) in gpu.devices.iter().flat_map(|device| &device.copied_beside_ns) {
            sums.entry(*key).or_default().1 += ns;
        }
    }
    let direction = |number: u16| facts.gpu.as_ref().map_or("", |gpu| gpu.copies.texts.text(number));
    let mut sums: Vec<_> = sums.into_iter().map(|((process, of), sum)| (process, direction(of), sum)).collect();
    sums.sort_by_key(|(process, direction, (ns, _))| (std::cmp::Reverse(*ns), facts.place(*process), *direction));
    let row = |(process, direction, (ns, beside)): (i64, &str, (i64, i64))| {
        let share = percent(beside as f64, ns as f64);
        vec![facts.label(process).into(), direction.into(), ns.into(), beside.into(), share]
    };
    Table::new("overlap", "Beside kernels, by direction", &COLUMNS, sums.into_iter().map(row).collect())
}

/// By process, direction and memory, most time first.
pub(super) fn table(facts: &Facts<'_>) -> Table {
    const COLUMNS: [Column; 11] = [
        column("process", "Process", Unit::Text),
        column("kind", "Kind", Unit::Text),
        column("direction", "Direction", Unit::Text),
        column("memory", "Memory", Unit::Text),
        column("count", "Count", Unit::Count),
        column("bytes", "Bytes", Unit::Bytes),
        column("total_ns", "Total", Unit::Ns),
        column("med_ns", "Med", Unit::Ns),
        column("bandwidth_bytes_per_s", "Bandwidth", Unit::BytesPerS),
        column("peak_percent", "Of peak", Unit::Percent),
        column("small_percent", "Small", Unit::Percent),
    ];
    let copies = facts.gpu.as_ref().map(|gpu| &gpu.copies);
    let mut rows: Vec<_> =
        copies.into_iter().flat_map(|copies| copies.sums.iter().map(move |(key, sum)| (copies, key, sum))).collect();
    rows.sort_by_key(|(copies, key, sum)| {
        let texts = [key.kind, key.direction, key.memory[0], key.memory[1]].map(|number| copies.texts.text(number));
        (std::cmp::Reverse(sum.time.sum), facts.place(key.process_id), texts)
    });
    let row = |(copies, key, sum): (
        &super::passes::gpu::Copies,
        &super::passes::gpu::CopyKey,
        &super::passes::gpu::CopySum,
    )| {
        let (direction, memory) =
            (copies.texts.text(key.direction), key.memory.map(|memory| copies.texts.text(memory)));
        let memory: Vec<&str> = memory.into_iter().filter(|memory| !memory.is_empty()).collect();
        let per_s = (sum.time.sum > 0).then(|| sum.bytes.sum as f64 * 1e9 / sum.time.sum as f64);
        vec![
            facts.label(key.process_id).into(),
            copies.texts.text(key.kind).into(),
            direction.into(),
            memory.join(" > ").into(),
            sum.time.count.into(),
            sum.bytes.sum.into(),
            sum.time.sum.into(),
            sum.time.median().into(),
            per_s.into(),
            per_s.map_or(Value::Missing, |per_s| of_peak(facts, key.process_id, direction, per_s)),
            percent(sum.small as f64, sum.time.count as f64),
        ]
    };
    Table::new("on_gpu", "As the GPU made them, by direction and memory", &COLUMNS, rows.into_iter().map(row).collect())
}

/// Points of a series.
const POINTS: usize = 60;

/// Bytes per second in each span of time, by process, kind and direction.
pub(super) fn over_time(facts: &Facts<'_>) -> Table {
    const COLUMNS: [Column; 5] = [
        column("process", "Process", Unit::Text),
        column("kind", "Kind", Unit::Text),
        column("direction", "Direction", Unit::Text),
        column("after_ns", "After", Unit::Ns),
        column("bandwidth_bytes_per_s", "Bandwidth", Unit::BytesPerS),
    ];
    let mut rows = Vec::new();
    if let Some(copies) = facts.gpu.as_ref().map(|gpu| &gpu.copies) {
        let named = copies.over_time.iter().map(|((process, kind, direction), flow)| {
            ((*process, copies.texts.text(*kind), copies.texts.text(*direction)), flow)
        });
        let mut all: Vec<_> = named.collect();
        all.sort_by_key(|(key, _)| (facts.place(key.0), *key));
        for ((process, kind, direction), flow) in all {
            rows.extend(flow.points(POINTS).map(|(at, length, bytes)| {
                let per_s = bytes as f64 * 1e9 / length as f64;
                vec![facts.label(process).into(), kind.into(), direction.into(), at.into(), per_s.into()]
            }));
        }
    }
    let title = "Over time, as the GPU made them (mean in each span; After: since the trace began)";
    Table::new("over_time", title, &COLUMNS, rows)
}

#[cfg(test)]
mod tests {
    use gputrace_collectors::manifest::Device;

    use super::*;
    use crate::analysis::transfers::Transfers;
    use crate::trace::testing::{START, TestTrace};

    fn attached(gt_per_s: f64, lanes: i64) -> Attached {
        Attached { link_max_per_s: Some(gt_per_s * 1e9), lanes: Some(lanes), ..Attached::default() }
    }

    #[test]
    fn a_links_peak_is_that_of_its_generation_and_lanes() {
        let of = |gt_per_s, lanes| peak(&attached(gt_per_s, lanes)).map(|peak| (peak / 1e7).round() / 100.0);
        assert_eq!([of(5.0, 16), of(16.0, 16), of(32.0, 16), of(32.0, 8)], [8.0, 31.51, 63.02, 31.51].map(Some));
        assert_eq!(peak(&Attached { lanes: Some(16), ..Attached::default() }), None);
    }

    #[test]
    fn copies_beside_kernels_are_told_by_direction() {
        let mut trace = TestTrace::new();
        trace.process(1, 100, None, START + 100_000_000);
        let mut thread = trace.thread(1, 11);
        let at = |us: i64| START + 1_000_000 + us * 1_000;
        // Kernels from 100 to 200 us and from 150 to 260; HtoD from 50 to 120 and, at once, from 110 to 300; DtoH before all of them.
        thread.copy_running("DtoH", 1_000, 3_000, (at(10), 20_000));
        thread.copy_running("HtoD", 1_000, 3_000, (at(50), 70_000));
        thread.launch_running("a", 3_000, 7, (at(100), 100_000));
        thread.copy_running("HtoD", 1_000, 3_000, (at(110), 190_000));
        thread.launch_running("b", 3_000, 8, (at(150), 110_000));
        let section = trace.section(&Transfers);
        let row = |row| {
            ["direction", "total_ns", "beside_kernels_ns"].map(|column| section.cell("overlap", row, column).clone())
        };
        assert_eq!(row(0), ["HtoD".into(), Value::Int(260_000), Value::Int(20_000 + 150_000)]);
        assert_eq!(row(1), ["DtoH".into(), Value::Int(20_000), Value::Int(0)]);
        assert_eq!(section.get("beside_kernels_ns"), &Value::Int(170_000));
    }

    #[test]
    fn copies_across_the_link_have_a_share_of_its_peak() {
        let section = |link: Option<Attached>| {
            let mut trace = TestTrace::new();
            trace.process(1, 100, None, START + 100_000_000);
            let about = trace.manifest.as_mut().expect("a manifest");
            about.devices = vec![Device { uuid: "GPU-1".into(), attached: link, ..Device::default() }];
            about.processes[0].devices = vec!["GPU-1".to_owned()];
            let mut thread = trace.thread(1, 11);
            // 10 GB/s as the host sees it, 8 GB/s on the GPU.
            thread.copy("DtoH", ("device", "pinned"), false, 1_000_000, 100_000);
            let now = thread.now;
            thread.copy_running("HtoD", 1_000_000, 3_000, (now, 125_000));
            thread.copy_running("DtoD", 1_000_000, 3_000, (now + 200_000, 1_000));
            trace.section(&Transfers)
        };
        let known = section(Some(attached(5.0, 32)));
        assert_eq!(known.cell("by_direction", 0, "peak_percent"), &Value::Num(62.5));
        let row = |row| ["direction", "peak_percent"].map(|column| known.cell("on_gpu", row, column).clone());
        assert_eq!([row(0), row(1)], [["HtoD".into(), Value::Num(50.0)], ["DtoD".into(), Value::Missing]]);
        assert_eq!([known.get("gpu_ns"), known.get("exposed_ns")], [&Value::Int(126_000); 2]);
        let unknown = section(None);
        assert_eq!(unknown.cell("by_direction", 0, "peak_percent"), &Value::Missing);
        // Faster than the link: the bytes went another way, such as NVLink.
        assert_eq!(section(Some(attached(5.0, 4))).cell("on_gpu", 0, "peak_percent"), &Value::Missing);
    }
}
