//! What the manifest says of asking CUPTI when the GPU ran what.

use serde::{Deserialize, Serialize};

/// What came of asking CUPTI what the GPU did.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct GpuTime {
    /// Path of CUPTI's library.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub library: Option<String>,
    /// Its version, as it gives it itself (CUPTI_API_VERSION).
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub version: Option<u64>,
    /// Why there are no records, or no more.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub refused: Option<String>,
    /// Stretches of time in which records were on.
    pub windows: u64,
    /// How long they were on, ns.
    pub on_ns: i64,
    /// Kernels, copies and sets that were told of.
    pub records: u64,
    /// Those whose call was found.
    pub joined: u64,
    /// Records that were lost: CUPTI dropped them, or the ring had no room.
    pub dropped: u64,
    /// Records without times; they have no rows.
    pub without_time: u64,
    /// Work that seemed to begin before its call did.
    pub early: u64,
    /// The most by which it did, ns.
    pub earliest_ns: i64,
    /// Functions of CUPTI with which others began to use it: no records meanwhile.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub aside: Vec<String>,
}
