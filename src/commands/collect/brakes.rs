//! The brake of programs that are started in a session: they start without us, so a sign in the session's folder tells their shim not to
//! trace them. Deaths are counted as those of `gputrace -- COMMAND`, and forgotten by `gputrace doctor --clear-brake` as well.

use std::collections::BTreeSet;
use std::fs::{self, OpenOptions};
use std::os::unix::fs::OpenOptionsExt;
use std::path::PathBuf;
use std::time::{Duration, Instant, UNIX_EPOCH};

use gputrace_abi::brake::SIGN;
use gputrace_collectors::{Fault, Faults};

use crate::launch::brake::{self, Brake, CURE};
use crate::launch::exit::Ending;
use crate::say;

/// How often it is looked whether somebody has cleared the brakes.
const LOOK: Duration = Duration::from_secs(1);

/// The signs of a session.
pub(super) struct Brakes {
    /// GPUTRACE_SESSION.
    session: PathBuf,
    faults: Faults,
    looked: Option<Instant>,
}

impl Brakes {
    /// Of this session, whose collector tells of these deaths.
    pub(super) fn new(session: PathBuf, faults: Faults) -> Brakes {
        Brakes { session, faults, looked: None }
    }

    /// Counts deaths, and has the signs say what is counted, also by others.
    pub(super) fn see(&mut self) {
        let mut engaged = false;
        while let Some(fault) = self.faults.take() {
            engaged |= note(&fault);
        }
        if engaged || self.looked.is_none_or(|at| at.elapsed() >= LOOK) {
            self.looked = Some(Instant::now());
            self.agree();
        }
    }

    fn agree(&self) {
        // Where it is not known, what was known holds.
        let Ok(engaged) = brake::engaged_or_unknown() else { return };
        let wanted: BTreeSet<String> = engaged.iter().filter_map(Brake::sign).collect();
        let entries = fs::read_dir(&self.session).into_iter().flatten().flatten().map(|entry| entry.file_name());
        let there: BTreeSet<String> = entries.filter_map(|name| Some(name.to_str()?.to_owned())).collect();
        for gone in there.iter().filter(|name| name.starts_with(SIGN) && !wanted.contains(*name)) {
            let _ = fs::remove_file(self.session.join(gone));
        }
        for new in wanted.difference(&there) {
            let file = self.session.join(new);
            if let Err(error) = OpenOptions::new().write(true).create_new(true).mode(0o600).open(&file) {
                let file = file.display();
                say(&format!("{file}: cannot be written: {error}; so a program that died twice is traced on"));
            }
        }
    }
}

/// True: from now on its brake is on.
fn note(fault: &Fault) -> bool {
    let (ending, started) =
        (Ending::Signal(fault.signal), UNIX_EPOCH + Duration::from_nanos(fault.start_ns.max(0) as u64));
    let wall = Duration::from_nanos(fault.end_ns.saturating_sub(fault.start_ns).max(0) as u64);
    if brake::fault(ending, wall).is_none() {
        return false;
    }
    let Some(brake) = Brake::of_process(fault) else {
        say(&format!(
            "{} died of a fault soon after its start; without XDG_STATE_HOME and HOME that does not count, and a second one stops no tracing",
            fault.exe
        ));
        return false;
    };
    match brake.note(ending, started, wall) {
        Ok(true) => {
            let command = brake.command();
            say(&format!(
                "{command} died the second time soon after its start: it is started untraced from now on; {CURE}"
            ));
            true
        }
        Ok(false) => false,
        Err(error) => {
            say(&brake.not_noted(&error));
            false
        }
    }
}
