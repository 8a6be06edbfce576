//! A part of device-memory: what PyTorch's caching allocator made of it, where its memory snapshot was imported.

use std::collections::BTreeMap;

use super::Facts;
use super::passes::torch_memory::{Blocks, Device};
use super::section::{Column, Section, Table, Unit, Value, column, percent};
use crate::render::{bytes, counted};
use crate::trace::{NO_STACK, Site};

/// Lines that are shown.
const LINES: usize = 50;

/// Adds its numbers and tables.
pub(super) fn add(section: &mut Section, facts: &Facts<'_>) {
    let devices = devices(facts);
    let any = !devices.is_empty();
    let all = || devices.iter().map(|(_, device)| *device);
    let known = |bytes: i64| if any { Value::from(bytes) } else { Value::Missing };
    let reserved: i64 = all().map(|device| device.reserved_bytes).sum();
    let fragmented: i64 = all().map(|device| device.fragmented_bytes).sum();
    let peak = all().filter_map(Device::peak).map(|(bytes, _)| bytes).max();
    let peak_reserved = all().filter_map(Device::peak_reserved_bytes).max();
    section.rare_fact("torch_peak_bytes", "PyTorch: most asked for at once", Unit::Bytes, peak);
    section.rare_fact("torch_peak_reserved_bytes", "most reserved", Unit::Bytes, peak_reserved);
    let allocated = all().map(|device| device.allocated.1).sum();
    if any && facts.filter.looks_back() {
        section.note(
            "Of a part of the trace PyTorch's own numbers are told by what of its snapshot lies in the part: what its allocator held before is \
             known only where the snapshot was taken in it.",
        );
    }
    section.rare_fact("torch_allocated_bytes", "allocated at its end", Unit::Bytes, known(allocated));
    section.rare_fact("torch_reserved_bytes", "reserved", Unit::Bytes, known(reserved));
    section.rare_fact("torch_fragmented_bytes", "fragmented", Unit::Bytes, known(fragmented));
    let share = if any { percent(fragmented as f64, reserved as f64) } else { Value::Missing };
    section.rare_fact("torch_fragmented_percent", "of reserved", Unit::Percent, share);
    let failed = all().map(|device| device.failed.0).sum();
    section.rare_fact("torch_failed", "failed in PyTorch", Unit::Count, known(failed));
    section.table(by_device(facts, &devices));
    section.table(by_site(facts, &devices));
}

/// What a summary says of a trace that holds this and nothing of the driver; none where there is no snapshot.
pub(super) fn lines(facts: &Facts<'_>) -> Option<String> {
    let devices = devices(facts);
    let all = || devices.iter().map(|(_, device)| *device);
    let (reserved, fragmented) = all().fold((0, 0), |sum, of| (sum.0 + of.reserved_bytes, sum.1 + of.fragmented_bytes));
    let (allocated, failed) = all().fold((0, 0), |sum, of| (sum.0 + of.allocated.1, sum.1 + of.failed.0));
    if devices.is_empty() {
        return None;
    }
    let peak = all().filter_map(Device::peak).map(|(bytes, _)| bytes).max();
    let peak = peak.map_or("most not known".to_owned(), |most| format!("most at once {}", bytes(most as f64)));
    let (allocated, reserved, fragmented) = (bytes(allocated as f64), bytes(reserved as f64), bytes(fragmented as f64));
    let failed = counted(failed as f64, "allocation failed", "allocations failed");
    Some(format!(
        "UNKNOWN: the trace holds PyTorch's memory, and no calls of the driver: see device-memory\n memory  {peak} | at the snapshot \
         {allocated} in tensors, of {reserved} reserved, {fragmented} of it fragmented; {failed}\n"
    ))
}

type Devices<'a> = Vec<((i64, i32), &'a Device)>;

fn devices<'a>(facts: &'a Facts<'_>) -> Devices<'a> {
    let mut devices: Devices<'a> =
        facts.device_memory.torch.devices.iter().map(|(key, device)| (*key, device)).collect();
    devices.sort_by_key(|(key, device)| (std::cmp::Reverse(device.reserved_bytes), *key));
    devices
}

/// Of which process, device and line; none for C++.
type Line<'a> = ((i64, i32), Option<&'a Site>);

