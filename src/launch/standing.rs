//! The folder of a session that outlives its collectors: programs are started with its environment whether a collector is there or not.
//!
//! | path | what |
//! |---|---|
//! | the folder itself | mode 0700 (root's 0711, see `others.rs`); locked (flock) as long as a collector is at work |
//! | `s/` | GPUTRACE_SESSION: segments, what is kept beside them, the sockets; signs of programs that died twice and are not traced |
//! | `shim.so` | a copy, so that the folder is all that another container needs |
//! | `no-libasan.so/` | what LD_PRELOAD leads to, see `links.rs` |
//! | `about.json` | [`About`] |
//!
//! Nothing in it is removed while processes may look for it. A newer gputrace puts its shim in place of the old one: processes that run
//! keep theirs.

use std::ffi::OsStr;
use std::fs::{self, DirBuilder, File};
use std::io::{self, ErrorKind};
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::{DirBuilderExt, MetadataExt, PermissionsExt};
use std::path::{Path, PathBuf};

use anyhow::{Context, Result, bail};
use serde::{Deserialize, Serialize};

use super::session::{Found, try_lock};
use super::{links, others};

/// The variable by which processes are told that their segments are to be files.
pub(crate) const AS_FILES: &str = "GPUTRACE_SEGMENT";
const ABOUT: &str = "about.json";
/// All that is ever made in the folder.
const OWN: [&str; 6] = ["s", ABOUT, others::SHIM, "no-libasan.so", ".shim.new", ".about.new"];
/// `<folder>/s/seg-<pid>-<number>` must fit into what the kernel takes for a socket.
const MOST_PATH_BYTES: usize = 80;

/// What a collector leaves to the next one, and what programs are started with.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub(crate) struct About {
    /// The pid of the collector that is, or was, at work.
    pub(crate) pid: u32,
    /// Folder of the trace.
    #[serde(with = "gputrace_collectors::heir::path")]
    pub(crate) trace: PathBuf,
    /// The launcher's part of it.
    pub(crate) host: String,
    pub(crate) launcher_id: u64,
    /// Variables of programs that are to be traced, without those of the loader.
    pub(crate) variables: Vec<(String, String)>,
    /// NVTX is to find the shim.
    pub(crate) nvtx: bool,
}

/// A session of which this process is the collector.
#[derive(Debug)]
pub(crate) struct Standing {
    root: PathBuf,
    began: Began,
    /// Held for its lock.
    _lock: File,
}

/// What was there before.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Began {
    Nothing,
    EmptyFolder,
    Session,
}

/// The folder that is meant where none is named: of the user's own, in memory.
pub(crate) fn usual() -> PathBuf {
    let runtime = std::env::var_os("XDG_RUNTIME_DIR").map(PathBuf::from);
    match runtime.filter(|path| path.is_absolute() && path.is_dir()) {
        Some(path) => path.join("gputrace"),
        // SAFETY: the call only reads this process's credentials.
        None => PathBuf::from(format!("/dev/shm/gputrace-{}", unsafe { libc::getuid() })),
    }
}

/// What stands in the session's folder, to be believed. Err: it is none, or another user could have put it there: what it names is loaded
/// into programs.
pub(crate) fn about(root: &Path) -> Result<About> {
    if let Ok(about) = fs::symlink_metadata(root) {
        // SAFETY: the call only reads this process's credentials.
        let own = unsafe { libc::geteuid() };
        if about.uid() != own && about.uid() != 0 {
            bail!("{}: the session is another user's", root.display());
        }
        check_kind(root, &about)?;
        if about.mode() & 0o022 != 0 {
            bail!("{}: others may write there, so it is taken for no session", root.display());
        }
        check_parents(root)?;
    }
    said(root)
}

