//! Waits for the operating system.

use super::columns::*;
use super::{Column, Table, TableId};

pub(super) const OS_WAITS: Table = Table {
    id: TableId::OsWaits,
    name: "os_waits",
    meaning: "a call outside the driver that waited for the operating system longer than --os-over",
    columns: &[
        START,
        Column::new("wait_ns", I64, Delta, NS, "time inside the call"),
        PROCESS,
        PID,
        TID,
        API_ID,
        Column::new(
            "kind",
            Text,
            Dictionary,
            NONE,
            "lock, condition, semaphore, join (the end of a thread), poll (one of several descriptors), read (or receive, \
             accept), write (or send, connect), sync (data on its way to the disk), sleep, child (a process), futex",
        ),
        Column::new("address", I64, Dictionary, NONE, "address of the lock, condition, semaphore, thread or memory")
            .optional(),
        Column::new(
            "fd",
            I32,
            Dictionary,
            NONE,
            "descriptor of the file, pipe or socket; null where there is none, or a list of more than one",
        )
        .optional(),
        Column::new(
            "bytes",
            I64,
            Dictionary,
            BYTES,
            "bytes read or written; null for other kinds, and when the call failed",
        )
        .optional(),
        Column::new(
            "errno",
            I32,
            Dictionary,
            NONE,
            "error number with which the call failed, such as ETIMEDOUT; 0 when it did not",
        ),
        STACK,
    ],
};
