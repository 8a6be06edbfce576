//! Options of `export`.

use std::path::{Path, PathBuf};

use clap::{Args, ValueEnum};

use super::Select;

/// Options of `export`.
#[derive(Args, Clone, Debug)]
#[command(
    override_usage = "gputrace export TRACE... --format FORMAT -o FILE\n       gputrace export TRACE... --format csv|arrow -o FOLDER",
    after_help = "kineto: of several ranks each gets a file of its own: FILE with -rank0, -rank1 before the ending. The others: \
                  one file, or folder, of all processes. An older file is replaced when the new one is whole; a device, a FIFO and /dev/stdout (or -) are written to. A folder must be new or empty. HTA's get_temporal_breakdown fails its own assertion on \
                  operations shorter than 1 us, as it rounds times to us, unless HTA_DISABLE_NS_ROUNDING=1 is set.\n\nExit code: 0 when everything was exported; 1 if the trace \
                  cannot be read in full, or a file cannot be written; 2 if export was called wrongly.\n\nExamples:\n  \
                  gputrace export trace --format perfetto -o trace.pftrace\n  \
                  gputrace export trace --format chrome --from 10 --to 12 -o trace.json.gz\n  \
                  gputrace export trace --format kineto -o trace.json.gz\n  \
                  gputrace export trace --format sqlite -o trace.sqlite\n  \
                  gputrace export trace --format csv -o tables\n  \
                  gputrace export trace --format pprof --at peak -o heap.pb.gz\n  \
                  gputrace export trace --format folded --value inuse_space --at peak -o heap.folded\n  \
                  gputrace export trace --format pprof --of waits -o waits.pb.gz\n  \
                  gputrace export trace --format speedscope -o trace.speedscope.json"
)]
pub(crate) struct ExportArgs {
    /// Folder of a trace; several are exported as one run
    #[arg(value_name = "TRACE", required = true)]
    pub(crate) traces: Vec<PathBuf>,

    /// Format of the file
    ///
    /// perfetto (protobuf) and chrome (JSON) are timelines for ui.perfetto.dev, which needs no network to show them, and
    /// chrome://tracing. kineto is torch.profiler's JSON, which Holistic Trace Analysis and TensorBoard read. sqlite has the tables and
    /// columns of Nsight Systems (nsys export --type sqlite), for queries that were written for it. csv and arrow (Arrow's file format)
    /// are a folder with a file for each table that has rows: the columns that gputrace schema lists, with the text of each name beside
    /// its id.
    ///
    /// The others are sums by stack, of what --of names: pprof is a profile with all its values, folded a line for each stack and one
    /// value, for flame graphs, speedscope JSON for speedscope.app with a profile for each value and process.
    #[arg(long, value_enum, required = true)]
    pub(crate) format: ExportFormat,

    /// What pprof, folded and speedscope sum by stack. Default: malloc; of speedscope all that was recorded
    ///
    /// malloc: alloc_objects, alloc_space, inuse_objects and inuse_space, as Go's heap profiles have them. waits: driver calls that wait for
    /// the GPU, as the report's syncs has them: waits and wait_time, of copies, sets, frees and allocations the waiting alone. os-waits: waits
    /// for the operating system, of all threads: os_waits and os_wait_time. calls: driver calls that have a stack: calls and call_time. These are
    /// those that took --stacks-over, and launches drawn at random, each of which counts for as many as it was drawn from. Times are in ns.
    #[arg(long, value_enum, value_name = "WHAT")]
    pub(crate) of: Option<ExportOf>,

    /// When memory in use is looked at: at the end, or when each process had most. Default: end
    ///
    /// Of pprof and speedscope, and of folded with --value inuse_space or --value inuse_objects: what was allocated is the same at any time.
    /// Example: --format folded --value inuse_space --at peak
    #[arg(long, value_enum, value_name = "WHEN")]
    pub(crate) at: Option<ExportAt>,

    /// Which value folded and speedscope have; it says what --of does. --at needs one of memory in use
    ///
    /// Default of folded: alloc_space, of --of waits wait_time, of os-waits os_wait_time, of calls call_time. Of speedscope: all but counts.
    #[arg(long, value_enum, value_name = "VALUE")]
    pub(crate) value: Option<ExportValue>,

    /// At most so many bars and values: those that began first, over all tables. Of perfetto and chrome alone; the others refuse it. Default: all
    ///
    /// What is left out is said on stderr and in the file; an arrow is there when both its ends are. It takes a second read of the trace, and 24 bytes of memory for each of
    /// the N. Of the other formats --from and --to choose a part.
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u64).range(1..), allow_negative_numbers = true)]
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
    /// A profile for pprof.
    Pprof,
    /// Folded stacks for flame graphs.
    Folded,
    /// speedscope's JSON.
    Speedscope,
    /// Nsight Systems' tables.
    Sqlite,
    /// Each table as comma-separated values.
    Csv,
    /// Each table as a file of Arrow.
    Arrow,
}

/// What is summed by stack.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub(crate) enum ExportOf {
    /// What malloc gave.
    Malloc,
    /// Waits of the host for the GPU.
    Waits,
    /// Waits for the operating system.
    OsWaits,
    /// Driver calls.
    Calls,
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
    /// Waits for the GPU.
    Waits,
    /// Time in them, ns.
    WaitTime,
    /// Waits for the operating system.
    OsWaits,
    /// Time in them, ns.
    OsWaitTime,
    /// Driver calls.
    Calls,
    /// Time in them, ns.
    CallTime,
}

