//! The devices that a process could see, out of what the shim asked its driver.

use std::collections::BTreeMap;
use std::path::Path;
use std::time::{Duration, Instant};

use gputrace_abi::device;

use crate::chain::Text;
use crate::manifest::{Attached, Device};
use crate::occupancy::Limits;

/// So long after cuInit its thread may begin.
const NEW: Duration = Duration::from_secs(2);
/// Devices of a process; numbers of a hostile one are not kept beyond that.
const MOST: usize = 64;

/// Devices by ordinal.
#[derive(Default)]
pub(crate) struct Devices {
    all: BTreeMap<u64, Device>,
    /// How many of them there were when [`Self::are_more`] was asked last.
    told: usize,
    /// When the first was told of, as cuInit succeeded.
    since: Option<Instant>,
}

impl Devices {
    /// Takes in what a text says.
    pub(super) fn add(&mut self, text: &Text) {
        if let Some((device, name)) = device::Device::from_bytes(text.bytes())
            && self.all.len() < MOST
        {
            self.since.get_or_insert_with(Instant::now);
            let device = describe(&device, name);
            let attached = Attached::read(Path::new("/"), &device.pci_bus_id);
            self.all.insert(text.key, Device { attached, ..device });
        }
    }

    /// The process has looked at its driver just now: cuInit makes a thread that asks CUPTI, and waits for it a second at most.
    pub(super) fn are_new(&self) -> bool {
        self.since.is_some_and(|since| since.elapsed() < NEW)
    }

    /// What multiprocessors hold, of each device whose compute capability is listed.
    pub(super) fn limits(&self) -> BTreeMap<u64, &'static Limits> {
        let known = |(ordinal, device): (&u64, &Device)| Some((*ordinal, Limits::of(&device.compute_capability)?));
        self.all.iter().filter_map(known).collect()
    }

    /// In the order of their ordinals.
    pub(crate) fn all(&self) -> impl Iterator<Item = &Device> {
        self.all.values()
    }

    /// Whether there are more than at the last call.
    pub(crate) fn are_more(&mut self) -> bool {
        self.all.len() > std::mem::replace(&mut self.told, self.all.len())
    }
}

fn describe(device: &device::Device, name: &[u8]) -> Device {
    let [sm_count, clock_khz, memory_khz, bus_bits, major, minor, sm_threads, l2_bytes] = device.attributes;
    let known = |value: i32| Some(i64::from(value)).filter(|value| *value > 0);
    let hex: String = device.uuid.iter().map(|byte| format!("{byte:02x}")).collect();
    let parts = [0..8, 8..12, 12..16, 16..20, 20..32].map(|part| hex[part].to_owned());
    let pci = device.pci.split(|byte| *byte == 0).next().unwrap_or_default();
    // Memory moves two words a clock.
    let peak = known(memory_khz).zip(known(bus_bits));
    let peak = peak.and_then(|(khz, bits)| Some((khz * 2000).checked_mul(bits)? / 8));
    Device {
        uuid: format!("GPU-{}", parts.join("-")),
        name: String::from_utf8_lossy(name).into_owned(),
        pci_bus_id: String::from_utf8_lossy(pci).to_lowercase(),
        compute_capability: if major > 0 { format!("{major}.{minor}") } else { String::new() },
        sm_count: known(sm_count),
        sm_threads: known(sm_threads),
        sm_clock_hz: known(clock_khz).map(|khz| khz * 1000),
        memory_bytes: i64::try_from(device.memory_bytes).ok().filter(|bytes| *bytes > 0),
        l2_bytes: known(l2_bytes),
        memory_peak_bytes_per_s: peak,
        attached: None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_device_is_described_in_whole_units() {
        let raw = device::Device {
            uuid: *b"fake-cuda-gpu-00",
            memory_bytes: 141 << 30,
            attributes: [132, 1_980_000, 3_201_000, 6144, 9, 0, 2048, 0],
            pci: *b"0000:0A:00.0\0\0\0\0",
        };
        let device = describe(&raw, b"NVIDIA H200");
        assert_eq!(device.uuid, "GPU-66616b65-2d63-7564-612d-6770752d3030");
        assert_eq!((device.name.as_str(), device.pci_bus_id.as_str()), ("NVIDIA H200", "0000:0a:00.0"));
        assert_eq!((device.compute_capability.as_str(), device.sm_count), ("9.0", Some(132)));
        // NVIDIA gives 4.8 TB/s for this memory clock and bus.
        assert_eq!(device.memory_peak_bytes_per_s, Some(4_916_736_000_000));
        assert_eq!(device.l2_bytes, None);
    }
}
