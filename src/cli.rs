//! The command line: every subcommand and option, with what they mean.
//!
//! `record` is the default: `gputrace -- COMMAND` needs no word before the options. The help texts are the options'
//! documentation; each names its unit, its default and what it is for.

mod check;
mod diff;
mod export;
mod import;
mod select;

use std::ffi::OsString;
use std::path::PathBuf;
use std::time::Duration;

use clap::{Args, Parser, Subcommand, ValueEnum};

pub(crate) use check::CheckArgs;
pub(crate) use diff::DiffArgs;
pub(crate) use export::{ExportArgs, ExportFormat};
pub(crate) use import::ImportArgs;
pub(crate) use select::Select;

/// What is parsed.
#[derive(Debug, Parser)]
#[command(
    name = "gputrace",
    version,
    about = "Traces what a command and its children do with the GPU and with memory",
    override_usage = "gputrace [record] [OPTIONS] -- COMMAND [ARGS...]\n       gputrace report TRACE...\n       gputrace SUBCOMMAND --help",
    after_help = "Options of record may be given without the word:\n  gputrace -o trace -- python train.py\n\n\
                  Start here on a machine without a GPU:\n  gputrace demo",
    disable_help_subcommand = true
)]
pub(crate) struct Cli {
    /// The subcommand.
    #[command(subcommand)]
    pub(crate) action: Action,
}

/// The subcommands.
#[derive(Debug, Subcommand)]
pub(crate) enum Action {
    /// Trace a command and its children; ends with a short summary on stderr
    Record(RecordArgs),
    /// Say where the time went in a trace
    Report(ReportArgs),
    /// Hold a trace against limits, or against another trace: for CI
    Check(CheckArgs),
    /// Make a trace of one that torch.profiler or Nsight Systems wrote
    Import(ImportArgs),
    /// Compare two traces, number by number
    Diff(DiffArgs),
    /// Write a trace in a format that other tools read
    Export(ExportArgs),
    /// Trace and report a training loop on the simulated GPU
    Demo(DemoArgs),
    /// Say what can be traced here, what not, and why
    Doctor(DoctorArgs),
    /// Print every table and column of a trace: type, unit, meaning
    Schema(SchemaArgs),
    /// The loop that demo traces
    #[command(name = "__demo-target", hide = true)]
    DemoTarget,
    /// What doctor asks the driver's library, in a process of its own
    #[command(name = "__driver-probe", hide = true)]
    DriverProbe,
}

/// Options of `record`.
#[derive(Args, Clone, Debug)]
#[command(
    override_usage = "gputrace [record] [OPTIONS] -- COMMAND [ARGS...]",
    after_help = "Exit code: the command's own; if signal N ended it gputrace ends by the same signal, which a shell shows as \
                  128+N. 125 if gputrace failed before the start, 126 if the command cannot be executed, 127 if it was \
                  not found.\n\nExamples:\n  gputrace -- python train.py\n  \
                  gputrace -o run-%j --malloc off -- python train.py --epochs 3\n  \
                  srun gputrace -o /scratch/trace-%j -- python train.py     (all ranks share one trace)"
)]
pub(crate) struct RecordArgs {
    /// Folder of the trace. %h is the host, %p the pid, %r the rank, %j the job's id, %% a percent sign
    ///
    /// Default: gputrace-COMMAND-TIME in the current folder, TIME in UTC. Several launchers of one job may name the same
    /// folder. Example: -o /scratch/trace-%j
    #[arg(short, long, value_name = "DIR")]
    pub(crate) output: Option<PathBuf>,

    /// How malloc and free are recorded: off, sample, sample=BYTES or full
    ///
    /// sample records one allocation per BYTES allocated on average (512K unless told); full records each one, which
    /// costs more. Example: --malloc sample=64K
    #[arg(long, value_name = "MODE", default_value = "sample", value_parser = parse_malloc)]
    pub(crate) malloc: Malloc,

