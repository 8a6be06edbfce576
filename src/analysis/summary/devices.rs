//! The devices that the traced processes could see, as their drivers described them.

use gputrace_collectors::manifest::Device;

use crate::analysis::Facts;
use crate::analysis::section::{Column, Table, Unit, column};

/// All devices of the trace, each once.
fn all<'a>(facts: &'a Facts<'_>) -> Vec<&'a Device> {
    let mut all: Vec<&Device> = facts.trace.manifests().flat_map(|manifest| &manifest.devices).collect();
    all.sort_by(|a, b| a.uuid.cmp(&b.uuid));
    all.dedup_by(|a, b| a.uuid == b.uuid);
    all
}

/// ` H200`, where all devices have one name.
pub(super) fn name(facts: &Facts<'_>) -> String {
    let mut names: Vec<&str> = all(facts).iter().map(|device| device.name.as_str()).collect();
    names.dedup();
    match names.as_slice() {
        [name] => format!(" {}", name.strip_prefix("NVIDIA ").unwrap_or(name).replace(char::is_control, " ")),
        _ => String::new(),
    }
}

/// The table.
pub(super) fn table(facts: &Facts<'_>) -> Table {
    const COLUMNS: [Column; 8] = [
        column("uuid", "Device", Unit::Text),
        column("name", "Name", Unit::Name),
        column("pci_bus_id", "PCI", Unit::Text),
        column("compute_capability", "Capability", Unit::Text),
        column("sm_count", "SMs", Unit::Count),
        column("memory_bytes", "Memory", Unit::BytesEach),
        column("l2_bytes", "L2", Unit::BytesEach),
        column("memory_peak_bytes_per_s", "Peak bandwidth", Unit::BytesPerS),
    ];
    let row = |device: &&Device| {
        vec![
            device.uuid.as_str().into(),
            device.name.as_str().into(),
            device.pci_bus_id.as_str().into(),
            device.compute_capability.as_str().into(),
            device.sm_count.into(),
            device.memory_bytes.into(),
            device.l2_bytes.into(),
            device.memory_peak_bytes_per_s.into(),
        ]
    };
    Table::new("devices", "Devices", &COLUMNS, all(facts).iter().map(row).collect())
}
