//! Which device of which machine a process's ordinal is, and which processes share one.

use rustc_hash::FxHashMap;

use super::Process;

/// A device of the machine: the same one for every process of a launcher that uses it.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub(crate) struct Identity {
    launcher: usize,
    host: String,
    /// UUID, or the number that CUDA_VISIBLE_DEVICES gives the ordinal, or the ordinal.
    device: String,
}

/// How the processes of a trace name their devices.
#[derive(Debug, Default)]
pub(crate) struct DeviceNames(FxHashMap<i64, (String, Vec<String>, Vec<String>)>);

impl DeviceNames {
    pub(crate) fn new(processes: &[Process]) -> DeviceNames {
        let of = |process: &Process| {
            let uuids = process.manifest.as_ref().map_or_else(Vec::new, |known| known.devices.clone());
            let visible = process.visible_devices.as_deref().unwrap_or_default().split(',');
            let visible = visible.map(|one| one.trim().to_owned()).filter(|one| !one.is_empty()).collect();
            (process.process_id, (process.host.clone(), uuids, visible))
        };
        DeviceNames(processes.iter().map(of).collect())
    }

    pub(crate) fn identity(&self, launcher: usize, process_id: i64, ordinal: i32) -> Identity {
        let Some((host, uuids, visible)) = self.0.get(&process_id) else {
            return Identity { launcher, host: String::new(), device: ordinal.to_string() };
        };
        let index = usize::try_from(ordinal).unwrap_or(usize::MAX);
        let device = uuids.get(index).or(visible.get(index)).cloned().unwrap_or_else(|| ordinal.to_string());
        Identity { launcher, host: host.clone(), device }
    }
}

/// Groups of processes that share devices, each with whoever shares one with any other of it. Processes that share none are in no
/// group.
pub(crate) fn sharing(used: &FxHashMap<Identity, Vec<i64>>) -> Vec<Vec<i64>> {
    let mut groups: Vec<Vec<i64>> = Vec::new();
    for processes in used.values().filter(|processes| processes.len() > 1) {
        let (joined, others) =
            groups.into_iter().partition(|of: &Vec<i64>| of.iter().any(|one| processes.contains(one)));
        groups = others;
        let joined: Vec<Vec<i64>> = joined;
        let mut all: Vec<i64> = joined.into_iter().flatten().chain(processes.iter().copied()).collect();
        all.sort_unstable();
        all.dedup();
        groups.push(all);
    }
    groups
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn who_shares_a_device_with_one_of_a_group_belongs_to_it() {
        let of = |device: &str| Identity { launcher: 0, host: "node".to_owned(), device: device.to_owned() };
        let used = [("a", vec![1, 2]), ("b", vec![3]), ("c", vec![4, 5]), ("d", vec![2, 6]), ("e", vec![6, 1])];
        let mut groups = sharing(&used.into_iter().map(|(device, processes)| (of(device), processes)).collect());
        groups.sort();
        assert_eq!(groups, [vec![1, 2, 6], vec![4, 5]]);
    }
}
