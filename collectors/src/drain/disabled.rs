//! An administrator's file that switches recording off on a machine, which may come at any time: as long as it is there no process
//! records, and afterwards none does until somebody asks for it (`gputrace start`).

use std::path::Path;
use std::sync::PoisonError;
use std::time::{Duration, Instant};

use super::Drain;
use super::scheduled::Schedule;

/// It is looked for this often.
const LOOK: Duration = Duration::from_secs(1);

/// What is known of the file.
#[derive(Default)]
pub(super) struct Disabled {
    looked: Option<Instant>,
    pub(super) is_there: bool,
}

impl Drain {
    /// Looks for the file, if it is time.
    pub(super) fn see_disable_file(&mut self) {
        let Some(file) = self.config.disable_file.clone() else { return };
        if self.disabled.looked.is_some_and(|at| at.elapsed() < LOOK) {
            return;
        }
        self.disabled.looked = Some(Instant::now());
        let was_there = std::mem::replace(&mut self.disabled.is_there, file.exists());
        if !self.disabled.is_there {
            return;
        }
        if !was_there {
            self.say_disabled(&file);
        }
        self.schedule = Schedule::default();
        self.switch.ask(Some(false));
        self.see_switches();
        let now_ns = self.clocks.now_ns();
        // A program may have switched itself on since the last look.
        for process in self.processes.values_mut().filter(|process| process.is_recording()) {
            process.record(false, now_ns);
            self.changed = true;
        }
    }

    fn say_disabled(&mut self, file: &Path) {
        let text = format!(
            "{} has come: recording is off; to go on remove that file, then call gputrace start",
            file.display()
        );
        self.manifest.note(&text);
        self.shared.lock().unwrap_or_else(PoisonError::into_inner).warnings.push_back(text);
    }
}
