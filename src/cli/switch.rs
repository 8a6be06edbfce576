//! Options of `start` and `stop`, and those of `record` that say when recording begins.

use clap::{Args, ValueEnum};

/// Options of `start` and `stop`.
#[derive(Args, Clone, Debug)]
#[command(
    after_help = "Prints the folder of the trace. Exit code: 0 when all processes of the session were told; 1 if it does not answer; 2 if there \
                        is no such session, or several and none was named.\n\nExample:\n  gputrace --start-paused -o trace -- python \
                        train.py &\n  gputrace start; sleep 10; gputrace stop\n  gputrace report trace"
)]
pub(crate) struct SwitchArgs {
    /// The session: the pid of gputrace or of a process that it traces, the folder of its trace, or its own folder. Default: the
    /// only one of this user
    #[arg(value_name = "SESSION|PID|TRACE")]
    pub(crate) session: Option<String>,
}

/// What switches recording.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub(crate) enum CaptureRange {
    /// It is on from the start.
    None,
    /// On from cuProfilerStart to cuProfilerStop, which cudaProfilerStart and torch.cuda.profiler.start call.
    #[value(name = "cudaProfilerApi")]
    CudaProfilerApi,
}
