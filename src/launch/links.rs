//! The links by which every loader in the target's tree finds its library.
//!
//! LD_PRELOAD names `<session>/no-libasan.so/$LIB/libgputrace.so` with a literal `$LIB`, for which each loader puts a
//! folder of its own: `lib/x86_64-linux-gnu` (Debian), `lib64` (Red Hat, upstream), `lib` (Arch, and loaders installed
//! elsewhere); 32-bit ones `lib/i386-linux-gnu`, `lib32` or `lib`. musl's loader expands nothing, finds nothing and goes
//! on; a plain path makes musl programs exit with 127. 64-bit loaders get the shim, 32-bit ones an empty library.
//!
//! The odd name above the links is for AddressSanitizer, whose runtime ends a process (exit 1) when the path of the
//! first library does not hold `libasan.so`: a child built with it must not die of our being there.

use std::ffi::OsString;
use std::fs::{self, DirBuilder};
use std::io;
use std::os::unix::fs::{DirBuilderExt, symlink};
use std::path::{Path, PathBuf};
use std::process::Command;

#[cfg(target_os = "linux")]
use super::elf::OUR_MACHINE;
use super::empty_elf::{I386, empty_library};

/// Folder of the links in the session's.
const FOLDER: &str = "no-libasan.so";
/// Name under which the shim is preloaded.
const PRELOAD: &str = if cfg!(target_os = "macos") { "libgputrace.dylib" } else { "libgputrace.so" };
/// What stands between the two: on macOS nothing, as there is one kind of loader.
const BETWEEN: &str = if cfg!(target_os = "macos") { "/" } else { "/$LIB/" };

/// Name under which the engine of inline hooks is loaded, where there is one.
const ENGINE: &str = "libgputrace-inline.so";

/// What 64-bit loaders put for `$LIB`.
#[cfg(target_arch = "x86_64")]
const WIDE: [&str; 3] = ["lib/x86_64-linux-gnu", "lib64", "lib"];
/// What 64-bit loaders put for `$LIB`.
#[cfg(target_arch = "aarch64")]
const WIDE: [&str; 3] = ["lib/aarch64-linux-gnu", "lib64", "lib"];

/// What 32-bit loaders put for `$LIB`, but for those that put `lib`: see [`narrow_folders`].
const NARROW: [&str; 2] = ["lib/i386-linux-gnu", NARROW_HOME];
/// The real folder of the empty library for 32-bit loaders.
const NARROW_HOME: &str = "lib32";

/// Loaders whose `$LIB` is among [`WIDE`] for certain.
const USUAL_LOADERS: [&str; 2] = ["/lib64/ld-linux-x86-64.so.2", "/lib/ld-linux-aarch64.so.1"];

/// The entry for LD_PRELOAD of the session at `root`.
pub(crate) fn preload(root: &Path) -> OsString {
    let mut entry = root.as_os_str().to_owned();
    for part in ["/", FOLDER, BETWEEN, PRELOAD] {
        entry.push(part);
    }
    entry
}

/// The folder of all links.
pub(crate) fn folder(root: &Path) -> PathBuf {
    root.join(FOLDER)
}

/// The entry for LD_AUDIT of the session at `root`, after [`add_engine`].
pub(crate) fn audit(root: &Path) -> OsString {
    let mut entry = root.as_os_str().to_owned();
    for part in ["/", FOLDER, "/$LIB/", ENGINE] {
        entry.push(part);
    }
    entry
}

/// Makes a link to the engine beside the one to the shim. It goes with the folder; processes that outlive the launcher
/// find an engine that sees that the session is over.
pub(crate) fn add_engine(root: &Path, engine: &Path) -> io::Result<()> {
    symlink(engine, root.join(FOLDER).join(ENGINE))
}