impl ExportOf {
    /// Its values: their number, then what each of these comes to, and so on.
    pub(crate) fn values(self) -> &'static [ExportValue] {
        match self {
            ExportOf::Malloc => &[
                ExportValue::AllocObjects,
                ExportValue::AllocSpace,
                ExportValue::InuseObjects,
                ExportValue::InuseSpace,
            ],
            ExportOf::Waits => &[ExportValue::Waits, ExportValue::WaitTime],
            ExportOf::OsWaits => &[ExportValue::OsWaits, ExportValue::OsWaitTime],
            ExportOf::Calls => &[ExportValue::Calls, ExportValue::CallTime],
        }
    }

    /// The value that a profile shows first: the last one.
    pub(crate) fn main_value(self) -> ExportValue {
        self.values()[self.values().len() - 1]
    }
}

impl ExportValue {
    /// What it is a value of.
    pub(crate) fn of(self) -> ExportOf {
        match self {
            ExportValue::AllocSpace
            | ExportValue::AllocObjects
            | ExportValue::InuseSpace
            | ExportValue::InuseObjects => ExportOf::Malloc,
            ExportValue::Waits | ExportValue::WaitTime => ExportOf::Waits,
            ExportValue::OsWaits | ExportValue::OsWaitTime => ExportOf::OsWaits,
            ExportValue::Calls | ExportValue::CallTime => ExportOf::Calls,
        }
    }

    /// Its place among the values of its kind.
    pub(crate) fn place(self) -> usize {
        self.of().values().iter().position(|value| *value == self).unwrap_or_default()
    }

    /// As it is given, and as profiles name it.
    pub(crate) fn name(self) -> &'static str {
        match self {
            ExportValue::AllocSpace => "alloc_space",
            ExportValue::AllocObjects => "alloc_objects",
            ExportValue::InuseSpace => "inuse_space",
            ExportValue::InuseObjects => "inuse_objects",
            ExportValue::Waits => "waits",
            ExportValue::WaitTime => "wait_time",
            ExportValue::OsWaits => "os_waits",
            ExportValue::OsWaitTime => "os_wait_time",
            ExportValue::Calls => "calls",
            ExportValue::CallTime => "call_time",
        }
    }

    /// As pprof names it.
    pub(crate) fn unit(self) -> &'static str {
        match self {
            ExportValue::AllocSpace | ExportValue::InuseSpace => "bytes",
            ExportValue::WaitTime | ExportValue::OsWaitTime | ExportValue::CallTime => "nanoseconds",
            _ => "count",
        }
    }

    fn is_inuse(self) -> bool {
        matches!(self, ExportValue::InuseSpace | ExportValue::InuseObjects)
    }
}

impl ExportFormat {
    /// Whether it has sums by stack, and no single events.
    pub(crate) fn is_by_stack(self) -> bool {
        matches!(self, ExportFormat::Pprof | ExportFormat::Folded | ExportFormat::Speedscope)
    }
}

impl ExportArgs {
    /// What is summed by stack; none: all of it.
    pub(crate) fn kind(&self) -> Option<ExportOf> {
        let told = self.of.or(self.value.map(ExportValue::of));
        if self.format == ExportFormat::Speedscope { told } else { told.or(Some(ExportOf::Malloc)) }
    }

    /// The file that is written: `-` stands for standard output, as it does elsewhere.
    pub(crate) fn file(&self) -> &Path {
        if self.output.as_os_str() == "-" { Path::new("/dev/stdout") } else { &self.output }
    }

    /// Err: what of the options says nothing beside the others, and what it belongs to.
    pub(crate) fn check(&self) -> Result<(), String> {
        let (format, events) = (self.format, !self.format.is_by_stack());
        if self.max_events.is_some() && !matches!(format, ExportFormat::Perfetto | ExportFormat::Chrome) {
            return Err("--max-events belongs to --format perfetto or chrome".to_owned());
        }
        let plain = matches!(format, ExportFormat::Sqlite | ExportFormat::Csv | ExportFormat::Arrow);
        if plain && self.output.extension().is_some_and(|end| end == "gz") {
            return Err("-o with .gz: --format sqlite, csv and arrow are not compressed".to_owned());
        }
        if plain && self.file() != self.output {
            return Err("-o - is standard output: --format sqlite, csv and arrow need a file or a folder of their own"
                .to_owned());
        }
        if self.of.is_some() && events {
            return Err("--of is about sums by stack: it belongs to --format pprof, folded or speedscope".to_owned());
        }
        if self.value.is_some() && (events || format == ExportFormat::Pprof) {
            return Err(
                "--value belongs to --format folded or speedscope: a profile of pprof has all values".to_owned()
            );
        }
        let other = |(value, of): &(ExportValue, ExportOf)| value.of() != *of;
        if let Some((value, of)) = self.value.zip(self.of).filter(other) {
            let values: Vec<&str> = of.values().iter().map(|value| value.name()).collect();
            return Err(format!("--value {} is none of what --of names: {}", value.name(), values.join(", ")));
        }
        if self.at.is_none() {
            return Ok(());
        }
        if events {
            return Err("--at is about memory in use: it belongs to --format pprof, folded or speedscope".to_owned());
        }
        if self.kind().is_some_and(|of| of != ExportOf::Malloc) {
            return Err("--at is about memory in use, which malloc alone has: leave it out, or --of".to_owned());
        }
        match self.value {
            None if format != ExportFormat::Folded => Ok(()),
            Some(value) if value.is_inuse() => Ok(()),
            _ => Err("--at is about memory in use, and folded has what was allocated unless told: add --value inuse_space or \
                      --value inuse_objects"
                .to_owned()),
        }
    }
}
