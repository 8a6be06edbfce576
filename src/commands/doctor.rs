//! `gputrace doctor [-- COMMAND]`: what can be traced here, what not, and why.
//!
//! Each check is a line: `ok`, `note` (worth knowing, a traced run works all the same) or `FAIL` (it would not). A check
//! tries the thing itself where that is harmless: it loads the shim into a child and asks the driver from there,
//! because a driver that hangs or crashes must not take doctor with it.

mod command;
mod counters;
mod cupti;
mod driver;
mod machine;

use std::io::Write;

use anyhow::{Context, Result};

pub(crate) use driver::probe as probe_driver;

use crate::cli::DoctorArgs;
use crate::launch::brake;
use crate::launch::exit::Ending;

/// How a check came out.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Level {
    Fine,
    Note,
    Fail,
}

/// One line of the answer.
#[derive(Clone, Debug, PartialEq, Eq)]
struct Check {
    level: Level,
    what: &'static str,
    found: String,
    /// What to do about it; empty for nothing.
    cure: String,
}

impl Check {
    fn fine(what: &'static str, found: impl Into<String>) -> Check {
        Check { level: Level::Fine, what, found: found.into(), cure: String::new() }
    }

    fn note(what: &'static str, found: impl Into<String>, cure: impl Into<String>) -> Check {
        Check { level: Level::Note, what, found: found.into(), cure: cure.into() }
    }

    fn fail(what: &'static str, found: impl Into<String>, cure: impl Into<String>) -> Check {
        Check { level: Level::Fail, what, found: found.into(), cure: cure.into() }
    }

    fn line(&self) -> String {
        let level = match self.level {
            Level::Fine => "ok",
            Level::Note => "note",
            Level::Fail => "FAIL",
        };
        let cure = if self.cure.is_empty() { String::new() } else { format!("; {}", self.cure) };
        format!("{level:<5} {:<15} {}{cure}\n", self.what, self.found)
    }
}

/// Prints all checks; the exit code is 1 if one failed.
pub(crate) fn run(args: &DoctorArgs) -> Result<Ending> {
    if args.clear_brake {
        return clear_brake();
    }
    let mut checks = driver::checks(&args.command);
    checks.extend(machine::checks());
    checks.extend(brake::engaged().iter().map(|of| Check::note("brake", braked(of), brake::CURE)));
    let fails = |checks: &[Check]| checks.iter().any(|check| check.level == Level::Fail);
    let here = !fails(&checks);
    let of_command = command::checks(&args.command);
    let command = !fails(&of_command);
    checks.extend(of_command);
    let mut text: String = checks.iter().map(Check::line).collect();
    text.push_str(match (here, command) {
        (true, true) => "a traced run works here\n",
        (true, false) => "traced runs work here, but not of this command: see FAIL above\n",
        (false, _) => "a traced run would not work: see FAIL above\n",
    });
    std::io::stdout().write_all(text.as_bytes())?;
    Ok(Ending::Code(i32::from(!(here && command))))
}

fn braked(of: &brake::Brake) -> String {
    format!("{} died twice soon after its start while it was traced, and runs untraced", of.command())
}

/// Releases all brakes of this host.
fn clear_brake() -> Result<Ending> {
    let released = brake::clear().context("the brake cannot be released")?;
    let mut text: String = released.iter().map(|of| format!("{} is traced again\n", of.command())).collect();
    if released.is_empty() {
        text.push_str("no command was braked here\n");
    }
    std::io::stdout().write_all(text.as_bytes())?;
    Ok(Ending::Code(0))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_line_says_level_subject_finding_and_cure() {
        assert_eq!(Check::fine("shim", "/x").line(), "ok    shim            /x\n");
        assert_eq!(Check::fail("memfd", "none", "use Linux").line(), "FAIL  memfd           none; use Linux\n");
    }
}
