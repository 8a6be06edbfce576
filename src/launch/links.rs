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

use super::elf::OUR_MACHINE;
use super::empty_elf::{I386, empty_library};

/// Folder of the links in the session's.
const FOLDER: &str = "no-libasan.so";
/// Name under which the shim is preloaded.
const PRELOAD: &str = "libgputrace.so";

/// Name under which the engine of inline hooks is loaded, where there is one.
const ENGINE: &str = "libgputrace-inline.so";

/// What 64-bit loaders put for `$LIB`.
#[cfg(target_arch = "x86_64")]
const WIDE: [&str; 3] = ["lib/x86_64-linux-gnu", "lib64", "lib"];
/// What 64-bit loaders put for `$LIB`.
#[cfg(target_arch = "aarch64")]
const WIDE: [&str; 3] = ["lib/aarch64-linux-gnu", "lib64", "lib"];

/// What 32-bit loaders put for `$LIB`, but for those that put `lib`: see [`narrow_folders`].
const NARROW: [&str; 2] = ["lib/i386-linux-gnu", "lib32"];

/// Loaders whose `$LIB` is among [`WIDE`] for certain.
const USUAL_LOADERS: [&str; 2] = ["/lib64/ld-linux-x86-64.so.2", "/lib/ld-linux-aarch64.so.1"];

/// The entry for LD_PRELOAD of the session at `root`.
pub(crate) fn preload(root: &Path) -> OsString {
    let mut entry = root.as_os_str().to_owned();
    for part in ["/", FOLDER, "/$LIB/", PRELOAD] {
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

/// Makes links to the engine beside those of `wide`. They go with the folder; processes that outlive the launcher find
/// an engine that sees that the session is over.
pub(crate) fn add_engine(root: &Path, wide: &[String], engine: &Path) -> io::Result<()> {
    wide.iter().try_for_each(|folder| symlink(engine, root.join(FOLDER).join(folder).join(ENGINE)))
}

/// Makes the links in `root`; `loader` is the target's. Returns the folders of those that lead to the shim.
pub(crate) fn make(root: &Path, shim: &Path, loader: Option<&Path>) -> io::Result<Vec<String>> {
    for folder in [root.join(FOLDER), root.join(FOLDER).join("lib")] {
        DirBuilder::new().mode(0o700).create(folder)?;
    }
    let narrow = narrow_folders(Path::new("/"));
    let mut wide: Vec<String> = WIDE.iter().map(|f| (*f).to_owned()).filter(|f| !narrow.contains(f)).collect();
    if let Some(folder) = loader.and_then(own_expansion).filter(|folder| !wide.contains(folder)) {
        wide.push(folder);
    }
    for folder in &wide {
        symlink(shim, place(root, folder)?)?;
    }
    if cfg!(target_arch = "x86_64") {
        for folder in narrow.iter().filter(|folder| !wide.contains(folder)) {
            fs::write(place(root, folder)?, empty_library(false, I386))?;
        }
    }
    Ok(wide)
}

/// Where the library of a folder is to be made; makes the folder. `lib` is there already, as most are in it.
fn place(root: &Path, folder: &str) -> io::Result<PathBuf> {
    let file = library(root, folder);
    if folder != "lib" {
        DirBuilder::new().recursive(folder.contains('/')).mode(0o700).create(file.parent().unwrap_or(root))?;
    }
    Ok(file)
}

/// Removes what [`make`] made. Every name is known, which spares a short run the reading of eight folders.
pub(crate) fn remove(root: &Path, wide: &[String]) {
    let folders: Vec<&str> = wide.iter().map(String::as_str).chain(NARROW).collect();
    for folder in &folders {
        let _ = fs::remove_file(library(root, folder));
    }
    for folder in folders.into_iter().filter(|folder| *folder != "lib") {
        let _ = fs::remove_dir(root.join(FOLDER).join(folder));
    }
    let _ = fs::remove_file(library(root, "lib"));
    let _ = fs::remove_dir(root.join(FOLDER).join("lib"));
    let _ = fs::remove_dir(root.join(FOLDER));
}

/// Lets the links of `wide` lead to an empty library, each at once: no process ever finds none.
pub(crate) fn empty(root: &Path, wide: &[String]) -> io::Result<()> {
    let empty = root.join("empty.so");
    fs::write(&empty, empty_library(true, OUR_MACHINE))?;
    for folder in wide {
        let link = library(root, folder);
        let young = link.with_extension("new");
        symlink(&empty, &young)?;
        fs::rename(&young, &link)?;
    }
    Ok(())
}

fn library(root: &Path, folder: &str) -> PathBuf {
    root.join(FOLDER).join(folder).join(PRELOAD)
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
    let plain = !folder.is_empty() && !folder.starts_with('/') && !folder.contains("..");
    plain.then(|| folder.to_owned())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::launch::testing::Folder;

    #[test]
    fn every_loader_is_led_to_its_own_kind_of_library() {
        let folder = Folder::new("links");
        let wide = make(folder.path(), Path::new("/bin/true"), None).unwrap();
        assert!(wide.len() >= 2);
        for name in &wide {
            assert_eq!(fs::read_link(library(folder.path(), name)).unwrap(), Path::new("/bin/true"));
        }
        for name in narrow_folders(Path::new("/")) {
            assert_eq!(fs::read(library(folder.path(), &name)).unwrap(), empty_library(false, I386));
        }
        let preload = preload(Path::new("/s")).into_string().unwrap();
        assert_eq!(preload, "/s/no-libasan.so/$LIB/libgputrace.so");
        empty(folder.path(), &wide).unwrap();
        for name in &wide {
            assert_eq!(fs::read(library(folder.path(), name)).unwrap(), empty_library(true, OUR_MACHINE));
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
        let wide = make(folder.path(), Path::new("/bin/true"), Some(&loader)).unwrap();
        assert!(wide.contains(&"lib/odd".to_owned()));
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
