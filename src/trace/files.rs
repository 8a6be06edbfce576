//! Which files a trace folder holds, sorted by the launcher that wrote them.
//!
//! Names say all: `manifest/<host>-<launcher>.json`, `<table>/host=<host>/<launcher>-<seq>.parquet`,
//! `journal/<host>-<launcher>.journal`. Anything else in the folder is somebody else's and is left alone; a
//! Parquet file among a table's is named as one that is not read.

use std::cell::RefCell;
use std::collections::BTreeMap;
use std::fs;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};

use gputrace_collectors::Manifest;
use gputrace_collectors::manifest::launcher_text;
use gputrace_collectors::schema::{SCHEMA_VERSION, TABLES, TableId};

use super::{Problem, TraceError};

/// What one launcher left in one folder.
#[derive(Default)]
pub(crate) struct Launcher {
    /// Host, as in the file names.
    pub(crate) host: String,
    /// Launcher, as in the file names.
    pub(crate) id: String,
    /// The manifest; missing when it was lost or cannot be read.
    pub(crate) manifest: Option<Manifest>,
    /// Sealed files per table, in the order in which they were sealed.
    pub(crate) files: Vec<Vec<PathBuf>>,
    /// Rows that were not sealed.
    pub(crate) journal: Option<PathBuf>,
}

impl Launcher {
    /// Sealed files of a table.
    pub(crate) fn sealed(&self, table: TableId) -> &[PathBuf] {
        self.files.get(table as usize).map_or(&[], Vec::as_slice)
    }
}

/// The journal of a launcher, whose rows move into sealed files in time.
pub(crate) struct Young {
    journal: PathBuf,
    /// Which file that is, and how long: it only grows, until another one takes its place.
    file: (u64, u64),
    /// Where the launcher's files lie, how their names begin, and how many are sealed.
    folders: Vec<PathBuf>,
    begin: String,
    sealed: usize,
}

/// Those of launchers that have one, as of now.
pub(crate) fn young(launchers: &[Launcher]) -> Vec<Young> {
    let of = |launcher: &Launcher| {
        let journal = launcher.journal.clone()?;
        let trace = journal.parent().and_then(Path::parent)?;
        let host = format!("host={}", launcher.host);
        let folders = TABLES.iter().map(|table| trace.join(table.name).join(&host)).collect();
        let about = fs::metadata(&journal).map_or((0, 0), |about| (about.ino(), about.len()));
        let young = Young { journal, file: about, folders, begin: format!("{}-", launcher.id), sealed: 0 };
        // As of the listing: what was sealed since is not in it.
        Some(Young { sealed: launcher.files.iter().map(Vec::len).sum(), ..young })
    };
    launchers.iter().filter_map(of).collect()
}

impl Young {
    /// Whether no row has moved since.
    pub(crate) fn is_as_it_was(&self) -> bool {
        let (file, length) = self.file;
        let is_same = |about: fs::Metadata| about.ino() == file && about.len() >= length;
        fs::metadata(&self.journal).is_ok_and(is_same) && self.count() == self.sealed
    }

    fn count(&self) -> usize {
        let files = self.folders.iter().flat_map(|folder| list(folder, &|_| {}));
        files.filter(|file| file_name(file).starts_with(&self.begin) && parquet_name(file).is_some()).count()
    }
}

/// What a folder holds.
pub(crate) struct Found {
    pub(crate) launchers: Vec<Launcher>,
    pub(crate) bytes: u64,
}

impl Found {
    /// Takes a launcher's account in place of the one that it wrote.
    pub(crate) fn know(&mut self, own: &Manifest) {
        let id = launcher_text(own.launcher_id);
        let known = self.launchers.iter_mut().find(|launcher| launcher.host == own.host && launcher.id == id);
        if let Some(launcher) = known {
            launcher.manifest = Some(own.clone());
        }
    }
}

type Key = (String, String);

/// A folder is looked into again so often where a collector ends meanwhile.
const TRIES: u32 = 3;

/// Looks into a folder. Parts that cannot be used are named through `problem`.
pub(crate) fn find(folder: &Path, problem: &dyn Fn(Problem)) -> Result<Found, TraceError> {
    let mut tries = 0;
    loop {
        tries += 1;
        let (journals, problems) = (list(&folder.join("journal"), &|_| {}), RefCell::new(Vec::new()));
        let found = look(folder, &|found| problems.borrow_mut().push(found));
        // A journal that has gone has become files, perhaps behind our back.
        if tries == TRIES || journals.iter().all(|journal| journal.exists()) {
            problems.into_inner().into_iter().for_each(problem);
            return found;
        }
    }
}