/// What stands in the session's folder, whoever wrote it.
pub(crate) fn said(root: &Path) -> Result<About> {
    let path = root.join(ABOUT);
    let text = fs::read(&path).map_err(|error| match error.kind() {
        ErrorKind::NotFound if root.exists() => {
            anyhow::anyhow!("{}: is no session's folder; gputrace collect makes one, in a new folder", root.display())
        }
        ErrorKind::NotFound => anyhow::anyhow!("{}: no session; gputrace collect {0} makes one", root.display()),
        ErrorKind::PermissionDenied => anyhow::anyhow!("{}: the session is another user's", root.display()),
        _ => anyhow::anyhow!("{}: {error}", path.display()),
    })?;
    serde_json::from_slice(&text).with_context(|| format!("{}: cannot be understood", path.display()))
}

/// The session of this folder, if it is one.
pub(crate) fn find(root: &Path) -> Option<Found> {
    let about = said(root).ok()?;
    Some(Found { pid: about.pid, path: root.to_owned(), owner: fs::metadata(root).ok()?.uid() })
}

/// Whether a collector is at work there, which may yet have to read what is in it.
#[cfg_attr(target_os = "macos", expect(dead_code, reason = "attach is for Linux"))]
pub(crate) fn is_at_work(root: &Path) -> bool {
    File::open(root).is_ok_and(|folder| !try_lock(&folder))
}

/// GPUTRACE_SESSION.
pub(crate) fn session(root: &Path) -> PathBuf {
    root.join("s")
}

impl Standing {
    /// Makes the folder where there is none, and is the only one at work there. `shim`: what programs will load.
    pub(crate) fn open(root: &Path, shim: &Path) -> Result<Standing> {
        let root = std::path::absolute(root)?;
        check_name(&root)?;
        check_parents(&root)?;
        let made = private_folder(&root)
            .with_context(|| format!("{}: the session's folder cannot be made", root.display()))?;
        let began = if made { Began::Nothing } else { check_owner(&root)? };
        let lock = File::open(&root).with_context(|| format!("{}: cannot be opened", root.display()))?;
        if !try_lock(&lock) {
            let pid = about(&root).map_or(0, |about| about.pid);
            bail!(
                "{}: gputrace (process {pid}) is at work there; stop it first: what is traced runs on, and nothing is lost",
                root.display()
            );
        }
        let standing = Standing { root, began, _lock: lock };
        match standing.fill(shim) {
            Ok(()) => Ok(standing),
            Err(error) => {
                let root = standing.root.clone();
                standing.undo();
                Err(error).with_context(|| format!("{}: the session's folder cannot be filled", root.display()))
            }
        }
    }

    fn fill(&self, shim: &Path) -> io::Result<()> {
        private_folder(&session(&self.root))?;
        let (copy, young) = (self.root.join(others::SHIM), self.root.join(".shim.new"));
        fs::copy(shim, &young)?;
        fs::set_permissions(&young, fs::Permissions::from_mode(0o755))?;
        fs::rename(&young, &copy)?;
        if !links::folder(&self.root).exists() {
            links::make(&self.root, &copy, None)?;
            others::let_in(&self.root, &links::folder(&self.root))?;
        }
        Ok(())
    }

    /// The folder.
    pub(crate) fn root(&self) -> &Path {
        &self.root
    }

    /// Whether the folder is still there.
    pub(crate) fn is_there(&self) -> bool {
        session(&self.root).is_dir()
    }

    /// GPUTRACE_SESSION.
    pub(crate) fn path(&self) -> PathBuf {
        session(&self.root)
    }

    /// What programs load.
    #[cfg_attr(target_os = "macos", expect(dead_code, reason = "attach is for Linux"))]
    pub(crate) fn shim(&self) -> PathBuf {
        self.root.join(others::SHIM)
    }

    /// Removes the folder: nobody looks for it any more.
    #[cfg_attr(target_os = "macos", expect(dead_code, reason = "attach is for Linux"))]
    pub(crate) fn remove(self) {
        let _ = fs::remove_dir_all(&self.root);
    }

