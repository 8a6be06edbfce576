//! Where the session's folder of an attached process is: one that the process sees under the same path, and from where it may load a library.
//!
//! Its name is made of the process's number and of when it started. It stays as long as the process, which has its segment mapped; what is
//! left of processes that have ended since is removed by whoever attaches next.

use std::fs;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};

use anyhow::Result;

use super::failed;
use crate::attach::check::{self, Target};
use crate::launch::standing;

const PREFIX: &str = "gputrace-attach-";

/// The folder for this process; `asked`: the one that the user names.
pub(super) fn of(target: &Target, asked: Option<&Path>) -> Result<PathBuf> {
    let bases = bases();
    sweep(&bases);
    match (&target.session, asked) {
        (Some(there), Some(asked)) if !same(there, asked) => Err(failed(format!(
            "process {} ({}) was attached to before, and its session is {}: leave --session out",
            target.pid,
            target.name,
            there.display()
        ))),
        (Some(there), _) => Ok(there.clone()),
        (None, Some(asked)) => Ok(asked.to_owned()),
        (None, None) => {
            let base = bases.into_iter().find(|base| check::sees(target.pid, base) && is_writable(base));
            let base = base.ok_or_else(|| {
                failed(format!(
                    "process {} ({}) sees none of XDG_RUNTIME_DIR, /dev/shm and /tmp as gputrace does, or may not load a library from there; name \
                     a folder with --session that it sees under the same path",
                    target.pid, target.name
                ))
            })?;
            Ok(base.join(format!("{PREFIX}{}-{}", target.pid, target.started)))
        }
    }
}

/// Whether a process has its segment there.
pub(super) fn holds_segment(session: &Path) -> bool {
    let entries = fs::read_dir(session).into_iter().flatten().flatten();
    entries.into_iter().any(|entry| entry.file_name().to_string_lossy().starts_with("seg-"))
}

fn bases() -> Vec<PathBuf> {
    let runtime = std::env::var_os("XDG_RUNTIME_DIR").map(PathBuf::from).filter(|path| path.is_absolute());
    runtime.into_iter().chain(["/dev/shm".into(), "/tmp".into()]).filter(|path| path.is_dir()).collect()
}

fn same(one: &Path, other: &Path) -> bool {
    one.canonicalize().is_ok_and(|one| other.canonicalize().is_ok_and(|other| one == other))
}

fn is_writable(folder: &Path) -> bool {
    use std::os::unix::ffi::OsStrExt;
    let Ok(path) = std::ffi::CString::new(folder.as_os_str().as_bytes()) else { return false };
    // SAFETY: a path that ends with a zero byte.
    unsafe { libc::access(path.as_ptr(), libc::W_OK | libc::X_OK) == 0 }
}

/// Removes the folders of processes that are no more, but for those whose gputrace has yet to read their last events.
fn sweep(bases: &[PathBuf]) {
    // SAFETY: the call only reads this process's credentials.
    let own = unsafe { libc::geteuid() };
    for entry in bases.iter().flat_map(fs::read_dir).flatten().flatten() {
        let name = entry.file_name();
        let Some((pid, started)) = name.to_str().and_then(parse) else { continue };
        let ours = fs::symlink_metadata(entry.path()).is_ok_and(|about| about.is_dir() && about.uid() == own);
        if ours && check::started(pid) != started && !standing::is_at_work(&entry.path()) {
            let _ = fs::remove_dir_all(entry.path());
        }
    }
}

fn parse(name: &str) -> Option<(i32, u64)> {
    let (pid, started) = name.strip_prefix(PREFIX)?.split_once('-')?;
    Some((pid.parse().ok()?, started.parse().ok()?))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::launch::testing::{Folder, eventually};

    #[test]
    fn folders_of_processes_that_are_no_more_are_removed() {
        let folder = Folder::new("attach-place");
        let pid = std::process::id() as i32;
        let alive = folder.path().join(format!("{PREFIX}{pid}-{}", check::started(pid)));
        let [dead, read, other] = [format!("{pid}-1"), format!("{pid}-2"), "notes".to_owned()]
            .map(|name| folder.path().join(format!("{PREFIX}{name}")));
        for path in [&alive, &dead, &other] {
            fs::create_dir(path).unwrap();
        }
        let at_work = standing::Standing::open(&read, Path::new("/bin/true")).unwrap();
        sweep(&[folder.path().to_owned()]);
        assert!(alive.exists() && !dead.exists() && read.exists() && other.exists());
        drop(at_work);
        eventually(|| {
            sweep(&[folder.path().to_owned()]);
            (!read.exists()).then_some(())
        });
        assert!(!holds_segment(&alive));
        fs::write(alive.join("seg-1-2"), b"").unwrap();
        assert!(holds_segment(&alive));
    }
}
