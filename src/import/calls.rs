//! Which table a CUDA function's call belongs to, by its name: the classes that recording gives the same functions.
//!
//! Names are the runtime's (`cudaMemcpyAsync`) or the driver's (`cuMemcpyHtoDAsync_v2`); profilers add versions to them.

/// What a call is, with the texts of its table's columns.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(crate) enum Kind {
    /// A kernel is given to the GPU.
    Launch,
    /// A graph.
    Graph,
    /// A function that the host runs.
    HostFunction,
    /// A wait or question: `syncs.kind`.
    Sync(&'static str),
    /// A copy.
    Copy { queued: bool },
    /// A set.
    Set { queued: bool },
    /// Memory is taken: `device_memory.kind`.
    Alloc(&'static str),
    /// Memory is given back.
    Free(&'static str),
    /// Code is loaded.
    Module,
    /// Anything else.
    Api,
}

impl Kind {
    /// The class of such events, as manifests name it.
    pub(crate) fn class(self) -> &'static str {
        match self {
            Kind::Launch | Kind::Graph | Kind::HostFunction => "launch",
            Kind::Sync(_) => "sync",
            Kind::Copy { .. } | Kind::Set { .. } => "transfer",
            Kind::Alloc(_) => "alloc",
            Kind::Free(_) => "free",
            Kind::Module => "module",
            Kind::Api => "api",
        }
    }

    /// Of the function with this name.
    pub(crate) fn of(function: &str) -> Kind {
        let name = function.trim_start_matches('_');
        let Some(name) = ["cuda", "cu"].iter().find_map(|prefix| name.strip_prefix(prefix)) else { return Kind::Api };
        let starts = |prefixes: &[&str]| prefixes.iter().any(|prefix| name.starts_with(prefix));
        let queued = name.contains("Async");
        match name {
            _ if name.starts_with("GraphLaunch") => Kind::Graph,
            _ if name.starts_with("LaunchHostFunc") => Kind::HostFunction,
            _ if name.starts_with("Launch") => Kind::Launch,
            _ if name.contains("Synchronize") => Kind::Sync(match name {
                _ if name.starts_with("Stream") => "stream",
                _ if name.starts_with("Event") => "event",
                _ => "context",
            }),
            _ if starts(&["StreamQuery", "EventQuery"]) => Kind::Sync("query"),
            _ if starts(&["StreamWait", "CtxWaitEvent", "StreamBatchMemOp"]) => Kind::Sync("stream_wait"),
            _ if name.starts_with("Memcpy") => Kind::Copy { queued },
            _ if name.starts_with("Memset") => Kind::Set { queued },
            _ if starts(&["Module", "Library", "Link", "Register", "FuncLoad", "KernelGetFunction"]) => Kind::Module,
            _ => memory(name, queued).unwrap_or(Kind::Api),
        }
    }
}

/// Of a function that takes or gives back memory; the name lacks its prefix.
fn memory(name: &str, queued: bool) -> Option<Kind> {
    // The first prefix that fits counts.
    const ALLOCS: [(&str, &str); 15] = [
        ("MallocHost", "pinned"),
        ("MallocManaged", "managed"),
        ("MallocArray", "array"),
        ("Malloc3DArray", "array"),
        ("MallocMipmappedArray", "array"),
        ("Malloc", "device"),
        ("MemAllocHost", "pinned"),
        ("MemAllocManaged", "managed"),
        ("MemAlloc", "device"),
        ("HostAlloc", "pinned"),
        ("MemHostAlloc", "pinned"),
        ("HostRegister", "registered"),
        ("MemHostRegister", "registered"),
        ("MemCreate", "virtual"),
        ("MemMap", "virtual"),
    ];
    const FREES: [(&str, &str); 9] = [
        ("FreeHost", "pinned"),
        ("FreeArray", "array"),
        ("FreeMipmappedArray", "array"),
        ("Free", "device"),
        ("MemFreeHost", "pinned"),
        ("MemFree", "device"),
        ("HostUnregister", "registered"),
        ("MemHostUnregister", "registered"),
        ("MemRelease", "virtual"),
    ];
    let found = |list: &[(&str, &'static str)]| {
        let kind = list.iter().find(|(prefix, _)| name.starts_with(prefix))?.1;
        Some(if queued && kind == "device" { "async" } else { kind })
    };
    let pool = name.contains("FromPool");
    match (found(&ALLOCS), found(&FREES)) {
        (Some(_), _) if pool => Some(Kind::Alloc("async")),
        (Some(kind), _) => Some(Kind::Alloc(kind)),
        (None, Some(kind)) => Some(Kind::Free(kind)),
        (None, None) if name.starts_with("MemUnmap") => Some(Kind::Free("virtual")),
        (None, None) if name.starts_with("ArrayCreate") || name.starts_with("Array3DCreate") => {
            Some(Kind::Alloc("array"))
        }
        (None, None) if name.starts_with("ArrayDestroy") => Some(Kind::Free("array")),
        (None, None) => None,
    }
}

/// `Memcpy HtoD (Pinned -> Device)`, as CUPTI's users name a copy: its direction, and the memory of both ends.
pub(crate) fn copy_of(name: &str) -> (&'static str, Option<&'static str>, Option<&'static str>) {
    let direction = name.split(' ').nth(1).unwrap_or_default();
    let ends = name.split_once('(').map_or("", |(_, rest)| rest.trim_end_matches(')'));
    let (from, to) = ends.split_once(" -> ").unwrap_or((ends, ""));
    (direction_of(direction), memory_of(from), memory_of(to))
}

/// A direction as `transfers.direction` has it.
pub(crate) fn direction_of(text: &str) -> &'static str {
    const KNOWN: [&str; 10] = ["HtoH", "HtoD", "HtoA", "DtoH", "DtoD", "DtoA", "AtoH", "AtoD", "AtoA", "PtoP"];
    KNOWN.into_iter().find(|known| *known == text).unwrap_or("unknown")
}

/// A kind of memory as `transfers.src_kind` has it; none when it is not known.
pub(crate) fn memory_of(text: &str) -> Option<&'static str> {
    const KNOWN: [&str; 5] = ["pageable", "pinned", "device", "managed", "array"];
    let text = text.trim().to_ascii_lowercase();
    // `Device Static` and `Managed Static` are the same kinds.
    KNOWN.into_iter().find(|known| text.starts_with(known))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn functions_of_the_runtime_and_the_driver_go_to_the_same_tables() {
        let same = [
            (["cudaLaunchKernel", "cuLaunchKernelEx"], Kind::Launch),
            (["cudaGraphLaunch", "cuGraphLaunch"], Kind::Graph),
            (["cudaLaunchHostFunc", "cuLaunchHostFunc"], Kind::HostFunction),
            (["cudaDeviceSynchronize", "cuCtxSynchronize"], Kind::Sync("context")),
            (["cudaStreamSynchronize", "cuStreamSynchronize_ptsz"], Kind::Sync("stream")),
            (["cudaEventSynchronize", "cuEventSynchronize"], Kind::Sync("event")),
            (["cudaEventQuery", "cuStreamQuery"], Kind::Sync("query")),
            (["cudaStreamWaitEvent", "cuStreamWaitValue32_v2"], Kind::Sync("stream_wait")),
            (["cudaMemcpyAsync", "cuMemcpyHtoDAsync_v2"], Kind::Copy { queued: true }),
            (["cudaMemcpy", "cuMemcpyDtoH_v2"], Kind::Copy { queued: false }),
            (["cudaMemsetAsync", "cuMemsetD8Async"], Kind::Set { queued: true }),
            (["cudaMalloc", "cuMemAlloc_v2"], Kind::Alloc("device")),
            (["cudaMallocAsync", "cuMemAllocFromPoolAsync"], Kind::Alloc("async")),
            (["cudaHostAlloc", "cuMemHostAlloc"], Kind::Alloc("pinned")),
            (["cudaFree", "cuMemFree_v2"], Kind::Free("device")),
            (["cudaFreeAsync", "cuMemFreeAsync"], Kind::Free("async")),
            (["cudaFreeHost", "cuMemFreeHost"], Kind::Free("pinned")),
            (["cuModuleLoadData", "__cudaRegisterFatBinary"], Kind::Module),
            (["cudaGetDevice", "cuMemGetInfo_v2"], Kind::Api),
            (["cudaStreamIsCapturing", "cudaGraphAddMemcpyNode"], Kind::Api),
            (["cudaMemPoolCreate", "hipLaunchKernel"], Kind::Api),
        ];
        for (names, kind) in same {
            names.into_iter().for_each(|name| assert_eq!(Kind::of(name), kind, "{name}"));
        }
    }

    #[test]
    fn a_copys_name_says_where_from_and_where_to() {
        assert_eq!(copy_of("Memcpy HtoD (Pinned -> Device)"), ("HtoD", Some("pinned"), Some("device")));
        assert_eq!(copy_of("Memcpy PtoP (Device -> Device)"), ("PtoP", Some("device"), Some("device")));
        assert_eq!(copy_of("Memcpy DtoD"), ("DtoD", None, None));
        assert_eq!(copy_of("Memset (Device)"), ("unknown", Some("device"), None));
    }
}
