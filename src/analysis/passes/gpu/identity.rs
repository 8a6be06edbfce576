//! Which device a process's ordinal is, and which kernels are NCCL's.

use gputrace_collectors::schema::TableId;
use rustc_hash::{FxHashMap, FxHashSet};

use crate::trace::{Filter, Process, Trace, Want};

/// Prefixes of the names of kernels that communicate (as HTA has them, and NVSHMEM's).
const COMMUNICATION: [&str; 3] = ["ncclDevKernel", "ncclKernel", "nvshmem"];

/// Ids of the names of kernels that communicate.
pub(crate) fn communication(trace: &Trace) -> FxHashSet<i64> {
    let mut ids = FxHashSet::default();
    trace.scan(&[Want { table: TableId::Names, columns: &["name_id", "name"] }], &Filter::default(), &mut |rows| {
        let names = rows.texts("name");
        for (row, id) in rows.i64("name_id").iter().enumerate() {
            if COMMUNICATION.iter().any(|prefix| names.get(row).starts_with(prefix)) {
                ids.insert(*id);
            }
        }
    });
    ids
}

/// A device of the machine: the same one for every process of a launcher that uses it.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub(super) struct Identity {
    launcher: usize,
    host: String,
    /// UUID, or the number that CUDA_VISIBLE_DEVICES gives the ordinal, or the ordinal.
    device: String,
}

/// How the processes of a trace name their devices.
#[derive(Debug, Default)]
pub(super) struct Names(FxHashMap<i64, (String, Vec<String>, Vec<String>)>);

impl Names {
    pub(super) fn new(processes: &[Process]) -> Names {
        let of = |process: &Process| {
            let uuids = process.manifest.as_ref().map_or_else(Vec::new, |known| known.devices.clone());
            let visible = process.visible_devices.as_deref().unwrap_or_default().split(',');
            let visible = visible.map(|one| one.trim().to_owned()).filter(|one| !one.is_empty()).collect();
            (process.process_id, (process.host.clone(), uuids, visible))
        };
        Names(processes.iter().map(of).collect())
    }

    pub(super) fn identity(&self, launcher: usize, process_id: i64, ordinal: i32) -> Identity {
        let Some((host, uuids, visible)) = self.0.get(&process_id) else {
            return Identity { launcher, host: String::new(), device: ordinal.to_string() };
        };
        let index = usize::try_from(ordinal).unwrap_or(usize::MAX);
        let device = uuids.get(index).or(visible.get(index)).cloned().unwrap_or_else(|| ordinal.to_string());
        Identity { launcher, host: host.clone(), device }
    }
}
