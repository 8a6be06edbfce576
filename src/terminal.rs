//! What a command says beside its result, on stderr, and whether text is styled: `--quiet` and `--color`, for all commands.
//!
//! An error is said always ([`say`]), a note unless `--quiet` is given ([`note`]). Each is one line, and stands clear of the bar of
//! [`crate::progress`].

use std::io::{IsTerminal, Write};
use std::sync::OnceLock;

use crate::cli::{Color, Look};
use crate::progress;

/// What was asked for; before that all is said.
static LOOK: OnceLock<Look> = OnceLock::new();

/// Takes what the command line says. Once, before a command runs.
pub(crate) fn set(look: Look) {
    let _ = LOOK.set(look);
}

/// Whether only errors are said.
pub(crate) fn is_quiet() -> bool {
    LOOK.get().is_some_and(|look| look.quiet)
}

/// Whether text that goes there is styled.
pub(crate) fn is_styled(to: &impl IsTerminal) -> bool {
    match asked() {
        Color::Always => true,
        Color::Never => false,
        Color::Auto => is_styled_by_itself(to.is_terminal(), &|name| std::env::var(name).ok()),
    }
}

/// Whether text in a file is styled: only where it was asked for in so many words.
pub(crate) fn is_styled_in_files() -> bool {
    asked() == Color::Always
}

fn asked() -> Color {
    LOOK.get().map_or(Color::Auto, |look| look.color)
}

/// What the environment says (no-color.org, bixense.com/clicolors), the word against colours first.
fn is_styled_by_itself(terminal: bool, variable: &dyn Fn(&str) -> Option<String>) -> bool {
    let set = |name: &str| variable(name).filter(|value| !value.is_empty());
    if set("NO_COLOR").is_some() {
        return false;
    }
    if set("CLICOLOR_FORCE").is_some_and(|value| value != "0") {
        return true;
    }
    let plain = set("CLICOLOR").is_some_and(|value| value == "0") || set("TERM").is_some_and(|value| value == "dumb");
    terminal && !plain
}

/// One line on stderr. A closed stderr is no reason to fail.
pub(crate) fn say(line: &str) {
    progress::aside(|| {
        let _ = writeln!(std::io::stderr(), "gputrace: {line}");
    });
}

/// The same of what is no error.
pub(crate) fn note(line: &str) {
    if !is_quiet() {
        say(line);
    }
}

#[cfg(test)]
mod tests {
    use super::is_styled_by_itself;

    #[test]
    fn the_environment_decides_where_nobody_asked() {
        let with = |terminal: bool, set: &[(&str, &str)]| {
            let value = |name: &str| set.iter().find(|(n, _)| *n == name).map(|(_, value)| (*value).to_owned());
            is_styled_by_itself(terminal, &value)
        };
        assert_eq!((with(true, &[]), with(false, &[])), (true, false));
        assert!(!with(true, &[("NO_COLOR", "1")]) && with(true, &[("NO_COLOR", "")]));
        assert!(with(false, &[("CLICOLOR_FORCE", "1")]) && !with(false, &[("CLICOLOR_FORCE", "0")]));
        assert!(!with(true, &[("CLICOLOR_FORCE", "1"), ("NO_COLOR", "1")]));
        assert!(!with(true, &[("CLICOLOR", "0")]) && with(true, &[("CLICOLOR", "1")]));
        assert!(!with(false, &[("CLICOLOR", "1")]) && !with(true, &[("TERM", "dumb")]));
    }
}
