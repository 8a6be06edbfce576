//! Which result codes of the driver and of NCCL are failures.

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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_answer_of_one_is_a_failure_of_the_other() {
        assert!([(0, false), (0, true), (600, false), (7, true)].iter().all(|(code, nccl)| !has_failed(*code, *nccl)));
        assert!([(1, false), (600, true), (7, false)].iter().all(|(code, nccl)| has_failed(*code, *nccl)));
    }
}
