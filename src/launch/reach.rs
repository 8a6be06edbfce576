//! Whether the shim can have reached a process, by what the kernel keeps about it.

use std::fs;
use std::io::ErrorKind;
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::MetadataExt;
use std::path::Path;

use super::{links, processes};

/// What the environment of a process says of the session.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Reach {
    /// Its loader was told of the shim.
    Preloaded,
    /// It is one of ours, but LD_PRELOAD is without the shim.
    Dropped,
    /// The environment says nothing, or cannot be read.
    Unknown,
}

/// What this environment, `NAME=value` each followed by a nul byte, says of the session in this folder.
pub(super) fn reach(environment: Option<&[u8]>, session: &Path) -> Reach {
    let Some(environment) = environment else { return Reach::Unknown };
    let session = session.as_os_str().as_bytes();
    let names = |text: &[u8]| text.windows(session.len()).any(|window| window == session);
    let mut variables = environment.split(|byte| *byte == 0);
    if variables.any(|variable| variable.starts_with(b"LD_PRELOAD=") && names(variable)) {
        Reach::Preloaded
    } else if names(environment) {
        Reach::Dropped
    } else {
        Reach::Unknown
    }
}

/// Why a process whose loader was told of the shim is not traced all the same, if that is so.
pub(super) fn cut_off(pid: u32, session: &Path) -> Option<&'static str> {
    let links = links::folder(session);
    let inside = Path::new("/proc").join(pid.to_string()).join("root");
    let inside = inside.join(links.strip_prefix("/").unwrap_or(&links));
    let missing = fs::symlink_metadata(inside).is_err_and(|error| error.kind() == ErrorKind::NotFound);
    // SAFETY: reads this process's credentials.
    let own = unsafe { libc::geteuid() };
    let foreign = fs::metadata(format!("/proc/{pid}")).is_ok_and(|of| of.uid() != own && of.uid() != 0);
    // It may have moved or changed its user only when it was traced already.
    if !(missing || foreign) || has_segment(pid, session) || processes::stat(pid).is_none() {
        return None;
    }
    Some(if missing {
        "it does not see the session's folder (a chroot, a container or a /tmp of its own), so its loader finds no shim"
    } else {
        "it runs as another user, whom the session does not let in"
    })
}

/// Whether a process has a segment mapped: memory without a name in the file system, or a file of the session's.
fn has_segment(pid: u32, session: &Path) -> bool {
    let maps = fs::read(format!("/proc/{pid}/maps")).unwrap_or_default();
    let holds = |name: &[u8]| maps.windows(name.len()).any(|window| window == name);
    holds(b"/memfd:gputrace") || holds(session.as_os_str().as_bytes())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_session_must_stand_in_ld_preload_itself() {
        let session = Path::new("/tmp/gputrace-1-abc");
        let of = |text: &str| reach(Some(text.as_bytes()), session);
        assert_eq!(of("A=1\0LD_PRELOAD=/x.so:/tmp/gputrace-1-abc/$LIB/l.so\0"), Reach::Preloaded);
        assert_eq!(of("LD_PRELOAD=libm.so.6\0GPUTRACE_SESSION=/tmp/gputrace-1-abc\0"), Reach::Dropped);
        assert_eq!(of("OLD_LD_PRELOAD=/tmp/gputrace-1-abc/$LIB/l.so\0"), Reach::Dropped);
        assert_eq!(of("HOME=/root\0"), Reach::Unknown);
        assert_eq!(reach(None, session), Reach::Unknown);
    }

    #[test]
    fn a_process_of_ours_without_the_folder_is_cut_off() {
        let own = std::process::id();
        let session = std::env::temp_dir().join(format!("gputrace-reach-{own}"));
        fs::create_dir_all(links::folder(&session)).unwrap();
        assert_eq!(cut_off(own, &session), None);
        fs::remove_dir_all(&session).unwrap();
        assert!(cut_off(own, Path::new("/nonexistent/session")).is_some_and(|why| why.contains("folder")));
    }
}
