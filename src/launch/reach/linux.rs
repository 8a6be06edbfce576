//! By what /proc says of a process's folders and files.

use std::fs;
use std::io::ErrorKind;
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};

use crate::launch::{links, processes, shim};

/// Why a process whose loader was told of the shim is not traced all the same, if that is so.
pub(in crate::launch) fn cut_off(pid: u32, session: &Path) -> Option<&'static str> {
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

/// Whether a process has the shim mapped, whatever its environment says: that may be written over, and it may have been loaded in
/// another way.
pub(in crate::launch) fn has_shim(pid: u32) -> bool {
    fs::read_to_string(format!("/proc/{pid}/maps")).is_ok_and(|maps| maps.contains(shim::SHIM))
}

/// Whether a process has the driver's library mapped or one of its devices open.
pub(in crate::launch) fn uses_cuda(pid: u32) -> bool {
    let files = fs::read_dir(format!("/proc/{pid}/fd")).into_iter().flatten().flatten();
    let device = |path: PathBuf| path.to_string_lossy().starts_with("/dev/nvidia");
    files.filter_map(|file| fs::read_link(file.path()).ok()).any(device)
        || fs::read_to_string(format!("/proc/{pid}/maps")).is_ok_and(|maps| maps_driver(&maps))
}

/// Whether one of the mapped files is the driver's library (or the simulated one, by its own name).
fn maps_driver(maps: &str) -> bool {
    let is_driver = |name: &str| name.starts_with("libcuda.so") || name == shim::FAKE_DRIVER;
    maps.lines().filter_map(|line| line.rsplit('/').next()).any(is_driver)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_process_of_ours_without_the_folder_is_cut_off() {
        let own = std::process::id();
        let session = std::env::temp_dir().join(format!("gputrace-reach-{own}"));
        fs::create_dir_all(links::folder(&session)).unwrap();
        assert_eq!(cut_off(own, &session), None);
        fs::remove_dir_all(&session).unwrap();
        assert!(cut_off(own, Path::new("/nonexistent/session")).is_some_and(|why| why.contains("folder")));
    }

    #[test]
    fn the_driver_is_recognised_among_mapped_files() {
        let line = |path: &str| format!("7f00-7f01 r-xp 00000000 08:01 42   {path}\n");
        assert!(maps_driver(&line("/usr/lib/x86_64-linux-gnu/libcuda.so.580.95.05")));
        assert!(maps_driver(&line("/opt/libfake_cuda.so")));
        assert!(!maps_driver(&line("/usr/lib/libcudart.so.13")));
        assert!(!maps_driver("7f00-7f01 rw-p 00000000 00:00 0\n"));
    }
}
