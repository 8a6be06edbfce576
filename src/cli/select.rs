//! Options that say which part of a trace a command is about; `report`, `check` and `diff` share them.

use std::time::Duration;

use clap::Args;

/// Which rows.
#[derive(Args, Clone, Debug, Default)]
#[command(next_help_heading = "Which part of the trace")]
pub(crate) struct Select {
    /// Only these ranks, separated by commas. Default: all
    #[arg(long, value_name = "RANK,...", value_delimiter = ',')]
    pub(crate) rank: Vec<i32>,

    /// Only processes with these pids, separated by commas. Default: all
    #[arg(long, value_name = "PID,...", value_delimiter = ',')]
    pub(crate) pid: Vec<i32>,

    /// Only what began after so many seconds of the trace. Example: --from 10 --to 12.5
    #[arg(long, value_name = "SECONDS", value_parser = super::parse_seconds)]
    pub(crate) from: Option<Duration>,

    /// Only what began before so many seconds of the trace
    #[arg(long, value_name = "SECONDS", value_parser = super::parse_seconds)]
    pub(crate) to: Option<Duration>,

    /// Ranges named so with NVTX are the steps, whatever number their names end with. Example: --step forward
    #[arg(long, value_name = "NAME")]
    pub(crate) step: Option<String>,
}
