//! What is asked of files and of the environment on the way to a program.

use std::ffi::OsString;
use std::path::{Path, PathBuf};

use crate::launch::macho::{self, Slice};
use crate::launch::{find_command, inspect};

/// A file system, real or made up.
pub(crate) trait Files {
    /// The first bytes of a regular file: scripts that matter are short.
    fn head(&self, path: &Path) -> Option<Vec<u8>>;

    /// The slices of a Mach-O file.
    fn slices(&self, path: &Path) -> Option<Vec<Slice>>;

    /// The file that links at `path` lead to.
    fn target(&self, path: &Path) -> PathBuf;

    /// Whether it is a file that may be executed.
    fn is_program(&self, path: &Path) -> bool;

    /// Whether it would run with other rights than ours.
    fn is_privileged(&self, path: &Path) -> bool;

    /// A variable of the environment.
    fn variable(&self, name: &str) -> Option<OsString>;

    /// The present folder.
    fn folder(&self) -> PathBuf;
}

/// This machine's.
pub(crate) struct Machine;

impl Files for Machine {
    fn head(&self, path: &Path) -> Option<Vec<u8>> {
        find_command::head(path, 4096)
    }

    fn slices(&self, path: &Path) -> Option<Vec<Slice>> {
        macho::read_file(path)
    }

    fn target(&self, path: &Path) -> PathBuf {
        path.canonicalize().unwrap_or_else(|_| path.to_owned())
    }

    fn is_program(&self, path: &Path) -> bool {
        find_command::find_command(path.as_os_str(), None).is_ok()
    }

    fn is_privileged(&self, path: &Path) -> bool {
        inspect::privilege(path).is_some()
    }

    fn variable(&self, name: &str) -> Option<OsString> {
        std::env::var_os(name).filter(|value| !value.is_empty())
    }

    fn folder(&self) -> PathBuf {
        std::env::current_dir().unwrap_or_default()
    }
}
