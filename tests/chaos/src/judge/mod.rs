//! What must be true after a round, whatever happened in it: the promises of gputrace, an invariant a name. `CHECKS` is the list;
//! each check says what it found wrong, and counts as checked only where it could have found something.

mod counts;
mod rest;
mod target;
mod trace;

use crate::books::Books;
use crate::misfortune::Misfortune;
use crate::play::Played;
use crate::round::Round;
use crate::stage::Stage;

/// What a check found: nothing to look at, all well, or what is wrong.
pub(crate) type Found = Option<Vec<String>>;

/// What a check looks at.
pub(crate) struct Case<'a, 'b> {
    pub(crate) stage: &'a mut Stage<'b>,
    pub(crate) round: &'a Round,
    pub(crate) played: &'a Played,
    /// The accounts as they are when gputrace, and whoever went on for it, have ended; recovered where they had to be.
    pub(crate) books: Books,
}

type Check = fn(&mut Case<'_, '_>) -> Result<Found, String>;

/// The invariants, in the order in which they are checked: `recovers` comes before those that read the account.
pub(crate) const CHECKS: [(&str, Check); 14] = [
    ("it ends in time", target::ends),
    ("the same exit status", target::status),
    ("the same output", target::output),
    ("no call is harmed", target::unharmed),
    ("gputrace says what it must, no more", target::said),
    ("a killed collector's trace recovers", trace::recovers),
    ("accounts add up", counts::books_add_up),
    ("counts equal the truth", counts::equal_the_truth),
    ("who waits for room loses nothing", counts::blocked_lose_nothing),
    ("the trace opens", trace::opens),
    ("rows equal the account", trace::rows),
    ("damage is named", trace::damage),
    ("memory is bounded", rest::memory),
    ("nothing is left behind", rest::left_behind),
];

/// Judges a round: for each invariant whether it was checked, and what was wrong with it.
pub(crate) fn judge(
    stage: &mut Stage<'_>,
    round: &Round,
    played: &Played,
) -> Result<Vec<(usize, Vec<String>)>, String> {
    let books = Books::read(&stage.trace());
    let mut case = Case { stage, round, played, books };
    let mut found = Vec::new();
    for (number, (_, check)) in CHECKS.iter().enumerate() {
        found.extend(check(&mut case)?.map(|wrong| (number, wrong)));
    }
    Ok(found)
}

impl Case<'_, '_> {
    /// gputrace did not start the program, and had a reason.
    pub(crate) fn refused(&self) -> bool {
        self.round.misfortune.may_stop_the_start()
            && self.played.traced.status == Some(125)
            && self.played.truth.root == 0
    }

    /// gputrace itself was killed.
    pub(crate) fn collector_died(&self) -> bool {
        self.played.happened && matches!(self.round.misfortune, Misfortune::CollectorKilled | Misfortune::AllKilled)
    }

    /// Something ended the program, or parts of it, from outside.
    pub(crate) fn target_was_ended(&self) -> bool {
        let how = self.round.misfortune;
        self.played.happened
            && matches!(how, Misfortune::TargetKilled(_) | Misfortune::ChildKilled | Misfortune::Asked(_))
    }

    /// gputrace was there from the begin to the end, and had what it needs.
    pub(crate) fn was_watched(&self) -> bool {
        !self.refused() && !self.collector_died() && !self.round.misfortune.takes_disk()
    }
}

/// All well unless something stands there.
pub(crate) fn found(wrong: Vec<String>) -> Result<Found, String> {
    Ok(Some(wrong))
}

/// A complaint, if this is not so.
pub(crate) fn unless(is_so: bool, complaint: impl FnOnce() -> String) -> Vec<String> {
    if is_so { Vec::new() } else { vec![complaint()] }
}

/// The last lines of a text, on one.
pub(crate) fn tail(text: &str) -> String {
    let lines: Vec<&str> = text.lines().collect();
    lines[lines.len().saturating_sub(4)..].join(" / ")
}
