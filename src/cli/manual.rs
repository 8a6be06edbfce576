//! Options of `completions` and `man`: what is made of this command line's own definition.

use std::path::PathBuf;

use clap::Args;
use clap_complete::Shell;

/// Options of `completions`.
#[derive(Args, Clone, Debug)]
#[command(after_help = "Examples:\n  \
                  gputrace completions bash > ~/.local/share/bash-completion/completions/gputrace\n  \
                  gputrace completions zsh > ~/.zfunc/_gputrace\n  \
                  gputrace completions fish > ~/.config/fish/completions/gputrace.fish")]
pub(crate) struct CompletionsArgs {
    /// The shell
    #[arg(value_enum)]
    pub(crate) shell: Shell,
}

/// Options of `man`.
#[derive(Args, Clone, Debug)]
#[command(after_help = "Examples:\n  gputrace man report | man -l -\n  gputrace man -o ~/.local/share/man/man1")]
pub(crate) struct ManArgs {
    /// Whose page: a subcommand. Default: of gputrace itself
    #[arg(value_name = "SUBCOMMAND", conflicts_with = "output")]
    pub(crate) subcommand: Option<String>,

    /// Write the pages of gputrace and of each subcommand into this folder, which is made
    #[arg(short, long, value_name = "FOLDER")]
    pub(crate) output: Option<PathBuf>,
}
