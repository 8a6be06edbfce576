//! Result codes of the driver and of NCCL: which are failures, which stay, and what they are called.

/// CUDA_ERROR_NOT_READY, the answer to a query: what was asked for is not done yet.
pub const NOT_READY: i32 = 600;
/// CUDA_ERROR_DEINITIALIZED, the answer to a call that the end of the process makes when the driver has gone.
pub const DEINITIALIZED: i32 = 4;
/// ncclInProgress: the call goes on in the background.
pub const IN_PROGRESS: i32 = 7;

/// Whether a result other than 0 is an answer and no failure.
pub fn is_answer(code: i32, nccl: bool) -> bool {
    code == if nccl { IN_PROGRESS } else { NOT_READY }
}

/// Whether a call failed.
pub fn has_failed(code: i32, nccl: bool) -> bool {
    code != 0 && !is_answer(code, nccl)
}

/// Codes after which every later call of the context fails, whatever it is about: only a new process helps. What the call that
/// returned one first was about says little; work that was given before it failed.
const STICKY: [i32; 13] = [214, 220, 226, 700, 702, 710, 714, 715, 716, 717, 718, 719, 721];

/// Whether a failure of the driver stays: every later call of its context fails as well.
pub fn is_sticky(code: i32, nccl: bool) -> bool {
    !nccl && STICKY.contains(&code)
}

/// Names of `CUresult`, sorted by code, without their `CUDA_ERROR_`.
const DRIVER: &[(i32, &str)] = &[
    (1, "INVALID_VALUE"),
    (2, "OUT_OF_MEMORY"),
    (3, "NOT_INITIALIZED"),
    (4, "DEINITIALIZED"),
    (5, "PROFILER_DISABLED"),
    (6, "PROFILER_NOT_INITIALIZED"),
    (7, "PROFILER_ALREADY_STARTED"),
    (8, "PROFILER_ALREADY_STOPPED"),
    (34, "STUB_LIBRARY"),
    (36, "CALL_REQUIRES_NEWER_DRIVER"),
    (46, "DEVICE_UNAVAILABLE"),
    (100, "NO_DEVICE"),
    (101, "INVALID_DEVICE"),
    (102, "DEVICE_NOT_LICENSED"),
    (200, "INVALID_IMAGE"),
    (201, "INVALID_CONTEXT"),
    (202, "CONTEXT_ALREADY_CURRENT"),
    (205, "MAP_FAILED"),
    (206, "UNMAP_FAILED"),
    (207, "ARRAY_IS_MAPPED"),
    (208, "ALREADY_MAPPED"),
    (209, "NO_BINARY_FOR_GPU"),
    (210, "ALREADY_ACQUIRED"),
    (211, "NOT_MAPPED"),
    (212, "NOT_MAPPED_AS_ARRAY"),
    (213, "NOT_MAPPED_AS_POINTER"),
    (214, "ECC_UNCORRECTABLE"),
    (215, "UNSUPPORTED_LIMIT"),
    (216, "CONTEXT_ALREADY_IN_USE"),
    (217, "PEER_ACCESS_UNSUPPORTED"),
    (218, "INVALID_PTX"),
    (219, "INVALID_GRAPHICS_CONTEXT"),
    (220, "NVLINK_UNCORRECTABLE"),
    (221, "JIT_COMPILER_NOT_FOUND"),
    (222, "UNSUPPORTED_PTX_VERSION"),
    (223, "JIT_COMPILATION_DISABLED"),
    (224, "UNSUPPORTED_EXEC_AFFINITY"),
    (225, "UNSUPPORTED_DEVSIDE_SYNC"),
    (226, "CONTAINED"),
    (300, "INVALID_SOURCE"),
    (301, "FILE_NOT_FOUND"),
    (302, "SHARED_OBJECT_SYMBOL_NOT_FOUND"),
    (303, "SHARED_OBJECT_INIT_FAILED"),
    (304, "OPERATING_SYSTEM"),
    (400, "INVALID_HANDLE"),
    (401, "ILLEGAL_STATE"),
    (402, "LOSSY_QUERY"),
    (500, "NOT_FOUND"),
    (600, "NOT_READY"),
    (700, "ILLEGAL_ADDRESS"),
    (701, "LAUNCH_OUT_OF_RESOURCES"),
    (702, "LAUNCH_TIMEOUT"),
    (703, "LAUNCH_INCOMPATIBLE_TEXTURING"),
    (704, "PEER_ACCESS_ALREADY_ENABLED"),
    (705, "PEER_ACCESS_NOT_ENABLED"),
    (708, "PRIMARY_CONTEXT_ACTIVE"),
    (709, "CONTEXT_IS_DESTROYED"),
    (710, "ASSERT"),
    (711, "TOO_MANY_PEERS"),
    (712, "HOST_MEMORY_ALREADY_REGISTERED"),
    (713, "HOST_MEMORY_NOT_REGISTERED"),
    (714, "HARDWARE_STACK_ERROR"),
    (715, "ILLEGAL_INSTRUCTION"),
    (716, "MISALIGNED_ADDRESS"),
    (717, "INVALID_ADDRESS_SPACE"),
    (718, "INVALID_PC"),
    (719, "LAUNCH_FAILED"),
    (720, "COOPERATIVE_LAUNCH_TOO_LARGE"),
    (721, "TENSOR_MEMORY_LEAK"),
    (800, "NOT_PERMITTED"),
    (801, "NOT_SUPPORTED"),
    (802, "SYSTEM_NOT_READY"),
    (803, "SYSTEM_DRIVER_MISMATCH"),
    (804, "COMPAT_NOT_SUPPORTED_ON_DEVICE"),
    (805, "MPS_CONNECTION_FAILED"),
    (806, "MPS_RPC_FAILURE"),
    (807, "MPS_SERVER_NOT_READY"),
    (808, "MPS_MAX_CLIENTS_REACHED"),
    (809, "MPS_MAX_CONNECTIONS_REACHED"),
    (810, "MPS_CLIENT_TERMINATED"),
    (811, "CDP_NOT_SUPPORTED"),
    (812, "CDP_VERSION_MISMATCH"),
    (900, "STREAM_CAPTURE_UNSUPPORTED"),
    (901, "STREAM_CAPTURE_INVALIDATED"),
    (902, "STREAM_CAPTURE_MERGE"),
    (903, "STREAM_CAPTURE_UNMATCHED"),
    (904, "STREAM_CAPTURE_UNJOINED"),
    (905, "STREAM_CAPTURE_ISOLATION"),
    (906, "STREAM_CAPTURE_IMPLICIT"),
    (907, "CAPTURED_EVENT"),
    (908, "STREAM_CAPTURE_WRONG_THREAD"),
    (909, "TIMEOUT"),
    (910, "GRAPH_EXEC_UPDATE_FAILURE"),
    (911, "EXTERNAL_DEVICE"),
    (912, "INVALID_CLUSTER_SIZE"),
    (913, "FUNCTION_NOT_LOADED"),
    (914, "INVALID_RESOURCE_TYPE"),
    (915, "INVALID_RESOURCE_CONFIGURATION"),
    (916, "KEY_ROTATION"),
    (999, "UNKNOWN"),
];

