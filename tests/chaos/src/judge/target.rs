//! The program notices nothing: how it ends, what it prints, what its calls return; and gputrace ends with it.

use std::fs;
use std::time::Duration;

use super::{Case, Found, found, tail, unless};
use crate::misfortune::Misfortune;
use crate::program::Driver;

/// How long gputrace may take after the program's end, beside the time that it gives children; a machine that is busy
/// with other things takes most of it.
const SEALING: Duration = Duration::from_secs(15);

/// gputrace, whoever goes on for it, and the program end.
pub(super) fn ends(case: &mut Case<'_, '_>) -> Result<Found, String> {
    let played = case.played;
    let mut wrong = unless(played.traced.status.is_some(), || "gputrace did not end".to_owned());
    wrong.extend(played.left.iter().map(|name| format!("{name} did not end")));
    let bound = SEALING + Duration::from_millis(case.round.options.grace_ms);
    wrong.extend(unless(played.sealing < bound, || format!("gputrace ended {:?} after the program", played.sealing)));
    found(wrong)
}

/// gputrace ends as the program does, and that as it does alone.
pub(super) fn status(case: &mut Case<'_, '_>) -> Result<Found, String> {
    let (played, round) = (case.played, case.round);
    let alone = played.plain.status;
    let got = played.traced.status;
    if case.refused() || got.is_none() {
        return Ok(None);
    }
    let wrong = match round.misfortune {
        Misfortune::CollectorKilled | Misfortune::AllKilled if played.happened => {
            let own = unless(got == Some(-libc::SIGKILL) || got == alone, || format!("gputrace ended with {got:?}"));
            // Where gputrace saw the end, it was the only one to do so.
            let of_target = played.target.map_or(Vec::new(), |end| {
                unless(Some(end) == alone, || format!("the program ended with {end} (alone {alone:?})"))
            });
            own.into_iter().chain(of_target).collect()
        }
        Misfortune::TargetKilled(signal) if played.happened => {
            let handled = round.program.handles_term && signal == libc::SIGTERM && got == Some(77);
            unless(got == Some(-signal) || got == alone || handled, || {
                format!("{got:?} after signal {signal} (alone {alone:?})")
            })
        }
        Misfortune::Asked(signal) if played.happened => {
            let ways = [Some(-signal), alone, Some(77).filter(|_| round.program.handles_term)];
            unless(ways.contains(&got), || format!("{got:?} after signal {signal} (alone {alone:?})"))
        }
        _ => unless(got == alone, || format!("{got:?} (alone {alone:?})")),
    };
    found(wrong)
}

/// The program prints what it prints alone.
pub(super) fn output(case: &mut Case<'_, '_>) -> Result<Found, String> {
    let (played, round) = (case.played, case.round);
    if case.refused() {
        let printed = String::from_utf8_lossy(&played.traced.stdout).into_owned();
        return found(unless(printed.is_empty(), || format!("refused, and yet it printed {printed}")));
    }
    // What was ended early prints what it had come to.
    if case.target_was_ended() || played.traced.status.is_none() {
        return Ok(None);
    }
    let (alone, traced) = (text(&played.plain.stdout), text(&played.traced.stdout));
    let mut wrong = unless(alone == traced, || {
        let differs = alone.lines().zip(traced.lines()).find(|(a, b)| a != b);
        format!("stdout: alone and traced {differs:?}, {} and {} lines", alone.lines().count(), traced.lines().count())
    });
    let summary = fs::read_to_string(case.stage.trace().join("summary.txt")).unwrap_or_default();
    let own = program_lines(&played.traced.stderr, &summary);
    let loader =
        |line: &&str| round.misfortune == Misfortune::SessionRemoved && line.starts_with("ERROR: ld.so: object");
    let own: Vec<&str> = own.into_iter().filter(|line| !loader(line)).collect();
    let alone: Vec<&str> = played.plain.stderr.lines().collect();
    // A summary that could not be stored stands on stderr all the same.
    let stored = !summary.is_empty() && played.traced.stderr.ends_with(&summary);
    let is_so = if stored || case.collector_died() { own == alone } else { own.starts_with(&alone) };
    wrong.extend(unless(is_so, || format!("stderr: {own:?} (alone {alone:?})")));
    found(wrong)
}

fn text(bytes: &[u8]) -> String {
    String::from_utf8_lossy(bytes).into_owned()
}

/// What of stderr is neither the summary nor a line of gputrace's.
fn program_lines<'a>(stderr: &'a str, summary: &str) -> Vec<&'a str> {
    let without = stderr.strip_suffix(summary).unwrap_or(stderr);
    without.lines().filter(|line| !line.starts_with("gputrace: ")).collect()
}

/// Each result, each block's content and errno were as they should be.
pub(super) fn unharmed(case: &mut Case<'_, '_>) -> Result<Found, String> {
    let (wrong, first) = &case.played.truth.wrong;
    // With few descriptors the program itself finds none; it prints that, and alone it does so too.
    let expected =
        matches!(case.round.misfortune, Misfortune::FewDescriptors(_)) && case.round.program.driver != Driver::Odd;
    if case.refused() || expected {
        return Ok(None);
    }
    found(unless(*wrong == 0, || format!("{wrong} results, first {first}")))
}

/// Nothing of gputrace panics, and what it says is one line a thing.
pub(super) fn said(case: &mut Case<'_, '_>) -> Result<Found, String> {
    let (played, stderr) = (case.played, &case.played.traced.stderr);
    let mut wrong = unless(!stderr.contains("panicked") && played.traced.status != Some(101), || tail(stderr));
    let summary = fs::read_to_string(case.stage.trace().join("summary.txt")).unwrap_or_default();
    let said: Vec<&str> = stderr.lines().filter(|line| line.starts_with("gputrace: ")).collect();
    let said: Vec<&&str> = said.iter().filter(|line| !summary.contains(**line)).collect();
    for (place, line) in said.iter().enumerate() {
        let again = said[..place].contains(line);
        wrong.extend(unless(!again, || format!("said twice: {line}")));
    }
    if case.refused() {
        wrong.extend(unless(stderr.lines().count() == 1, || {
            format!("refused in {} lines: {stderr}", stderr.lines().count())
        }));
        wrong.extend(unless(!stderr.contains("--help"), || stderr.clone()));
    }
    wrong.extend(played.asked.iter().cloned());
    found(wrong)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lines_of_the_program_are_what_is_left_of_stderr() {
        let summary = "gputrace: victim  exit 0\nUNKNOWN: nothing\n";
        let stderr = format!("own line\ngputrace: a warning\n{summary}");
        assert_eq!(program_lines(&stderr, summary), ["own line"]);
        // A summary that is not the last thing is none.
        assert_eq!(program_lines(&format!("{summary}harm\n"), summary), ["UNKNOWN: nothing", "harm"]);
    }
}
