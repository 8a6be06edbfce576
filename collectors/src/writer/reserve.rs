//! Room on the disk: how much there is, and some that is taken at the start and given back at the end, so that a trace
//! whose disk ran full still gets the account of what was lost: its manifest, its last small files, its summary.

use std::fs::{self, File};
use std::io;
use std::os::fd::AsRawFd;
use std::os::unix::fs::OpenOptionsExt;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use crate::file::own_file;
use crate::folder;
use crate::manifest;

/// Half of it is enough for the manifest of a hundred processes.
const BYTES: u64 = 512 << 10;
/// Never more than this part of what is free.
const SHARE: u64 = 8;

/// The disk is asked for its room not more often than this.
const ASKED: Duration = Duration::from_millis(100);

/// A file that only takes room, where the disk can reserve any. It is locked as long as its launcher works, by which another
/// one knows that.
pub(super) struct Reserve {
    path: PathBuf,
    file: Option<File>,
    /// Free bytes when the disk was last asked.
    room: Option<(Instant, u64)>,
}

impl Reserve {
    /// Takes the room, beside the manifest, whose readers pass it over.
    /// `lock`: the file of an earlier collector, whose lock this one has taken over.
    pub(super) fn take(trace: &Path, host: &str, launcher_id: u64, lock: Option<File>) -> Reserve {
        let path = path(&manifest::path(trace, host, launcher_id));
        let own = || folder::of_file(&path).and_then(|folder| own_file(&folder.at(&path))).ok();
        let reserve = Reserve { file: lock.or_else(own), path, room: None };
        if let Some(file) = &reserve.file {
            // SAFETY: an open descriptor.
            unsafe { libc::flock(file.as_raw_fd(), libc::LOCK_EX | libc::LOCK_NB) };
            let bytes = BYTES.min(free_bytes(file) / SHARE);
            take_room(file, bytes);
        }
        reserve
    }

    /// Free bytes of the disk, as of a moment ago.
    pub(super) fn room(&mut self) -> u64 {
        let Some(file) = &self.file else { return u64::MAX };
        let (_, room) = *match &mut self.room {
            Some(known) if known.0.elapsed() < ASKED => known,
            old => old.insert((Instant::now(), free_bytes(file))),
        };
        room
    }

    /// Gives half of it back.
    pub(super) fn give_back_half(&mut self) {
        if let Some(file) = &self.file
            && let Ok(meta) = file.metadata()
        {
            let _ = file.set_len(meta.len() / 2);
        }
    }

    /// Gives it back.
    pub(super) fn give_back(&mut self) {
        if self.file.take().is_some() {
            let _ = fs::remove_file(&self.path);
        }
    }
}

/// Where the reserve of the launcher with this manifest is.
fn path(manifest: &Path) -> PathBuf {
    manifest.with_extension("reserve")
}

/// Takes the place of the launcher that wrote the manifest, if it does not work any more: the lock, and where it lies.
pub(crate) fn seize(manifest: &Path) -> io::Result<Option<(File, PathBuf)>> {
    let path = path(manifest);
    let mut options = File::options();
    let options = options.read(true).write(true).create(true).truncate(false).custom_flags(libc::O_NOFOLLOW);
    let file = options.open(&path)?;
    // SAFETY: an open descriptor.
    if unsafe { libc::flock(file.as_raw_fd(), libc::LOCK_EX | libc::LOCK_NB) } == 0 {
        return Ok(Some((file, path)));
    }
    match io::Error::last_os_error() {
        error if error.kind() == io::ErrorKind::WouldBlock => Ok(None),
        // A file system without locks: then nobody holds one.
        error if error.raw_os_error() == Some(libc::ENOLCK) || error.kind() == io::ErrorKind::Unsupported => {
            Ok(Some((file, path)))
        }
        error => Err(error),
    }
}

/// Whether the launcher of this host that wrote the manifest was killed at its work: its reserve is there, and nobody holds it.
pub fn was_killed(manifest: &Path) -> bool {
    let Ok(file) = File::open(path(manifest)) else { return false };
    // SAFETY: an open descriptor; a lock that is taken goes with it.
    unsafe { libc::flock(file.as_raw_fd(), libc::LOCK_EX | libc::LOCK_NB) == 0 }
}

/// Takes room. Unlike posix_fallocate it writes nothing where the file system cannot reserve.
#[cfg(target_os = "linux")]
fn take_room(file: &File, bytes: u64) {
    // SAFETY: an open descriptor and numbers.
    unsafe { libc::fallocate(file.as_raw_fd(), 0, 0, bytes as libc::off_t) };
}

/// Takes room.
#[cfg(target_os = "macos")]
fn take_room(file: &File, bytes: u64) {
    let mut room = libc::fstore_t {
        fst_flags: libc::F_ALLOCATEALL,
        fst_posmode: libc::F_PEOFPOSMODE,
        fst_offset: 0,
        fst_length: bytes as libc::off_t,
        fst_bytesalloc: 0,
    };
    // SAFETY: an open descriptor; the request reads and writes the struct.
    if unsafe { libc::fcntl(file.as_raw_fd(), libc::F_PREALLOCATE, &raw mut room) } == 0 {
        let _ = file.set_len(bytes);
    }
}

fn free_bytes(file: &File) -> u64 {
    // SAFETY: plain data, for which zeros are valid; the descriptor is open.
    unsafe {
        let mut meta: libc::statvfs = std::mem::zeroed();
        if libc::fstatvfs(file.as_raw_fd(), &mut meta) == 0 { meta.f_bavail as u64 * meta.f_frsize } else { u64::MAX }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_room_is_taken_and_given_back() {
        let trace = std::env::temp_dir().join(format!("gputrace-reserve-{}", std::process::id()));
        fs::create_dir_all(trace.join("manifest")).unwrap();
        let mut reserve = Reserve::take(&trace, "h", 7, None);
        assert!(fs::metadata(&reserve.path).unwrap().len() <= BYTES);
        assert!(reserve.room() > 0);
        let taken = fs::metadata(&reserve.path).unwrap().len();
        reserve.give_back_half();
        assert_eq!(fs::metadata(&reserve.path).unwrap().len(), taken / 2);
        assert!(!was_killed(&manifest::path(&trace, "h", 7)), "it is at work");
        reserve.file = None;
        assert!(was_killed(&manifest::path(&trace, "h", 7)), "nobody holds it");
        reserve.file = File::open(&reserve.path).ok();
        reserve.give_back();
        assert_eq!(reserve.room(), u64::MAX, "nobody is asked any more");
        assert_eq!(fs::read_dir(trace.join("manifest")).unwrap().count(), 0);
        fs::remove_dir_all(&trace).unwrap();
    }
}
