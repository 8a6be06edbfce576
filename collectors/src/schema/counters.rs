//! What devices, processes and control groups were seen doing from outside.

use super::columns::*;
use super::{Column, Table, TableId};

pub(super) const COUNTERS: Table = Table {
    id: TableId::Counters,
    name: "counters",
    meaning: "a value of a device, a process or its control group, read by gputrace from outside while the command ran; `gputrace \
              schema counters` lists them all",
    columns: &[
        START.means("when it was read; of a value over a stretch of time, when that began"),
        Column::new(
            "interval_ns",
            I64,
            Delta,
            NS,
            "how long the stretch is of which it tells: from the reading before to this one; null for a value of one moment",
        )
        .optional(),
        PROCESS.means("process image of which it tells; null for a device's own").optional(),
        PID.means("its process id; null for a device's own").optional(),
        Column::new(
            "device",
            Text,
            Dictionary,
            NONE,
            "UUID of the device, as in the manifest's devices; null for a process's own",
        )
        .optional(),
        Column::new("source", Text, Dictionary, NONE, "where it was read: nvml, gpm, proc, cgroup or perf; malloc: what the process says of it"),
        Column::new("name", Text, Dictionary, NONE, "what was read"),
        Column::new("unit", Text, Dictionary, NONE, "unit of the value; empty for counts, numbers and codes"),
        Column::new("value", F64, Plain, NONE, "the value; of a count what was added in the stretch"),
    ],
};
