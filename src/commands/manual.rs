//! `gputrace completions` and `gputrace man`: made of the command line's own definition, so that they say what `--help` does.

use std::io::Write;

use anyhow::{Context, Result};
use clap::{Command, CommandFactory};
use clap_complete::aot;
use clap_mangen::Man;

use crate::cli::{Cli, CompletionsArgs, ManArgs};
use crate::launch::exit::{Failure, USAGE};

/// Prints what a shell completes.
pub(crate) fn completions(args: &CompletionsArgs) -> Result<()> {
    let mut text = Vec::new();
    aot::generate(args.shell, &mut shown(), "gputrace", &mut text);
    std::io::stdout().write_all(&text)?;
    Ok(())
}

/// Prints a page of the manual, or writes all of them.
pub(crate) fn man(args: &ManArgs) -> Result<()> {
    let mut gputrace = shown();
    // Gives each subcommand the name of its page.
    gputrace.build();
    if let Some(folder) = &args.output {
        let failed = || format!("{}: cannot be written", folder.display());
        std::fs::create_dir_all(folder).with_context(failed)?;
        for page in [&gputrace].into_iter().chain(gputrace.get_subcommands()) {
            let page = page_of(page);
            std::fs::write(folder.join(page.get_filename()), rendered(&page)?).with_context(failed)?;
        }
        return Ok(());
    }
    let page = match &args.subcommand {
        None => &gputrace,
        Some(wanted) => gputrace.find_subcommand(wanted).ok_or_else(|| {
            let known: Vec<&str> = gputrace.get_subcommands().map(Command::get_name).collect();
            Failure::error(USAGE, format!("{wanted}: no such subcommand; there are {}", known.join(", ")))
        })?,
    };
    std::io::stdout().write_all(&rendered(&page_of(page))?)?;
    Ok(())
}

/// The command line without what is not for people.
fn shown() -> Command {
    let all = Cli::command();
    let words: Vec<Command> = all.get_subcommands().filter(|command| !command.is_hide_set()).cloned().collect();
    let mut bare = Command::new("gputrace").version(env!("CARGO_PKG_VERSION")).disable_help_subcommand(true);
    if let Some(about) = all.get_about() {
        bare = bare.about(about.clone());
    }
    if let Some(after) = all.get_after_help() {
        bare = bare.after_help(after.clone());
    }
    // Options of every command.
    bare = bare.args(all.get_arguments().filter(|option| option.is_global_set()).cloned());
    bare.subcommands(words)
}

fn page_of(command: &Command) -> Man {
    Man::new(command.clone()).source(concat!("gputrace ", env!("CARGO_PKG_VERSION"))).manual("gputrace")
}

fn rendered(page: &Man) -> Result<Vec<u8>> {
    let mut text = Vec::new();
    page.render(&mut text)?;
    Ok(text)
}
