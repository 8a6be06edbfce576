//! Processes and their threads.

use super::columns::*;
use super::{Column, Table, TableId};

pub(super) const PROCESSES: Table = Table {
id: TableId::Processes,
name: "processes",
meaning: "a process image: from fork or exec to exit or the next exec",
columns: &[
    PROCESS,
    PID,
    Column::new("parent_pid", I32, Plain, NONE, "process id of the parent at the start; 0 when not known"),
    Column::new("host", Text, Dictionary, NONE, "host on which it ran"),
    Column::new(
        "rank",
        I32,
        Plain,
        NONE,
        "rank in a distributed run (RANK, OMPI_COMM_WORLD_RANK, PMI_RANK, SLURM_PROCID), else in the largest NCCL communicator",
    )
    .optional(),
    Column::new(
        "local_rank",
        I32,
        Plain,
        NONE,
        "rank among the processes of its host (LOCAL_RANK, OMPI_COMM_WORLD_LOCAL_RANK, MPI_LOCALRANKID, SLURM_LOCALID)",
    )
    .optional(),
    Column::new(
        "world_size",
        I32,
        Plain,
        NONE,
        "number of ranks (WORLD_SIZE, OMPI_COMM_WORLD_SIZE, PMI_SIZE, SLURM_NTASKS), else of the communicator; null without a rank",
    )
    .optional(),
    Column::new(
        "visible_devices",
        Text,
        Dictionary,
        NONE,
        "CUDA_VISIBLE_DEVICES when the process started; null when it was not set",
    )
    .optional(),
    Column::new("exe", Text, Dictionary, NONE, "path of the executable; empty when it could not be read"),
    Column::new("command", Text, Dictionary, NONE, "arguments, quoted as for a shell"),
    Column::new("origin", Text, Dictionary, NONE, "exec, or fork: a copy of its parent that has not called exec"),
    START.means("when tracing of this image began"),
    Column::new("end_ns", I64, Plain, EPOCH, "when it ended; null when it was still running at the end of the trace")
        .optional(),
    Column::new("exit_code", I32, Plain, NONE, "exit code; null when a signal ended it, when exec made it another image, and when it is not known").optional(),
    Column::new("exit_signal", I32, Plain, NONE, "signal that ended it; null when none did; not known on Linux before 6.15 when its parent waited for it faster than we looked")
        .optional(),
    Column::new(
        "driver_version",
        I32,
        Plain,
        NONE,
        "what cuDriverGetVersion says, 13000 for CUDA 13.0; null when cuInit was not called or failed",
    )
    .optional(),
    Column::new(
        "runtime_version",
        I32,
        Plain,
        NONE,
        "highest CUDA version for which a client asked cuGetProcAddress, which is what its newest runtime was built for; null when none asked",
    )
    .optional(),
    Column::new(
        "routes",
        Text,
        Dictionary,
        NONE,
        "how the program looked hooked functions up: dlsym, dlvsym, procaddr, injection, export; null when it only links them or calls none",
    )
    .optional(),
    Column::new(
        "uncovered",
        Text,
        Dictionary,
        NONE,
        "driver functions that it fetched and that no hook covers, separated by commas: their calls are missing; null when there are none",
    )
    .optional(),
    Column::new(
        "past_symbols",
        Text,
        Dictionary,
        NONE,
        "libraries opened RTLD_DEEPBIND or by dlmopen, separated by commas: calls that they make themselves may be missing; null when there are none",
    )
    .optional(),
    Column::new("traced", Bool, Plain, NONE, "whether its events are in the trace"),
    Column::new("reason", Text, Dictionary, NONE, "why it was not traced, or what of it was not").optional(),
    Column::new("events", I64, Plain, NONE, "events recorded"),
    Column::new("malloc_mode", Text, Dictionary, NONE, "off, sample:BYTES or full"),
    Column::new(
        "event_cost_ns",
        F64,
        Plain,
        NS,
        "time that recording one driver event takes in this process, measured at its start; null when not measured",
    )
    .optional(),
],
};

pub(super) const THREADS: Table = Table {
    id: TableId::Threads,
    name: "threads",
    meaning: "a thread that recorded or called something hooked",
    columns: &[
        PROCESS,
        PID,
        TID,
        Column::new("name", Text, Dictionary, NONE, "the name that the program gave it with NVTX, else the kernel's; null when the thread ended before it was read").optional(),
        START.means("when the thread first called something hooked"),
        Column::new("end_ns", I64, Plain, EPOCH, "when it ended; null when it was running to the end of its process")
            .optional(),
        Column::new("events", I64, Plain, NONE, "events recorded; of a thread that a killed collector read too, at most: what it had counted when the next one came"),
    ],
};
