//! Debugging information from the servers that the user configured, where `--debuginfod` asked for it.
//!
//! elfutils' own client does that: it knows the servers (DEBUGINFOD_URLS), keeps what they gave in the user's cache and how long to
//! wait. It is run for files of whose debugging information nothing is on this machine, one at a time, by the thread for
//! symbols, for which nobody waits. Without the option nothing is asked of any network.

use std::ffi::OsStr;
use std::fs::File;
use std::io::Read;
use std::os::unix::ffi::OsStrExt;
use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::thread::sleep;
use std::time::{Duration, Instant};

use super::debug_file;

/// The client's name.
pub const CLIENT: &str = "debuginfod-find";
/// Longer it may not take for a file, whatever it was told itself.
const MOST: Duration = Duration::from_secs(90);
const LOOK: Duration = Duration::from_millis(20);
/// No path is longer.
const MOST_PATH: u64 = 4096;

/// Asks for debugging information, or does not.
pub(crate) struct Debuginfod {
    /// What is run; none: nothing is asked.
    client: Option<&'static str>,
}

impl Debuginfod {
    pub(crate) fn new(wanted: bool) -> Debuginfod {
        Debuginfod { client: wanted.then_some(CLIENT) }
    }

    /// The debugging information of the file with this build id. Waits as long as `goes_on` says.
    pub(super) fn find(&mut self, build_id: &[u8], goes_on: impl Fn() -> bool) -> Option<File> {
        let id: String = build_id.iter().map(|byte| format!("{byte:02x}")).collect();
        if id.is_empty() || !goes_on() {
            return None;
        }
        let mut command = Command::new(self.client?);
        command.args(["debuginfo", &id]).stdin(Stdio::null()).stderr(Stdio::null()).stdout(Stdio::piped());
        let Ok(mut child) = command.spawn() else {
            // It is not here, and will not come.
            self.client = None;
            return None;
        };
        let began = Instant::now();
        let found = ended_well(&mut child, || goes_on() && began.elapsed() < MOST).then(|| said(&mut child)).flatten();
        debug_file::open(Path::new(OsStr::from_bytes(found?.trim_ascii())))
    }
}

/// Waits for the end, or makes it.
fn ended_well(child: &mut Child, goes_on: impl Fn() -> bool) -> bool {
    loop {
        match child.try_wait() {
            Ok(Some(status)) => return status.success(),
            Ok(None) if goes_on() => sleep(LOOK),
            _ => {
                let _ = child.kill();
                let _ = child.wait();
                return false;
            }
        }
    }
}

fn said(child: &mut Child) -> Option<Vec<u8>> {
    let mut text = Vec::new();
    child.stdout.take()?.take(MOST_PATH).read_to_end(&mut text).ok()?;
    Some(text)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_client_that_is_not_there_is_not_asked_twice_and_none_unless_wanted() {
        let mut asked = Debuginfod { client: Some("/nonexistent/client") };
        assert!(asked.find(&[1, 2], || true).is_none() && asked.client.is_none());
        assert!(Debuginfod::new(false).client.is_none() && Debuginfod::new(true).client == Some(CLIENT));
        // One that says nothing, or never ends.
        assert!(Debuginfod { client: Some("true") }.find(&[1], || true).is_none());
        let mut endless = Command::new("sleep").arg("1000").spawn().unwrap();
        assert!(!ended_well(&mut endless, || false));
    }
}