/// Makes the links in `root`; `loader` is the target's. Returns what is in the folder now, for [`remove`].
///
/// Only the libraries are there once: what loaders put for `$LIB` are links to the folder of theirs, as a real folder
/// takes four times as long to make and to remove as a link, which a short run would notice.
pub(crate) fn make(root: &Path, shim: &Path, loader: Option<&Path>) -> io::Result<Vec<String>> {
    let narrow = if cfg!(target_arch = "x86_64") { narrow_folders(Path::new("/")) } else { Vec::new() };
    let mut wide: Vec<String> = WIDE.iter().map(|f| (*f).to_owned()).filter(|f| !narrow.contains(f)).collect();
    if let Some(folder) = loader.and_then(own_expansion).filter(|folder| !wide.contains(folder)) {
        wide.push(folder);
    }
    let mut links = Links { folder: root.join(FOLDER), homes: Vec::new(), made: Vec::new() };
    DirBuilder::new().mode(0o700).create(&links.folder)?;
    symlink(shim, links.folder.join(PRELOAD))?;
    links.made.push(PRELOAD.to_owned());
    if !narrow.is_empty() {
        links.real_folder(NARROW_HOME)?;
        let library = format!("{NARROW_HOME}/{PRELOAD}");
        fs::write(links.folder.join(&library), empty_library(false, I386))?;
        links.made.push(library);
    }
    let mut homes: Vec<(String, &str)> = narrow.into_iter().map(|f| (f, NARROW_HOME)).collect();
    homes.extend(wide.into_iter().map(|f| (f, "")));
    // `lib` before what is in it.
    homes.sort_by_key(|(folder, _)| folder.contains('/'));
    homes.into_iter().try_for_each(|(folder, home)| links.lead(folder, home))?;
    Ok(links.made)
}

/// The folder of the links while it is filled.
struct Links {
    folder: PathBuf,
    /// What loaders put for `$LIB`, with the real folder, relative to this one, to which it leads.
    homes: Vec<(String, &'static str)>,
    made: Vec<String>,
}

impl Links {
    fn real_folder(&mut self, name: &str) -> io::Result<()> {
        DirBuilder::new().mode(0o700).create(self.folder.join(name))?;
        self.made.push(name.to_owned());
        Ok(())
    }

