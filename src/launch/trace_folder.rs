//! Whether a trace may be written into a folder.
//!
//! A trace belongs to one run. Several launchers of one run (srun starts one per rank) share it through the same `-o`;
//! a second run must not mix its events in. What tells the two cases apart: the id that the batch system gave the
//! job, kept in `TRACE/job`, or else that another launcher is at work there at this moment.

use std::ffi::OsStr;
use std::fs;
use std::io::{ErrorKind, Write};
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use anyhow::{Context, Result, bail};
use gputrace_collectors::Manifest;

use super::names::{self, Place, default_name};

/// Launchers of one run without a batch system start within this time of each other.
const TOGETHER: Duration = Duration::from_secs(600);
/// Variables that name a run uniquely; all that are set count together.
const RUN: [&str; 8] = [
    "SLURM_JOB_ID",
    "SLURM_STEP_ID",
    "PBS_JOBID",
    "LSB_JOBID",
    "FLUX_JOB_ID",
    "PMIX_NAMESPACE",
    "PMI_JOBID",
    "TORCHELASTIC_RUN_ID",
];

/// The folder of a run's trace.
pub(crate) struct TraceFolder {
    pub(crate) path: PathBuf,
    /// Whether it was made for this run.
    made: bool,
}

impl TraceFolder {
    /// The folder that `-o` names by its pattern, or one named after the command.
    pub(crate) fn claim(output: Option<&Path>, command: &OsStr) -> Result<TraceFolder> {
        let Some(pattern) = output else {
            return Ok(TraceFolder { path: make_default(&default_name(command, SystemTime::now()))?, made: true });
        };
        let path = match pattern.to_str() {
            Some(text) => Place::here().expand(text)?,
            None => pattern.to_owned(),
        };
        let made = !path.exists();
        claim(&path, run_id().as_deref())?;
        Ok(TraceFolder { path, made })
    }

    /// Removes what was made for a command that then did not start.
    pub(crate) fn undo(&self) {
        if self.made {
            let _ = fs::remove_dir_all(&self.path);
        }
    }
}

/// The id of the run that this launcher is part of, if a batch system or a launcher of ranks gave one.
fn run_id() -> Option<String> {
    let given = RUN.iter().filter_map(|name| Some(format!("{name}={}\n", std::env::var(name).ok()?)));
    Some(given.collect::<String>()).filter(|id| !id.is_empty())
}

/// Makes the folder that the user named, or checks that the one there may be shared.
fn claim(path: &Path, run: Option<&str>) -> Result<()> {
    match fs::metadata(path) {
        Ok(meta) if !meta.is_dir() => bail!("{}: exists and is no folder; choose another name with -o", path.display()),
        Ok(_) => check_existing(path, run)?,
        Err(e) if e.kind() == ErrorKind::NotFound && path.is_symlink() => {
            bail!("{}: is a link that leads nowhere; choose another name with -o", path.display())
        }
        Err(e) if e.kind() == ErrorKind::NotFound => fs::create_dir_all(path).with_context(|| {
            format!("{}: the trace's folder cannot be made; choose another one with -o", path.display())
        })?,
        Err(e) => {
            let name = path.display();
            return Err(e).context(format!("{name}: cannot be used as the trace's folder; choose another one with -o"));
        }
    }
    check_writable(path)?;
    if let Some(run) = run {
        note_run(path, run);
    }
    Ok(())
}

/// Makes a folder called `name` in the current folder, or `name-2`, `name-3` ... where there is one already.
fn make_default(name: &str) -> Result<PathBuf> {
    for number in 1.. {
        let path = PathBuf::from(if number == 1 { name.to_owned() } else { format!("{name}-{number}") });
        match fs::create_dir(&path) {
            Ok(()) => return check_writable(&path).map(|()| path),
            Err(e) if e.kind() == ErrorKind::AlreadyExists => {}
            Err(e) => {
                let here =
                    std::env::current_dir().map_or("the current folder is gone".into(), |at| at.display().to_string());
                return Err(e)
                    .context(format!("{here}: no folder for the trace can be made here; choose a place with -o"));
            }
        }
    }
    unreachable!("an unbounded range of names does not end")
}

fn check_existing(path: &Path, run: Option<&str>) -> Result<()> {
    let shown = path.display();
    if fs::read_dir(path).with_context(|| format!("{shown}: cannot be read"))?.next().is_none() {
        return Ok(());
    }
    let job = fs::read_to_string(path.join("job")).ok();
    if !path.join("manifest").is_dir() && job.is_none() {
        bail!("{shown}: exists, is not empty and holds no trace; choose another folder with -o");
    }
    if job.is_some() && job.as_deref() == run {
        return Ok(());
    }
    let manifests: Vec<Manifest> = manifests(path);
    // Another launcher has made the folders and not yet its manifest.
    if manifests.is_empty() && is_young(path) {
        return Ok(());
    }
    if manifests.iter().any(|m| !m.complete && started_together(m) && !was_killed(path, m)) {
        return Ok(());
    }
    let goes_on = manifests.iter().find(|m| !m.complete && m.stopped_ns.is_some());
    if let Some(root) = goes_on.and_then(|manifest| manifest.standing.as_ref()) {
        bail!(
            "{shown}: holds the trace of a session that was stopped: gputrace collect {root} goes on with it; choose another folder with -o"
        );
    }
    if manifests.iter().any(|m| !m.complete && was_killed(path, m)) {
        bail!(
            "{shown}: holds the trace of a run that was killed; gputrace recover makes it whole, and this one needs another folder (-o)"
        );
    }
    bail!("{shown}: holds the trace of another run; choose another folder with -o, or remove it")
}