    /// In which processes waits for the operating system are recorded: cuda, all or off
    ///
    /// Locks, threads, files, pipes, sockets, sleeps, children. cuda means processes from their first look at the CUDA
    /// driver on, and the children that they fork then (a DataLoader's workers). Example: --os all
    #[arg(long, value_enum, value_name = "WHERE", default_value = "cuda")]
    pub(crate) os: OsWaits,

    /// How long a wait for the operating system must be to become an event, in microseconds; shorter ones are counted
    ///
    /// Example: --os-over 100
    #[arg(long, value_name = "US", default_value_t = OS_OVER_US)]
    pub(crate) os_over: u64,

    /// Largest size of the trace on this node, in bytes or with K, M, G, T (powers of 1024)
    ///
    /// Beyond it the oldest sealed files are removed; summary, report and manifest say from when to when that was.
    /// Example: --max-size 20G
    #[arg(long, value_name = "SIZE", default_value = "2G", value_parser = parse_size)]
    pub(crate) max_size: u64,

    /// Shared memory for the events of one process, in bytes or with K, M, G (powers of 1024)
    ///
    /// It bounds how long the collector may be kept from running without loss. Example: --segment-memory 64M
    #[arg(long, value_name = "SIZE", default_value = "16M", value_parser = parse_size)]
    pub(crate) segment_memory: u64,

    /// How driver calls are reached: auto, symbols or inline
    ///
    /// auto and symbols take the places of the driver's symbols and answer look-ups; what only inline would reach is
    /// noted in the manifest. inline also patches the driver's functions in memory, when the loader has mapped them and
    /// before anybody can call them: it sees calls of libraries opened RTLD_DEEPBIND or in a namespace of their own, and
    /// of addresses found by hand. Example: --hook inline
    #[arg(long, value_enum, value_name = "ROUTE", default_value = "auto")]
    pub(crate) hook: HookRoute,

    /// What a call does that finds its process's memory full: drop its event and count it, or block
    ///
    /// block loses nothing and can slow the command down. Example: --on-full block
    #[arg(long, value_enum, value_name = "WHAT", default_value = "drop")]
    pub(crate) on_full: OnFull,

    /// Whether stacks of Python lines, or of native functions, are taken: on or off
    #[arg(long, value_enum, value_name = "WHAT", default_value = "on")]
    pub(crate) stacks: Switch,

    /// Driver calls that took at least so long get a stack, in microseconds
    ///
    /// Waits, copies, allocations, module loading: whatever held the thread up. Example: --stacks-over 100
    #[arg(long, value_name = "US", default_value_t = STACKS_OVER_US)]
    pub(crate) stacks_over: u32,

    /// One launch in so many, drawn at random, gets a stack; 0 for none
    ///
    /// Launches that follow a pause of their thread get one as well, unless this is 0. Example: --launch-stacks 100
    #[arg(long, value_name = "N", default_value_t = LAUNCH_STACKS)]
    pub(crate) launch_stacks: u32,

    /// Whether ranges named with NVTX are recorded: on or off
    ///
    /// off leaves NVTX_INJECTION64_PATH as it is: NVTX loads what it would load without gputrace, such as an injection
    /// that is linked into the program. Example: --nvtx off
    #[arg(long, value_enum, value_name = "WHAT", default_value = "on")]
    pub(crate) nvtx: Switch,

    /// How long to wait for processes that outlive the command, in seconds
    ///
    /// What they do later is not recorded. Example: --grace 0.5
    #[arg(long, value_name = "SECONDS", default_value = "2", value_parser = parse_seconds)]
    pub(crate) grace: Duration,

    /// The command and its arguments, after --
    #[arg(last = true, value_name = "COMMAND")]
    pub(crate) command: Vec<OsString>,

