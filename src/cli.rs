//! The command line: every subcommand and option, with what they mean.
//!
//! `record` is the default: `gputrace -- COMMAND` needs no word before the options. The help texts are the options'
//! documentation; each names its unit, its default and what it is for.

mod attach;
mod capture;
mod check;
mod collect;
mod detail;
mod diff;
mod dump;
mod export;
mod import;
mod limits;
mod look;
mod malloc;
mod manual;
mod metrics;
mod names;
mod record;
mod recover;
mod report;
mod select;
mod set;
mod switch;
mod top;

use std::ffi::OsString;
use std::path::PathBuf;

use clap::{Args, Parser, Subcommand, ValueEnum};

pub(crate) use attach::AttachArgs;
pub(crate) use capture::CaptureRange;
pub(crate) use check::CheckArgs;
pub(crate) use collect::{CollectArgs, EnvArgs, EnvFormat};
pub(crate) use diff::DiffArgs;
pub(crate) use dump::DumpArgs;
pub(crate) use export::{ExportArgs, ExportAt, ExportFormat, ExportOf, ExportValue};
pub(crate) use import::ImportArgs;
pub(crate) use look::{Color, Look, color_of_help, first_word};
pub(crate) use malloc::{Malloc, MallocArgs};
pub(crate) use manual::{CompletionsArgs, ManArgs};
pub(crate) use metrics::MetricsArgs;
pub(crate) use record::{
    BUDGET, GPU_WINDOW_EVERY, GpuActivity, GpuTime, HookRoute, OnFull, OsWaits, RecordArgs, Switch,
};
pub(crate) use recover::RecoverArgs;
pub(crate) use report::{Format, ReportArgs, ReportFormat};
pub(crate) use select::Select;
pub(crate) use set::SetArgs;
pub(crate) use switch::{StartArgs, StopArgs};
pub(crate) use top::TopArgs;

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

    /// What is said, and how text looks.
    #[command(flatten)]
    pub(crate) look: Look,
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
    /// Trace a process that runs already, from now on (experimental)
    Attach(AttachArgs),
    /// Collect what programs of a session do that is there whether gputrace runs or not
    Collect(CollectArgs),
    /// Print the environment of such a session's programs, or start one
    Env(EnvArgs),
    /// Watch what a running session is doing
    Top(TopArgs),
    /// Have a running session keep what just happened
    Dump(DumpArgs),
    /// Have a running session record from now on
    Start(StartArgs),
    /// Have a running session record no more, until start
    Stop(StopArgs),
    /// Set limits and triggers of a running session
    Set(SetArgs),
    /// Make a trace whole whose gputrace was killed
    Recover(RecoverArgs),
    /// Write a trace in a format that other tools read
    Export(ExportArgs),
    /// Trace and report a training loop on the simulated GPU
    Demo(DemoArgs),
    /// Say what can be traced here, what not, and why
    Doctor(DoctorArgs),
    /// Print every table and column of a trace: type, unit, meaning
    Schema(SchemaArgs),
    /// Print what a shell needs to complete these words
    Completions(CompletionsArgs),
    /// Print a page of the manual, or write all of them
    Man(ManArgs),
    /// The loop that demo traces
    #[command(name = "__demo-target", hide = true)]
    DemoTarget,
    /// What doctor asks the driver's library, in a process of its own
    #[command(name = "__driver-probe", hide = true)]
    DriverProbe {
        /// Files that may be CUPTI
        cupti: Vec<PathBuf>,
    },
}

/// Options of `demo`.
#[derive(Args, Clone, Debug)]
#[command(after_help = "Examples:\n  gputrace demo -o demo-trace\n  gputrace demo --gpu-time full")]
pub(crate) struct DemoArgs {
    /// Folder of the trace. Default: gputrace-demo-TIME in the current folder, TIME in UTC
    #[arg(short, long, value_name = "TRACE")]
    pub(crate) output: Option<PathBuf>,

    /// How it is recorded when the simulated GPU ran what, as in record: off, auto, events, windows or full
    ///
    /// Unless told the simulated GPU tells its times by itself, all of them and for nothing. With this they come as they would of a
    /// GPU: from a stand-in for CUPTI, and in windows every half a second, for the loop takes little longer than one.
    #[arg(long, value_enum, value_name = "HOW", hide_possible_values = true)]
    pub(crate) gpu_time: Option<GpuTime>,
}

