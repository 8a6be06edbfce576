//! The command `gputrace`: parses, dispatches, prints the error, sets the exit code. Nothing else prints errors or exits.

mod analysis;
#[cfg(target_os = "linux")]
mod attach;
mod check;
mod cli;
mod commands;
mod diff;
mod export;
mod findings;
#[cfg(test)]
mod fuzzed;
mod import;
mod launch;
mod metrics;
mod new_file;
mod progress;
mod render;
mod spilled;
mod terminal;
mod top;
mod trace;

use std::ffi::OsString;

use clap::error::ErrorKind;
use clap::{CommandFactory, FromArgMatches};

use cli::{Action, Cli};
use launch::exit::{Ending, Failure, OWN_FAILURE, USAGE};
pub(crate) use terminal::{note, say};

fn main() {
    if let Some(ending) = commands::record::live_as_heir() {
        ending.become_ours();
    }
    let ending = match cli::with_default_subcommand(std::env::args_os().collect()) {
        Ok(arguments) => match parse(arguments) {
            Ok(cli) => {
                terminal::set(cli.look);
                dispatch(cli.action)
            }
            Err(error) => explain(&error),
        },
        Err(advice) => {
            say(&advice);
            Ending::Code(OWN_FAILURE)
        }
    };
    ending.become_ours()
}

fn parse(arguments: Vec<OsString>) -> Result<Cli, clap::Error> {
    let color = cli::color_of_help(&arguments);
    Cli::from_arg_matches(&Cli::command().color(color).try_get_matches_from(arguments)?)
}

fn dispatch(action: Action) -> Ending {
    let own_failure = match action {
        Action::Record(_) | Action::Demo(_) | Action::Attach(_) => OWN_FAILURE,
        // 1 says that a limit is exceeded.
        Action::Check(_) => USAGE,
        _ => 1,
    };
    if !matches!(action, Action::Record(_) | Action::Demo(_)) {
        launch::inherited::let_sigpipe_end_us();
    }
    let done = match action {
        Action::Record(args) => commands::record::run(args),
        Action::Report(args) => commands::report::run(args).map(|()| Ending::Code(0)),
        Action::Check(args) => commands::check::run(&args),
        Action::Export(args) => commands::export::run(&args).map(|()| Ending::Code(0)),
        Action::Import(args) => commands::import::run(&args).map(|()| Ending::Code(0)),
        Action::Diff(args) => commands::diff::run(&args).map(|()| Ending::Code(0)),
        Action::Attach(args) => commands::attach::run(args),
        Action::Collect(args) => commands::collect::run(args),
        Action::Env(args) => commands::collect::env(&args),
        Action::Top(args) => commands::top::run(&args),
        Action::Dump(args) => commands::dump::run(&args).map(|()| Ending::Code(0)),
        Action::Start(args) => commands::switch::start(&args).map(|()| Ending::Code(0)),
        Action::Set(args) => commands::switch::set(&args).map(|()| Ending::Code(0)),
        Action::Stop(args) => commands::switch::stop(&args).map(|()| Ending::Code(0)),
        Action::Recover(args) => commands::recover::run(&args).map(|()| Ending::Code(0)),
        Action::Demo(args) => commands::demo::run(args),
        Action::Doctor(args) => commands::doctor::run(&args),
        Action::Schema(args) => commands::schema::run(&args).map(|()| Ending::Code(0)),
        Action::Completions(args) => commands::manual::completions(&args).map(|()| Ending::Code(0)),
        Action::Man(args) => commands::manual::man(&args).map(|()| Ending::Code(0)),
        Action::DemoTarget => commands::demo_loop::run().map(|()| Ending::Code(0)),
        Action::DriverProbe { cupti } => commands::doctor::probe_driver(&cupti).map(|()| Ending::Code(0)),
    };
    done.unwrap_or_else(|error| {
        say(&told(&error));
        Ending::Code(error.downcast_ref::<Failure>().map_or(own_failure, |failure| failure.code))
    })
}

/// An error and its causes, each once: some say theirs themselves.
fn told(error: &anyhow::Error) -> String {
    let mut text = String::new();
    for cause in error.chain().map(ToString::to_string).filter(|cause| !cause.is_empty()) {
        if text.is_empty() {
            text = cause;
        } else if !text.ends_with(&cause) {
            text = format!("{text}: {cause}");
        }
    }
    text
}

/// Prints help where it was asked for, else one line about what was wrong.
fn explain(error: &clap::Error) -> Ending {
    if matches!(error.kind(), ErrorKind::DisplayHelp | ErrorKind::DisplayVersion) {
        launch::inherited::let_sigpipe_end_us();
        let _ = error.print();
        return Ending::Code(0);
    }
    let text = error.to_string();
    let mut lines = text.lines().map(str::trim);
    let mut what = lines.next().unwrap_or_default().trim_start_matches("error: ").to_owned();
    if what.ends_with(':') {
        // What is missing stands on the next line.
        what = format!("{what} {}", lines.next().unwrap_or_default());
    }
    // Which values there are is the answer to a wrong one.
    let values = text.lines().map(str::trim).find(|line| line.starts_with("[possible values: "));
    let values = values.map(|line| format!(" {line}")).unwrap_or_default();
    let tip = text.lines().find_map(|line| line.trim().strip_prefix("tip: ")).map(|tip| format!(" ({tip})"));
    let words: Vec<OsString> = std::env::args_os().collect();
    let subcommand = words.get(cli::first_word(&words)).map(|word| word.to_string_lossy().into_owned());
    let subcommand = subcommand.filter(|word| !word.starts_with('-')).unwrap_or("record".to_owned());
    let what = in_our_words(what);
    say(&format!("{what}{values}{}; see gputrace {subcommand} --help", tip.unwrap_or_default()));
    Ending::Code(if subcommand == "record" { OWN_FAILURE } else { USAGE })
}

/// What the standard library says of a number, as what is expected.
fn in_our_words(mut what: String) -> String {
    const WORDS: [(&str, &str); 5] = [
        ("invalid digit found in string", "expected a whole number such as 3"),
        ("cannot parse integer from empty string", "expected a whole number such as 3"),
        ("number too large to fit in target type", "the number is too large"),
        ("number too small to fit in target type", "the number is too small"),
        ("invalid float literal", "expected a number such as 2 or 0.5"),
    ];
    for (std, ours) in WORDS {
        what = what.replace(std, ours);
    }
    what
}

#[cfg(test)]
mod tests {
    use anyhow::Context;

    use super::told;

    #[test]
    fn a_cause_that_an_error_says_itself_is_said_once() {
        let full = || std::io::Error::from_raw_os_error(libc::ENOSPC);
        let collect = gputrace_collectors::CollectError::Trace { path: "t".into(), source: full() };
        let error = Err::<(), _>(collect).context("it did not start").unwrap_err();
        assert_eq!(told(&error), format!("it did not start: cannot write the trace at t: {}", full()));
        let error = Err::<(), _>(full()).context("t: cannot be made").unwrap_err();
        assert_eq!(told(&error), format!("t: cannot be made: {}", full()));
    }
}
