//! Processes of other users, which only root can start without their loaders forgetting LD_PRELOAD: `setpriv`, `runuser`,
//! `os.setuid` and an exec. Their loaders must find a shim, or they say on stderr that they do not. It is inert there:
//! the folder of the socket stays closed.

use std::fs::{self, Permissions};
use std::io;
use std::os::unix::fs::{MetadataExt, PermissionsExt};
use std::path::{Path, PathBuf};

/// Name of a copy of the shim in the session's folder.
pub(super) const SHIM: &str = "shim.so";
/// The same for the engine of inline hooks.
pub(super) const ENGINE: &str = "inline.so";

/// Whether there may be processes of other users below this one.
pub(super) fn may_come() -> bool {
    // SAFETY: reads this process's credentials.
    unsafe { libc::geteuid() == 0 }
}

/// Whose a folder is, where that is another user than this process runs as.
pub(crate) fn another_owner(folder: &Path) -> Option<u32> {
    // SAFETY: reads this process's credentials.
    let own = unsafe { libc::geteuid() };
    fs::metadata(folder).ok().map(|meta| meta.uid()).filter(|owner| *owner != own)
}

/// The library to be loaded: itself where everybody may read it, else a copy in `root`, which will be called `name`.
pub(super) fn readable(root: &Path, name: &Path, library: &Path, called: &str) -> io::Result<PathBuf> {
    if !may_come() || everybody_reads(library) {
        return Ok(library.to_owned());
    }
    let copy = root.join(called);
    fs::copy(library, &copy)?;
    fs::set_permissions(&copy, Permissions::from_mode(0o755))?;
    Ok(name.join(called))
}

fn everybody_reads(file: &Path) -> bool {
    let Ok(file) = file.canonicalize() else { return false };
    lets(&file, 0o004) && file.parent().is_some_and(pass_through)
}

/// Whether everybody may pass through this folder and those above it.
pub(super) fn pass_through(folder: &Path) -> bool {
    folder.ancestors().all(|folder| lets(folder, 0o001))
}

fn lets(path: &Path, bit: u32) -> bool {
    fs::metadata(path).is_ok_and(|meta| meta.permissions().mode() & bit != 0)
}

/// Lets everybody pass through `root`, which nobody else may list, and read what is in `links`.
pub(super) fn let_in(root: &Path, links: &Path) -> io::Result<()> {
    if !may_come() {
        return Ok(());
    }
    fs::set_permissions(root, Permissions::from_mode(0o711))?;
    open(links)
}

fn open(folder: &Path) -> io::Result<()> {
    fs::set_permissions(folder, Permissions::from_mode(0o755))?;
    for entry in fs::read_dir(folder)?.flatten() {
        let kind = entry.file_type()?;
        if kind.is_dir() {
            open(&entry.path())?;
        } else if kind.is_file() {
            fs::set_permissions(entry.path(), Permissions::from_mode(0o644))?;
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::launch::testing::Folder;

    #[test]
    fn a_folder_of_another_user_is_told_from_ones_own() {
        let folder = Folder::new("owners");
        assert_eq!(another_owner(folder.path()), None);
        // Only root can give one away; whoever else runs this has root's to look at.
        match std::os::unix::fs::chown(folder.path(), Some(65_534), None) {
            Ok(()) => assert_eq!(another_owner(folder.path()), Some(65_534)),
            Err(_) => assert_eq!(another_owner(Path::new("/proc/1")), Some(0)),
        }
        assert_eq!(another_owner(&folder.path().join("none")), None);
    }
}
