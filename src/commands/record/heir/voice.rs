//! How the heir says something where gputrace would have said it, without holding what somebody may wait for the end of.
//!
//! A reader of a pipe waits until nobody can write to it, and a terminal is hung up. So these are not held: a process of the session
//! that writes to the same one lends it for a line. A file and a socket (a service's journal) are held: nobody waits for their
//! end, a socket cannot be opened again, and whoever writes to a file shares its place in it.

use std::fs::{File, Metadata, OpenOptions};
use std::io::Write;
use std::os::fd::{AsRawFd, BorrowedFd, RawFd};
use std::os::unix::fs::{FileTypeExt, MetadataExt, OpenOptionsExt};
use std::path::{Path, PathBuf};

use crate::launch::processes;

/// Where this process's stderr led when it began.
pub(super) struct Voice {
    session: PathBuf,
    held: Option<File>,
    lent: Option<Identity>,
}

/// Device and number of a file.
pub(super) type Identity = (u64, u64);

/// What this process's stderr is, where an heir is not to hold it.
pub(super) fn lent_here() -> Option<Identity> {
    let about = stderr()?.metadata().ok()?;
    let kind = about.file_type();
    (kind.is_fifo() || kind.is_char_device()).then(|| identity(&about))
}

fn stderr() -> Option<File> {
    // SAFETY: the second descriptor is open: Rust's start-up code opens it where nobody else has.
    unsafe { BorrowedFd::borrow_raw(2) }.try_clone_to_owned().ok().map(File::from)
}

impl Voice {
    /// That of the collector, which is this process's own where it is not lent; its stderr leads elsewhere afterwards.
    pub(super) fn new(session: &Path, lent: Option<Identity>) -> Voice {
        let held = if lent.is_none() { stderr() } else { None };
        Voice { session: session.to_owned(), held, lent }
    }

    /// What is held, for an heir of this one.
    pub(super) fn held(&self) -> Option<File> {
        self.held.as_ref()?.try_clone().ok()
    }

    /// The descriptor that is held; -1 for none.
    pub(super) fn descriptor(&self) -> RawFd {
        self.held.as_ref().map_or(-1, AsRawFd::as_raw_fd)
    }

    /// A line, if anybody lends what is needed. Nobody is waited for.
    pub(super) fn say(&self, line: &str) {
        let text = format!("gputrace: {line}\n");
        if let Some(mut held) = self.held.as_ref() {
            if held.metadata().is_ok_and(|about| about.file_type().is_socket()) {
                let flags = libc::MSG_DONTWAIT | libc::MSG_NOSIGNAL;
                // SAFETY: an open descriptor, and a buffer as long as the call is told.
                unsafe { libc::send(held.as_raw_fd(), text.as_ptr().cast(), text.len(), flags) };
            } else {
                let _ = held.write_all(text.as_bytes());
            }
            return;
        }
        let Some(wanted) = self.lent else { return };
        let lenders = processes::referring_to(&self.session, 0);
        let found = lenders.into_iter().find_map(|pid| lend(&format!("/proc/{pid}/fd/2"), wanted));
        let _ = found.map(|mut lent| lent.write_all(text.as_bytes()));
    }
}

/// Opens it anew, if it is what is wanted.
fn lend(path: &str, wanted: Identity) -> Option<File> {
    let is_it = |about: &Metadata| identity(about) == wanted;
    // Looked at before it is opened: opening may do something.
    std::fs::metadata(path).ok().filter(is_it)?;
    let flags = libc::O_NONBLOCK | libc::O_NOCTTY;
    let file = OpenOptions::new().write(true).custom_flags(flags).open(path).ok()?;
    file.metadata().is_ok_and(|about| is_it(&about)).then_some(file)
}

fn identity(about: &Metadata) -> Identity {
    (about.dev(), about.ino())
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::io::Read;

    #[test]
    #[cfg(target_os = "linux")]
    fn what_is_lent_is_the_one_that_is_wanted_and_nothing_of_it_is_held() {
        let (mut reader, writer) = std::io::pipe().unwrap();
        let path = format!("/proc/self/fd/{}", writer.as_raw_fd());
        let wanted = identity(&std::fs::metadata(&path).unwrap());
        assert!(lend("/dev/null", wanted).is_none());
        lend(&path, wanted).expect("it is that one").write_all(b"a line").unwrap();
        drop(writer);
        let mut text = String::new();
        reader.read_to_string(&mut text).unwrap();
        assert_eq!(text, "a line");
    }
}
