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
    /// What is missing from the report because of it.
    pub(crate) missing: Missing,
}

/// What a problem takes from a report.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Missing {
    Nothing,
    /// The account of processes: the command must not exit with 0.
    Account,
    /// Rows: neither must it, nor is any verdict to be trusted.
    Rows,
}

impl Problem {
    /// A file whose rows are missing from the report.
    pub(crate) fn lost(path: impl Into<PathBuf>, text: impl Into<String>) -> Problem {
        Problem { path: path.into(), text: text.into(), missing: Missing::Rows }
    }

    /// A manifest that is missing, or cannot be read.
    pub(crate) fn no_account(path: impl Into<PathBuf>, text: impl Into<String>) -> Problem {
        Problem { path: path.into(), text: text.into(), missing: Missing::Account }
    }

    /// Something that the reader must know, beside which all is there.
    pub(crate) fn note(path: impl Into<PathBuf>, text: impl Into<String>) -> Problem {
        Problem { path: path.into(), text: text.into(), missing: Missing::Nothing }
    }

    /// Whether rows are missing.
    pub(crate) fn lost_rows(&self) -> bool {
        self.missing == Missing::Rows
    }
}

impl std::fmt::Display for Problem {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "{}: {}", self.path.display(), self.text)
    }
}
