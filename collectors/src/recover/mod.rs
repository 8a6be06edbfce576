//! Making a trace whole whose collector was killed.
//!
//! What it had written stands in sealed files, in unfinished ones and in the journal. Each step leaves a trace that every reader
//! understands, so that a recovery that is killed itself is begun anew: unfinished files get the footer that the journal has for
//! them and then their names; rows of the journal go into new files, which the journal names before they have theirs; the
//! manifest comes last, and only then the journal goes. Nobody else may be at work there: the lock of the collector's reserve
//! says so, and is held meanwhile.

mod account;
mod before;
mod rows;
mod sums;
#[cfg(test)]
mod tests;

pub(crate) use account::{File, OnDisk};
pub(crate) use before::{Before, Written, before};

use std::collections::BTreeSet;
use std::fs;
use std::io;
use std::path::{Path, PathBuf};
use std::thread;
use std::time::{Duration, Instant, UNIX_EPOCH};

use serde::{Deserialize, Serialize};

use crate::CollectError;
use crate::journal::{self, JournalError};
use crate::manifest::{self, Manifest};
use crate::schema::{SCHEMA_VERSION, TABLES};
use crate::{stored, writer};

/// A trace whose collector was killed, and that was made whole since.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Recovered {
    /// About when the collector was killed: the last that it wrote, ns since the Unix epoch.
    pub killed_ns: i64,
    /// Events that it had read and not written: they are counted among those dropped.
    pub lost: u64,
    /// Another collector took over, and read on what the rings held. Else what they held, and what came later, is missing and
    /// was counted by nobody.
    pub taken_over: bool,
}

/// Why a launcher's part of a trace cannot be made whole.
#[derive(Debug, thiserror::Error)]
pub enum RecoverError {
    /// Its collector lives.
    #[error("{0}: its collector is still at work; wait until it has ended")]
    AtWork(PathBuf),
    /// Something cannot be read or written.
    #[error("{path}: {source}")]
    Io {
        /// Which file or folder.
        path: PathBuf,
        /// Why.
        source: io::Error,
    },
    /// The journal cannot be read.
    #[error(transparent)]
    Journal(#[from] JournalError),
    /// Another version wrote it.
    #[error(
        "{path}: has schema version {version}, this gputrace writes {SCHEMA_VERSION}; recover it with the one that recorded it"
    )]
    Version {
        /// The manifest.
        path: PathBuf,
        /// Its version.
        version: u32,
    },
}

/// Why the heir of a collector does not go on.
#[derive(Debug, thiserror::Error)]
pub enum TakeOverError {
    /// What there is cannot be made whole.
    #[error(transparent)]
    Recover(#[from] RecoverError),
    /// It cannot start.
    #[error(transparent)]
    Collect(#[from] CollectError),
    /// There is nothing to go on with.
    #[error("the collector had ended")]
    Ended,
}

/// A launcher's part of a trace, as its names say.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Launcher {
    /// Host, as in the file names.
    pub host: String,
    /// Number, as in the file names.
    pub id: u64,
}

/// The launchers that have written to a trace, by their manifests and journals.
pub fn launchers(trace: &Path) -> Result<Vec<Launcher>, RecoverError> {
    let mut found = BTreeSet::new();
    for (folder, ending) in [("manifest", ".json"), ("journal", ".journal")] {
        let path = trace.join(folder);
        let entries = match fs::read_dir(&path) {
            Ok(entries) => entries,
            Err(error) if error.kind() == io::ErrorKind::NotFound => continue,
            Err(source) => return Err(RecoverError::Io { path, source }),
        };
        found.extend(entries.flatten().filter_map(|entry| {
            let name = entry.file_name();
            let (host, id) = name.to_str()?.strip_suffix(ending)?.rsplit_once('-')?;
            Some(Launcher { host: host.to_owned(), id: u64::from_str_radix(id, 16).ok()? })
        }));
    }
    Ok(found.into_iter().collect())
}

/// Makes the launcher's part of the trace whole. None: it is.
pub fn recover(trace: &Path, launcher: &Launcher) -> Result<Option<Manifest>, RecoverError> {
    recover_telling(trace, launcher, |_, _| {})
}

/// The same, telling how many files are read of how many.
pub fn recover_telling(
    trace: &Path,
    launcher: &Launcher,
    told: fn(done: usize, all: usize),
) -> Result<Option<Manifest>, RecoverError> {
    let Some(dead) = Dead::find_patiently(trace, launcher)? else { return Ok(None) };
    Dead { told, ..dead }.finish(None).map(Some)
}

/// The same of a session's part, whose next collector begins `another` trace.
pub fn end(trace: &Path, launcher: &Launcher, another: &Path) -> Result<Option<Manifest>, RecoverError> {
    let Some(dead) = Dead::find_patiently(trace, launcher)? else { return Ok(None) };
    dead.finish(Some(another)).map(Some)
}

/// The part of a trace whose collector was killed. Nobody else works at it as long as this is there.
pub(crate) struct Dead {
    trace: PathBuf,
    manifest_at: PathBuf,
    journal_at: PathBuf,
    manifest: Manifest,
    killed_ns: i64,
    /// Held for its lock.
    lock: fs::File,
    lock_at: PathBuf,
    /// Is told how many files are read of how many.
    told: fn(done: usize, all: usize),
}

/// The kernel takes a moment to end a process that was killed, which holds its lock until then.
const DYING: Duration = Duration::from_secs(2);
/// How often it is tried again.
const AGAIN: Duration = Duration::from_millis(20);

impl Dead {
    /// As [`Dead::find`]; who was killed a moment ago is waited for.
    pub(crate) fn find_patiently(trace: &Path, launcher: &Launcher) -> Result<Option<Dead>, RecoverError> {
        let until = Instant::now() + DYING;
        loop {
            match Dead::find(trace, launcher) {
                Err(RecoverError::AtWork(_)) if Instant::now() < until => thread::sleep(AGAIN),
                found => return found,
            }
        }
    }

