//! A file system that a test makes up.

use std::collections::{HashMap, HashSet};
use std::ffi::OsString;
use std::path::{Path, PathBuf};

use super::Files;
use crate::launch::macho::{self, Slice};

#[derive(Default)]
pub(super) struct Tree {
    files: HashMap<PathBuf, Vec<u8>>,
    programs: HashSet<PathBuf>,
    privileged: HashSet<PathBuf>,
    links: HashMap<PathBuf, PathBuf>,
    variables: HashMap<String, OsString>,
}

impl Tree {
    pub(super) fn file(&mut self, path: &str, bytes: &[u8]) {
        self.files.insert(path.into(), bytes.to_vec());
    }

    pub(super) fn program(&mut self, path: &str, bytes: &[u8]) {
        self.file(path, bytes);
        self.programs.insert(path.into());
    }

    pub(super) fn link(&mut self, path: &str, to: &str) {
        self.links.insert(path.into(), to.into());
    }

    /// Makes a program setuid.
    pub(super) fn lend(&mut self, path: &str) {
        self.privileged.insert(path.into());
    }

    pub(super) fn set(&mut self, name: &str, value: &str) {
        self.variables.insert(name.to_owned(), value.into());
    }

    fn bytes(&self, path: &Path) -> Option<&Vec<u8>> {
        self.files.get(&self.target(path))
    }
}

impl Files for Tree {
    fn head(&self, path: &Path) -> Option<Vec<u8>> {
        self.bytes(path).map(|bytes| bytes.iter().take(4096).copied().collect())
    }

    fn slices(&self, path: &Path) -> Option<Vec<Slice>> {
        macho::read(&self.bytes(path)?[..])
    }

    fn target(&self, path: &Path) -> PathBuf {
        self.links.get(path).map_or(path, |to| to).to_owned()
    }

    fn is_program(&self, path: &Path) -> bool {
        self.programs.contains(&self.target(path))
    }

    fn is_privileged(&self, path: &Path) -> bool {
        self.privileged.contains(path)
    }

    fn variable(&self, name: &str) -> Option<OsString> {
        self.variables.get(name).cloned()
    }

    fn folder(&self) -> PathBuf {
        PathBuf::from("/w/project")
    }
}