/// Options of `doctor`.
#[derive(Args, Clone, Debug)]
#[command(
    override_usage = "gputrace doctor [--clear-brake] [-- COMMAND]",
    after_help = "Exit code: 0 if a traced run would work, 1 if not.\n\nExamples:\n  gputrace doctor\n  \
                  gputrace doctor -- python train.py\n  gputrace doctor --clear-brake"
)]
pub(crate) struct DoctorArgs {
    /// Trace commands again that are not traced since they died twice soon after their start
    ///
    /// By SIGSEGV, SIGBUS, SIGILL or SIGABRT, within a minute, while they were traced on this node. Nothing else is checked
    #[arg(long)]
    pub(crate) clear_brake: bool,

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

const SUBCOMMANDS: [&str; 22] = [
    "record",
    "report",
    "check",
    "diff",
    "attach",
    "collect",
    "env",
    "top",
    "dump",
    "start",
    "stop",
    "set",
    "recover",
    "import",
    "export",
    "demo",
    "doctor",
    "schema",
    "completions",
    "man",
    "__demo-target",
    "__driver-probe",
];

/// Puts `record` before options that come without a subcommand. Err: what the user should have written.
pub(crate) fn with_default_subcommand(mut arguments: Vec<OsString>) -> Result<Vec<OsString>, String> {
    if arguments.len() < 2 {
        return Err("no command given; try: gputrace -- python train.py, or gputrace --help".to_owned());
    }
    let at = first_word(&arguments);
    let first = arguments.get(at).map_or("--".to_owned(), |word| word.to_string_lossy().into_owned());
    if SUBCOMMANDS.contains(&first.as_str()) || ["-h", "--help", "-V", "--version"].contains(&first.as_str()) {
        return Ok(arguments);
    }
    if !first.starts_with('-') {
        let rest = arguments[at..].iter().map(|a| a.to_string_lossy()).collect::<Vec<_>>().join(" ");
        return Err(format!(
            "{first}: no such subcommand ({}); to trace a program put -- before it: gputrace -- {rest}",
            SUBCOMMANDS.iter().filter(|name| !name.starts_with('_')).copied().collect::<Vec<_>>().join(", ")
        ));
    }
    arguments.insert(1, OsString::from("record"));
    Ok(arguments)
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use clap::CommandFactory;

    use super::limits::parse_size;
    use super::record::parse_seconds;
    use super::*;

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
            "gputrace --max-size 20GiB --segment-memory 1M --on-full block --stacks off --stacks-over 100 \
             --launch-stacks 0 --grace 0.5 -- x",
        );
        assert_eq!((args.limits.max_size, args.segment_memory), (20 << 30, 1 << 20));
        assert_eq!((args.on_full, args.grace), (Some(OnFull::Block), Duration::from_millis(500)));
        assert_eq!((args.stacks, args.stacks_over, args.launch_stacks), (Switch::Off, 100, 0));
        for wrong in ["", "x", "1X", "-1", "0", "99999999999T", "99999999999.5T", "1.5", ".", ".M", "1.2.3M"] {
            assert!(parse_size(wrong).is_err(), "{wrong}");
        }
        assert_eq!((parse_size("1.5G"), parse_size("3.6MiB")), (Ok(3 << 29), Ok(3_774_874)));
        assert!(parse_seconds("-1").is_err() && parse_seconds("soon").is_err());
        // What begins with a dash is a wrong size, and no option that nobody knows.
        for line in ["--max-size -1M", "--segment-memory -4K", "--max-age -1h"] {
            let words = with_default_subcommand(arguments(&format!("gputrace {line} -- true"))).unwrap();
            let error = Cli::try_parse_from(words).unwrap_err().to_string();
            assert!(error.contains("invalid value '-") && error.contains("such as"), "{error}");
        }
    }

    #[test]
    fn options_of_windows_belong_to_a_gpu_time_that_has_them() {
        for how in ["", "--gpu-time off", "--gpu-time full", "--gpu-time events"] {
            let wrong = record(&format!("gputrace {how} --gpu-window-every 5 -- x")).check().unwrap_err();
            assert!(wrong.starts_with("--gpu-window-every "), "{how}: {wrong}");
            assert!(wrong.contains("--gpu-time windows or --gpu-time auto"), "{how}: {wrong}");
            assert_eq!(record(&format!("gputrace {how} --budget 2 -- x")).check(), Ok(()));
        }
        for how in ["windows", "auto"] {
            let both = format!("gputrace --gpu-time {how} --gpu-window-every 5 --budget 2 -- x");
            assert_eq!(record(&both).check(), Ok(()));
        }
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