    /// None: it is whole.
    pub(crate) fn find(trace: &Path, launcher: &Launcher) -> Result<Option<Dead>, RecoverError> {
        let manifest_at = manifest::path(trace, &launcher.host, launcher.id);
        let name = format!("{}-{}.journal", launcher.host, manifest::launcher_text(launcher.id));
        let journal_at = trace.join("journal").join(name);
        let is_whole = || Manifest::read(&manifest_at).is_ok_and(|manifest| manifest.complete);
        if is_whole() && !journal_at.exists() && !writer::was_killed(&manifest_at) {
            return Ok(None);
        }
        let failed = |source| RecoverError::Io { path: manifest_at.clone(), source };
        let seized = writer::seize(&manifest_at);
        // Who is about to end has said so already; and where nothing can be removed nothing need be.
        if !matches!(seized, Ok(Some(_))) && is_whole() {
            return Ok(None);
        }
        let Some((lock, lock_at)) = seized.map_err(failed)? else {
            return Err(RecoverError::AtWork(trace.to_owned()));
        };
        // It may have ended by itself meanwhile, or been killed when but these two were left to be removed.
        let manifest = match Manifest::read(&manifest_at) {
            Ok(manifest) if manifest.complete => {
                if stays_inside(trace, &launcher.host).is_ok() {
                    let _ = fs::remove_file(&journal_at);
                    let _ = fs::remove_file(&lock_at);
                }
                return Ok(None);
            }
            Ok(manifest) if manifest.schema_version != SCHEMA_VERSION => {
                return Err(RecoverError::Version { path: manifest_at, version: manifest.schema_version });
            }
            Ok(manifest) => manifest,
            // A machine that lost its power may have kept the name and nothing of what stood there.
            Err(_) => unknown(launcher),
        };
        // Files are made where these say: the manifest's name is the launcher's word, what stands in it may be anybody's.
        let manifest = Manifest { host: launcher.host.clone(), launcher_id: launcher.id, ..manifest };
        let written = [&journal_at, &manifest_at].map(|path| fs::metadata(path).and_then(|meta| meta.modified()).ok());
        let last = written.into_iter().flatten().max().and_then(|at| at.duration_since(UNIX_EPOCH).ok());
        let killed_ns = last.map_or(manifest.started_ns, |at| at.as_nanos() as i64);
        let told = |_, _| {};
        Ok(Some(Dead { trace: trace.to_owned(), manifest_at, journal_at, manifest, killed_ns, lock, lock_at, told }))
    }

    /// Brings what it left into whole files, and the account in line with them. Rows about processes that are `taken` over come
    /// again from whoever does that.
    pub(crate) fn settle(&mut self, taken: &BTreeSet<i64>) -> Result<OnDisk, RecoverError> {
        let left = match journal::left(&self.journal_at) {
            Ok(left) => Some(left),
            Err(JournalError::Io { source, .. }) if source.kind() == io::ErrorKind::NotFound => None,
            Err(error) => return Err(error.into()),
        };
        let failed = |source| RecoverError::Io { path: self.trace.clone(), source };
        stays_inside(&self.trace, &self.manifest.host)?;
        if let Some(left) = left {
            if left.torn {
                self.manifest
                    .note("the journal ends in the middle of what was written last: that is among what is lost");
            }
            if left.damaged > 0 {
                let bytes = left.damaged;
                self.manifest
                    .note(&format!("{bytes} bytes in the midst of the journal were damaged: what stood there is lost"));
            }
            rows::finish_parts(&self.trace, &left, &mut self.manifest).map_err(failed)?;
            rows::write_young(&self.trace, &self.journal_at, &left, &self.manifest, taken).map_err(failed)?;
        }
        rows::remove_unnamed(&self.trace, &self.manifest);
        OnDisk::read(&self.trace, &mut self.manifest, self.told).map_err(failed)
    }

