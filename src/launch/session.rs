//! The session folder: where the target's processes find the shim and the collector.
//!
//! | path | what |
//! |---|---|
//! | `gputrace-<pid>-<random>/` | mode 0700, in $XDG_RUNTIME_DIR or else /tmp; locked (flock) as long as the launcher lives |
//! | `s/` | GPUTRACE_SESSION: the collector's socket, the one where others ask it (`control`), and the segments of processes that found no collector |
//! | `no-libasan.so/` | what LD_PRELOAD leads to, see `links.rs` |
//!
//! `s` is a folder of its own so that it can go while the links stay: processes that outlive the launcher then load an
//! empty library instead of the shim, without a word on stderr, and those already running see that the session is
//! over. Such a rest, and what a killed launcher left, is swept by a later launcher once no process refers to it.

use std::ffi::OsString;
use std::fs::{self, DirBuilder, File};
use std::io;
use std::os::fd::AsRawFd;
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::{DirBuilderExt, MetadataExt};
use std::path::{Path, PathBuf};
use std::time::Duration;

use anyhow::{Context, Result, bail};

use super::{links, others, processes};

/// Start of a session folder's name.
const PREFIX: &str = "gputrace-";
/// `<session>/s/sock` and `<session>/s/seg-<pid>-<number>` must fit into what the kernel takes for a socket.
const MOST_PATH_BYTES: usize = 90;

/// A session of this launcher.
#[derive(Debug)]
pub(crate) struct Session {
    root: PathBuf,
    /// What is in the folder of the links.
    links: Vec<String>,
    /// Held for its lock.
    lock: File,
}

impl Session {
    /// Makes the folder with links to `shim`, in the first of `bases` that will do; `loader` is the target's.
    pub(crate) fn new(bases: &[PathBuf], shim: &Path, loader: Option<&Path>) -> Result<Session> {
        let mut last = None;
        for base in bases {
            match Session::make(base, shim, loader) {
                Ok(session) => return Ok(session),
                Err(error) => last = Some(error.context(format!("{}", base.display()))),
            }
        }
        let advice = "cannot make a session folder; set XDG_RUNTIME_DIR to a writable folder with a short path";
        Err(last.unwrap_or_else(|| anyhow::anyhow!("no folder to try"))).context(advice)
    }

    fn make(base: &Path, shim: &Path, loader: Option<&Path>) -> Result<Session> {
        let random = gputrace_collectors::new_launcher_id() & 0xff_ffff;
        let name = format!("{}-{random:06x}", std::process::id());
        let root = base.join(format!("{PREFIX}{name}"));
        if root.as_os_str().len() > MOST_PATH_BYTES {
            bail!("the path is too long for a socket");
        }
        // The loader splits LD_PRELOAD at these and expands `$`.
        if root.as_os_str().as_bytes().iter().any(|b| b": $".contains(b)) {
            bail!("LD_PRELOAD cannot hold a path with a space, a colon or a dollar sign");
        }
        // Made and locked under another name, so that nobody ever sees an unlocked session and sweeps it.
        let young = base.join(format!(".{PREFIX}{name}"));
        DirBuilder::new().mode(0o700).create(&young)?;
        let made = fill(&young, &root, shim, loader).and_then(|session| {
            fs::rename(&young, &root)?;
            Ok(session)
        });
        match made {
            Ok((lock, links)) => Ok(Session { root, links, lock }),
            Err(error) => {
                let _ = fs::remove_dir_all(&young);
                Err(error.into())
            }
        }
    }

    /// The whole folder; its path stands in the environment of every process that can be traced.
    pub(crate) fn root(&self) -> &Path {
        &self.root
    }

    /// GPUTRACE_SESSION.
    pub(crate) fn path(&self) -> PathBuf {
        self.root.join("s")
    }

    /// The entry for LD_PRELOAD, with its literal `$LIB`.
    pub(crate) fn preload(&self) -> OsString {
        links::preload(&self.root)
    }

    /// Lets the target's loaders find the engine of inline hooks. Returns the entry for LD_AUDIT.
    pub(crate) fn add_engine(&self, engine: &Path) -> Result<OsString> {
        let engine = others::readable(&self.root, &self.root, engine, others::ENGINE);
        let linked = engine.and_then(|engine| links::add_engine(&self.root, &engine));
        linked.context("cannot link to the engine of inline hooks")?;
        Ok(links::audit(&self.root))
    }

