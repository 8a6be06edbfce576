//! The tables of Nsight Systems' sqlite exports (schema 3) that are written, with their columns and enumerations.
//!
//! A table has every column that nsys gives it, for queries name them; those that nothing is known for stay null.

/// A table.
pub(super) struct Sheet {
    /// Its name.
    pub(super) name: &'static str,
    /// Columns that rows have, in the order in which they are given; INTEGER unless a type follows the name.
    pub(super) filled: &'static [&'static str],
    /// Columns that are null in every row.
    pub(super) empty: &'static [&'static str],
    /// Its primary key; a row whose key is there already is left out. Empty for none.
    pub(super) key: &'static str,
}

/// Texts behind ids.
pub(super) const STRINGS: Sheet = Sheet { name: "StringIds", filled: &["id", "value TEXT"], empty: &[], key: "id" };

/// Calls.
pub(super) const RUNTIME: Sheet = Sheet {
    name: "CUPTI_ACTIVITY_KIND_RUNTIME",
    filled: &["start", "end", "eventClass", "globalTid", "correlationId", "nameId", "returnValue", "callchainId"],
    empty: &[],
    key: "",
};

/// What calls waited for.
pub(super) const SYNCHRONIZATION: Sheet = Sheet {
    name: "CUPTI_ACTIVITY_KIND_SYNCHRONIZATION",
    filled: &["start", "end", "deviceId", "contextId", "streamId", "correlationId", "globalPid", "syncType", "eventId"],
    empty: &["greenContextId"],
    key: "",
};

/// Memory that was taken and given back.
pub(super) const MEMORY_USAGE: Sheet = Sheet {
    name: "CUDA_GPU_MEMORY_USAGE_EVENTS",
    filled: &[
        "start",
        "globalPid",
        "deviceId",
        "contextId",
        "address",
        "bytes",
        "memKind",
        "memoryOperationType",
        "correlationId",
        "streamId",
    ],
    empty: &[
        "pc",
        "name TEXT",
        "localMemoryPoolAddress",
        "localMemoryPoolReleaseThreshold",
        "localMemoryPoolSize",
        "localMemoryPoolUtilizedSize",
        "importedMemoryPoolAddress",
        "importedMemoryPoolProcessId",
    ],
    key: "",
};

/// Kernels.
pub(super) const KERNEL: Sheet = Sheet {
    name: "CUPTI_ACTIVITY_KIND_KERNEL",
    filled: &[
        "start",
        "end",
        "deviceId",
        "contextId",
        "streamId",
        "correlationId",
        "globalPid",
        "graphNodeId",
        "demangledName",
        "shortName",
        "mangledName",
        "registersPerThread",
        "staticSharedMemory",
        "dynamicSharedMemory",
        "gridX",
        "gridY",
        "gridZ",
        "blockX",
        "blockY",
        "blockZ",
    ],
    empty: &[
        "greenContextId",
        "launchType",
        "cacheConfig",
        "localMemoryPerThread",
        "localMemoryTotal",
        "gridId",
        "sharedMemoryExecuted",
        "sharedMemoryLimitConfig",
    ],
    key: "",
};

/// Launches of graphs that are known as a whole only.
pub(super) const GRAPH_TRACE: Sheet = Sheet {
    name: "CUPTI_ACTIVITY_KIND_GRAPH_TRACE",
    filled: &["start", "end", "deviceId", "contextId", "streamId", "correlationId", "globalPid"],
    empty: &["greenContextId", "graphId", "graphExecId"],
    key: "",
};

/// Copies.
pub(super) const MEMCPY: Sheet = Sheet {
    name: "CUPTI_ACTIVITY_KIND_MEMCPY",
    filled: &[
        "start",
        "end",
        "deviceId",
        "contextId",
        "streamId",
        "correlationId",
        "globalPid",
        "graphNodeId",
        "bytes",
        "copyKind",
        "srcKind",
        "dstKind",
    ],
    empty: &[
        "greenContextId",
        "deprecatedSrcId",
        "srcDeviceId",
        "srcContextId",
        "dstDeviceId",
        "dstContextId",
        "migrationCause",
        "virtualAddress",
    ],
    key: "",
};

/// Sets.
pub(super) const MEMSET: Sheet = Sheet {
    name: "CUPTI_ACTIVITY_KIND_MEMSET",
    filled: &[
        "start",
        "end",
        "deviceId",
        "contextId",
        "streamId",
        "correlationId",
        "globalPid",
        "graphNodeId",
        "bytes",
        "memKind",
    ],
    empty: &["greenContextId", "value"],
    key: "",
};

