//! How segments come to the collector: over the session's socket where there is one, or as files that it finds in the
//! session's folder.

#[cfg(all(any(test, fuzzing), target_os = "linux"))]
pub(crate) mod fuzzed;
mod holder;
#[cfg(target_os = "linux")]
mod linux;
#[cfg(target_os = "macos")]
mod macos;

use std::fs::{self, File};
use std::io;
use std::os::fd::{AsFd, OwnedFd, RawFd};
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

pub(crate) use holder::{Holder, Holders};
#[cfg(target_os = "linux")]
use linux::Door;
#[cfg(target_os = "linux")]
pub(crate) use linux::open_pidfd;
#[cfg(target_os = "macos")]
use macos::Door;
#[cfg(target_os = "macos")]
pub(crate) use macos::open_pidfd;

use crate::segment::{Refused, Segment};

/// Start of the name of a segment's file.
pub(crate) const SEGMENT: &str = "seg-";

/// A process and its segment.
pub(crate) struct Arrival {
    /// In the collector's pid namespace, or where that has no number for it, its own.
    pub(crate) pid: i32,
    /// The number is its own: other processes here may have the same one.
    pub(crate) foreign: bool,
    /// Readable when the process has ended; none when it already has, or when there is no descriptor left.
    pub(crate) pidfd: Option<OwnedFd>,
    /// The segment, or why it is not read.
    pub(crate) segment: Result<Segment, Refused>,
    /// The executable, where the process had no segment and said so.
    pub(crate) exe: Option<String>,
    /// The file, where it came as one.
    pub(crate) file: Option<PathBuf>,
    /// The segment's memory, for another collector.
    pub(crate) memory: Option<OwnedFd>,
    /// The process is known to have ended.
    pub(crate) gone: bool,
}

/// A process that says that its segment is a file. How it ends is known through the descriptor, however soon that is.
pub(crate) struct Announced {
    /// Its own view of its pid, as its segment has it.
    claimed: i32,
    /// The file's name; none from shims of before, which said no more than their pid. The first processes of two pid namespaces both call themselves 1.
    file: Option<String>,
    /// In the collector's pid namespace.
    pid: i32,
    pidfd: OwnedFd,
}

impl Announced {
    /// Whether it speaks of this file, in which this pid stands.
    fn is_of(&self, name: &str, claimed: i32) -> bool {
        self.file.as_deref().map_or(self.claimed == claimed, |file| file == name)
    }
}

/// Segments that come as files are looked for this often.
pub(crate) const LOOK_FOR_FILES: Duration = Duration::from_millis(250);
/// And no more often where one is said to be there.
const SOON: Duration = Duration::from_millis(20);
/// Processes whose file was not found yet, at most.
const MOST_ANNOUNCED: usize = 64;

/// Where segments come from.
pub(crate) struct Arrivals {
    door: Door,
    session: PathBuf,
    adopted: Vec<PathBuf>,
    holders: Holders,
    announced: Vec<Announced>,
    /// Somebody says that there is a file that was not looked for yet.
    there_is_a_file: bool,
}

impl Arrivals {
    /// Waits for processes of the session. `door`: where those of an earlier collector came to.
    pub(crate) fn listen(session: &Path, door: Option<OwnedFd>) -> io::Result<Arrivals> {
        let door = match door {
            Some(door) => Door::keep(door, session),
            None => Door::open(session)?,
        };
        Ok(Arrivals {
            door,
            session: session.to_owned(),
            adopted: Vec::new(),
            holders: Holders::default(),
            announced: Vec::new(),
            there_is_a_file: false,
        })
    }

    /// The descriptor that becomes readable when a process comes; none where they come as files only.
    pub(crate) fn descriptor(&self) -> Option<RawFd> {
        self.door.descriptor()
    }

    /// Whether somebody must be looked at again soon, who has come and said nothing yet, or says that there is a file.
    pub(crate) fn is_waiting(&self) -> bool {
        self.door.is_waiting() || self.there_is_a_file
    }

    /// Takes whoever has come.
    pub(crate) fn accept(&mut self, take: impl FnMut(Arrival)) {
        self.there_is_a_file |= self.door.accept(take, &mut self.announced);
        let old = self.announced.len().saturating_sub(MOST_ANNOUNCED);
        self.announced.drain(..old);
    }

    /// How often it is worth to [look for files](Self::adopt_files).
    pub(crate) fn look_every(&self) -> Duration {
        if self.there_is_a_file { SOON } else { LOOK_FOR_FILES }
    }

    /// Gives those who have said nothing yet a moment.
    pub(crate) fn wait(&self, deadline: Instant) {
        self.door.wait(deadline);
    }

    /// A file that another collector took.
    pub(crate) fn adopted(&mut self, file: &Path) {
        self.adopted.push(file.to_owned());
    }

    /// Takes segments that stand as files in the session's folder. `last`: those too of which it is not easy to say whose they are.
    pub(crate) fn adopt_files(&mut self, last: bool, mut take: impl FnMut(Arrival)) {
        self.there_is_a_file = false;
        let Ok(entries) = fs::read_dir(&self.session) else { return };
        self.holders.begin(last);
        for entry in entries.flatten() {
            let (name, path) = (entry.file_name(), entry.path());
            let Some(name) = name.to_str().filter(|name| name.starts_with(SEGMENT)) else { continue };
            if self.adopted.contains(&path) {
                continue;
            }
            let Ok(file) = File::options().read(true).write(true).open(&path) else { continue };
            let segment = match Segment::map(file.as_fd()) {
                // Its process is still filling it in.
                Err(Refused::Magic | Refused::Size(_)) => continue,
                other => other,
            };
            let claimed = segment
                .as_ref()
                .map_or(0, |s| s.view().header().pid.load(gputrace_abi::sync::Ordering::Relaxed) as i32);
            let announced = self.announced.iter().rposition(|by| by.is_of(name, claimed));
            let announced = announced.map(|place| self.announced.swap_remove(place));
            let (pid, gone) = match (&announced, self.holders.of(name, claimed)) {
                (Some(by), _) => (by.pid, false),
                (None, Holder::Process(pid)) => (pid, false),
                (None, Holder::Nobody) => (claimed, true),
                (None, Holder::Unknown) => continue,
            };
            let pidfd = announced.map(|by| by.pidfd);
            self.adopted.push(path.clone());
            take(Arrival {
                pid,
                foreign: false,
                pidfd: pidfd.or_else(|| if gone { None } else { open_pidfd(pid) }),
                segment,
                exe: None,
                file: Some(path),
                memory: Some(file.into()),
                gone,
            });
        }
    }

    /// Removes the file of a segment that was read to its end.
    pub(crate) fn forget(&mut self, file: &Path) {
        let _ = fs::remove_file(file);
        self.adopted.retain(|p| p != file);
    }
}