fn manifests(path: &Path) -> Vec<Manifest> {
    let entries = fs::read_dir(path.join("manifest")).into_iter().flatten().flatten();
    let json = entries.map(|e| e.path()).filter(|p| p.extension().is_some_and(|x| x == "json"));
    json.filter_map(|p| Manifest::read(&p).ok()).collect()
}

/// How many launchers of our run have not finished with the trace, `own` being ours, and how many there are.
pub(crate) fn others_at_work(path: &Path, own: &Manifest) -> (usize, usize) {
    let manifests = manifests(path);
    let with_us = |m: &&Manifest| {
        let apart = m.started_ns.abs_diff(own.started_ns);
        let at_work = m.launcher_id != own.launcher_id && !m.complete && apart < TOGETHER.as_nanos() as u64;
        at_work && !was_killed(path, m)
    };
    (manifests.iter().filter(with_us).count(), manifests.len())
}

fn was_killed(path: &Path, manifest: &Manifest) -> bool {
    let at = gputrace_collectors::manifest::path(path, &manifest.host, manifest.launcher_id);
    manifest.host == names::host() && gputrace_collectors::was_killed(&at)
}

fn started_together(manifest: &Manifest) -> bool {
    let now = SystemTime::now().duration_since(UNIX_EPOCH).map_or(0, |d| d.as_nanos() as i64);
    now.abs_diff(manifest.started_ns) < TOGETHER.as_nanos() as u64
}

fn is_young(path: &Path) -> bool {
    let modified = fs::metadata(path).and_then(|m| m.modified());
    modified.is_ok_and(|at| at.elapsed().is_ok_and(|age| age < Duration::from_secs(60)))
}

fn check_writable(path: &Path) -> Result<()> {
    let name = std::ffi::CString::new(path.as_os_str().as_bytes())?;
    // SAFETY: the name ends in a nul byte.
    let refused = unsafe { libc::faccessat(libc::AT_FDCWD, name.as_ptr(), libc::W_OK | libc::X_OK, libc::AT_EACCESS) };
    if refused != 0 {
        let error = std::io::Error::last_os_error();
        return Err(error).context(format!("{}: not writable; choose another folder with -o", path.display()));
    }
    Ok(())
}

/// The first launcher of a run says whose trace this is. Failing is no harm: then the manifests decide.
fn note_run(path: &Path, run: &str) {
    if let Ok(mut file) = fs::OpenOptions::new().write(true).create_new(true).open(path.join("job")) {
        let _ = file.write_all(run.as_bytes());
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::launch::testing::Folder;

    fn with_manifest(name: &str, complete: bool, age: Duration) -> Folder {
        let folder = Folder::new(name);
        fs::create_dir(folder.path().join("manifest")).unwrap();
        let started = SystemTime::now() - age;
        let started_ns = started.duration_since(UNIX_EPOCH).unwrap().as_nanos() as i64;
        let manifest = Manifest { complete, started_ns, launcher_id: 1, ..Manifest::default() };
        manifest.write(&folder.path().join("manifest/h-1.json")).unwrap();
        folder
    }

    const NOW: Duration = Duration::from_secs(1);
    const LONG_AGO: Duration = Duration::from_secs(3600);

    #[test]
    fn a_new_folder_and_an_empty_one_are_taken() {
        let folder = Folder::new("trace");
        claim(folder.path(), None).unwrap();
        claim(&folder.path().join("a/b"), None).unwrap();
        assert!(folder.path().join("a/b").is_dir());
    }

    #[test]
    fn other_things_are_refused_with_the_reason() {
        let folder = Folder::new("trace-other");
        let file = folder.file("notes.txt", b"", 0o600);
        let error = claim(folder.path(), None).unwrap_err().to_string();
        assert!(error.contains("holds no trace"), "{error}");
        let error = claim(&file, None).unwrap_err().to_string();
        assert!(error.contains("is no folder"), "{error}");
        let error = format!("{:#}", claim(&file.join("x"), None).unwrap_err());
        assert!(error.contains("notes.txt/x"), "{error}");
    }

    #[test]
    fn the_trace_of_an_ended_run_is_refused_and_one_in_the_making_is_shared() {
        let ended = with_manifest("trace-ended", true, NOW);
        let error = claim(ended.path(), None).unwrap_err().to_string();
        assert!(error.contains("another run"), "{error}");
        let killed = with_manifest("trace-killed", false, LONG_AGO);
        assert!(claim(killed.path(), None).is_err());
        let running = with_manifest("trace-running", false, NOW);
        claim(running.path(), None).unwrap();
        let own = Manifest { launcher_id: 2, ..manifests(running.path()).remove(0) };
        assert_eq!(others_at_work(running.path(), &own), (1, 1));
        assert_eq!(others_at_work(running.path(), &Manifest { launcher_id: 1, ..own.clone() }), (0, 1));
        // One that was killed, and nobody goes on for it: the last one of the others does not wait for it.
        let killed = Manifest { host: names::host(), launcher_id: 3, ..own.clone() };
        let at = gputrace_collectors::manifest::path(running.path(), &killed.host, 3);
        killed.write(&at).unwrap();
        assert_eq!(others_at_work(running.path(), &own), (2, 2));
        fs::write(at.with_extension("reserve"), "").unwrap();
        assert_eq!(others_at_work(running.path(), &own), (1, 2));
    }

    #[test]
    fn ranks_of_one_job_share_whatever_the_time() {
        let folder = with_manifest("trace-job", true, NOW);
        note_run(folder.path(), "SLURM_JOB_ID=7\n");
        claim(folder.path(), Some("SLURM_JOB_ID=7\n")).unwrap();
        assert!(claim(folder.path(), Some("SLURM_JOB_ID=8\n")).is_err());
        assert!(claim(folder.path(), None).is_err());
    }
}
