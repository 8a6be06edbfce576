//! Which kernels are NCCL's.

use gputrace_collectors::schema::TableId;
use rustc_hash::FxHashSet;

use crate::trace::{Filter, Trace, Want};

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
