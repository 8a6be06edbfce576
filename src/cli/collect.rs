//! Options of `collect` and `env`.

use std::ffi::OsString;
use std::path::PathBuf;

use clap::{Args, ValueEnum};

use super::record::RecordArgs;

/// Options of `collect`.
#[derive(Args, Clone, Debug)]
#[command(
    override_usage = "gputrace collect [SESSION]... [OPTIONS]",
    after_help = "It runs until SIGTERM or Ctrl-C. What is traced then runs on, and records into its rings; the next gputrace collect of the session \
                  goes on there, a newer version too. Exit code: 0 when it was stopped and all is written, 1 if not.\n\nExamples:\n  \
                  gputrace collect -o /var/tmp/trace &\n  gputrace collect /run/gputrace/serving /run/gputrace/training -o /var/tmp/trace\n  gputrace env -- python serve.py\n  \
                  gputrace collect /run/gputrace --detail windows=1s/60s --gpu-time auto --budget 1 -o /var/tmp/trace"
)]
#[command(mut_arg("malloc", |arg| arg.default_value("off")))]
#[command(mut_arg("detail", |arg| arg.default_value("rollup")))]
#[command(mut_arg("segment_memory", |arg| arg.default_value("4M")))]
#[command(mut_arg("command", |arg| arg.hide(true)))]
#[command(mut_arg("grace", |arg| arg.hide(true)))]
pub(crate) struct CollectArgs {
    /// Folder of the session, which stays; several, for one collector of all. Default: gputrace in XDG_RUNTIME_DIR, else /dev/shm/gputrace-UID
    ///
    /// Sessions that begin together write to one trace, and limits of size are of each. In memory (tmpfs), and the user's own: mode 0700, or 0711 where root made it. Processes of other users that are started with it are not traced.
    #[arg(value_name = "SESSION")]
    pub(crate) sessions: Vec<PathBuf>,

    /// What is recorded, as for record.
    #[command(flatten)]
    pub(crate) record: RecordArgs,
}

/// Options of `env`.
#[derive(Args, Clone, Debug)]
#[command(
    override_usage = "gputrace env [SESSION] [--format FORMAT]\n       gputrace env [SESSION] -- COMMAND [ARGS...]",
    after_help = "Exit code: 0, or the command's; 1 if there is no such session.\n\nExamples:\n  eval \"$(gputrace env)\"; python serve.py\n  \
                  gputrace env -- python serve.py\n  docker run --env-file <(gputrace env --format plain) -v /run/gputrace:/run/gputrace IMAGE"
)]
pub(crate) struct EnvArgs {
    /// Folder of the session. Default: as for collect
    #[arg(value_name = "SESSION")]
    pub(crate) session: Option<PathBuf>,

    /// How it is printed
    #[arg(long, value_enum, value_name = "FORMAT", default_value = "shell")]
    pub(crate) format: EnvFormat,

    /// A command that is started with it, in place of this one, after --
    #[arg(last = true, value_name = "COMMAND")]
    pub(crate) command: Vec<OsString>,
}

/// Formats of an environment.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub(crate) enum EnvFormat {
    /// For eval: export NAME='value'; what LD_PRELOAD has stays.
    Shell,
    /// NAME=value, for --env-file and EnvironmentFile=.
    Plain,
    /// An object.
    Json,
}