/// Ranges, moments, and the names of their domains and categories.
pub(super) const NVTX: Sheet = Sheet {
    name: "NVTX_EVENTS",
    filled: &[
        "start",
        "end",
        "eventType",
        "rangeId",
        "category",
        "color",
        "text TEXT",
        "globalTid",
        "textId",
        "domainId",
        "int64Value",
        "doubleValue REAL",
    ],
    empty: &[
        "endGlobalTid",
        "uint64Value",
        "uint32Value",
        "int32Value",
        "floatValue REAL",
        "jsonTextId",
        "jsonText TEXT",
        "binaryData TEXT",
    ],
    key: "",
};

/// Waits for the operating system.
pub(super) const OSRT: Sheet = Sheet {
    name: "OSRT_API",
    filled: &["start", "end", "eventClass", "globalTid", "nameId", "returnValue", "callchainId"],
    empty: &["nestingLevel"],
    key: "",
};

/// Frames of the stacks of calls.
pub(super) const CUDA_CALLCHAINS: Sheet = callchains("CUDA_CALLCHAINS");
/// Frames of the stacks of waits.
pub(super) const OSRT_CALLCHAINS: Sheet = callchains("OSRT_CALLCHAINS");

const fn callchains(name: &'static str) -> Sheet {
    Sheet {
        name,
        filled: &["id", "symbol", "module", "unresolved", "originalIP", "stackDepth"],
        empty: &["kernelMode", "thumbCode", "specialEntry", "unwindMethod"],
        key: "id, stackDepth",
    }
}

/// Processes.
pub(super) const PROCESSES: Sheet =
    Sheet { name: "PROCESSES", filled: &["globalPid", "pid", "name TEXT"], empty: &[], key: "" };

/// Threads that have names.
pub(super) const THREADS: Sheet =
    Sheet { name: "ThreadNames", filled: &["nameId", "globalTid"], empty: &["priority"], key: "" };

/// Devices.
pub(super) const GPU: Sheet = Sheet {
    name: "TARGET_INFO_GPU",
    filled: &[
        "id",
        "name TEXT",
        "busLocation TEXT",
        "l2CacheSize",
        "totalMemory",
        "memoryBandwidth",
        "clockRate",
        "smCount",
        "uuid TEXT",
        "cuDevice",
        "computeMajor",
        "computeMinor",
    ],
    empty: &[
        "vmId",
        "isDiscrete",
        "pwGpuId",
        "luid",
        "chipName TEXT",
        "ctxswDevPath TEXT",
        "ctrlDevPath TEXT",
        "revision",
        "nodeMask",
        "constantMemory",
        "maxIPC",
        "maxRegistersPerBlock",
        "maxShmemPerBlock",
        "maxShmemPerBlockOptin",
        "maxShmemPerSm",
        "maxRegistersPerSm",
        "threadsPerWarp",
        "asyncEngines",
        "maxWarpsPerSm",
        "maxBlocksPerSm",
        "maxThreadsPerBlock",
        "maxBlockDimX",
        "maxBlockDimY",
        "maxBlockDimZ",
        "maxGridDimX",
        "maxGridDimY",
        "maxGridDimZ",
        "smMajor",
        "smMinor",
    ],
    key: "",
};

/// Which device a process knows by which ordinal.
pub(super) const CUDA_DEVICE: Sheet = Sheet {
    name: "TARGET_INFO_CUDA_DEVICE",
    filled: &["gpuId", "cudaId", "pid", "uuid TEXT", "numMultiprocessors"],
    empty: &[],
    key: "",
};

/// When the times begin.
pub(super) const SESSION_START: Sheet = Sheet {
    name: "TARGET_INFO_SESSION_START_TIME",
    filled: &["utcEpochNs"],
    empty: &["utcTime TEXT", "localTime TEXT"],
    key: "",
};

/// Hosts.
pub(super) const SYSTEM_ENV: Sheet = Sheet {
    name: "TARGET_INFO_SYSTEM_ENV",
    filled: &["globalVid", "devStateName TEXT", "name TEXT", "nameEnum", "value TEXT"],
    empty: &[],
    key: "",
};

