//! The programs behind the shims of version managers: pyenv's, rbenv's and asdf's are shell scripts, and so lose ours.
//!
//! What a manager would choose is read as it reads it: from a variable, from a file in this folder or one above it, or
//! from its own settings. Where that is not understood (a version's prefix, `system`) nothing is named.

use std::ffi::{OsStr, OsString};
use std::os::unix::ffi::{OsStrExt, OsStringExt};
use std::path::{Path, PathBuf};

use super::Files;

/// Shells, by the names of their programs.
const SHELLS: [&str; 6] = ["bash", "dash", "ksh", "sh", "tcsh", "zsh"];

/// A manager of one language's versions.
struct Manager {
    /// Name of its command, which its shims call.
    name: &'static str,
    /// Its folder, and where that is unless told.
    root: (&'static str, &'static str),
    /// Variable, file and setting that choose a version.
    version: (&'static str, &'static str),
}

const MANAGERS: [Manager; 2] = [
    Manager { name: "pyenv", root: ("PYENV_ROOT", ".pyenv"), version: ("PYENV_VERSION", ".python-version") },
    Manager { name: "rbenv", root: ("RBENV_ROOT", ".rbenv"), version: ("RBENV_VERSION", ".ruby-version") },
];

/// Whether a program is a shell.
pub(super) fn is_shell(path: &Path) -> bool {
    SHELLS.iter().any(|name| path.file_name() == Some(OsStr::new(name)))
}

/// Whether a script is a version manager's shim.
pub(super) fn is_shim(path: &Path, files: &impl Files) -> bool {
    path.parent().is_some_and(|folder| folder.file_name() == Some(OsStr::new("shims")))
        && files.head(path).is_some_and(|head| head.starts_with(b"#!") && contains(&head, b" exec "))
}

/// The program behind the shim at `path`, whose first bytes are `head`; none where it is no shim or cannot be told.
pub(super) fn behind(path: &Path, head: &[u8], files: &impl Files) -> Option<PathBuf> {
    if !is_shim(path, files) {
        return None;
    }
    let name = path.file_name()?;
    let found = match MANAGERS.iter().find(|manager| contains(head, manager.name.as_bytes())) {
        Some(manager) => by_manager(manager, path, name, files),
        None if contains(head, b"asdf") => by_asdf(head, path, name, files),
        None => None,
    };
    found.filter(|program| files.is_program(program))
}

fn by_manager(manager: &Manager, shim: &Path, name: &OsStr, files: &impl Files) -> Option<PathBuf> {
    let root = root(manager.root, shim, files)?;
    let (variable, file) = manager.version;
    let chosen = files
        .variable(variable)
        .or_else(|| first_line(&above(file, files)?, files))
        .or_else(|| first_line(&root.join("version"), files))?;
    // Several may be named: the first one that has the program counts.
    let versions = chosen.as_bytes().split(|byte| *byte == b':').filter(|version| is_name(version));
    let mut programs =
        versions.map(|version| root.join("versions").join(OsStr::from_bytes(version)).join("bin").join(name));
    programs.find(|program| files.is_program(program))
}

/// asdf's shims name their plugin, and each version of it that has the program: `# asdf-plugin: python 3.12.4`.
fn by_asdf(head: &[u8], shim: &Path, name: &OsStr, files: &impl Files) -> Option<PathBuf> {
    let root = root(("ASDF_DATA_DIR", ".asdf"), shim, files)?;
    let rows = || lines(head).filter_map(|line| line.strip_prefix(b"# asdf-plugin: ")).map(words);
    let plugin = rows().next()?.first()?.to_vec();
    let chosen = files.variable(&format!("ASDF_{}_VERSION", String::from_utf8_lossy(&plugin).to_uppercase()));
    let chosen = chosen.map(OsString::into_vec).or_else(|| {
        let file = above(".tool-versions", files).or_else(|| Some(home(files)?.join(".tool-versions")))?;
        let text = files.head(&file)?;
        let row = lines(&text).map(words).find(|row| row.first() == Some(&plugin.as_slice()))?;
        row.get(1).map(|version| version.to_vec())
    })?;
    let there = rows().any(|row| row.get(1) == Some(&chosen.as_slice()));
    let folder = root.join("installs").join(OsStr::from_bytes(&plugin)).join(OsStr::from_bytes(&chosen));
    (there && is_name(&chosen) && is_name(&plugin)).then(|| folder.join("bin").join(name))
}

/// A manager's folder: what its variable says, else the one in which its shims stand, else the usual one.
fn root((variable, usual): (&str, &str), shim: &Path, files: &impl Files) -> Option<PathBuf> {
    let of_shim = shim.parent().and_then(Path::parent).map(Path::to_owned);
    files.variable(variable).map(PathBuf::from).or(of_shim).or_else(|| Some(home(files)?.join(usual)))
}

