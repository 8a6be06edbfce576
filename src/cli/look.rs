//! Options that every command has: what is said beside its result, and how text looks.

use std::ffi::OsString;

use clap::{Args, ValueEnum};

/// Options of every command.
#[derive(Args, Clone, Copy, Debug)]
pub(crate) struct Look {
    /// Say nothing but errors: no summary, no progress, no notes (which stay in the trace)
    ///
    /// What a command was asked to print it prints
    #[arg(long, global = true)]
    pub(crate) quiet: bool,

    /// When text has bold and coloured words: auto (at a terminal, as NO_COLOR, CLICOLOR and CLICOLOR_FORCE say), always or never
    #[arg(long, global = true, value_enum, value_name = "WHEN", default_value = "auto", hide_possible_values = true)]
    pub(crate) color: Color,
}

/// When text has bold and coloured words.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub(crate) enum Color {
    /// At a terminal, unless the environment says otherwise.
    Auto,
    /// Always.
    Always,
    /// Never.
    Never,
}

/// Where the first word stands that is none of these options: a subcommand, if there is one.
pub(crate) fn first_word(arguments: &[OsString]) -> usize {
    let mut at = 1;
    while let Some(word) = arguments.get(at).and_then(|word| word.to_str()) {
        match word {
            "--quiet" => at += 1,
            "--color" => at += 2,
            _ if word.starts_with("--color=") => at += 1,
            _ => break,
        }
    }
    at.min(arguments.len())
}

/// How help is to look, which is printed before options are read.
pub(crate) fn color_of_help(arguments: &[OsString]) -> clap::ColorChoice {
    let ours = || arguments.iter().skip(1).take_while(|word| *word != "--").filter_map(|word| word.to_str());
    let values = ours().zip(ours().skip(1)).filter(|(word, _)| *word == "--color").map(|(_, value)| value);
    match values.chain(ours().filter_map(|word| word.strip_prefix("--color="))).last() {
        Some("always") => clap::ColorChoice::Always,
        Some("never") => clap::ColorChoice::Never,
        _ => clap::ColorChoice::Auto,
    }
}
