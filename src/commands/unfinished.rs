//! What is said of a trace that is not whole: that it is still being written, where a session of this user and host answers that it does.

use std::time::Duration;

use super::dump;
use crate::analysis::loss;
use crate::say;
use crate::trace::Trace;

/// A session answers between two passes; of one that is stopped nobody waits for word.
const PATIENCE: Duration = Duration::from_secs(5);

/// What is missing from a trace, and why.
pub(super) struct Unfinished {
    /// In words.
    pub(super) text: String,
    /// It is still being written.
    pub(super) is_live: bool,
}

/// Says on stderr that the trace is not whole, if it is not, for numbers that are judged.
pub(super) fn tell(trace: &Trace) {
    if let (Some(unfinished), Some(folder)) = (of(trace), trace.folders.first()) {
        say(&format!("{}: {}", folder.display(), unfinished.text));
    }
}

/// None: the trace is whole.
pub(super) fn of(trace: &Trace) -> Option<Unfinished> {
    let killed = loss::incomplete(trace)?;
    let writer = trace.folders.iter().find_map(|folder| Some((folder, dump::writer(folder, PATIENCE)?)));
    Some(match writer {
        Some((folder, session)) => Unfinished {
            text: format!(
                "{} is still being written, by gputrace {}: here is what it has so far, which may lack up to the last second",
                folder.display(),
                session.pid
            ),
            is_live: true,
        },
        None => Unfinished { text: killed, is_live: false },
    })
}