    /// Variables that the command gets besides; no option, for `demo`
    #[arg(skip)]
    pub(crate) variables: Vec<(&'static str, OsString)>,

    /// Folder in which the simulated driver leaves what its device did; no option, for `demo`
    #[arg(skip)]
    pub(crate) simulated: Option<PathBuf>,
}

impl ReportArgs {
    /// The whole report on a trace, as text on stdout.
    pub(crate) fn new(trace: PathBuf) -> ReportArgs {
        ReportArgs {
            traces: vec![trace],
            only: Vec::new(),
            explain: None,
            format: Format::Text,
            output: None,
            width: None,
            color: Color::Auto,
            select: Select::default(),
        }
    }
}

impl RecordArgs {
    /// The defaults, for a command.
    pub(crate) fn new(output: Option<PathBuf>, command: Vec<OsString>) -> RecordArgs {
        RecordArgs {
            output,
            malloc: Malloc::Sample(SAMPLE_BYTES),
            os: OsWaits::Cuda,
            os_over: OS_OVER_US,
            max_size: 2 << 30,
            segment_memory: 16 << 20,
            hook: HookRoute::Auto,
            on_full: OnFull::Drop,
            stacks: Switch::On,
            stacks_over: STACKS_OVER_US,
            launch_stacks: LAUNCH_STACKS,
            nvtx: Switch::On,
            grace: Duration::from_secs(2),
            command,
            variables: Vec::new(),
            simulated: None,
        }
    }
}

/// Mean distance of two samples of `--malloc sample`, in bytes.
const SAMPLE_BYTES: u64 = 512 << 10;

/// Default of `--stacks-over`.
const STACKS_OVER_US: u32 = 20;
/// Default of `--launch-stacks`.
const LAUNCH_STACKS: u32 = 1000;
/// Waits shorter than this are only counted, in microseconds.
const OS_OVER_US: u64 = 20;

/// In which processes waits for the operating system are recorded.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub(crate) enum OsWaits {
    /// In those that use CUDA, from then on, and in the children that they fork.
    Cuda,
    /// In every process.
    All,
    /// In none.
    Off,
}

/// How malloc and free are recorded.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Malloc {
    /// Not at all.
    Off,
    /// One per so many bytes on average.
    Sample(u64),
    /// Each one.
    Full,
}

/// How driver calls are reached.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub(crate) enum HookRoute {
    /// What changes nothing in the driver: by symbols.
    Auto,
    /// By the driver's symbols and look-ups.
    Symbols,
    /// By these, and by patches of the driver's functions.
    Inline,
}

/// What happens when a process's memory for events is full.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub(crate) enum OnFull {
    /// The event is dropped and counted.
    Drop,
    /// The call waits for the collector.
    Block,
}

/// A part of tracing that can be switched off.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub(crate) enum Switch {
    /// It is done.
    On,
    /// It is left alone.
    Off,
}

/// Options of `report`.
#[derive(Args, Clone, Debug)]
#[command(
    override_usage = "gputrace report TRACE... [OPTIONS]",
    after_help = "Exit code: 0 when everything in the trace was reported; 1 if the trace cannot be read, or rows of it or its \
                  manifest are missing; 2 if report was called wrongly.\n\nExamples:\n  \
                  gputrace report gputrace-python-20250102T030405Z\n  \
                  gputrace report trace --only syncs,transfers --format json -o report.json\n  \
                  gputrace report --explain syncs"
)]
pub(crate) struct ReportArgs {
    /// Folder of a trace; several are reported as one run
    #[arg(value_name = "TRACE")]
    pub(crate) traces: Vec<PathBuf>,

    /// Only these analyses, separated by commas. Default: all
    #[arg(long, value_name = "NAME,...", value_delimiter = ',')]
    pub(crate) only: Vec<String>,

    /// Say what an analysis or a finding means and how it is computed, instead of the report
    #[arg(long, value_name = "NAME")]
    pub(crate) explain: Option<String>,

    /// Format of the report
    #[arg(long, value_enum, default_value = "text")]
    pub(crate) format: Format,

    /// File to write to. Default: stdout
    #[arg(short, long, value_name = "FILE")]
    pub(crate) output: Option<PathBuf>,

    /// Columns that a line of text may take. Default: the terminal's; 100 where there is none
    #[arg(long, value_name = "COLUMNS", value_parser = clap::value_parser!(u16).range(40..=1000))]
    pub(crate) width: Option<u16>,

    /// When headings are bold: auto (at a terminal, unless NO_COLOR is set), always or never
    #[arg(long, value_enum, value_name = "WHEN", default_value = "auto", hide_possible_values = true)]
    pub(crate) color: Color,