    /// Lets `folder`, of one or two parts, lead to the real folder `home`.
    fn lead(&mut self, folder: String, home: &'static str) -> io::Result<()> {
        let (parent, last) = folder.rsplit_once('/').unwrap_or(("", &folder));
        let known = self.homes.iter().find(|(name, _)| name == parent).map(|(_, home)| *home);
        if known.is_none() && !parent.is_empty() && !self.made.iter().any(|made| made == parent) {
            self.real_folder(parent)?;
        }
        let parent = known.unwrap_or(parent);
        let link = Path::new(parent).join(last);
        if link != Path::new(home) {
            let up = if parent.is_empty() { "." } else { ".." };
            symlink(Path::new(up).join(home), self.folder.join(&link))?;
            self.made.extend(link.to_str().map(str::to_owned));
        }
        self.homes.push((folder, home));
        Ok(())
    }
}

/// Removes what [`make`] made. Every name is known, which spares a short run the reading of folders.
pub(crate) fn remove(root: &Path, made: &[String]) {
    let folder = root.join(FOLDER);
    for name in made.iter().rev().map(|name| folder.join(name)) {
        let _ = fs::remove_file(&name).or_else(|_| fs::remove_dir(&name));
    }
    let _ = fs::remove_dir(folder);
}

/// Lets the link lead to an empty library, at once: no process ever finds none.
#[cfg(target_os = "linux")]
pub(crate) fn empty(root: &Path) -> io::Result<()> {
    let empty = root.join("empty.so");
    fs::write(&empty, empty_library(true, OUR_MACHINE))?;
    let link = root.join(FOLDER).join(PRELOAD);
    let young = link.with_extension("new");
    symlink(&empty, &young)?;
    fs::rename(&young, &link)
}

/// The link stays: the shim sees that the session is over, and does nothing.
#[cfg(target_os = "macos")]
pub(crate) fn empty(_: &Path) -> io::Result<()> {
    Ok(())
}

/// Folders in which the 32-bit processes of the system at `root` look: none where there is no loader for them. The
/// folder of their libc is what their loader puts for `$LIB`; where it is neither of the known ones, that is `lib`.
fn narrow_folders(root: &Path) -> Vec<String> {
    if !root.join("lib/ld-linux.so.2").exists() {
        return Vec::new();
    }
    let mut folders: Vec<String> = NARROW.iter().map(|f| (*f).to_owned()).collect();
    if !NARROW.iter().any(|folder| root.join(folder).join("libc.so.6").exists()) {
        folders.push("lib".to_owned());
    }
    folders
}

/// What a loader in an unusual place says that it puts for `$LIB`.
fn own_expansion(loader: &Path) -> Option<String> {
    if USUAL_LOADERS.iter().any(|usual| loader == Path::new(usual)) {
        return None;
    }
    let out = Command::new(loader).arg("--list-diagnostics").env_clear().output().ok()?;
    let text = String::from_utf8(out.stdout).ok()?;
    let folder = text.lines().find_map(|line| line.strip_prefix("dl_dst_lib=\"")?.strip_suffix('"'))?;
    let parts = folder.split('/').count();
    let plain = !folder.is_empty() && !folder.starts_with('/') && !folder.contains("..") && parts <= 2;
    plain.then(|| folder.to_owned())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::launch::testing::Folder;

    /// What a loader finds that puts `folder` for `$LIB`.
    fn library(root: &Path, folder: &str) -> PathBuf {
        root.join(FOLDER).join(folder).join(PRELOAD)
    }

    #[test]
    fn every_loader_is_led_to_its_own_kind_of_library() {
        let folder = Folder::new("links");
        let shim = folder.file("shim", b"the shim", 0o600);
        let made = make(folder.path(), &shim, None).unwrap();
        let narrow = narrow_folders(Path::new("/"));
        let wide: Vec<&str> = WIDE.into_iter().filter(|name| !narrow.iter().any(|n| n == name)).collect();
        for name in &wide {
            assert_eq!(fs::read(library(folder.path(), name)).unwrap(), b"the shim", "{name}");
        }
        for name in &narrow {
            assert_eq!(fs::read(library(folder.path(), name)).unwrap(), empty_library(false, I386), "{name}");
        }
        let preload = preload(Path::new("/s")).into_string().unwrap();
        assert_eq!(preload, "/s/no-libasan.so/$LIB/libgputrace.so");
        empty(folder.path()).unwrap();
        for name in &wide {
            assert_eq!(fs::read(library(folder.path(), name)).unwrap(), empty_library(true, OUR_MACHINE));
        }
        remove(folder.path(), &made);
        assert!(!folder.path().join(FOLDER).exists());
    }

    #[test]
    fn lib_may_be_the_32_bit_folder_and_hold_a_64_bit_one() {
        let folder = Folder::new("links-arch");
        let root = folder.path().join(FOLDER);
        let mut links = Links { folder: root.clone(), homes: Vec::new(), made: Vec::new() };
        fs::create_dir(&root).unwrap();
        links.real_folder(NARROW_HOME).unwrap();
        folder.file(&format!("{FOLDER}/{PRELOAD}"), b"wide", 0o600);
        folder.file(&format!("{FOLDER}/{NARROW_HOME}/{PRELOAD}"), b"narrow", 0o600);
        let homes = [("lib", NARROW_HOME), (NARROW_HOME, NARROW_HOME), ("lib64", ""), ("odd", "")];
        let nested = [("lib/x86_64-linux-gnu", ""), ("lib/i386-linux-gnu", NARROW_HOME), ("new/wide", "")];
        for (name, home) in homes.into_iter().chain(nested) {
            links.lead(name.to_owned(), home).unwrap();
            let wanted: &[u8] = if home.is_empty() { b"wide" } else { b"narrow" };
            assert_eq!(fs::read(library(folder.path(), name)).unwrap(), wanted, "{name}");
        }
    }

    #[test]
    fn this_machines_loader_finds_its_library_under_lib() {
        let folder = Folder::new("links-loader");
        let empty_so = folder.file("empty.so", &empty_library(true, OUR_MACHINE), 0o600);
        make(folder.path(), &empty_so, None).unwrap();
        let out = Command::new("/bin/true").env("LD_PRELOAD", preload(folder.path())).output().unwrap();
        assert_eq!(String::from_utf8_lossy(&out.stderr), "");
        assert!(out.status.success());
    }

    #[test]
    fn a_loader_in_an_unusual_place_is_asked() {
        let folder = Folder::new("links-ask");
        let loader = folder.file("ld.so", b"#!/bin/sh\necho 'x=1'\necho 'dl_dst_lib=\"lib/odd\"'\n", 0o755);
        assert_eq!(own_expansion(&loader), Some("lib/odd".to_owned()));
        let shim = folder.file("shim", b"the shim", 0o600);
        make(folder.path(), &shim, Some(&loader)).unwrap();
        assert_eq!(fs::read(library(folder.path(), "lib/odd")).unwrap(), b"the shim");
        let liar = folder.file("liar.so", b"#!/bin/sh\necho 'dl_dst_lib=\"/../../etc\"'\n", 0o755);
        assert_eq!(own_expansion(&liar), None);
    }

    #[test]
    fn lib_goes_to_the_32_bit_loader_only_where_it_knows_nothing_else() {
        let folder = Folder::new("links-narrow");
        assert!(narrow_folders(folder.path()).is_empty());
        folder.file("lib/ld-linux.so.2", b"", 0o755);
        assert!(narrow_folders(folder.path()).contains(&"lib".to_owned()));
        folder.file("lib/i386-linux-gnu/libc.so.6", b"", 0o755);
        assert_eq!(narrow_folders(folder.path()), NARROW);
    }
}