    /// The descriptor by which others know that somebody is at work here.
    pub(crate) fn lock(&self) -> i32 {
        self.lock.as_raw_fd()
    }

    /// Ends the session. With `survivors` still running only what they may load stays, as empty libraries.
    pub(crate) fn end(self, survivors: bool) {
        if !survivors {
            links::remove(&self.root, &self.links);
            let _ = fs::remove_dir(self.path());
            if fs::remove_dir(&self.root).is_err() {
                // Links to the engine, or something that we did not make: a segment of a process that found no collector.
                let _ = fs::remove_dir_all(&self.root);
            }
            return;
        }
        let _ = links::empty(&self.root);
        let _ = fs::remove_dir_all(self.path());
    }
}

/// Fills `root`, whose name will be `name`.
fn fill(root: &Path, name: &Path, shim: &Path, loader: Option<&Path>) -> io::Result<(File, Vec<String>)> {
    let lock = File::open(root)?;
    // Where a file system knows no locks, a sweeper gets none either and leaves the session alone.
    try_lock(&lock);
    DirBuilder::new().mode(0o700).create(root.join("s"))?;
    let links = links::make(root, &others::readable(root, name, shim, others::SHIM)?, loader)?;
    others::let_in(root, &links::folder(root))?;
    Ok((lock, links))
}

/// Locks it if nobody has, for as long as it is open.
pub(super) fn try_lock(file: &File) -> bool {
    // SAFETY: the descriptor is open.
    unsafe { libc::flock(file.as_raw_fd(), libc::LOCK_EX | libc::LOCK_NB) == 0 }
}

/// Folders in which sessions may be, the best first.
pub(crate) fn bases() -> Vec<PathBuf> {
    let runtime = std::env::var_os("XDG_RUNTIME_DIR").map(PathBuf::from).filter(|path| path.is_absolute());
    let mut bases: Vec<PathBuf> = runtime.into_iter().chain([PathBuf::from("/tmp")]).collect();
    // Nobody else passes through a user's own folder.
    if others::may_come() {
        bases.sort_by_key(|base| !others::pass_through(base));
    }
    bases
}

/// The folders of sessions in `bases` that somebody may still be at work in: the launcher's pid, the folder, its owner.
pub(crate) fn find(bases: &[PathBuf]) -> Vec<Found> {
    let mut found = Vec::new();
    for entry in bases.iter().flat_map(fs::read_dir).flatten().flatten() {
        let name = entry.file_name();
        let Some(rest) = name.to_str().and_then(|name| name.strip_prefix(PREFIX)).filter(|n| is_session_name(n)) else {
            continue;
        };
        let pid = rest.split('-').next().and_then(|pid| pid.parse().ok());
        let about = fs::symlink_metadata(entry.path()).ok().filter(fs::Metadata::is_dir);
        if let (Some(pid), Some(about)) = (pid, about) {
            found.push(Found { pid, path: entry.path(), owner: about.uid() });
        }
    }
    found.sort_by_key(|session| session.pid);
    found
}

/// A session's folder.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Found {
    /// The launcher's pid.
    pub(crate) pid: u32,
    /// The whole folder.
    pub(crate) path: PathBuf,
    /// Its owner's user id.
    pub(crate) owner: u32,
}

impl Found {
    /// GPUTRACE_SESSION.
    pub(crate) fn session(&self) -> PathBuf {
        self.path.join("s")
    }

    /// Whether somebody is at work in it, as far as its lock says.
    pub(crate) fn is_alive(&self) -> bool {
        self.path.is_dir() && !is_dead(&self.path)
    }
}

/// Removes what dead launchers of this user left in `bases`, unless a process still refers to it.
pub(crate) fn sweep(bases: &[PathBuf]) {
    // SAFETY: the call only reads this process's credentials.
    let uid = unsafe { libc::getuid() };
    for base in bases {
        let Ok(entries) = fs::read_dir(base) else { continue };
        for entry in entries.flatten() {
            let name = entry.file_name();
            let name = name.to_string_lossy();
            let Some(rest) = name.trim_start_matches('.').strip_prefix(PREFIX) else { continue };
            let path = entry.path();
            if is_session_name(rest)
                && fs::symlink_metadata(&path).is_ok_and(|meta| meta.is_dir() && meta.uid() == uid)
                && is_dead(&path)
                && processes::referring_to(&path, 0).is_empty()
            {
                let _ = fs::remove_dir_all(&path);
            }
        }
    }
}

