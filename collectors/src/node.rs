//! What the machine gives the traced programs: processors, a quota of them, and how its devices are attached.
//!
//! Read once, on Linux from files of the kernel under a root, so that a test can make its own. What is not there is missing: on a
//! machine without PCI devices, in a container that hides them, or without control groups of version 2.

use std::fs;
use std::path::{Path, PathBuf};

use serde::{Deserialize, Serialize};

/// Processors, as the launcher had them when the trace began; the command inherits them.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Node {
    /// Processors that the quota of its control group allows, of the tightest group above it: 1.5 is one and a half.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub cpu_quota: Option<f64>,
    /// Processors on which it may run, as the kernel lists them: `0-15,32-47`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub cpus_allowed: Option<String>,
    /// NUMA nodes of those processors.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub numa_nodes: Vec<i64>,
    /// NUMA nodes of the machine that have processors.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub all_numa_nodes: Vec<i64>,
}

/// A device, as its driver described it to a traced process. What the driver did not say is missing.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Device {
    /// UUID, as `nvidia-smi -L` prints it; that of a MIG instance has MIG in place of GPU there.
    pub uuid: String,
    /// Name.
    pub name: String,
    /// PCI address: domain, bus, device, function.
    pub pci_bus_id: String,
    /// Compute capability, such as 9.0.
    pub compute_capability: String,
    /// Multiprocessors.
    pub sm_count: Option<i64>,
    /// Threads that a multiprocessor holds.
    pub sm_threads: Option<i64>,
    /// Clock of the multiprocessors, Hz.
    pub sm_clock_hz: Option<i64>,
    /// Memory, bytes.
    pub memory_bytes: Option<i64>,
    /// L2 cache, bytes.
    pub l2_bytes: Option<i64>,
    /// Peak bandwidth of the memory: twice its clock times the width of its bus, bytes per second.
    pub memory_peak_bytes_per_s: Option<i64>,
    /// How it is attached, as its host's kernel says when a process first sees it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub attached: Option<Attached>,
}

/// How a device is attached.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Attached {
    /// Its NUMA node.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub numa_node: Option<i64>,
    /// Speed of its PCIe link, transfers per second.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub link_per_s: Option<f64>,
    /// The most that it could have.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub link_max_per_s: Option<f64>,
    /// Lanes of its link.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub lanes: Option<i64>,
    /// The most that it could have.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub lanes_max: Option<i64>,
}

impl Node {
    /// This machine's.
    #[cfg(target_os = "linux")]
    pub(crate) fn here() -> Node {
        Node::read(Path::new("/"))
    }

    /// This machine's: macOS bounds a program to no processors, and its memory is one node.
    #[cfg(target_os = "macos")]
    pub(crate) fn here() -> Node {
        let processors = std::thread::available_parallelism().map_or(0, |count| count.get());
        let cpus_allowed = (processors > 0).then(|| format!("0-{}", processors - 1));
        Node { cpus_allowed, ..Node::default() }
    }

    /// Reads it; `root` is `/`.
    #[cfg_attr(target_os = "macos", allow(dead_code))] // its tests run on Linux
    pub(crate) fn read(root: &Path) -> Node {
        let status = text(&root.join("proc/self/status")).unwrap_or_default();
        let allowed = status.lines().find_map(|line| line.strip_prefix("Cpus_allowed_list:"));
        let cpus_allowed = allowed.map(|list| list.trim().to_owned());
        let ours = cpus_allowed.as_deref().map(numbers).unwrap_or_default();
        let mut node = Node { cpu_quota: quota(root), cpus_allowed, ..Node::default() };
        for entry in fs::read_dir(root.join("sys/devices/system/node")).into_iter().flatten().flatten() {
            let name = entry.file_name().to_string_lossy().into_owned();
            let number = name.strip_prefix("node").and_then(|number| number.parse::<i64>().ok());
            let cpus = text(&entry.path().join("cpulist")).map(|list| numbers(&list)).unwrap_or_default();
            let Some(number) = number.filter(|_| !cpus.is_empty()) else { continue };
            node.all_numa_nodes.push(number);
            if cpus.iter().any(|range| ours.iter().any(|own| own.0 <= range.1 && range.0 <= own.1)) {
                node.numa_nodes.push(number);
            }
        }
        node.numa_nodes.sort_unstable();
        node.all_numa_nodes.sort_unstable();
        node
    }
}

impl Attached {
    /// Reads how the device with this PCI address is attached; none where the kernel does not show it. `root` is `/`.
    pub(crate) fn read(root: &Path, pci_bus_id: &str) -> Option<Attached> {
        // The address comes from the traced process, and becomes part of a path.
        let plain = |byte: u8| byte.is_ascii_hexdigit() || byte == b':' || byte == b'.';
        if !pci_bus_id.bytes().all(plain) || pci_bus_id.contains("..") || pci_bus_id.is_empty() {
            return None;
        }
        // Some drivers write eight digits of the domain, the kernel four.
        let address = pci_bus_id.strip_prefix("0000").filter(|rest| rest.len() >= 12).unwrap_or(pci_bus_id);
        let folder = root.join("sys/bus/pci/devices").join(address.to_lowercase());
        let value = |name: &str| text(&folder.join(name));
        let number = |name: &str| value(name)?.parse::<i64>().ok();
        // `16.0 GT/s PCIe`; `Unknown` where the link is down.
        let speed = |name: &str| Some(value(name)?.split(' ').next()?.parse::<f64>().ok()? * 1e9);
        let attached = Attached {
            numa_node: number("numa_node").filter(|node| *node >= 0),
            link_per_s: speed("current_link_speed"),
            link_max_per_s: speed("max_link_speed"),
            lanes: number("current_link_width").filter(|lanes| (1..=64).contains(lanes)),
            lanes_max: number("max_link_width").filter(|lanes| (1..=64).contains(lanes)),
        };
        (attached != Attached::default()).then_some(attached)
    }
}

