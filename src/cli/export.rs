//! Options of `export`.

use std::path::PathBuf;

use clap::{Args, ValueEnum};

use super::Select;

/// Options of `export`.
#[derive(Args, Clone, Debug)]
#[command(
    override_usage = "gputrace export TRACE... --format FORMAT -o FILE\n       gputrace export TRACE... --format csv|arrow -o FOLDER",
    after_help = "kineto: of several ranks each gets a file of its own: FILE with -rank0, -rank1 before the ending. The others: \
                  one file, or folder, of all processes. An older file is replaced; a folder must be new or empty.\n\nExit code: 0 when everything was exported; 1 if the trace \
                  cannot be read in full, or a file cannot be written; 2 if export was called wrongly.\n\nExamples:\n  \
                  gputrace export trace --format perfetto -o trace.pftrace\n  \
                  gputrace export trace --format chrome --from 10 --to 12 -o trace.json.gz\n  \
                  gputrace export trace --format kineto -o trace.json.gz\n  \
                  gputrace export trace --format sqlite -o trace.sqlite\n  \
                  gputrace export trace --format csv -o tables\n  \
                  gputrace export trace --format pprof --at peak -o heap.pb.gz\n  \
                  gputrace export trace --format folded --value inuse_space --at peak -o heap.folded"
)]
pub(crate) struct ExportArgs {
    /// Folder of a trace; several are exported as one run
    #[arg(value_name = "TRACE", required = true)]
    pub(crate) traces: Vec<PathBuf>,

    /// Format of the file
    ///
    /// perfetto (protobuf) and chrome (JSON) are timelines for ui.perfetto.dev, which needs no network to show them, and
    /// chrome://tracing. kineto is torch.profiler's JSON, which Holistic Trace Analysis and TensorBoard read. pprof and folded are
    /// malloc by stack: a heap profile for pprof, with alloc_objects, alloc_space, inuse_objects and inuse_space as Go's have them; or a line for
    /// each stack and its value, for flame graphs. sqlite has the tables and columns of Nsight Systems (nsys export --type sqlite), for
    /// queries that were written for it. csv and arrow (Arrow's file format) are a folder with a file for each table that has rows:
    /// the columns that gputrace schema lists, with the text of each name beside its id.
    #[arg(long, value_enum, required = true)]
    pub(crate) format: ExportFormat,

    /// When memory in use is looked at: at the end, or when each process had most. Default: end
    ///
    /// Of pprof, and of folded with --value inuse_space or --value inuse_objects: what was allocated is the same at any time.
    /// Example: --format folded --value inuse_space --at peak
    #[arg(long, value_enum, value_name = "WHEN")]
    pub(crate) at: Option<ExportAt>,

    /// Which value each line of folded has. Default: alloc_space; --at needs one of memory in use
    #[arg(long, value_enum, value_name = "VALUE")]
    pub(crate) value: Option<ExportValue>,

    /// At most so many bars and values: those that began first. Of perfetto and chrome. Default: all
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u64).range(1..))]
    pub(crate) max_events: Option<u64>,

    /// Which part of the trace.
    #[command(flatten)]
    pub(crate) select: Select,

    /// File to write to, of csv and arrow a folder; compressed when its name ends in .gz, a profile of pprof always
    #[arg(short, long, value_name = "FILE", required = true)]
    pub(crate) output: PathBuf,
}

/// Formats of an export.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub(crate) enum ExportFormat {
    /// Perfetto's protobuf.
    Perfetto,
    /// Chrome's JSON of trace events.
    Chrome,
    /// torch.profiler's JSON.
    Kineto,
    /// A heap profile for pprof.
    Pprof,
    /// Folded stacks for flame graphs.
    Folded,
    /// Nsight Systems' tables.
    Sqlite,
    /// Each table as comma-separated values.
    Csv,
    /// Each table as a file of Arrow.
    Arrow,
}

/// When memory in use is looked at.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub(crate) enum ExportAt {
    /// At the end of each process, or of the trace: what was never freed.
    End,
    /// When each process had most.
    Peak,
}

/// The value of a stack.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
#[value(rename_all = "snake_case")]
pub(crate) enum ExportValue {
    /// Bytes allocated.
    AllocSpace,
    /// Blocks allocated.
    AllocObjects,
    /// Bytes in use.
    InuseSpace,
    /// Blocks in use.
    InuseObjects,
}

impl ExportArgs {
    /// Err: what of the options says nothing beside the others, and what it belongs to.
    pub(crate) fn check(&self) -> Result<(), String> {
        let inuse = matches!(self.value, Some(ExportValue::InuseSpace | ExportValue::InuseObjects));
        if self.value.is_some() && self.format != ExportFormat::Folded {
            return Err("--value belongs to --format folded: a profile of pprof has all four values".to_owned());
        }
        if self.max_events.is_some() && !matches!(self.format, ExportFormat::Perfetto | ExportFormat::Chrome) {
            return Err("--max-events belongs to --format perfetto or chrome".to_owned());
        }
        let plain = matches!(self.format, ExportFormat::Sqlite | ExportFormat::Csv | ExportFormat::Arrow);
        if plain && self.output.extension().is_some_and(|end| end == "gz") {
            return Err("-o with .gz: --format sqlite, csv and arrow are not compressed".to_owned());
        }
        match (self.at, self.format) {
            (None, _) | (Some(_), ExportFormat::Pprof) => Ok(()),
            (Some(_), ExportFormat::Folded) if inuse => Ok(()),
            (Some(_), ExportFormat::Folded) => {
                Err("--at is about memory in use, and folded has what was allocated unless told: add --value inuse_space or \
                     --value inuse_objects"
                    .to_owned())
            }
            _ => Err("--at is about memory in use: it belongs to --format pprof or folded".to_owned()),
        }
    }
}