    /// Which part of the trace.
    #[command(flatten)]
    pub(crate) select: Select,
}

/// When text is coloured.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub(crate) enum Color {
    /// At a terminal, unless NO_COLOR is set.
    Auto,
    /// Always.
    Always,
    /// Never.
    Never,
}

/// Formats of a report.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub(crate) enum Format {
    /// For a terminal.
    Text,
    /// For programs; its schema has a version.
    Json,
    /// For an issue or a pull request.
    Markdown,
}

/// Options of `demo`.
#[derive(Args, Clone, Debug)]
#[command(after_help = "Example:\n  gputrace demo -o demo-trace")]
pub(crate) struct DemoArgs {
    /// Folder of the trace. Default: gputrace-demo-TIME in the current folder, TIME in UTC
    #[arg(short, long, value_name = "TRACE")]
    pub(crate) output: Option<PathBuf>,
}

/// Options of `doctor`.
#[derive(Args, Clone, Debug)]
#[command(
    override_usage = "gputrace doctor [-- COMMAND]",
    after_help = "Exit code: 0 if a traced run would work, 1 if not.\n\nExamples:\n  gputrace doctor\n  \
                  gputrace doctor -- python train.py"
)]
pub(crate) struct DoctorArgs {
    /// A command whose program is examined as well, after --
    #[arg(last = true, value_name = "COMMAND")]
    pub(crate) command: Vec<OsString>,
}

/// Options of `schema`.
#[derive(Args, Clone, Debug)]
#[command(after_help = "Examples:\n  gputrace schema launches\n  gputrace schema --format json")]
pub(crate) struct SchemaArgs {
    /// Only these tables. Default: all
    #[arg(value_name = "TABLE")]
    pub(crate) tables: Vec<String>,

    /// Format of the output
    #[arg(long, value_enum, default_value = "text")]
    pub(crate) format: SchemaFormat,
}

/// Formats of the schema.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub(crate) enum SchemaFormat {
    /// For a terminal.
    Text,
    /// For programs.
    Json,
}

const SUBCOMMANDS: [&str; 11] = [
    "record",
    "report",
    "check",
    "diff",
    "import",
    "export",
    "demo",
    "doctor",
    "schema",
    "__demo-target",
    "__driver-probe",
];

/// Puts `record` before options that come without a subcommand. Err: what the user should have written.
pub(crate) fn with_default_subcommand(mut arguments: Vec<OsString>) -> Result<Vec<OsString>, String> {
    let Some(first) = arguments.get(1) else {
        return Err("no command given; try: gputrace -- python train.py, or gputrace --help".to_owned());
    };
    let first = first.to_string_lossy().into_owned();
    if SUBCOMMANDS.contains(&first.as_str()) || ["-h", "--help", "-V", "--version"].contains(&first.as_str()) {
        return Ok(arguments);
    }
    if !first.starts_with('-') {
        let rest = arguments[1..].iter().map(|a| a.to_string_lossy()).collect::<Vec<_>>().join(" ");
        return Err(format!(
            "{first}: no such subcommand ({}); to trace a program put -- before it: gputrace -- {rest}",
            SUBCOMMANDS.iter().filter(|name| !name.starts_with('_')).copied().collect::<Vec<_>>().join(", ")
        ));
    }
    arguments.insert(1, OsString::from("record"));
    Ok(arguments)
}

/// A number of bytes: digits, then nothing or one of K, M, G, T, or KiB and the like, all powers of 1024.
pub(crate) fn parse_size(text: &str) -> Result<u64, String> {
    let digits = text.find(|c: char| !c.is_ascii_digit()).unwrap_or(text.len());
    let (number, unit) = text.split_at(digits);
    let shift = match unit.trim().to_ascii_uppercase().as_str() {
        "" | "B" => 0,
        "K" | "KB" | "KIB" => 10,
        "M" | "MB" | "MIB" => 20,
        "G" | "GB" | "GIB" => 30,
        "T" | "TB" | "TIB" => 40,
        _ => return Err("expected a size such as 500000, 64M or 2G".to_owned()),
    };
    let number: u64 = number.parse().map_err(|_| "expected a size such as 500000, 64M or 2G".to_owned())?;
    number.checked_mul(1 << shift).filter(|n| *n > 0).ok_or_else(|| "out of range".to_owned())
}

