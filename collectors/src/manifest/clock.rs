//! What the manifest says of the clock of the events.

use serde::{Deserialize, Serialize};

/// The clock of the events.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Clock {
    /// `monotonic`, `tsc`, `cntvct`, or `imported`: that of the file which was read.
    pub kind: String,
    /// Moments on all three clocks over the run, in order.
    pub pairs: Vec<Pair>,
    /// Moments that were not on the line of the others and were left out.
    pub rejected: u64,
    /// How far times of events may be off CLOCK_MONOTONIC, ns: the most by which the line was off when the clocks were compared again,
    /// and half of what the slowest comparison took; none: there is nothing to convert, or it was not noted.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub error_ns: Option<u64>,
    /// Of an import: begins and ends of times without any event that are far longer than all that happened: pauses, or jumps.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub pauses: Vec<(i64, i64)>,
    /// Of an import: so far time runs back in a thread, ns, where it does.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub back_ns: Option<i64>,
}

/// One moment on three clocks.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Pair {
    /// The processor's counter.
    pub ticks: u64,
    /// CLOCK_MONOTONIC, ns.
    pub monotonic_ns: u64,
    /// CLOCK_REALTIME, ns since the Unix epoch.
    pub realtime_ns: u64,
}
