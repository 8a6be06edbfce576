//! The file that `-o` names: under its name stands what is whole, or what stood there before.
//!
//! It is written under a name of its own beside the one it belongs to, and takes that when it is whole. Where it fails, the disk is full or a
//! signal ends us ([`unfinished`]), the older file stays and nothing is left. Symlinks are followed: what they lead to is replaced. What is no
//! regular file (a device, a FIFO), and what is a descriptor of ours (/dev/stdout), is written to as it comes and never removed or renamed; so
//! is a file that may be written in a folder that may not.

mod unfinished;

use std::ffi::{OsStr, OsString};
use std::fs::{self, File, OpenOptions};
use std::io::{self, Write};
use std::os::fd::AsFd;
use std::os::unix::fs::{MetadataExt, fchown};
use std::path::{Path, PathBuf};

pub(crate) use unfinished::{Unfinished, name_all};

/// More symlinks than the kernel follows.
const MOST_LINKS: usize = 40;
/// A name that is longer has no room for more.
const LONGEST_NAME: usize = 200;

/// The file.
#[derive(Debug)]
pub(crate) struct NewFile {
    file: File,
    /// What it is until it is whole; none: it is written to as it comes.
    young: Option<Unfinished>,
    /// Where it belongs, behind all symlinks.
    to: PathBuf,
    /// What takes its content at the end, where nothing can take its name.
    into: Option<File>,
}

impl NewFile {
    /// Makes the file.
    pub(crate) fn create(path: &Path) -> io::Result<NewFile> {
        let to = followed(path)?;
        let old = fs::metadata(&to).ok();
        if is_ours(&to) {
            return Ok(NewFile { file: ours(&to)?, young: None, to, into: None });
        }
        let direct = || OpenOptions::new().write(true).create(true).truncate(true).open(&to);
        if old.as_ref().is_some_and(|old| !old.is_file()) {
            return Ok(NewFile { file: direct()?, young: None, to, into: None });
        }
        // What we may not write we do not replace either.
        let writable = old.as_ref().map(|_| OpenOptions::new().write(true).open(&to)).transpose()?.is_some();
        match Unfinished::file(&beside(&to)) {
            Ok((young, file)) => {
                if let Some(old) = old {
                    let _ = file.set_permissions(old.permissions());
                    let _ = fchown(&file, Some(old.uid()), Some(old.gid()));
                }
                Ok(NewFile { file, young: Some(young), to, into: None })
            }
            Err(error) if writable && is_refused(&error) => {
                Ok(NewFile { file: direct()?, young: None, to, into: None })
            }
            Err(error) => Err(error),
        }
    }

    /// The same for who writes by path, and not from front to end: of what cannot be replaced a temporary file until the end.
    pub(crate) fn create_with_path(path: &Path) -> io::Result<NewFile> {
        let made = NewFile::create(path)?;
        if made.young.is_some() {
            return Ok(made);
        }
        let (young, file) = Unfinished::file(&beside(&std::env::temp_dir().join("gputrace")))?;
        Ok(NewFile { file, young: Some(young), to: made.to, into: Some(made.file) })
    }

    /// Where it is until it is whole.
    pub(crate) fn path(&self) -> &Path {
        self.young.as_ref().map_or(&self.to, Unfinished::path)
    }

    /// It is whole, and takes its name.
    pub(crate) fn end(self) -> io::Result<()> {
        NewFile::end_all(vec![self])
    }

    /// All of them are whole, and take their names together.
    pub(crate) fn end_all(files: Vec<NewFile>) -> io::Result<()> {
        let mut named = Vec::new();
        for file in files {
            match (file.young, file.into) {
                (Some(young), Some(mut into)) => {
                    io::copy(&mut File::open(young.path())?, &mut into)?;
                }
                (Some(young), None) => named.push((young, file.to)),
                (None, _) => {}
            }
        }
        name_all(named)
    }
}

impl Write for NewFile {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        self.file.write(bytes)
    }

    fn flush(&mut self) -> io::Result<()> {
        self.file.flush()
    }
}

/// Writes a file at once.
pub(crate) fn write(path: &Path, bytes: impl AsRef<[u8]>) -> io::Result<()> {
    let mut file = NewFile::create(path)?;
    file.write_all(bytes.as_ref())?;
    file.end()
}

/// Whether something stands there that takes what is written as it comes.
pub(crate) fn is_direct(path: &Path) -> bool {
    followed(path).is_ok_and(|to| is_ours(&to) || fs::metadata(&to).is_ok_and(|about| !about.is_file()))
}

/// Where symlinks lead in the end; a descriptor of ours is not looked behind.
fn followed(path: &Path) -> io::Result<PathBuf> {
    let mut to = path.to_owned();
    for _ in 0..MOST_LINKS {
        if is_ours(&to) {
            return Ok(to);
        }
        match fs::read_link(&to) {
            Ok(next) => to = to.parent().unwrap_or(Path::new("")).join(next),
            // It is none, or nothing is there.
            Err(_) => return Ok(to),
        }
    }
    Err(io::Error::from_raw_os_error(libc::ELOOP))
}

/// A descriptor of this process, at the place where it is: what stands in a file behind it, and what comes after us, is of who gave it to us.
fn ours(path: &Path) -> io::Result<File> {
    match path.to_str() {
        Some("/dev/stdout") => io::stdout().as_fd().try_clone_to_owned().map(File::from),
        Some("/dev/stderr") => io::stderr().as_fd().try_clone_to_owned().map(File::from),
        _ => OpenOptions::new().append(true).open(path),
    }
}

/// Whether a path is a descriptor of this process: a file behind it belongs to who gave it to us.
fn is_ours(path: &Path) -> bool {
    path == Path::new("/dev/stdout")
        || path == Path::new("/dev/stderr")
        || path.starts_with("/dev/fd")
        || path.starts_with("/proc")
}

/// Whether the folder takes no file of ours.
fn is_refused(error: &io::Error) -> bool {
    matches!(error.kind(), io::ErrorKind::PermissionDenied | io::ErrorKind::ReadOnlyFilesystem)
}

/// What a file is called until it is whole.
fn beside(to: &Path) -> PathBuf {
    let name = to.file_name().filter(|name| name.len() <= LONGEST_NAME).unwrap_or(OsStr::new("gputrace"));
    let mut young = OsString::from(name);
    young.push(format!(".{}.part", std::process::id()));
    to.with_file_name(young)
}

#[cfg(test)]
mod tests;