fn look(folder: &Path, problem: &dyn Fn(Problem)) -> Result<Found, TraceError> {
    let about = fs::metadata(folder).map_err(|e| match e.kind() {
        std::io::ErrorKind::NotFound => TraceError::Missing(folder.to_owned()),
        _ => TraceError::Unreadable(folder.to_owned(), e),
    })?;
    if !about.is_dir() {
        return Err(TraceError::NotAFolder(folder.to_owned()));
    }
    fs::read_dir(folder).map_err(|e| TraceError::Unreadable(folder.to_owned(), e))?;

    let mut launchers: BTreeMap<Key, Launcher> = BTreeMap::new();
    let mut bytes = 0;
    let mut tables = 0;
    for table in &TABLES {
        let at = folder.join(table.name);
        tables += usize::from(at.is_dir());
        for host_folder in list(&at, problem) {
            let Some(host) = file_name(&host_folder).strip_prefix("host=").map(str::to_owned) else { continue };
            for file in list(&host_folder, problem) {
                let Some((launcher, _)) = parquet_name(&file) else {
                    if file_name(&file).ends_with(".parquet") {
                        problem(Problem::lost(&file, "is not named as a trace's files are (LAUNCHER-NUMBER.parquet)"));
                    }
                    continue;
                };
                bytes += size(&file);
                let entry = launchers.entry((host.clone(), launcher)).or_default();
                entry.files.resize(TABLES.len(), Vec::new());
                entry.files[table.id as usize].push(file);
            }
        }
    }
    for file in list(&folder.join("journal"), problem) {
        let Some((host, launcher)) = host_and_launcher(&file, ".journal") else { continue };
        bytes += size(&file);
        launchers.entry((host, launcher)).or_default().journal = Some(file);
    }
    let mut manifests = 0;
    let mut other_version = None;
    for file in list(&folder.join("manifest"), problem) {
        let Some(key) = host_and_launcher(&file, ".json") else { continue };
        manifests += 1;
        bytes += size(&file);
        match read_manifest(&file) {
            Ok(manifest) => launchers.entry(key).or_default().manifest = Some(manifest),
            Err(Unusable::Version(error)) => {
                // Its rows mean something else: they are left out with it.
                launchers.remove(&key);
                problem(Problem::lost(&file, error.to_string()));
                other_version = Some(error);
            }
            Err(Unusable::Broken(text)) => {
                launchers.entry(key).or_default();
                problem(Problem::no_account(
                    &file,
                    format!("{text}; loss, coverage and cost of its processes are not known: copy the trace again"),
                ));
            }
        }
    }
    match other_version {
        Some(error) if launchers.is_empty() => return Err(error),
        _ if manifests == 0 && tables == 0 && launchers.is_empty() => {
            return Err(TraceError::NotATrace(folder.to_owned()));
        }
        _ if manifests == 0 => problem(Problem::no_account(
            folder,
            "no manifest: the report is made from the tables alone; loss, coverage and cost are not known: copy the \
             trace again, with its folder manifest",
        )),
        _ => {}
    }
    let launchers = launchers.into_iter().map(|((host, id), mut launcher)| {
        (launcher.host, launcher.id) = (host, id);
        for files in &mut launcher.files {
            files.sort_by_key(|f| parquet_name(f));
        }
        launcher
    });
    Ok(Found { launchers: launchers.collect(), bytes })
}

enum Unusable {
    Version(TraceError),
    Broken(String),
}

fn read_manifest(file: &Path) -> Result<Manifest, Unusable> {
    let text = fs::read(file).map_err(|e| Unusable::Broken(format!("cannot be read: {e}")))?;
    let broken = |e: serde_json::Error| Unusable::Broken(format!("is not a manifest: {e}"));
    let by: WrittenBy = serde_json::from_slice(&text).map_err(broken)?;
    let found = by.schema_version.as_ref().and_then(serde_json::Value::as_u64);
    if let Some(found) = found.filter(|v| *v != u64::from(SCHEMA_VERSION)) {
        let by = by.tool_version.as_ref().and_then(|v| v.as_str()).map_or(String::new(), |v| format!(" ({v})"));
        return Err(Unusable::Version(TraceError::Version { path: file.to_owned(), found, by }));
    }
    serde_json::from_slice(&text).map_err(broken)
}

/// What says how to read the rest of a manifest, which may be that of a hundred thousand processes: nothing else is kept.
#[derive(serde::Deserialize)]
struct WrittenBy {
    schema_version: Option<serde_json::Value>,
    tool_version: Option<serde_json::Value>,
}

/// The entries of a folder by name; none when there is no such folder.
fn list(folder: &Path, problem: &dyn Fn(Problem)) -> Vec<PathBuf> {
    let entries = match fs::read_dir(folder) {
        Ok(entries) => entries,
        Err(e) if e.kind() == std::io::ErrorKind::NotFound => return Vec::new(),
        Err(e) if e.kind() == std::io::ErrorKind::NotADirectory => {
            problem(Problem::lost(folder, "is a file, where a trace has a folder: copy the trace again"));
            return Vec::new();
        }
        Err(e) => {
            problem(Problem::lost(folder, format!("cannot be read: {e}")));
            return Vec::new();
        }
    };
    let mut paths: Vec<PathBuf> = entries.filter_map(|e| Some(e.ok()?.path())).collect();
    paths.sort();
    paths
}

fn file_name(path: &Path) -> &str {
    path.file_name().and_then(|n| n.to_str()).unwrap_or("")
}

fn size(path: &Path) -> u64 {
    fs::metadata(path).map_or(0, |m| m.len())
}

/// Launcher and number of a sealed file. A number sorts as a number: 10 comes after 9.
fn parquet_name(path: &Path) -> Option<(String, u64)> {
    let (launcher, seq) = file_name(path).strip_suffix(".parquet")?.rsplit_once('-')?;
    Some((launcher.to_owned(), seq.parse().ok()?))
}

/// Host and launcher of a manifest or journal. A host may hold a hyphen, a launcher does not.
fn host_and_launcher(path: &Path, suffix: &str) -> Option<Key> {
    let (host, launcher) = file_name(path).strip_suffix(suffix)?.rsplit_once('-')?;
    Some((host.to_owned(), launcher.to_owned()))
}
