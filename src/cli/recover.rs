//! Options of `recover`.

use std::path::PathBuf;

use clap::Args;

/// Options of `recover`.
#[derive(Args, Clone, Debug)]
#[command(
    override_usage = "gputrace recover [--host-is-gone] TRACE...",
    after_help = "Exit code: 0 when the traces are whole, also where they were before; 1 if one cannot be made whole, or gputrace is still \
                  at work in it; 2 if there is no trace.\n\nExamples:\n  gputrace recover train-trace\n  gputrace recover --host-is-gone train-trace"
)]
pub(crate) struct RecoverArgs {
    /// Folders of traces whose gputrace was killed
    #[arg(value_name = "TRACE", required = true)]
    pub(crate) traces: Vec<PathBuf>,

    /// Recover what other hosts wrote as well
    ///
    /// Only on its own host is it certain that a gputrace is not at work any more: not every file system tells another host of its locks
    #[arg(long)]
    pub(crate) host_is_gone: bool,
}
