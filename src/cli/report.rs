//! Options of `report`.

use std::path::PathBuf;

use clap::{Args, ValueEnum};

use super::Select;
use super::names::Names;

/// Options of `report`.
#[derive(Args, Clone, Debug)]
#[command(
    override_usage = "gputrace report TRACE... [OPTIONS]",
    after_help = "Exit code: 0 when everything in the trace was reported; 1 if the trace cannot be read, or rows of it or its \
                  manifest are missing; 2 if report was called wrongly.\n\nExamples:\n  \
                  gputrace report gputrace-python-20250102T030405Z\n  \
                  gputrace report trace --format html -o report.html\n  \
                  gputrace report trace --only syncs,transfers --format json -o report.json\n  \
                  gputrace report --explain syncs"
)]
pub(crate) struct ReportArgs {
    /// Folder of a trace; several are reported as one run
    #[arg(value_name = "TRACE")]
    pub(crate) traces: Vec<PathBuf>,

    /// Only these analyses, separated by commas; what Nsight Systems or Holistic Trace Analysis calls them (cuda_gpu_kern_sum,
    /// temporal_breakdown) is understood. Default: all
    #[arg(long, value_name = "NAME,...", value_delimiter = ',', value_parser = Names(&[]), hide_possible_values = true)]
    pub(crate) only: Vec<String>,

    /// Say what an analysis, of which other tools' names are understood, or a finding means and how it is computed, instead
    /// of the report
    #[arg(long, value_name = "NAME")]
    pub(crate) explain: Option<String>,

    /// Format of the report
    ///
    /// html is one page that needs no network and nothing installed: findings, key figures, a timeline to zoom, search and click, charts,
    /// ranks side by side, flame graphs of malloc and of waits, and every table, to sort. Name its file with -o
    #[arg(long, value_enum, default_value = "text")]
    pub(crate) format: ReportFormat,

    /// File to write to. Default: stdout
    #[arg(short, long, value_name = "FILE")]
    pub(crate) output: Option<PathBuf>,

    /// Columns that a line of text may take. Default: the terminal's; 100 where there is none
    #[arg(long, value_name = "COLUMNS", value_parser = clap::value_parser!(u16).range(40..=1000))]
    pub(crate) width: Option<u16>,

    /// Which part of the trace.
    #[command(flatten)]
    pub(crate) select: Select,
}

impl ReportArgs {
    /// The whole report on a trace, as text on stdout.
    pub(crate) fn new(trace: PathBuf) -> ReportArgs {
        ReportArgs {
            traces: vec![trace],
            only: Vec::new(),
            explain: None,
            format: ReportFormat::Text,
            output: None,
            width: None,
            select: Select::default(),
        }
    }
}

/// Formats of a report.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub(crate) enum ReportFormat {
    /// For a terminal.
    Text,
    /// For programs; its schema has a version.
    Json,
    /// For an issue or a pull request; md for short.
    #[value(alias = "md")]
    Markdown,
    /// One page for a browser, with a timeline.
    Html,
}

impl ReportFormat {
    /// The format of text that it is, if it is one.
    pub(crate) fn of_text(self) -> Option<Format> {
        match self {
            ReportFormat::Text => Some(Format::Text),
            ReportFormat::Json => Some(Format::Json),
            ReportFormat::Markdown => Some(Format::Markdown),
            ReportFormat::Html => None,
        }
    }
}

/// Formats of text.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub(crate) enum Format {
    /// For a terminal.
    Text,
    /// For programs; its schema has a version.
    Json,
    /// For an issue or a pull request; md for short.
    #[value(alias = "md")]
    Markdown,
}
