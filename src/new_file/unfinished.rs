//! Files and folders that are not whole yet, and are removed where they never will be: on an error, and by SIGHUP, SIGINT and SIGTERM.
//!
//! All of them stand in a list. A thread waits for the signals; it removes what is in the list and lets the signal end the process as it does
//! by itself. Whoever makes or names a file does so with the list locked, so that no signal comes between. Signals that were
//! ignored when we were started, as nohup has it, stay so.

use std::fs::{self, File, OpenOptions};
use std::io::{self, Read};
use std::os::unix::net::UnixStream;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, Once};

use signal_hook::consts::{SIGHUP, SIGINT, SIGTERM};

use crate::launch::inherited::is_ignored;

/// All that there are.
static ALL: Mutex<Vec<PathBuf>> = Mutex::new(Vec::new());

/// One of them, which is removed when this is dropped.
#[derive(Debug)]
pub(crate) struct Unfinished {
    path: PathBuf,
    /// It is whole.
    kept: bool,
}

impl Unfinished {
    /// Makes a file of this name, which nothing may have.
    pub(crate) fn file(path: &Path) -> io::Result<(Unfinished, File)> {
        let mut all = watched();
        let new = || OpenOptions::new().write(true).create_new(true).open(path);
        let file = match new() {
            // What a process left that was killed, and had our number.
            Err(error) if error.kind() == io::ErrorKind::AlreadyExists && !all.iter().any(|one| one == path) => {
                fs::remove_file(path)?;
                new()?
            }
            other => other?,
        };
        all.push(path.to_owned());
        Ok((Unfinished { path: path.to_owned(), kept: false }, file))
    }

    /// Makes a folder.
    pub(crate) fn folder(path: &Path) -> io::Result<Unfinished> {
        let mut all = watched();
        fs::create_dir(path)?;
        all.push(path.to_owned());
        Ok(Unfinished { path: path.to_owned(), kept: false })
    }

    /// Where it is.
    pub(crate) fn path(&self) -> &Path {
        &self.path
    }
}

impl Drop for Unfinished {
    fn drop(&mut self) {
        if !self.kept {
            let mut all = lock();
            remove(&self.path);
            all.retain(|one| *one != self.path);
        }
    }
}

/// All of these are whole: gives each its name, and a folder that has it already keeps it.
pub(crate) fn name_all(mut them: Vec<(Unfinished, PathBuf)>) -> io::Result<()> {
    let mut all = lock();
    let named = them.iter_mut().try_for_each(|(young, to)| {
        if young.path != *to {
            rename(&young.path, to)?;
        }
        all.retain(|one| *one != young.path);
        young.kept = true;
        Ok(())
    });
    // The others lock it to be removed.
    drop(all);
    named
}

/// Renames a file. Of a name that is mounted by itself, as containers have it, the content is replaced.
fn rename(young: &Path, to: &Path) -> io::Result<()> {
    match fs::rename(young, to) {
        Err(error) if error.kind() == io::ErrorKind::ResourceBusy => {
            fs::copy(young, to)?;
            fs::remove_file(young)
        }
        other => other,
    }
}

fn remove(path: &Path) {
    // A folder goes when nothing is in it.
    let _ = fs::remove_file(path).or_else(|_| fs::remove_dir(path));
}

fn lock() -> MutexGuard<'static, Vec<PathBuf>> {
    ALL.lock().unwrap_or_else(|poisoned| poisoned.into_inner())
}

/// The list, with somebody who looks after it.
fn watched() -> MutexGuard<'static, Vec<PathBuf>> {
    static ONCE: Once = Once::new();
    // Without room for a thread a signal ends us as it always does.
    ONCE.call_once(|| watch().unwrap_or_default());
    lock()
}

fn watch() -> io::Result<()> {
    let (mut told, tells) = UnixStream::pair()?;
    let which = Arc::new(AtomicUsize::new(0));
    let seen = Arc::clone(&which);
    let clean = move || {
        if told.read_exact(&mut [0]).is_ok() {
            // Locked until the end: nobody makes another one.
            let all = lock();
            all.iter().rev().for_each(|path| remove(path));
            let _ = signal_hook::low_level::emulate_default_handler(seen.load(Ordering::SeqCst) as i32);
        }
    };
    std::thread::Builder::new().name("unfinished".to_owned()).spawn(clean)?;
    for signal in [SIGHUP, SIGINT, SIGTERM].into_iter().filter(|signal| !is_ignored(*signal)) {
        signal_hook::flag::register_usize(signal, Arc::clone(&which), signal as usize)?;
        signal_hook::low_level::pipe::register(signal, tells.try_clone()?)?;
    }
    Ok(())
}