/// Names of `ncclResult_t`, sorted by code.
const NCCL: &[(i32, &str)] = &[
    (1, "ncclUnhandledCudaError"),
    (2, "ncclSystemError"),
    (3, "ncclInternalError"),
    (4, "ncclInvalidArgument"),
    (5, "ncclInvalidUsage"),
    (6, "ncclRemoteError"),
    (7, "ncclInProgress"),
];

/// What a message of Metal's answered that has a result other than 0.
const METAL: &str = "nil, or NO";

/// What a result is called, of a call of Metal's, of NCCL's or of CUDA's driver.
pub fn name(code: i32, metal: bool, nccl: bool) -> String {
    if metal {
        return METAL.to_owned();
    }
    let names = if nccl { NCCL } else { DRIVER };
    match names.binary_search_by_key(&code, |(known, _)| *known) {
        Ok(at) if nccl => names[at].1.to_owned(),
        Ok(at) => format!("CUDA_ERROR_{}", names[at].1),
        Err(_) => format!("result {code}"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn results_have_the_names_of_their_headers() {
        assert!([DRIVER, NCCL].iter().all(|names| names.is_sorted_by_key(|(code, _)| *code)));
        assert_eq!(
            (name(2, false, false).as_str(), name(1, true, false).as_str()),
            ("CUDA_ERROR_OUT_OF_MEMORY", METAL)
        );
        assert_eq!(
            (name(2, false, true), name(12345, false, false)),
            ("ncclSystemError".to_owned(), "result 12345".to_owned())
        );
        assert!(is_answer(600, false) && is_answer(7, true) && !is_answer(7, false));
        let sticky = STICKY.map(|code| name(code, false, false));
        assert!(
            sticky.contains(&"CUDA_ERROR_ILLEGAL_ADDRESS".to_owned()) && !is_sticky(700, true) && !is_sticky(2, false)
        );
    }

    #[test]
    fn an_answer_of_one_is_a_failure_of_the_other() {
        assert!([(0, false), (0, true), (600, false), (7, true)].iter().all(|(code, nccl)| !has_failed(*code, *nccl)));
        assert!([(1, false), (600, true), (7, false)].iter().all(|(code, nccl)| has_failed(*code, *nccl)));
    }
}