    /// The same for who goes on whatever the disk says: what finds no room, not even the reserve's and then the journal's, is lost.
    /// Returns why some found none.
    pub(crate) fn settle_anyhow(&mut self, taken: &BTreeSet<i64>) -> Result<(OnDisk, Option<io::Error>), RecoverError> {
        if let Ok(on_disk) = self.settle(taken) {
            return Ok((on_disk, None));
        }
        let _ = self.lock.set_len(0);
        if let Ok(on_disk) = self.settle(taken) {
            return Ok((on_disk, None));
        }
        let left = journal::left(&self.journal_at).ok();
        let trouble = left.and_then(|left| {
            let parts = rows::finish_parts(&self.trace, &left, &mut self.manifest).err();
            let rows = rows::write_what_fits(&self.trace, &self.journal_at, &left, &self.manifest, taken);
            // A file that could not be given its name may be all right: who looks finds it.
            if parts.is_none() {
                rows::remove_unnamed(&self.trace, &self.manifest);
            }
            parts.or(rows)
        });
        let failed = |source| RecoverError::Io { path: self.trace.clone(), source };
        Ok((OnDisk::read(&self.trace, &mut self.manifest, self.told).map_err(failed)?, trouble))
    }

    fn finish(mut self, another: Option<&Path>) -> Result<Manifest, RecoverError> {
        let mut on_disk = self.settle(&BTreeSet::new())?;
        let lost = on_disk.correct(&mut self.manifest, another.is_some());
        let failed = |source| RecoverError::Io { path: self.trace.clone(), source };
        if on_disk.has_sums() && sums::are_whole(&self.manifest) {
            sums::complete(&self.trace, &self.manifest, &mut on_disk, self.killed_ns).map_err(failed)?;
        }
        let manifest = &mut self.manifest;
        manifest.complete = true;
        manifest.stored.clear();
        on_disk.files.iter().for_each(|file| stored::count(&mut manifest.stored, file.table, file.rows));
        let stopped_ns = manifest.stopped_ns.take();
        // One that was stopped had written all that it had read, and what came later is somewhere else, or nothing.
        let runs = manifest.processes.iter().any(|process| process.running);
        if stopped_ns.is_some() && lost == 0 && (another.is_some() || !runs) {
            manifest.ended_ns = manifest.ended_ns.or(stopped_ns);
        } else {
            manifest.recovered = Some(Recovered { killed_ns: self.killed_ns, lost, taken_over: false });
        }
        let why = match stopped_ns {
            Some(_) if another.is_some() => "gputrace was stopped",
            Some(_) => "Its session was given up",
            None if manifest.ended_ns.is_some() => "The disk failed at the end",
            None => "gputrace was killed",
        };
        let later = match another {
            Some(another) => format!("what came later is in {}", another.display()),
            None => "what came later is not in the trace, and was not counted".to_owned(),
        };
        manifest.note(&match manifest.recovered {
            Some(Recovered { taken_over: false, .. }) => format!(
                "{why}, and the trace recovered: {lost} events that it had read and not written are lost; {later}"
            ),
            _ => format!("{why}, and the trace made whole; {later}"),
        });
        let failed = |source| RecoverError::Io { path: self.manifest_at.clone(), source };
        manifest.write(&self.manifest_at).map_err(failed)?;
        let _ = fs::remove_file(&self.journal_at);
        let _ = fs::remove_file(&self.lock_at);
        Ok(self.manifest)
    }
}

/// Whether no folder into which files are written leads out of the trace: somebody may have sent it.
fn stays_inside(trace: &Path, host: &str) -> Result<(), RecoverError> {
    let failed = |path: &Path, source| RecoverError::Io { path: path.to_owned(), source };
    let whole = trace.canonicalize().map_err(|source| failed(trace, source))?;
    let tables =
        TABLES.iter().flat_map(|table| [trace.join(table.name), trace.join(table.name).join(format!("host={host}"))]);
    for folder in tables.chain([trace.join("manifest"), trace.join("journal")]) {
        if folder.canonicalize().is_ok_and(|at| !at.starts_with(&whole)) {
            return Err(failed(&folder, io::Error::other("it leads out of the trace")));
        }
    }
    Ok(())
}

/// What such an account says of itself.
const ACCOUNT_LOST: &str = "the account was lost with its file: what is known of processes is what their rows say";

impl Manifest {
    /// Whether it was made of the rows alone, in place of one that could not be read.
    pub fn is_made_anew(&self) -> bool {
        self.notes.iter().any(|note| note == ACCOUNT_LOST)
    }
}

/// The account of a launcher whose own is gone.
fn unknown(launcher: &Launcher) -> Manifest {
    let mut manifest = Manifest {
        schema_version: SCHEMA_VERSION,
        tool_version: env!("CARGO_PKG_VERSION").to_owned(),
        host: launcher.host.clone(),
        launcher_id: launcher.id,
        ..Manifest::default()
    };
    manifest.note(ACCOUNT_LOST);
    manifest
}
