//! What is missing from an analysis: events that found no room, by the account in the manifests.
//!
//! The account is of whole processes: how much of a loss lies in the span that `--from` and `--to` leave is not known.

use super::{Facts, Section};
use crate::render::{number, share};

/// Events that were wanted, and those that found no room.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub(crate) struct Loss {
    /// Recorded.
    pub(crate) recorded: u64,
    /// Dropped.
    pub(crate) dropped: u64,
}

impl Loss {
    /// Of the classes with these names, in the processes that the filter keeps. None: no manifest says.
    pub(crate) fn of(facts: &Facts<'_>, classes: &[&str]) -> Option<Loss> {
        let mut loss = None;
        for process in facts.processes() {
            loss = loss.or(process.manifest.as_ref().map(|_| Loss::default()));
            let of_process = Loss::of_process(process, classes);
            if let (Some(sum), Some(more)) = (&mut loss, of_process) {
                *sum = Loss { recorded: sum.recorded + more.recorded, dropped: sum.dropped + more.dropped };
            }
        }
        loss
    }

    /// The same of one process.
    pub(crate) fn of_process(process: &crate::trace::Process, classes: &[&str]) -> Option<Loss> {
        let accounts = &process.manifest.as_ref()?.accounting;
        let counts = classes.iter().filter_map(|class| accounts.get(*class));
        let sum = counts.fold(Loss::default(), |sum, count| Loss {
            recorded: sum.recorded + count.recorded,
            dropped: sum.dropped + count.dropped,
        });
        Some(sum)
    }

    /// The share of the events that is there.
    pub(crate) fn kept(self) -> f64 {
        let all = self.recorded + self.dropped;
        if all == 0 { 1.0 } else { self.recorded as f64 / all as f64 }
    }
}

/// Says in a section that some of its events are missing, if some are.
pub(crate) fn note(section: &mut Section, facts: &Facts<'_>, what: &str, classes: &[&str]) {
    let Some(loss) = Loss::of(facts, classes).filter(|loss| loss.dropped > 0) else { return };
    let (lost, all) = (number(loss.dropped as f64), number((loss.dropped + loss.recorded) as f64));
    let whole = if facts.filter.is_window() { " (of the whole run; of this window it is not known)" } else { "" };
    section.note(format!(
        "{lost} of {all} {what} found no room and are lost{whole}: the numbers above rest on the other {} and are too low. \
         Record with a larger --segment-memory, or with --on-full block to lose none.",
        share(loss.kept())
    ));
}