/// How long everything took.
pub(super) const ANALYSIS_DETAILS: Sheet = Sheet {
    name: "ANALYSIS_DETAILS",
    filled: &["globalVid", "duration", "startTime", "stopTime"],
    empty: &[],
    key: "",
};

/// What wrote the file.
pub(super) const META: Sheet =
    Sheet { name: "META_DATA_EXPORT", filled: &["name TEXT", "value TEXT"], empty: &[], key: "" };

/// An enumeration: its table, and id, name and label of each value.
pub(super) type Enumeration = (&'static str, &'static [(i64, &'static str, &'static str)]);

/// Those that are written.
pub(super) const ENUMERATIONS: &[Enumeration] = &[
    (
        "ENUM_CUDA_DEV_MEM_EVENT_OPER",
        &[
            (0, "CUDA_DEV_MEM_EVENT_OPR_ALLOCATION", "Allocation"),
            (1, "CUDA_DEV_MEM_EVENT_OPR_DEALLOCATION", "Deallocation"),
        ],
    ),
    (
        "ENUM_CUDA_MEMCPY_OPER",
        &[
            (0, "CUDA_MEMCPY_KIND_UNKNOWN", "Unknown"),
            (1, "CUDA_MEMCPY_KIND_HTOD", "Host-to-Device"),
            (2, "CUDA_MEMCPY_KIND_DTOH", "Device-to-Host"),
            (3, "CUDA_MEMCPY_KIND_HTOA", "Host-to-Array"),
            (4, "CUDA_MEMCPY_KIND_ATOH", "Array-to-Host"),
            (5, "CUDA_MEMCPY_KIND_ATOA", "Array-to-Array"),
            (6, "CUDA_MEMCPY_KIND_ATOD", "Array-to-Device"),
            (7, "CUDA_MEMCPY_KIND_DTOA", "Device-to-Array"),
            (8, "CUDA_MEMCPY_KIND_DTOD", "Device-to-Device"),
            (9, "CUDA_MEMCPY_KIND_HTOH", "Host-to-Host"),
            (10, "CUDA_MEMCPY_KIND_PTOP", "Peer-to-Peer"),
        ],
    ),
    (
        "ENUM_CUDA_MEM_KIND",
        &[
            (0, "CUDA_MEMOPR_MEMORY_KIND_PAGEABLE", "Pageable"),
            (1, "CUDA_MEMOPR_MEMORY_KIND_PINNED", "Pinned"),
            (2, "CUDA_MEMOPR_MEMORY_KIND_DEVICE", "Device"),
            (3, "CUDA_MEMOPR_MEMORY_KIND_ARRAY", "Array"),
            (4, "CUDA_MEMOPR_MEMORY_KIND_MANAGED", "Managed"),
            (7, "CUDA_MEMOPR_MEMORY_KIND_UNKNOWN", "Unknown"),
        ],
    ),
    (
        "ENUM_CUPTI_SYNC_TYPE",
        &[
            (1, "CUPTI_ACTIVITY_SYNCHRONIZATION_TYPE_EVENT_SYNCHRONIZE", "Event sync"),
            (2, "CUPTI_ACTIVITY_SYNCHRONIZATION_TYPE_STREAM_WAIT_EVENT", "Stream wait sync"),
            (3, "CUPTI_ACTIVITY_SYNCHRONIZATION_TYPE_STREAM_SYNCHRONIZE", "Stream sync"),
            (4, "CUPTI_ACTIVITY_SYNCHRONIZATION_TYPE_CONTEXT_SYNCHRONIZE", "Context sync"),
        ],
    ),
    (
        "ENUM_NSYS_EVENT_CLASS",
        &[
            (0, "TRACE_PROCESS_EVENT_CUDA_RUNTIME", "CUDA runtime"),
            (1, "TRACE_PROCESS_EVENT_CUDA_DRIVER", "CUDA driver"),
            (27, "TRACE_PROCESS_EVENT_OS_RUNTIME", "OSRT runtime"),
        ],
    ),
    (
        "ENUM_NSYS_EVENT_TYPE",
        &[
            (33, "NvtxCategory", "NvtxCategory"),
            (34, "NvtxMark", "NvtxMark"),
            (59, "NvtxPushPopRange", "NvtxPushPopRange"),
            (60, "NvtxStartEndRange", "NvtxStartEndRange"),
            (75, "NvtxDomainCreate", "NvtxDomainCreate"),
        ],
    ),
];
