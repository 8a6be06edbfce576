//! Sessions in folders of their own (`gputrace collect FOLDER`): nobody knows where these are, but what has to do with them says it.
//!
//! A traced process has the folder in its environment, or its segment in there mapped; the collector holds the folder open, for its lock;
//! and the manifest of the trace names it, or processes that run. What is found so is to be asked before it is believed.

use std::ffi::OsStr;
use std::fs;
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};

use gputrace_collectors::Manifest;

use super::session::Found;
use super::{processes, standing};

const SESSION: &[u8] = b"GPUTRACE_SESSION=";
/// Processes of a manifest that are looked at.
const MOST_ASKED: usize = 16;
/// What stands behind the folder of a session in the path of a segment.
const SEGMENT: &[u8] = b"/s/seg-";

/// The session that a process is traced by, or is the collector of.
pub(crate) fn of_process(pid: u32) -> Option<Found> {
    let traced = [named(pid), mapped(pid)].into_iter().flatten().find_map(|root| standing::find(&root));
    traced.or_else(|| held(pid).iter().filter_map(|root| standing::find(root)).find(|found| found.pid == pid))
}

/// What a trace's manifests say of where its session is.
#[derive(Debug, Default)]
pub(crate) struct Told {
    /// Folders that they name.
    pub(crate) roots: Vec<PathBuf>,
    /// The sessions there, and those of processes that run.
    pub(crate) found: Vec<Found>,
}

/// Reads them. Pids of another host are those of anybody here.
pub(crate) fn of_trace(trace: &Path) -> Told {
    let entries = fs::read_dir(trace.join("manifest")).into_iter().flatten().flatten();
    let mut files: Vec<PathBuf> = entries.map(|entry| entry.path()).collect();
    files.retain(|file| file.extension() == Some(OsStr::new("json")));
    files.sort();
    let mut told = Told::default();
    for manifest in files.iter().filter_map(|file| Manifest::read(file).ok()) {
        if manifest.complete {
            continue;
        }
        let running = manifest.processes.iter().filter(|process| process.running).take(MOST_ASKED);
        told.found.extend(running.filter_map(|process| of_process(u32::try_from(process.pid).ok()?)));
        if let Some(root) = manifest.standing.map(PathBuf::from) {
            told.found.extend(standing::find(&root));
            told.roots.push(root);
        }
    }
    told
}

/// The folder in a process's environment.
fn named(pid: u32) -> Option<PathBuf> {
    let environment = processes::environment(pid)?;
    let session = environment.split(|byte| *byte == 0).find_map(|variable| variable.strip_prefix(SESSION))?;
    Path::new(OsStr::from_bytes(session)).parent().map(Path::to_owned)
}

/// The folder whose segment a process has mapped: also of one that was attached to.
fn mapped(pid: u32) -> Option<PathBuf> {
    in_maps(&fs::read(format!("/proc/{pid}/maps")).ok()?)
}

fn in_maps(maps: &[u8]) -> Option<PathBuf> {
    let root = |line: &[u8]| {
        let end = line.windows(SEGMENT.len()).rposition(|window| window == SEGMENT)?;
        let begin = line.iter().position(|byte| *byte == b'/')?;
        line.get(begin..end).map(|root| PathBuf::from(OsStr::from_bytes(root)))
    };
    maps.split(|byte| *byte == b'\n').find_map(root)
}

/// Folders that a process has open.
fn held(pid: u32) -> Vec<PathBuf> {
    let open = fs::read_dir(format!("/proc/{pid}/fd")).into_iter().flatten().flatten();
    open.filter_map(|entry| fs::read_link(entry.path()).ok()).filter(|path| path.is_dir()).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_folder_of_a_segment_is_read_from_maps() {
        let maps = b"7f01-7f02 r-xp 00000000 08:01 11 /usr/lib/libc.so.6\n7f03-7f04 rw-p 00000000 00:00 0 \n\
            7f05-7f06 rw-s 00000000 00:1b 12                         /run/user/7/my/s/seg-12-345 (deleted)\n";
        assert_eq!(in_maps(maps), Some(PathBuf::from("/run/user/7/my")));
        assert_eq!(in_maps(b"7f01-7f02 r-xp 00000000 08:01 11 /usr/lib/libc.so.6\n"), None);
    }
}
