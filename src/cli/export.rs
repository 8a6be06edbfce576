//! Options of `export`.

use std::path::PathBuf;

use clap::{Args, ValueEnum};

/// Options of `export`.
#[derive(Args, Clone, Debug)]
#[command(
    override_usage = "gputrace export TRACE... --format kineto -o FILE",
    after_help = "Of several ranks each gets a file of its own: FILE with -rank0, -rank1 before the ending. An older file is \
                  replaced.\n\nExit code: 0 when everything was exported; 1 if the trace cannot be read in full, or a file \
                  cannot be written; 2 if export was called wrongly.\n\nExample:\n  \
                  gputrace export trace --format kineto -o trace.json.gz"
)]
pub(crate) struct ExportArgs {
    /// Folder of a trace; several are exported as one run
    #[arg(value_name = "TRACE", required = true)]
    pub(crate) traces: Vec<PathBuf>,

    /// Format: kineto is torch.profiler's JSON, which Holistic Trace Analysis and Perfetto's viewer read
    #[arg(long, value_enum, required = true)]
    pub(crate) format: ExportFormat,

    /// File to write to; compressed when its name ends in .gz
    #[arg(short, long, value_name = "FILE", required = true)]
    pub(crate) output: PathBuf,
}

/// Formats of an export.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub(crate) enum ExportFormat {
    /// torch.profiler's JSON.
    Kineto,
}