/// `<pid>-<6 hexadecimal digits>`.
fn is_session_name(rest: &str) -> bool {
    rest.split_once('-').is_some_and(|(pid, random)| {
        pid.parse::<u32>().is_ok() && random.len() == 6 && random.bytes().all(|b| b.is_ascii_hexdigit())
    })
}

/// Whether nobody holds the lock. A folder under its first name (with a dot) has none for a moment, or its maker died in
/// that moment: an hour decides.
fn is_dead(session: &Path) -> bool {
    let young = session.file_name().is_some_and(|name| name.as_bytes().starts_with(b"."));
    let old = |age: Duration| age.as_secs() > 3600;
    if young && !fs::metadata(session).and_then(|m| m.modified()).is_ok_and(|at| at.elapsed().is_ok_and(old)) {
        return false;
    }
    File::open(session).is_ok_and(|folder| try_lock(&folder))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::launch::testing::{Folder, eventually};
    use std::os::unix::fs::PermissionsExt;

    fn session(folder: &Folder) -> Session {
        Session::new(&[folder.path().to_owned()], Path::new("/bin/true"), None).unwrap()
    }

    #[test]
    fn a_session_is_private_and_its_end_removes_it() {
        let folder = Folder::new("session");
        let session = session(&folder);
        let root = session.root.clone();
        // Root's is passed through by others, who may not look around in it; the socket's folder is closed to all.
        let wanted = if others::may_come() { 0o711 } else { 0o700 };
        assert_eq!(fs::metadata(&root).unwrap().permissions().mode() & 0o777, wanted);
        assert_eq!(fs::metadata(session.path()).unwrap().permissions().mode() & 0o777, 0o700);
        assert!(session.path().is_dir());
        session.end(false);
        assert!(!root.exists());
    }

    #[test]
    fn the_end_leaves_survivors_what_they_may_load_and_nothing_else() {
        let folder = Folder::new("session-end");
        let session = session(&folder);
        let (root, s) = (session.root.clone(), session.path());
        session.end(true);
        assert!(!s.exists() && root.join("empty.so").exists());
    }

    #[test]
    fn only_dead_sessions_are_swept() {
        let folder = Folder::new("session-sweep");
        let bases = [folder.path().to_owned()];
        let alive = session(&folder);
        let dead = session(&folder);
        let dead_root = dead.root.clone();
        drop(dead);
        let other = folder.file("gputrace-notes/notes", b"", 0o600);
        eventually(|| {
            sweep(&bases);
            (!dead_root.exists()).then_some(())
        });
        assert!(alive.path().exists() && other.exists());
    }

    #[test]
    fn sessions_are_found_by_their_name_and_nothing_else_is() {
        let folder = Folder::new("session-find");
        let bases = [folder.path().to_owned(), folder.path().join("none")];
        folder.file("gputrace-notes/notes", b"", 0o600);
        folder.file("gputrace-1-abcdef", b"", 0o600);
        let session = session(&folder);
        let [found] = find(&bases).try_into().unwrap();
        assert_eq!((found.pid, &found.path), (std::process::id(), &session.root));
        assert_eq!(found.session(), session.path());
    }

    #[test]
    fn a_base_that_cannot_hold_a_session_is_passed_over() {
        let folder = Folder::new("session-base");
        let long = folder.path().join("x".repeat(100));
        let colon = folder.path().join("a:b");
        fs::create_dir_all(&long).unwrap();
        fs::create_dir_all(&colon).unwrap();
        let bases = [long.clone(), colon, folder.path().to_owned()];
        let session = Session::new(&bases, Path::new("/bin/true"), None).unwrap();
        assert_eq!(session.root.parent(), Some(folder.path()));
        let error = Session::new(&[long], Path::new("/bin/true"), None).unwrap_err();
        assert!(format!("{error:#}").contains("too long"), "{error:#}");
    }
}