fn home(files: &impl Files) -> Option<PathBuf> {
    files.variable("HOME").map(PathBuf::from)
}

/// The file of this name in the present folder or the nearest one above it.
fn above(name: &str, files: &impl Files) -> Option<PathBuf> {
    files.folder().ancestors().map(|folder| folder.join(name)).find(|file| files.head(file).is_some())
}

fn first_line(file: &Path, files: &impl Files) -> Option<OsString> {
    let text = files.head(file)?;
    let line = lines(&text).map(<[u8]>::trim_ascii).find(|line| !line.is_empty() && !line.starts_with(b"#"))?;
    Some(OsString::from_vec(line.to_vec()))
}

fn lines(text: &[u8]) -> impl Iterator<Item = &[u8]> {
    text.split(|byte| *byte == b'\n')
}

fn words(line: &[u8]) -> Vec<&[u8]> {
    line.split(u8::is_ascii_whitespace).filter(|word| !word.is_empty()).collect()
}

/// Whether it can be a folder's name, as a version is.
fn is_name(text: &[u8]) -> bool {
    !text.is_empty() && text != b"." && text != b".." && !text.contains(&b'/')
}

fn contains(text: &[u8], part: &[u8]) -> bool {
    text.windows(part.len()).any(|window| window == part)
}

#[cfg(test)]
mod tests {
    use super::super::testing::Tree;
    use super::*;

    const PYENV: &str = "#!/usr/bin/env bash\nexec \"/opt/homebrew/bin/pyenv\" exec \"$program\" \"$@\"\n";
    const ASDF: &str = "#!/usr/bin/env bash\n# asdf-plugin: python 3.11.9\n# asdf-plugin: python 3.12.4\nexec \
                        /opt/homebrew/opt/asdf/libexec/bin/asdf exec \"python3\" \"$@\"\n";

    fn behind_shim(tree: &Tree, shim: &str) -> Option<PathBuf> {
        behind(Path::new(shim), &tree.head(Path::new(shim))?, tree)
    }

    #[test]
    fn the_version_is_the_one_that_pyenv_would_choose() {
        let shim = "/Users/a/.pyenv/shims/python3";
        let program = |version: &str| format!("/Users/a/.pyenv/versions/{version}/bin/python3");
        let mut tree = Tree::default();
        tree.program(shim, PYENV.as_bytes());
        for version in ["3.10.1", "3.11.2", "3.12.3"] {
            tree.program(&program(version), b"");
        }
        assert_eq!(behind_shim(&tree, shim), None);
        tree.file("/Users/a/.pyenv/version", b"3.10.1\n");
        assert_eq!(behind_shim(&tree, shim), Some(program("3.10.1").into()));
        tree.file("/w/.python-version", b"# of this project\n3.11.2\n");
        assert_eq!(behind_shim(&tree, shim), Some(program("3.11.2").into()));
        tree.set("PYENV_VERSION", "3.9.9:3.12.3");
        assert_eq!(behind_shim(&tree, shim), Some(program("3.12.3").into()));
        for version in ["system", "../3.12.3", ""] {
            tree.set("PYENV_VERSION", version);
            assert_eq!(behind_shim(&tree, shim), None, "{version}");
        }
    }

    #[test]
    fn the_version_is_the_one_that_asdf_would_choose() {
        let shim = "/Users/a/.asdf/shims/python3";
        let program = "/Users/a/.asdf/installs/python/3.12.4/bin/python3";
        let mut tree = Tree::default();
        tree.program(shim, ASDF.as_bytes());
        tree.program(program, b"");
        assert_eq!(behind_shim(&tree, shim), None);
        tree.set("HOME", "/Users/a");
        tree.file("/Users/a/.tool-versions", b"ruby 3.3.0\npython 3.12.4 3.11.9\n");
        assert_eq!(behind_shim(&tree, shim), Some(program.into()));
        tree.set("ASDF_PYTHON_VERSION", "3.11.9");
        assert_eq!(behind_shim(&tree, shim), None, "it is not installed");
    }

    #[test]
    fn other_scripts_are_no_shims() {
        let mut tree = Tree::default();
        tree.program("/w/bin/python3", PYENV.as_bytes());
        tree.program("/w/shims/tool", b"#!/bin/sh\necho pyenv\n");
        assert!(!is_shim(Path::new("/w/bin/python3"), &tree) && !is_shim(Path::new("/w/shims/tool"), &tree));
        assert!(!is_shim(Path::new("/w/shims/none"), &tree));
        assert!(is_shell(Path::new("/bin/zsh")) && !is_shell(Path::new("/bin/cat")));
    }
}
