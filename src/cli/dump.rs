//! Options of `dump`.

use clap::Args;

/// Options of `dump`.
#[derive(Args, Clone, Debug)]
#[command(
    override_usage = "gputrace dump [SESSION|PID|TRACE]",
    after_help = "Exit code: 0 when what just happened is in the trace, whose folder is printed; 1 if the session keeps nothing back, \
                  or could not write; 2 if there is no such session, or several and none was named.\n\nExamples:\n  gputrace dump\n  \
                  gputrace dump 4711\n  gputrace report $(gputrace dump train-trace)"
)]
pub(crate) struct DumpArgs {
    /// The session: the pid of gputrace or of a process that it traces, the folder of its trace, or its own folder. Default: the
    /// only one of this user, but for sessions of collect with a folder of their own
    #[arg(value_name = "SESSION|PID|TRACE")]
    pub(crate) session: Option<String>,
}