fn parse_malloc(text: &str) -> Result<Malloc, String> {
    match text {
        "off" => Ok(Malloc::Off),
        "sample" => Ok(Malloc::Sample(SAMPLE_BYTES)),
        "full" => Ok(Malloc::Full),
        _ => match text.strip_prefix("sample=") {
            Some(size) => parse_size(size).map(Malloc::Sample),
            None => Err("expected off, sample, sample=BYTES or full".to_owned()),
        },
    }
}

fn parse_seconds(text: &str) -> Result<Duration, String> {
    let seconds: f64 = text.parse().map_err(|_| "expected a number of seconds such as 2 or 0.5".to_owned())?;
    Duration::try_from_secs_f64(seconds).map_err(|_| "expected a number of seconds such as 2 or 0.5".to_owned())
}

#[cfg(test)]
mod tests {
    use super::*;
    use clap::CommandFactory;

    fn arguments(line: &str) -> Vec<OsString> {
        line.split_whitespace().map(OsString::from).collect()
    }

    fn record(line: &str) -> RecordArgs {
        match Cli::try_parse_from(with_default_subcommand(arguments(line)).unwrap()).unwrap().action {
            Action::Record(args) => args,
            other => panic!("{other:?}"),
        }
    }

    #[test]
    fn the_definition_is_sound() {
        Cli::command().debug_assert();
    }

    #[test]
    fn record_is_the_default_and_its_word_may_be_given() {
        for line in ["gputrace -o d -- python -c x", "gputrace record -o d -- python -c x"] {
            let args = record(line);
            assert_eq!(args.output, Some(PathBuf::from("d")));
            assert_eq!(args.command, arguments("python -c x"));
        }
        assert_eq!(record("gputrace -- record").command, arguments("record"));
        assert_eq!(record("gputrace -- a -- b --help").command, arguments("a -- b --help"));
    }

    #[test]
    fn defaults_are_those_of_new() {
        let (given, new) = (record("gputrace -- x"), RecordArgs::new(None, arguments("x")));
        assert_eq!(format!("{given:?}"), format!("{new:?}"));
    }

    #[test]
    fn options_are_parsed_with_their_units() {
        let args = record(
            "gputrace --malloc sample=64K --max-size 20GiB --segment-memory 1M --on-full block --stacks off --stacks-over 100 \
             --launch-stacks 0 --grace 0.5 -- x",
        );
        assert_eq!(args.malloc, Malloc::Sample(65_536));
        assert_eq!((args.max_size, args.segment_memory), (20 << 30, 1 << 20));
        assert_eq!((args.on_full, args.grace), (OnFull::Block, Duration::from_millis(500)));
        assert_eq!((args.stacks, args.stacks_over, args.launch_stacks), (Switch::Off, 100, 0));
        for wrong in ["", "x", "1X", "-1", "0", "99999999999T", "1.5G"] {
            assert!(parse_size(wrong).is_err(), "{wrong}");
        }
        assert!(parse_malloc("sometimes").is_err() && parse_malloc("sample=0").is_err());
        assert!(parse_seconds("-1").is_err() && parse_seconds("soon").is_err());
    }

    #[test]
    fn a_command_without_the_dashes_is_told_about_them() {
        let error = with_default_subcommand(arguments("gputrace python train.py")).unwrap_err();
        assert!(error.contains("gputrace -- python train.py"), "{error}");
        assert!(with_default_subcommand(arguments("gputrace")).unwrap_err().contains("no command given"));
    }

    #[test]
    fn every_subcommand_is_known_to_the_default() {
        let known: Vec<String> = Cli::command().get_subcommands().map(|c| c.get_name().to_owned()).collect();
        assert_eq!(known.len(), SUBCOMMANDS.len());
        assert!(known.iter().all(|name| SUBCOMMANDS.contains(&name.as_str())), "{known:?}");
    }
}