    /// Nothing came of it: what was made in the folder goes, and the folder if it is new. A session that was there stays.
    pub(crate) fn undo(self) {
        if self.began == Began::Session {
            return;
        }
        for name in OWN {
            let path = self.root.join(name);
            let _ = if path.is_dir() { fs::remove_dir_all(&path) } else { fs::remove_file(&path) };
        }
        let _ = match self.began {
            Began::Nothing => fs::remove_dir(&self.root),
            _ => fs::set_permissions(&self.root, fs::Permissions::from_mode(0o700)),
        };
    }

    /// Says who is at work here, and with what programs are to be started.
    pub(crate) fn tell(&self, about: &About) -> Result<()> {
        let (to, young) = (self.root.join(ABOUT), self.root.join(".about.new"));
        let written = fs::write(&young, serde_json::to_vec_pretty(about)?).and_then(|()| fs::rename(&young, &to));
        written.with_context(|| format!("{}: cannot be written", to.display()))
    }
}

/// Makes a folder for its owner alone. False: it is there already.
fn private_folder(path: &Path) -> io::Result<bool> {
    match DirBuilder::new().mode(0o700).create(path) {
        Err(error) if error.kind() == ErrorKind::AlreadyExists => Ok(false),
        made => made.map(|()| true),
    }
}

/// What LD_PRELOAD and a socket can hold.
fn check_name(root: &Path) -> Result<()> {
    let name = root.as_os_str();
    if name.len() > MOST_PATH_BYTES {
        bail!("{}: too long for a socket; choose a path of {MOST_PATH_BYTES} bytes at most", root.display());
    }
    if name.as_bytes().iter().any(|byte| b": $\n'\"".contains(byte)) {
        bail!("{}: LD_PRELOAD cannot hold a path with a space, a colon, a dollar sign or quotes", root.display());
    }
    Ok(())
}

/// Whoever may write to a folder can put another one in the place of what it holds, unless it is sticky.
fn check_parents(root: &Path) -> Result<()> {
    let root = std::path::absolute(root)?;
    // As it is called, and where links lead.
    let real = root.parent().and_then(|parent| parent.canonicalize().ok());
    for parent in root.ancestors().skip(1).chain(real.iter().flat_map(|real| real.ancestors())) {
        let mode = fs::metadata(parent).map_or(0, |about| about.mode());
        if mode & 0o002 != 0 && mode & 0o1000 == 0 {
            bail!(
                "{}: everybody may replace what it holds; choose another place for the session, or chmod +t it",
                parent.display()
            );
        }
    }
    Ok(())
}

/// A link may lead elsewhere at any time.
fn check_kind(root: &Path, about: &fs::Metadata) -> Result<()> {
    if about.is_symlink() {
        bail!("{}: is a link; name the folder that it leads to", root.display());
    }
    if !about.is_dir() {
        bail!("{}: is no folder, so it is no session's; name another one", root.display());
    }
    Ok(())
}