/// What a file of one line says.
fn text(path: &Path) -> Option<String> {
    Some(fs::read_to_string(path).ok()?.trim().to_owned()).filter(|text| !text.is_empty())
}

/// The control group (version 2) of a process, by its pid or `self`: its folder below that of all groups.
pub(crate) fn control_group(root: &Path, process: &str) -> Option<PathBuf> {
    let groups = text(&root.join("proc").join(process).join("cgroup"))?;
    let group = groups.lines().find_map(|line| line.strip_prefix("0::"))?;
    Some(PathBuf::from(group.trim_start_matches('/')))
}

/// The tightest quota of our control group and those above it, in processors.
fn quota(root: &Path) -> Option<f64> {
    let group = control_group(root, "self")?;
    let top = root.join("sys/fs/cgroup");
    let of = |folder: &Path| {
        let limit = text(&folder.join("cpu.max"))?;
        let (most, period) = limit.split_once(' ')?;
        let (most, period) = (most.parse::<f64>().ok()?, period.parse::<f64>().ok()?);
        (period > 0.0).then(|| most / period)
    };
    let own = top.join(group);
    own.ancestors().take_while(|folder| folder.starts_with(&top)).filter_map(of).reduce(f64::min)
}

/// The ranges in `0-3,8,10-11`.
fn numbers(list: &str) -> Vec<(u32, u32)> {
    let range = |part: &str| {
        let (first, last) = part.split_once('-').unwrap_or((part, part));
        Some((first.trim().parse().ok()?, last.trim().parse().ok()?))
    };
    list.split(',').filter_map(range).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A made-up root of a file system, which goes with it.
    struct Root(PathBuf);

    impl Root {
        fn new(name: &str, files: &[(&str, &str)]) -> Root {
            let root = std::env::temp_dir().join(format!("gputrace-node-{name}-{}", std::process::id()));
            for (path, text) in files {
                let at = root.join(path);
                fs::create_dir_all(at.parent().unwrap()).unwrap();
                fs::write(at, text).unwrap();
            }
            Root(root)
        }
    }

    impl Drop for Root {
        fn drop(&mut self) {
            let _ = fs::remove_dir_all(&self.0);
        }
    }

    #[test]
    fn a_device_says_how_it_is_attached() {
        let folder = "sys/bus/pci/devices/0000:0a:00.0";
        let file = |name: &str| format!("{folder}/{name}");
        let names = ["numa_node", "current_link_speed", "max_link_speed", "current_link_width", "max_link_width"];
        let paths = names.map(file);
        let texts = ["1\n", "16.0 GT/s PCIe\n", "32.0 GT/s PCIe\n", "8\n", "16\n"];
        let files: Vec<(&str, &str)> = paths.iter().map(String::as_str).zip(texts).collect();
        let root = Root::new("attached", &files);
        let attached = Attached::read(&root.0, "0000:0A:00.0").unwrap();
        assert_eq!((attached.numa_node, attached.lanes, attached.lanes_max), (Some(1), Some(8), Some(16)));
        assert_eq!((attached.link_per_s, attached.link_max_per_s), (Some(16e9), Some(32e9)));
        assert_eq!(Attached::read(&root.0, "00000000:0a:00.0"), Some(attached));
        for other in ["0000:0b:00.0", "", "../0000:0a:00.0", "0000:0a:00.0/..", ".."] {
            assert_eq!(Attached::read(&root.0, other), None, "{other}");
        }
    }

    #[test]
    fn the_tightest_quota_and_the_nodes_of_the_allowed_processors_count() {
        let root = Root::new(
            "quota",
            &[
                ("proc/self/status", "Name:\tgputrace\nCpus_allowed_list:\t8-11,14\n"),
                ("proc/self/cgroup", "0::/job/step\n"),
                ("sys/fs/cgroup/job/cpu.max", "150000 100000\n"),
                ("sys/fs/cgroup/job/step/cpu.max", "max 100000\n"),
                ("sys/devices/system/node/node0/cpulist", "0-7\n"),
                ("sys/devices/system/node/node1/cpulist", "8-15\n"),
                ("sys/devices/system/node/node2/cpulist", "\n"),
            ],
        );
        let node = Node::read(&root.0);
        assert_eq!((node.cpu_quota, node.cpus_allowed.as_deref()), (Some(1.5), Some("8-11,14")));
        assert_eq!((node.numa_nodes, node.all_numa_nodes), (vec![1], vec![0, 1]));
        let nothing = Node::read(&root.0.join("nowhere"));
        assert_eq!(nothing, Node::default());
    }
}
