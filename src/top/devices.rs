//! How busy devices were: one that several processes use is one, and busy while any of them has it work.
//!
//! A process knows how long the device worked for it, and for how long that is known. Of a device with one process that is all. Of one
//! that processes share the session adds up when it worked for any of them; rows of two processes come one after the other, though, and
//! what lies before what was counted is left out. So the share is at least that of the process that uses it most, and no more than
//! those of all together.

use std::collections::BTreeMap;

use gputrace_collectors::live::Process;

use super::rates::History;

/// The share of time in which each device worked that one of these processes uses; of each process what share its GPUs worked for it.
pub(crate) fn shares(history: &History, processes: &[(&Process, f64)]) -> Vec<f64> {
    let mut known: BTreeMap<&str, Vec<(&Process, f64)>> = BTreeMap::new();
    let mut all = Vec::new();
    for (process, share) in processes {
        let uuids = process.gpu.iter().flat_map(|gpu| &gpu.devices).map(|device| device.uuid.as_deref());
        let uuids: Vec<Option<&str>> = uuids.collect();
        for uuid in &uuids {
            match uuid {
                Some(uuid) => known.entry(uuid).or_default().push((process, *share)),
                None => all.push(*share),
            }
        }
        if uuids.is_empty() {
            all.push(*share);
        }
    }
    all.extend(known.into_iter().map(|(uuid, users)| {
        let most = users.iter().map(|(_, share)| *share).fold(0.0, f64::max);
        let together = users.iter().map(|(_, share)| share).sum::<f64>().min(1.0);
        let own = if users.len() > 1 { history.device_busy(uuid, &users) } else { None };
        own.unwrap_or(if users.len() > 1 { together } else { most }).clamp(most.min(together), together)
    }));
    all
}

#[cfg(test)]
mod tests {
    use gputrace_collectors::live::{Device, Gpu, Snapshot};

    use super::*;

    fn device(uuid: &str, busy_ns: i64) -> Device {
        Device { ordinal: None, uuid: Some(uuid.to_owned()), busy_ns }
    }

    /// Shares, of processes that ran on these devices for so long of a second, and of devices that did.
    fn of(processes: &[(&str, i64)], devices: &[(&str, i64)]) -> Vec<f64> {
        let at = |seconds: i64| Snapshot {
            at_ns: seconds * 1_000_000_000,
            processes: processes
                .iter()
                .zip(0..)
                .map(|((uuid, ms), process_id)| {
                    let devices = vec![device(uuid, seconds * ms * 1_000_000)];
                    let gpu = Some(Gpu { observed_ns: seconds * 1_000_000_000, devices });
                    Process { process_id, gpu, ..Process::default() }
                })
                .collect(),
            devices: devices.iter().map(|(uuid, ms)| device(uuid, seconds * ms * 1_000_000)).collect(),
            ..Snapshot::default()
        };
        let mut history = History::default();
        history.add(at(1));
        history.add(at(2));
        let now = history.last().expect("two were added");
        let used: Vec<_> = now.processes.iter().map(|one| (one, history.gpu_busy(one).expect("it is known"))).collect();
        shares(&history, &used).into_iter().map(|share| (share * 1000.0).round() / 1000.0).collect()
    }

    #[test]
    fn a_device_that_processes_share_is_one() {
        assert_eq!(of(&[("GPU-a", 680), ("GPU-a", 680)], &[("GPU-a", 990)]), [0.99]);
        assert_eq!(
            of(&[("GPU-a", 680), ("GPU-b", 200)], &[("GPU-a", 990), ("GPU-b", 1)]),
            [0.68, 0.2],
            "none is shared"
        );
        // What the session added up is too little, where rows of one come after those of the other; and is not known of some.
        assert_eq!(of(&[("GPU-a", 600), ("GPU-a", 300)], &[("GPU-a", 500)]), [0.6]);
        assert_eq!(of(&[("GPU-a", 300), ("GPU-a", 300)], &[]), [0.6]);
        assert_eq!(of(&[("GPU-a", 100), ("GPU-a", 100)], &[("GPU-a", 900)]), [0.2]);
    }
}
