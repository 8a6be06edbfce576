//! Options of `check`.

use std::path::PathBuf;

use clap::Args;

use super::Select;

/// Options of `check`.
#[derive(Args, Clone, Debug)]
#[command(
    override_usage = "gputrace check TRACE... --max METRIC=VALUE... [OPTIONS]\n       gputrace check --list",
    after_help = "Exit code: 0 when all limits hold; 1 when one is exceeded, or the trace cannot be read in full; 2 when check \
                  was called wrongly, or the trace has no value for a metric: what was not measured does not pass. With \
                  --against what only one of the traces holds (times of a GPU, say) is named, and is no failure unless --metric \
                  or a tolerance of its own asks for it.\n\nExamples:\n  \
                  gputrace check trace --max summary.step_p50_ns=12ms --max summary.waits=2\n  \
                  gputrace check trace --limits limits.toml --junit gputrace.xml\n  \
                  gputrace check trace --against main-trace --tolerance 5%\n\n\
                  A file of limits:\n  \
                  [summary]\n  \
                  step_p50_ns = { max = \"12ms\" }\n  \
                  launches = { min = 1, max = 500 }\n  \
                  [device-memory]\n  \
                  peak_bytes = { max = \"20GiB\" }"
)]
pub(crate) struct CheckArgs {
    /// Folder of a trace; several are checked as one run
    #[arg(value_name = "TRACE")]
    pub(crate) traces: Vec<PathBuf>,

    /// Most that a metric may be; units: ns, us, ms, s; KiB, MiB, GiB; %. May be given several times
    #[arg(long, value_name = "METRIC=VALUE")]
    pub(crate) max: Vec<String>,

    /// Least that a metric may be. May be given several times
    #[arg(long, value_name = "METRIC=VALUE")]
    pub(crate) min: Vec<String>,

    /// A TOML file of limits
    #[arg(long, value_name = "FILE")]
    pub(crate) limits: Option<PathBuf>,

    /// A trace to compare with: metrics may not be worse than there by more than --tolerance. Compared are those that --list
    /// says `yes` of: one direction is worse, and two runs of one program have about the same. What only one of the two holds
    /// is named
    #[arg(long, value_name = "BASE")]
    pub(crate) against: Option<PathBuf>,

    /// By how much of the base a metric may be worse, in percent. Default: 5
    #[arg(long, value_name = "PERCENT", requires = "against", allow_negative_numbers = true)]
    pub(crate) tolerance: Option<String>,

    /// By how much a time may be worse whatever its share: --floor 20us. Default: 5us. Bytes have 64 KiB, shares 0.5 points,
    /// counts 0.05; metrics with a tolerance of their own in a file have no floor
    #[arg(long, value_name = "TIME", requires = "against", allow_negative_numbers = true)]
    pub(crate) floor: Option<String>,

    /// Only these metrics are compared with --against, separated by commas, also those that --list says `named` of; where
    /// neither direction is worse, any change counts
    #[arg(long, value_name = "METRIC,...", value_delimiter = ',', requires = "against")]
    pub(crate) metric: Vec<String>,

    /// File to write the result to as JUnit XML, for CI systems
    #[arg(long, value_name = "FILE")]
    pub(crate) junit: Option<PathBuf>,

    /// Print every metric with its unit, the direction that is worse, whether --against compares it by itself, and its meaning
    #[arg(long)]
    pub(crate) list: bool,

    /// Which part of the trace.
    #[command(flatten)]
    pub(crate) select: Select,
}