/// What another user could put things into is not taken, nor what holds anything but a session.
fn check_owner(root: &Path) -> Result<Began> {
    let about = fs::symlink_metadata(root).with_context(|| format!("{}: cannot be looked at", root.display()))?;
    // SAFETY: the call only reads this process's credentials.
    let own = unsafe { libc::geteuid() };
    check_kind(root, &about)?;
    if about.uid() != own {
        bail!("{}: a folder of another user's; name another one", root.display());
    }
    let entries = fs::read_dir(root).with_context(|| format!("{}: cannot be read", root.display()))?;
    let names: Vec<_> = entries.flatten().map(|entry| entry.file_name()).collect();
    // What is made there first, or says what it is: a file of somebody else's that is called like one of ours is not written over.
    let begun = fs::symlink_metadata(session(root)).is_ok_and(|about| about.is_dir()) || said(root).is_ok();
    let strange = |name: &OsStr| !begun || !OWN.iter().any(|known| name == *known);
    if let Some(name) = names.iter().find(|name| strange(name)) {
        bail!("{}: holds {}, which is of no session; name a folder of its own", root.display(), name.display());
    }
    if about.mode() & 0o066 != 0 {
        bail!("{}: others may read or write there; chmod 700 {0}, or name another folder", root.display());
    }
    Ok(if begun { Began::Session } else { Began::EmptyFolder })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::launch::testing::{Folder, eventually};

    #[test]
    fn what_others_could_have_put_there_is_no_session() {
        let folder = Folder::new("standing-others");
        let shim = folder.path().join("libgputrace_shim.so");
        fs::write(&shim, "x").unwrap();
        let root = folder.path().join("open/s");
        fs::create_dir(folder.path().join("open")).unwrap();
        let may = |path: &Path, mode| fs::set_permissions(path, fs::Permissions::from_mode(mode)).unwrap();
        Standing::open(&root, &shim).unwrap().tell(&About::default()).unwrap();
        assert!(about(&root).is_ok());
        may(&folder.path().join("open"), 0o777);
        for refused in [about(&root).map(drop), Standing::open(&root, &shim).map(drop)] {
            assert!(refused.unwrap_err().to_string().contains("everybody may replace what it holds"));
        }
        may(&folder.path().join("open"), 0o1777);
        assert!(about(&root).is_ok());
        may(&root, 0o777);
        assert!(about(&root).unwrap_err().to_string().contains("others may write there"));
    }

    #[test]
    fn a_session_stays_and_has_one_collector_at_a_time() {
        let folder = Folder::new("standing");
        let root = folder.path().join("s1");
        assert!(about(&root).unwrap_err().to_string().contains("gputrace collect"));
        let first = Standing::open(&root, Path::new("/bin/true")).unwrap();
        let said = About { pid: 77, trace: "/t".into(), variables: vec![("A".into(), "b".into())], ..About::default() };
        first.tell(&said).unwrap();
        let busy = Standing::open(&root, Path::new("/bin/true")).unwrap_err().to_string();
        assert!(busy.contains("(process 77) is at work there"), "{busy}");
        drop(first);
        let second = eventually(|| Standing::open(&root, Path::new("/bin/true")).ok());
        assert_eq!((about(second.root()).unwrap(), find(&root).unwrap().pid), (said, 77));
        drop(second);
        // Who cleans up old files took a part of it.
        fs::remove_dir_all(session(&root)).unwrap();
        let second = eventually(|| Standing::open(&root, Path::new("/bin/true")).ok());
        assert!(second.path().is_dir() && root.join(others::SHIM).is_file() && links::folder(&root).is_dir());
    }

    #[test]
    fn folders_of_others_and_for_other_things_are_left_alone() {
        let folder = Folder::new("standing-odd");
        let said =
            |name: &str| Standing::open(&folder.path().join(name), Path::new("/bin/true")).unwrap_err().to_string();
        folder.file("home/notes", b"", 0o600);
        fs::set_permissions(folder.path().join("home"), fs::Permissions::from_mode(0o700)).unwrap();
        assert!(said("home").contains("holds notes"));
        folder.file("file", b"", 0o600);
        assert!(said("file").contains("is no folder"));
        folder.file("own/shim.so", b"precious", 0o600);
        fs::set_permissions(folder.path().join("own"), fs::Permissions::from_mode(0o700)).unwrap();
        assert!(said("own").contains("holds shim.so"));
        assert_eq!(fs::read(folder.path().join("own/shim.so")).unwrap(), b"precious");
        let open = folder.path().join("open");
        fs::create_dir(&open).unwrap();
        fs::set_permissions(&open, fs::Permissions::from_mode(0o755)).unwrap();
        assert!(said("open").contains("chmod 700"));
        assert!(said("a b").contains("cannot hold a path with a space") && said(&"x".repeat(90)).contains("too long"));
        std::os::unix::fs::symlink("home", folder.path().join("link")).unwrap();
        assert!(said("link").contains("is a link"));
    }
}
