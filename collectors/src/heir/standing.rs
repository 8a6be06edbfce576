//! What a session that outlives its collectors keeps for the next one: beside each segment's file another one, whose name says which
//! process of the trace it is, and which holds what the process told once (`told.rs`).
//!
//! Here nobody needs to be alive to hand anything on: a collector that was stopped, killed, or replaced by a newer version leaves all of
//! it in the session's folder.

use std::ffi::OsStr;
use std::fs::{self, File};
use std::os::fd::OwnedFd;
use std::path::{Path, PathBuf};

use super::{Inheritance, Kept};
use crate::arrivals::{Holder, Holders, SEGMENT, open_pidfd};

/// Start of such a file's name; then come the process's id in 16 digits and the segment's name.
const KEPT: &str = "kept-";
const DIGITS: usize = 16;

/// Where it is kept what the process of this segment tells once.
pub(crate) fn path(segment: &Path, id: i64) -> PathBuf {
    let name = segment.file_name().unwrap_or(OsStr::new(SEGMENT)).to_string_lossy();
    segment.with_file_name(format!("{KEPT}{id:0DIGITS$x}-{name}"))
}

/// The process's id and its segment's name.
fn parse(name: &str) -> Option<(i64, &str)> {
    let (id, segment) = name.strip_prefix(KEPT)?.split_at_checked(DIGITS)?;
    let segment = segment.strip_prefix('-').filter(|segment| segment.starts_with(SEGMENT) && !segment.contains('/'))?;
    Some((i64::from_str_radix(id, 16).ok()?, segment))
}

/// What an earlier collector kept of the process of this segment, whatever trace it was of.
pub(crate) fn earlier(segment: &Path) -> Option<PathBuf> {
    let name = segment.file_name()?.to_str()?;
    let entries = fs::read_dir(segment.parent()?).ok()?.flatten();
    entries
        .map(|entry| entry.path())
        .find(|path| path.file_name().and_then(OsStr::to_str).and_then(parse).is_some_and(|(_, of)| of == name))
}

/// Which process of its trace such a file is of.
pub(crate) fn id_of(kept: &Path) -> Option<i64> {
    Some(parse(kept.file_name()?.to_str()?)?.0)
}

/// What stands in the session's folder, of processes that live and of those that do not.
pub fn left(session: &Path) -> Inheritance {
    let mut all = Inheritance::default();
    let mut holders = Holders::default();
    holders.begin(true);
    for entry in fs::read_dir(session).into_iter().flatten().flatten() {
        let name = entry.file_name();
        let Some((id, segment)) = name.to_str().and_then(parse) else { continue };
        let at = session.join(segment);
        let open = |path: &Path| File::options().read(true).write(true).open(path);
        let (Ok(memory), Ok(told)) = (open(&at), open(&entry.path())) else {
            // Its segment is gone: it is of no use.
            let _ = fs::remove_file(entry.path());
            continue;
        };
        // seg-PID-NUMBER
        let claimed = segment.split('-').nth(1).and_then(|pid| pid.parse().ok()).unwrap_or(0);
        let (pid, gone) = match holders.of(segment, claimed) {
            Holder::Process(pid) => (pid, false),
            Holder::Nobody | Holder::Unknown => (claimed, true),
        };
        let pidfd = if gone { None } else { open_pidfd(pid) };
        let kept = Kept {
            pid,
            foreign: false,
            segment: OwnedFd::from(memory),
            pidfd,
            told: Some(OwnedFd::from(told)),
            file: Some(at),
            gone,
        };
        all.processes.insert(id, kept);
    }
    all
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_file_says_which_process_its_segment_is_of() {
        let segment = Path::new("/run/s/seg-77-123456");
        let at = path(segment, 0x7f_ffff_ff00_0001);
        assert_eq!(at, Path::new("/run/s/kept-007fffffff000001-seg-77-123456"));
        assert_eq!(parse(at.file_name().unwrap().to_str().unwrap()), Some((0x7f_ffff_ff00_0001, "seg-77-123456")));
        for wrong in
            ["kept-", "kept-1-seg-1-2", "seg-77-1", "kept-00000000000000zz-seg-1-2", "kept-0000000000000001-other"]
        {
            assert_eq!(parse(wrong), None, "{wrong}");
        }
    }

    #[test]
    fn what_is_left_without_its_segment_is_swept() {
        let folder = std::env::temp_dir().join(format!("gt-standing-{}", std::process::id()));
        fs::create_dir_all(&folder).unwrap();
        let (here, gone) = (folder.join("seg-1-5"), folder.join("seg-2-6"));
        fs::write(&here, b"").unwrap();
        for (segment, id) in [(&here, 4), (&gone, 5)] {
            fs::write(path(segment, id), b"").unwrap();
        }
        assert_eq!(earlier(&here), Some(path(&here, 4)));
        let left = left(&folder);
        assert_eq!(left.processes.keys().copied().collect::<Vec<_>>(), [4]);
        assert!(!path(&gone, 5).exists() && earlier(&gone).is_none());
        fs::remove_dir_all(&folder).unwrap();
    }
}
