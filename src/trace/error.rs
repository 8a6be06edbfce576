//! What can be wrong with a trace: fatal errors, and problems beside which a report is still possible.

use std::io;
use std::path::PathBuf;

use gputrace_collectors::schema::SCHEMA_VERSION;

/// Why a trace cannot be opened at all.
#[derive(Debug, thiserror::Error)]
pub(crate) enum TraceError {
    /// Nothing is there.
    #[error("no trace at {0}: there is no such folder")]
    Missing(PathBuf),
    /// A file was named.
    #[error("{0} is not a trace: a trace is a folder; name the folder that gputrace wrote")]
    NotAFolder(PathBuf),
    /// A folder without any of a trace's parts.
    #[error("{0} is not a trace: it holds neither a manifest nor a table; name the folder that gputrace wrote")]
    NotATrace(PathBuf),
    /// The folder cannot be read.
    #[error("cannot read {0}: {1}")]
    Unreadable(PathBuf, io::Error),
    /// Every part was written by another version.
    #[error(
        "{path} has schema version {found}, and this gputrace reads version {SCHEMA_VERSION}: \
         read it with the gputrace that wrote it{by}"
    )]
    Version {
        /// The manifest.
        path: PathBuf,
        /// Its version.
        found: u64,
        /// ` (1.2.3)` when the manifest says which tool wrote it.
        by: String,
    },
}

/// Something in the trace that could not be read; the rest was.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Problem {
    /// What it is about.
    pub(crate) path: PathBuf,
    /// What is wrong, and what it means for the report.
    pub(crate) text: String,
    /// Rows are missing from the report because of it, so the command must not exit with 0.
    pub(crate) lost_rows: bool,
}

impl Problem {
    /// A file whose rows are missing from the report.
    pub(crate) fn lost(path: impl Into<PathBuf>, text: impl Into<String>) -> Problem {
        Problem { path: path.into(), text: text.into(), lost_rows: true }
    }

    /// Something that the reader must know, beside which all rows are there.
    pub(crate) fn note(path: impl Into<PathBuf>, text: impl Into<String>) -> Problem {
        Problem { path: path.into(), text: text.into(), lost_rows: false }
    }
}

impl std::fmt::Display for Problem {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "{}: {}", self.path.display(), self.text)
    }
}
