//! Options of `diff`.

use std::path::PathBuf;

use clap::Args;

use super::names::Names;
use super::{Format, Select};

/// Options of `diff`.
#[derive(Args, Clone, Debug)]
#[command(
    override_usage = "gputrace diff BEFORE AFTER [OPTIONS]",
    after_help = "Beyond spread: the steps of both runs are the samples (up to 400 each); two-sided Mann-Whitney U, p < 0.01 \
                  divided by the number of quantities or kernels, and a difference of 1 % and more. Analyses have those of their \
                  numbers that single steps have (ANALYSIS: in a step); which have none is said at the end. It tells a difference \
                  from the steps' own spread; what differs from run to run for other reasons (clocks, neighbours) it \
                  cannot know.\n\nExit code: 0 when both traces were compared; 1 if one cannot be read in full; 2 if diff was \
                  called wrongly. For limits see gputrace check.\n\nExamples:\n  \
                  gputrace diff main-trace trace\n  \
                  gputrace diff main-trace trace --only steps,kernels --format markdown"
)]
pub(crate) struct DiffArgs {
    /// Folder of the first trace
    #[arg(value_name = "BEFORE")]
    pub(crate) before: PathBuf,

    /// Folder of the second trace
    #[arg(value_name = "AFTER")]
    pub(crate) after: PathBuf,

    /// Only these parts, separated by commas: steps, kernels, and the names of analyses. Default: all
    #[arg(long, value_name = "NAME,...", value_delimiter = ',', value_parser = Names(&["steps", "kernels"]), hide_possible_values = true)]
    pub(crate) only: Vec<String>,

    /// Format of the comparison
    #[arg(long, value_enum, default_value = "text")]
    pub(crate) format: Format,

    /// File to write to. Default: stdout
    #[arg(short, long, value_name = "FILE")]
    pub(crate) output: Option<PathBuf>,

    /// Columns that a line of text may take. Default: the terminal's; 100 where there is none
    #[arg(long, value_name = "COLUMNS", value_parser = clap::value_parser!(u16).range(80..=1000))]
    pub(crate) width: Option<u16>,

    /// Which part of the traces.
    #[command(flatten)]
    pub(crate) select: Select,
}
