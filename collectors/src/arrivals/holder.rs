//! Whose segment a file is: the process that has it mapped.
//!
//! The number that stands in the segment is that of the process's own pid namespace, and may be another process's by the time the file
//! is found. The file's name is nobody else's.

use std::collections::HashMap;
use std::time::{Duration, Instant};

use super::SEGMENT;
use crate::kernel;

/// All processes of a machine are asked this often at most.
const EVERY: Duration = Duration::from_secs(1);

/// Whose a file is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Holder {
    /// This process's, in the collector's namespace.
    Process(i32),
    /// It has ended.
    Nobody,
    /// That is to be asked again.
    Unknown,
}

/// Who asks, and what was answered in this pass.
#[derive(Debug, Default)]
pub(crate) struct Holders {
    asked: Option<Instant>,
    /// Whose all segments are, where all processes were asked in this pass.
    all: Option<HashMap<String, i32>>,
    may_ask: bool,
}

impl Holders {
    /// A pass over the files begins. `last`: there is no other one.
    pub(crate) fn begin(&mut self, last: bool) {
        self.all = None;
        self.may_ask = last || self.asked.is_none_or(|asked| asked.elapsed() >= EVERY);
    }

    /// The process that has the file of this name, which calls itself `claimed`.
    pub(crate) fn of(&mut self, name: &str, claimed: i32) -> Holder {
        // Who asks has it mapped as well, and may have the same number in a namespace of its own.
        let own = std::process::id() as i32;
        match kernel::mapped(claimed, name).map(|names| if claimed == own { Vec::new() } else { names }) {
            // Nobody knows better.
            None if cfg!(target_os = "macos") => return Holder::Process(claimed),
            Some(names) if names.iter().any(|mapped| mapped == name) => return Holder::Process(claimed),
            _ if !self.may_ask => return Holder::Unknown,
            // The number of another user's process is another namespace's.
            _ => {}
        }
        let all = self.all.get_or_insert_with(|| {
            self.asked = Some(Instant::now());
            let pids = kernel::processes().into_iter().map(|pid| pid as i32).filter(|pid| *pid != own);
            pids.flat_map(|pid| {
                kernel::mapped(pid, SEGMENT).unwrap_or_default().into_iter().map(move |name| (name, pid))
            })
            .collect()
        });
        all.get(name).map_or(Holder::Nobody, |pid| Holder::Process(*pid))
    }
}

#[cfg(all(test, target_os = "linux"))]
mod tests {
    use std::io::Read;
    use std::process::{Command, Stdio};

    use super::*;

    #[test]
    fn a_file_that_nobody_has_is_nobodys_whoever_has_its_number() {
        let mut holders = Holders::default();
        let own = std::process::id() as i32;
        holders.begin(false);
        assert_eq!(holders.of("seg-1-2", own), Holder::Nobody);
        assert_eq!(holders.of("seg-1-3", own), Holder::Nobody, "the same answer serves all of a pass");
        holders.begin(false);
        assert_eq!(holders.of("seg-1-2", own), Holder::Unknown, "all processes were asked a moment ago");
        holders.begin(true);
        assert_eq!(holders.of("seg-1-2", own), Holder::Nobody);
        let mut child = Command::new("sh")
            .args(["-c", "echo; read line"])
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .spawn()
            .unwrap();
        child.stdout.take().unwrap().read_exact(&mut [0]).unwrap();
        let exe = std::fs::read_link(format!("/proc/{}/exe", child.id())).unwrap();
        let name = exe.file_name().unwrap().to_str().unwrap();
        assert_eq!(holders.of(name, child.id() as i32), Holder::Process(child.id() as i32));
        child.kill().unwrap();
        child.wait().unwrap();
    }
}