/// A snapshot does not say whose it is; its file's name does.
fn whose(facts: &Facts<'_>, process_id: i64) -> Value {
    let process = facts.trace.process(process_id).filter(|process| process.pid != 0);
    process.map(|process| process.label()).or_else(|| facts.program(process_id)).into()
}

fn by_device(facts: &Facts<'_>, devices: &Devices<'_>) -> Table {
    const COLUMNS: [Column; 12] = [
        column("snapshot", "Snapshot", Unit::Name),
        column("device", "Device", Unit::Count),
        column("peak_bytes", "Peak", Unit::Bytes),
        column("peak_after_ns", "Peak after", Unit::Ns),
        column("peak_reserved_bytes", "Most reserved", Unit::Bytes),
        column("allocated_bytes", "Allocated", Unit::Bytes),
        column("reserved_bytes", "Reserved", Unit::Bytes),
        column("fragmented_bytes", "Fragmented", Unit::Bytes),
        column("largest_free_bytes", "Largest free", Unit::Bytes),
        column("allocated", "Blocks", Unit::Count),
        column("failed", "Failed", Unit::Count),
        column("failed_bytes", "Largest failed", Unit::Bytes),
    ];
    let row = |((process, ordinal), device): &((i64, i32), &Device)| {
        let peak = device.peak();
        vec![
            whose(facts, *process),
            i64::from(*ordinal).into(),
            peak.map(|(bytes, _)| bytes).into(),
            peak.map(|(_, after)| after).into(),
            device.peak_reserved_bytes().into(),
            device.allocated.1.into(),
            device.reserved_bytes.into(),
            device.fragmented_bytes.into(),
            device.largest_free_bytes.into(),
            device.allocated.0.into(),
            device.failed.0.into(),
            Some(device.failed.1).filter(|_| device.failed.0 > 0).into(),
        ]
    };
    let title = "PyTorch's allocator: the most in its history, and what it held at the snapshot";
    Table::new("torch", title, &COLUMNS, devices.iter().map(row).collect())
}

fn by_site(facts: &Facts<'_>, devices: &Devices<'_>) -> Table {
    const COLUMNS: [Column; 8] = [
        column("device", "Device", Unit::Count),
        column("site", "Line", Unit::Text),
        column("at_peak_bytes", "At peak", Unit::Bytes),
        column("at_peak", "Blocks", Unit::Count),
        column("at_end_bytes", "At the end", Unit::Bytes),
        column("at_end", "Blocks then", Unit::Count),
        column("snapshot", "Snapshot", Unit::Name),
        column("place", "File", Unit::Name),
    ];
    let mut sums: BTreeMap<Line<'_>, (Blocks, Blocks)> = BTreeMap::new();
    for (key, device) in devices {
        let mut add = |stack: i64, blocks: Blocks, at_end: bool| {
            let site = facts.stacks.get(stack).filter(|_| stack != NO_STACK);
            let sum = sums.entry((*key, site)).or_default();
            let of = if at_end { &mut sum.1 } else { &mut sum.0 };
            *of = (of.0 + blocks.0, of.1 + blocks.1);
        };
        device.at_peak.iter().for_each(|(stack, blocks)| add(*stack, *blocks, false));
        device.at_end.iter().for_each(|(stack, blocks)| add(*stack, *blocks, true));
    }
    let mut sums: Vec<_> = sums.into_iter().collect();
    sums.sort_by_key(|(_, (peak, end))| std::cmp::Reverse((peak.1, end.1)));
    let row = |(((process, device), site), (peak, end)): &(Line<'_>, (Blocks, Blocks))| {
        vec![
            i64::from(*device).into(),
            site.map_or_else(|| "(no line of Python: C++, or before the history)".to_owned(), Site::short).into(),
            peak.1.into(),
            peak.0.into(),
            end.1.into(),
            end.0.into(),
            whose(facts, *process),
            site.map(Site::place).into(),
        ]
    };
    let title = "PyTorch's memory by line, as asked for: at the peak, and at the end (perhaps leaks)";
    Table::new("torch_by_site", title, &COLUMNS, sums.iter().take(LINES).map(row).collect())
}
